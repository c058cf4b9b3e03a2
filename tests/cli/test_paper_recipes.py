"""The recipes of examples/paper and examples/compare parse at every scale, and run on small data in
seconds.
"""

import csv
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from clozeworks.cli.main import main
from clozeworks.model.finetuning.paper_tables import read_cells
from clozeworks.model.finetuning.server_zip import write_server_zip

PAPER = Path(__file__).resolve().parents[2] / "examples" / "paper"
RECIPES = ["table5", "table6", "table7", "table8", "figure5", "glue"]
SMALL = {
    **{
        "vocab-size": 300,
        "max-length": 32,
        "steps": 2,
        "batch-size": 4,
        "epochs": 0.2,
        "seeds": 2,
        "rates": "1e-3",
    },
    **{
        "feature-epochs": 0.2,
        "lstm-size": 4,
        "squad-stride": 8,
        "squad-epochs": 0.2,
        "model": "tiny",
    },
    "learning-rate": 1e-4,
}
SENTENCES = [
    "The old miller went to the sea .",
    "Nobody in Berlin saw the ship .",
    "It was late , and Anna slept .",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Write a corpus and tasks of a few rows."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("text", "ner", "squad", "glue/RTE", "glue/MNLI", "glue/STS-B", "glue/diagnostic"):
        (folder / name).mkdir(parents=True)
    documents = [
        " ".join(SENTENCES[(first + step) % 3] for step in range(8)) for first in range(40)
    ]
    rows = (
        {"id": str(index), "text": f"{index} times. {text}"} for index, text in enumerate(documents)
    )
    (folder / "text" / "documents.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    pairs = [f"{index}\t{SENTENCES[index % 3]}\t{SENTENCES[index % 2]}\t" for index in range(12)]
    rte = "".join(
        f"{pair}{('entailment', 'not_entailment')[index % 2]}\n" for index, pair in enumerate(pairs)
    )
    mnli = "".join(
        f"{pair}{('entailment', 'neutral', 'contradiction')[index % 3]}\n"
        for index, pair in enumerate(pairs)
    )
    stsb = "".join(f"{pair}{index % 6}.0\n" for index, pair in enumerate(pairs))
    for split in ("train", "dev"):
        (folder / "glue" / "STS-B" / f"{split}.tsv").write_text(
            f"index\tsentence1\tsentence2\tscore\n{stsb}"
        )
        (folder / "glue" / "RTE" / f"{split}.tsv").write_text(
            f"index\tsentence1\tsentence2\tlabel\n{rte}"
        )
    for split in ("train", "dev_matched", "test_matched"):
        (folder / "glue" / "MNLI" / f"{split}.tsv").write_text(
            f"index\tsentence1\tsentence2\tgold_label\n{mnli}"
        )
    unlabelled = "".join(f"{pair.rstrip()}\n" for pair in pairs)
    (folder / "glue" / "diagnostic" / "diagnostic.tsv").write_text(
        f"index\tsentence1\tsentence2\n{unlabelled}"
    )
    words = (word for sentence in SENTENCES for word in (*sentence.split(), ""))
    lines = "".join(
        f"{word}\t{'B-name' if word in ('Berlin', 'Anna') else 'O'}\n" if word else "\n"
        for word in words
    )
    for split in ("train", "dev"):
        (folder / "ner" / f"{split}.conll").write_text(lines)
    answers = [{"text": "Berlin", "answer_start": SENTENCES[1].index("Berlin")}]
    questions = [
        {"id": str(index), "question": f"Where is number {index} ?", "answers": answers}
        for index in range(4)
    ]
    articles = [{"title": "a", "paragraphs": [{"context": SENTENCES[1], "qas": questions}]}]
    for split in ("train", "dev"):
        (folder / "squad" / f"{split}.json").write_text(
            json.dumps({"version": "1.1", "data": articles})
        )
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("corpus")


def run(name: str, data: Path, output: Path, *args: str, **settings: object) -> None:
    given = [f"--set={key}={value}" for key, value in {"data": data, **settings}.items()]
    main(["run", str(PAPER / f"{name}.toml"), "--output", str(output), *given, *args])


def small(
    name: str, data: Path, corpus: Path, output: Path, **settings: object
) -> list[dict[str, str]]:
    """Run a recipe at a small scale and return the lines of its table."""
    head = (PAPER / f"{name}.toml").read_text().split("[[stage]]")[0]
    own = {key: value for key, value in SMALL.items() if f"\n{key} =" in head}
    run(name, data, output, corpus=corpus, **{**own, **settings})
    assert (output / f"{name}.md").read_text().count("\n| ") > 3
    assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (output / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("scale", ["", "gpu.toml", "paper.toml"])
def test_every_recipe_parses_at_every_scale(name: str, scale: str, data, tmp_path, capsys):
    run(name, data, tmp_path, "--dry-run", *(["--variables", str(PAPER / scale)] if scale else []))
    lines = capsys.readouterr().out.splitlines()
    assert any("clozeworks finetune" in line for line in lines)
    assert any(
        line.endswith(f"--output {tmp_path}/{name.replace('glue', 'table1')}") for line in lines
    )


def test_table_5(data, corpus, tmp_path):
    cells = small(
        "table5",
        data,
        corpus,
        tmp_path,
        seeds=1,
        tasks=f"rte {data}/glue/RTE,sst2 {data}/glue/SST-2",
    )
    rows = ["full", "left-to-right", "left-to-right-bilstm", "no-nsp"]
    assert sorted({cell["row"] for cell in cells}) == rows
    assert {(cell["column"], cell["metric"]) for cell in cells} == {
        ("rte", "accuracy"),
        ("squad", "f1"),
    }
    assert {cell["paper"] for cell in cells if cell["column"] == "squad"} == {
        "88.5",
        "87.9",
        "77.8",
        "84.9",
    }
    with (tmp_path / "left-to-right-bilstm" / "0" / "squad" / "results.csv").open(
        newline=""
    ) as file:
        assert next(csv.DictReader(file))["variant"] == "1.1 bilstm left-to-right"


def test_table_6(data, corpus, tmp_path):
    sizes = "1-32-2 1 32 2 0.08,2-64-2 2 64 2 0.08"
    cells = small(
        "table6", data, corpus, tmp_path, sizes=sizes, tasks=f"rte {data}/glue/RTE", encoders="0,1"
    )
    found = {(cell["row"], cell["column"]): int(cell["runs"]) for cell in cells}
    rows = ("1-32-2", "2-64-2")
    # Two seeds of pre-training, and two of fine-tuning for each of them.
    assert found == {(row, "rte"): 4 for row in rows} | {(row, "perplexity"): 2 for row in rows}
    assert all(float(cell["median"]) > 1 for cell in cells if cell["column"] == "perplexity")


def test_table_8(data, corpus, tmp_path):
    cells = small("table8", data, corpus, tmp_path, seeds=1)
    assert len({cell["row"] for cell in cells}) == 6
    assert {cell["column"] for cell in cells} == {"classify", "ner", "ner-features"}
    split = {
        row: json.loads((tmp_path / row / "0/encoder/run.json").read_text())
        for row in ("80-0-20", "0-20-80")
    }
    assert "[80, 20, 0]" in json.dumps(split["80-0-20"])
    assert "[0, 80, 20]" in json.dumps(split["0-20-80"])


def test_figure_5_fine_tunes_archived_models(data, corpus, tmp_path):
    settings: dict[str, Any] = {
        "steps": 4,
        "archive-every": 2,
        "archived": "2,4",
        "task": f"rte {data}/glue/RTE",
    }
    cells = small("figure5", data, corpus, tmp_path, **settings)
    found = {(cell["row"], cell["column"]) for cell in cells}
    assert found == {(row, step) for row in ("masked-lm", "left-to-right") for step in ("2", "4")}


def test_table_7_and_glue_with_one_encoder(data, corpus, tmp_path, capsys):
    cells = small("table7", data, corpus, tmp_path / "table7", seeds=1, model="mini")
    assert len(cells) == 7
    assert {cell["column"] for cell in cells} == {"ner"}
    output, encoder = tmp_path / "glue", tmp_path / "table7" / "encoder-0"
    run("glue", data, output, checkpoint=encoder, epochs=0.2, seeds=1, rates="1e-3")
    assert "QQP/train.tsv does not exist" in capsys.readouterr().out
    with ZipFile(output / "glue.zip") as archive:
        assert sorted(archive.namelist()) == ["AX.tsv", "MNLI-m.tsv"]
        assert archive.read("AX.tsv").startswith(b"index\tprediction\n0\t")
    cells = read_cells(output, "1")
    assert {cell.column: cell.paper for cell in cells} == {"mnli": 84.6, "rte": 66.4, "stsb": 85.8}
    write_server_zip(output, str(tmp_path / "again.zip"))
    assert (tmp_path / "again.zip").read_bytes() == (output / "glue.zip").read_bytes()
    settings: dict[str, Any] = {
        "checkpoint": encoder,
        "epochs": 0.2,
        "seeds": 1,
        "rates": "1e-3",
        "tasks": "rte RTE",
    }
    run("glue", data, tmp_path / "rte", "--dry-run", **settings)
    assert "skipped" not in capsys.readouterr().out
    run("glue", data, tmp_path / "rte", **settings)
    printed = capsys.readouterr().out
    assert "diagnostics: skipped, " in printed and "server: skipped, " in printed
    assert (tmp_path / "rte" / "table1.md").exists()
    output, recipe = tmp_path / "compared", PAPER.parent / "compare" / "recipe.toml"
    settings = {
        "data": data,
        "checkpoint": encoder,
        "tasks": "rte RTE",
        "epochs": 0.2,
        "rates": "1e-3",
        "seeds": 1,
    }
    settings |= {"squad-length": 32, "squad-stride": 8, "ner-length": 16, "squad-epochs": 1}
    main(
        [
            "run",
            str(recipe),
            "--output",
            str(output),
            *(f"--set={key}={value}" for key, value in settings.items()),
        ]
    )
    cells = read_cells(output, "starts")
    starts, tasks = ("pre-trained", "random"), ("rte", "ner", "squad")
    assert {(cell.row, cell.column) for cell in cells} == {
        (start, task) for start in starts for task in tasks
    }
    assert "pre-trained" in (output / "starts.md").read_text()
    for task in tasks:
        with (output / "random" / "0" / task / "results.csv").open(newline="") as file:
            assert next(csv.DictReader(file))["checkpoint"] == "random weights"
