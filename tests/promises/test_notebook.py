"""The notebooks run from top to bottom: the one that looks at instances on any directory of them,
the lesson on its corpus, with fewer steps.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.schemas import DOCUMENTS

from tests.fixtures.instances_fixture import write_instances

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOK = EXAMPLES / "notebooks" / "inspect_instances.ipynb"
LESSON = EXAMPLES / "notebooks" / "lesson.ipynb"
NEEDED = ("datasets", "duckdb", "ipykernel", "matplotlib", "nbclient", "nbformat")


# Jupyter's own libraries warn of each other.
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    modules = {
        name: pytest.importorskip(name, reason=f"the notebook needs {name}") for name in NEEDED
    }
    nbclient, nbformat = modules["nbclient"], modules["nbformat"]
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    parameter = notebook.cells[1]
    assert parameter.source.startswith("INSTANCES = ")
    parameter.source = f"INSTANCES = {str(write_instances(tmp_path / 'instances'))!r}"
    sentences = ["See <b>www.example.org</b>.", "No end"]
    origin = {"doc_id": "a", "source": "books", "language": "en", "title": ""}
    document = {**origin, "sentences": sentences}
    (tmp_path / "documents").mkdir()
    table = pa.Table.from_pylist([document], DOCUMENTS)
    pq.write_table(table, tmp_path / "documents" / "train-00000-of-00001.parquet")
    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = json.dumps([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    assert "train-00001-of-00002.parquet  42 rows in 2 row groups" in shown
    assert "num_rows: 82" in shown
    assert "IsNext</b>" in shown
    assert "image/png" in shown
    assert "web addresses                1  See <b>www.example.org</b>." in shown


@pytest.mark.filterwarnings("ignore")
def test_without_instances_the_notebook_says_what_is_missing(tmp_path: Path):
    nbclient = pytest.importorskip("nbclient", reason="the notebook needs nbclient")
    nbformat = pytest.importorskip("nbformat", reason="the notebook needs nbformat")
    pytest.importorskip("ipykernel", reason="the notebook needs ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        client.execute()
    (error,) = [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "error"
    ]
    assert error.traceback == [
        "../../demo/instances holds no instances: run `make demo` first, or name another directory "
        "in the first cell."
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_lesson_runs(tmp_path: Path):
    modules = {
        name: pytest.importorskip(name, reason=f"the notebook needs {name}")
        for name in ("ipykernel", "matplotlib", "nbclient", "nbformat")
    }
    nbclient, nbformat = modules["nbclient"], modules["nbformat"]
    notebook = nbformat.read(LESSON, as_version=4)
    parameters = notebook.cells[1]
    for name, value in {
        "CORPUS": str(EXAMPLES / "quickstart" / "corpus"),
        "TASK": str(EXAMPLES / "quickstart" / "word-order"),
        "STEPS": 3,
        "EPOCHS": 0.1,
    }.items():
        assert f"{name} = " in parameters.source
        parameters.source += f"\n{name} = {value!r}"
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = json.dumps([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    assert "All 31 checks hold." in shown
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
