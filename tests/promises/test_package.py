"""The installed package: one top-level name, and no part loads the libraries of another."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("package", "pipeline", "model", "cli")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of the checkout, so that nothing is left behind in it."""
    checkout, wheels = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheels")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    build_wheel = f"-m pip wheel --no-deps --no-build-isolation --quiet -w {wheels} ."
    command = [sys.executable, *build_wheel.split()]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    return next(wheels.glob("clozeworks-*.whl"))


def test_the_wheel_holds_nothing_at_top_level_but_the_package(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"clozeworks"}
    assert "clozeworks/model/tasks/catalogue.py" in names


def test_every_module_and_data_file_of_the_checkout_is_in_the_wheel(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    paths = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
    files = [
        path
        for path in paths
        if path.suffix in (".py", ".pyi", ".html", ".toml") or path.name == "py.typed"
    ]
    installed = {
        f"clozeworks/{path.relative_to(ROOT).as_posix().removeprefix('package/')}" for path in files
    }
    assert (
        {"clozeworks/__main__.py", "clozeworks/py.typed", "clozeworks/model/py.typed"}
        <= installed
        <= names
    )


PIPELINES = ", ".join(
    f"clozeworks.pipeline.{stage}.pipeline" for stage in ("documents", "vocabulary", "instances")
)
MODELS = (
    "clozeworks.model.pretraining.pretrain, clozeworks.model.finetuning.finetune, "
    "clozeworks.model.features.features, clozeworks.model.pretraining.fill"
)
MAIN = "from clozeworks.cli.main import main"
NO_INSTANCES = f"""
import contextlib
{MAIN}
with contextlib.suppress(SystemExit):
    main(["pretrain", "nothing", "--output", "run"])
"""


@pytest.mark.parametrize(
    ("script", "foreign"),
    [
        (f"import {PIPELINES}", {"torch"}),
        ("from clozeworks.pipeline.auditing import checks, report", {"apache_beam"}),
        (f"import {MODELS}", {"apache_beam", "datasets", "scipy", "sklearn", "pandas"}),
        ("import clozeworks.pipeline.sources.hub", {"apache_beam", "datasets", "sentencex"}),
        (
            "import clozeworks.model; from clozeworks.pipeline import BuildConfig, UserError",
            {"apache_beam", "torch", "numpy", "pyarrow"},
        ),
        (
            f"{MAIN}; main(['--help'])",
            {"apache_beam", "torch", "numpy", "pyarrow", "rich", "tokenizers"},
        ),
        (NO_INSTANCES, {"torch"}),
    ],
    ids=["pipelines", "audit", "models", "hub", "packages", "help", "no instances"],
)
def test_no_part_loads_the_libraries_of_another(script: str, foreign: set[str]):
    script = f"{script}\nimport sys; print('foreign:', {foreign!r} & set(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "foreign: set()"
