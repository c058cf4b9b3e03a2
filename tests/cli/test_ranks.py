"""Mistakes under torchrun: told once where all processes meet them, and by the one that alone meets it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RAISE = """
import os, sys
from clozeworks.cli import main
main.RANKS_WAIT_S = 2.0
from clozeworks.pipeline.errors import UserError
told = {told!r}
def fail(args, **options):
    if message := told.get(os.environ["RANK"]):
        raise UserError(message)
main.commands.main = fail
main.main([])
"""


def errors_of(told: dict[str, str], folder: Path) -> list[str]:
    """Run two processes of which those in `told` fail with a message; return what was printed."""
    (folder / "script.py").write_text(RAISE.format(told=told))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ended = subprocess.run(
        [*command, folder / "script.py"], capture_output=True, text=True, check=False, env=os.environ
    )
    assert ended.returncode == 1  # torchrun's own, where a process failed
    assert "exitcode  : 2 " in ended.stderr
    return sorted(line for line in ended.stderr.splitlines() if line.startswith("Error: "))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"0": "no such file", "1": "no such file"}, ["Error: no such file"]),
        ({"1": "only here"}, ["Error: only here"]),
    ],
)
def test_a_mistake_is_told_once(told: dict[str, str], expected: list[str], tmp_path: Path):
    assert errors_of(told, tmp_path) == expected
