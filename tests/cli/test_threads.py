"""The command line sets how threads wait; what the user has set stays, and imports set nothing."""

import json
import os
import subprocess
import sys

import pytest
from clozeworks.cli.process import prepare_threads, wait_for_width

VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "MKL_CBWR", "MKL_DYNAMIC")
MAIN = """from clozeworks.cli.main import main
try:
    main(['results', 'nothing'])
except SystemExit:
    pass
"""
IMPORTS = "import clozeworks.cli.main, clozeworks.model, clozeworks.pipeline\n"


def environment_after(code: str, **settings: str) -> dict[str, str]:
    """Return those of `VARIABLES` that are set in a process after it has run `code`."""
    show = f"import json, os\nprint(json.dumps({{n: os.environ.get(n) for n in {VARIABLES}}}))"
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-c", code + show]
    shown = subprocess.check_output(command, env=inherited | settings, text=True)
    return {name: value for name, value in json.loads(shown).items() if value is not None}


# `main` would end this process: with an exit code of 2 it only raises SystemExit.
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7", "MKL_CBWR": "COMPATIBLE"}],
)
def test_a_command_sets_what_the_user_has_not(settings):
    found = environment_after(MAIN, **settings)
    expected = {"GOMP_SPINCOUNT": "1000", "MKL_CBWR": "AUTO", "MKL_DYNAMIC": "FALSE"}
    if "OMP_WAIT_POLICY" in settings:
        del expected["GOMP_SPINCOUNT"]
    assert found == expected | settings


@pytest.mark.slow
def test_imports_set_nothing():
    assert environment_after(IMPORTS) == {}


def test_nothing_is_set_once_pytorch_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    prepare_threads()
    assert not any(name in os.environ for name in VARIABLES)


@pytest.mark.parametrize(
    ("before", "hidden_size", "after"),
    [("1000", 512, "1000"), ("1000", 768, "20000"), ("7", 768, "7")],
)
def test_threads_of_a_wide_model_wait_longer(monkeypatch, before, hidden_size, after):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", before)
    wait_for_width(hidden_size)
    assert os.environ["GOMP_SPINCOUNT"] == after
