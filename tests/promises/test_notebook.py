"""The notebooks run from top to bottom, the lesson with fewer steps."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.documents_fixture import TRAIN, write_documents
from tests.fixtures.instances_fixture import write_instances

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOK = EXAMPLES / "notebooks" / "inspect_instances.ipynb"
LESSON = EXAMPLES / "notebooks" / "lesson.ipynb"


def run_notebook(notebook: Any, folder: Path) -> str:
    """Run a notebook in a folder; return the outputs of its cells."""
    nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient")
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    return json.dumps([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])


def read_notebook(path: Path, *libraries: str) -> Any:
    for name in ("ipykernel", *libraries):
        pytest.importorskip(name, reason=f"the notebook needs {name}")
    return pytest.importorskip("nbformat", reason="notebooks need nbformat").read(path, 4)


# Jupyter's own libraries warn of each other.
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    notebook = read_notebook(NOTEBOOK, "datasets", "duckdb", "matplotlib")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    parameter = notebook.cells[1]
    assert parameter.source.startswith("INSTANCES = ")
    parameter.source = f"INSTANCES = {str(write_instances(tmp_path / 'instances'))!r}"
    sentences = ["See <b>www.example.org</b>.", "No end"]
    write_documents(tmp_path / "documents", {TRAIN: [("books", "en", sentences)]})
    shown = run_notebook(notebook, tmp_path)
    assert "train-00001-of-00002.parquet  42 rows in 2 row groups" in shown
    assert "num_rows: 82" in shown
    assert "IsNext</b>" in shown
    assert "image/png" in shown
    assert "web addresses                1  See <b>www.example.org</b>." in shown


@pytest.mark.filterwarnings("ignore")
def test_without_instances_the_notebook_says_what_is_missing(tmp_path: Path):
    notebook = read_notebook(NOTEBOOK)
    with pytest.raises(Exception, match="holds no instances: run `make demo` first, or name"):
        run_notebook(notebook, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_the_lesson_runs(tmp_path: Path):
    notebook = read_notebook(LESSON, "matplotlib")
    parameters = notebook.cells[1]
    values = {
        "CORPUS": str(EXAMPLES / "quickstart" / "corpus"),
        "TASK": str(EXAMPLES / "quickstart" / "word-order"),
        "STEPS": 3,
        "EPOCHS": 0.1,
    }
    for name, value in values.items():
        assert f"{name} = " in parameters.source
        parameters.source += f"\n{name} = {value!r}"
    shown = run_notebook(notebook, tmp_path)
    assert "All 30 checks hold." in shown
    assert shown.count("image/png") == 4
    assert "most memory" in shown


@pytest.mark.parametrize("path", [NOTEBOOK, LESSON], ids=["inspect_instances", "lesson"])
def test_the_committed_outputs_are_small_and_clean(path: Path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert outputs
    assert not [
        output
        for output in outputs
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ]
    assert path.stat().st_size < 125_000
