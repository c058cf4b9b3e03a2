"""The commands of examples/paper run on small data in seconds, and end in a table."""

import csv
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import paper
import pytest
from click.testing import CliRunner

from tests.fixtures.task_data import write_task_data

SMALL: dict[str, Any] = {
    "vocab-size": 300, "max-length": 32, "steps": 2, "batch-size": 4, "learning-rate": 1e-4,
    "epochs": 0.2, "seeds": 2, "rates": "1e-3", "feature-epochs": 0.2, "squad-epochs": 0.2,
    "squad-stride": 8, "lstm-size": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_task_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("corpus")


def run(name: str, data: Path, output: Path, *args: str, **settings: object) -> str:
    options = [f"--{key}={value}" for key, value in {**SMALL, **settings}.items()]
    arguments = [name, f"--data={data}", f"--output={output}", *options, *args]
    result = CliRunner().invoke(paper.paper, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def read_cells(path: Path) -> list[dict[str, str]]:
    assert path.with_suffix(".md").read_text().count("\n| ") >= 3
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    with path.with_suffix(".csv").open(newline="") as file:
        return list(csv.DictReader(file))


def variant(output: Path) -> str:
    with (output / "results.csv").open(newline="") as file:
        return next(csv.DictReader(file))["variant"]


@pytest.mark.slow
def test_table_5(data, corpus, tmp_path):
    tasks = [f"--task=rte={data}/glue/RTE", f"--task=sst2={data}/glue/SST-2"]
    printed = run("table5", data, tmp_path, *tasks, corpus=corpus, seeds=1)
    assert "SST-2 does not exist" in printed
    cells = read_cells(tmp_path / "table5")
    rows = ["full", "left-to-right", "left-to-right-bilstm", "no-nsp"]
    assert sorted({cell["row"] for cell in cells}) == rows
    columns = {(cell["column"], cell["metric"]) for cell in cells}
    assert columns == {("rte", "accuracy"), ("squad", "f1")}
    figures = {cell["paper"] for cell in cells if cell["column"] == "squad"}
    assert figures == {"88.5", "87.9", "77.8", "84.9"}
    bilstm = tmp_path / "left-to-right-bilstm" / "0"
    assert variant(bilstm / "squad") == "1.1 bilstm left-to-right"
    assert variant(bilstm / "rte") == "bilstm left-to-right"


@pytest.mark.slow
def test_table_6(data, corpus, tmp_path):
    task = f"--task=rte={data}/glue/RTE"
    run("table6", data, tmp_path, task, corpus=corpus, sizes="1-32-2,2-64-2", encoders=2)
    cells = read_cells(tmp_path / "table6")
    rows = ("1-32-2", "2-64-2")
    runs = {(cell["row"], cell["column"]): int(cell["runs"]) for cell in cells}
    # Two seeds of pre-training, and two of fine-tuning for each of them.
    assert runs == {(row, "rte"): 4 for row in rows} | {(row, "perplexity"): 2 for row in rows}
    assert all(float(cell["median"]) > 1 for cell in cells if cell["column"] == "perplexity")


@pytest.mark.slow
def test_table_7_and_glue_with_its_encoder(data, corpus, tmp_path):
    run("table7", data, tmp_path / "table7", corpus=corpus, seeds=1)
    cells = read_cells(tmp_path / "table7" / "table7")
    assert len(cells) == 7
    assert {cell["column"] for cell in cells} == {"ner"}
    assert variant(tmp_path / "table7" / "concat-last-four" / "0" / "ner") == "concat-last-four"

    output = tmp_path / "glue"
    encoder = tmp_path / "table7" / "encoder" / "0" / "encoder"
    printed = run("glue", data, output, checkpoint=encoder, seeds=1)
    assert "QQP does not exist" in printed
    assert "not in" in printed and "WNLI.tsv" in printed
    with ZipFile(output / "glue.zip") as archive:
        assert sorted(archive.namelist()) == ["AX.tsv", "MNLI-m.tsv"]
        assert archive.read("AX.tsv").startswith(b"index\tprediction\n0\t")
    cells = read_cells(output / "table1")
    figures = {cell["column"]: float(cell["paper"]) for cell in cells}
    assert figures == {"mnli": 84.6, "rte": 66.4, "stsb": 85.8}
    # The same again is resumed: no run is repeated, and the same bytes are packed.
    packed = (output / "glue.zip").read_bytes()
    times = {path: path.stat().st_mtime_ns for path in output.rglob("run.json")}
    run("glue", data, output, checkpoint=encoder, seeds=1)
    assert (output / "glue.zip").read_bytes() == packed
    assert times == {path: path.stat().st_mtime_ns for path in output.rglob("run.json")}


@pytest.mark.slow
def test_table_8_masks_as_its_rows_say(data, corpus, tmp_path):
    run("table8", data, tmp_path, f"--task=rte={data}/glue/RTE", corpus=corpus, seeds=1)
    cells = read_cells(tmp_path / "table8")
    assert len({cell["row"] for cell in cells}) == 6
    assert {cell["column"] for cell in cells} == {"rte", "ner", "ner-features"}
    # A row is [MASK]-same-random, `mask_split` is [MASK], random, same.
    for row, split in (("80-0-20", [80, 20, 0]), ("0-20-80", [0, 80, 20])):
        config = (tmp_path / row / "0" / "encoder" / "run.json").read_text()
        assert json.dumps(split) in json.dumps(json.loads(config))


@pytest.mark.slow
def test_figure_5_fine_tunes_archived_models(data, corpus, tmp_path):
    task = f"--task=rte={data}/glue/RTE"
    run("figure5", data, tmp_path, task, corpus=corpus, steps=4, points=2)
    cells = read_cells(tmp_path / "figure5")
    assert [(cell["row"], cell["column"]) for cell in cells] == [
        ("masked-lm", "2"), ("masked-lm", "4"), ("left-to-right", "2"), ("left-to-right", "4"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_mistake_is_one_line(data, tmp_path, monkeypatch, capsys):
    arguments = ["table5", f"--data={data}", f"--output={tmp_path}", "--steps=0"]
    monkeypatch.setattr("sys.argv", ["paper.py", *arguments, "--text=nothere.txt"])
    with pytest.raises(SystemExit) as ended:
        paper.main()
    assert str(ended.value).startswith("Error: ") and "\n" not in str(ended.value)
