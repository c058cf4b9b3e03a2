"""The table of all results: what is found and computed, and its forms."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from clozeworks.cli.results import results
from clozeworks.model.finetuning.results import (
    read_results,
)
from clozeworks.pipeline.errors import UserError

SUMMARY = {
    **{
        "status": "finished",
        "task": "t",
        "metric": "m",
        "median": 0.5,
        "lowest": 0.5,
        "highest": 0.5,
    },
    **{
        "best": {"learning_rate": 1e-5, "seed": 0, "tuned": {}, "scores": {"m": 0.5}},
        "runs": 1,
        "baseline": {},
    },
    "word_baseline": {},
    **dict.fromkeys(
        ("train_examples", "dev_examples", "train_examples_cut", "dev_examples_cut"), 0
    ),
    "held_out": False,
}
HEADER = "task,variant,checkpoint,seed,learning_rate"


def write_results(
    folder: Path, metrics: str, lines: list[str], summary: dict[str, Any] | None = None
) -> None:
    folder.mkdir(parents=True)
    (folder / "results.csv").write_text("\n".join([f"{HEADER},{metrics},seconds", *lines]) + "\n")
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # The best run is at 4e-5, where the median of three seeds is 85; at 5e-5 all are worse.
    runs = [(4e-5, 0.85, 0.8), (4e-5, 0.9, 0.86), (4e-5, 0.81, 0.68), (5e-5, 0.5, 0.4)]
    lines = [
        f"mrpc,,runs/base,{seed},{rate},{f1},{acc},9.5" for seed, (rate, f1, acc) in enumerate(runs)
    ]
    write_results(
        tmp_path / "glue" / "mrpc", "f1,accuracy", lines, SUMMARY | {"degenerate_runs": 1}
    )
    squad = ["squad,2.0,runs/large,0,5e-05,80.5,-1.25,77.5,80.25,60.0,400,99.0"]
    metrics = "best_f1,best_f1_thresh,exact,f1,NoAns_f1,NoAns_total"
    write_results(tmp_path / "squad", metrics, squad, SUMMARY | {"degenerate_runs": 0})
    write_results(tmp_path / "own", "macro_f1", ["classify,,runs/base,0,5e-05,0.28,1.0"])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text(
        '{"status": "finished"}'
    )  # of pretrain, which has no results.csv
    return tmp_path


def test_each_metric_of_each_directory_has_a_line(folder):
    lines = read_results(folder)
    assert [(line.directory, line.metric) for line in lines] == [
        ("glue/mrpc", "f1"), ("glue/mrpc", "accuracy"),
        ("own", "macro_f1"),
        ("squad", "best_f1"), ("squad", "exact"), ("squad", "f1"), ("squad", "NoAns_f1"),
    ]  # fmt: skip
    first = lines[0]
    assert (first.runs, first.seeds, first.learning_rate) == (4, 3, 4e-5)
    assert (first.median, first.best, first.spread) == (85.0, 90.0, 9.0)
    assert (first.degenerate_runs, first.finished, first.checkpoint) == (1, True, "runs/base")
    assert lines[1].degenerate_runs is None
    own, f1 = lines[2], lines[5]
    assert (f1.variant, f1.median, f1.finished, f1.degenerate_runs) == ("2.0", 80.25, True, None)
    assert not own.finished
    assert own.median == 28.0


def test_results_of_version_0_1_are_read(tmp_path):
    (tmp_path / "results.csv").write_text(
        "task,checkpoint,seed,learning_rate,accuracy,seconds\nrte,c,0,5e-05,0.6,1\n"
    )
    (line,) = read_results(tmp_path)
    assert (line.variant, line.metric, line.best, line.directory) == ("", "accuracy", 60.0, ".")


def test_the_table_says_what_is_not_finished(folder):
    text = CliRunner().invoke(results, [str(folder)]).output
    rows = [line.split() for line in text.splitlines()]
    assert [
        "mrpc",
        "f1",
        "4",
        "4e-05",
        "3",
        "85.0",
        "90.0",
        "9.0",
        "1",
        "glue/mrpc",
        "base",
    ] in rows
    assert ["accuracy", "4", "3", "80.0", "86.0", "18.0"] in rows
    assert [
        "squad",
        "2.0",
        "exact",
        "1",
        "5e-05",
        "1",
        "77.5",
        "77.5",
        "0.0",
        "0",
        "squad",
        "large",
    ] in rows
    assert [
        "classify",
        "macro",
        "f1",
        "1",
        "so",
        "far",
        "5e-05",
        "1",
        "28.0",
        "28.0",
        "0.0",
        "own",
        "base",
    ] in rows
    assert "NoAns" not in text
    assert "best f1" not in text


def test_json_and_csv_hold_the_same(folder):
    listed = json.loads(CliRunner().invoke(results, [str(folder), "--json"]).output)
    assert listed == [asdict(line) for line in read_results(folder)]
    rows = list(
        csv.DictReader(io.StringIO(CliRunner().invoke(results, [str(folder), "--csv"]).output))
    )
    assert [row["metric"] for row in rows] == [record["metric"] for record in listed]
    assert rows[0]["median"] == "85.0"
    both = CliRunner().invoke(results, [str(folder), "--json", "--csv"])
    assert both.exit_code == 2


def test_folders_without_results_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"/none does not exist\.$"):
        read_results(tmp_path / "none")
    with pytest.raises(
        UserError, match=r"contains no results\.csv; `clozeworks finetune` writes it"
    ):
        read_results(tmp_path)
    (tmp_path / "results.csv").write_text("name,value\na,1\n")
    with pytest.raises(
        UserError,
        match=r"results\.csv is damaged or was not .*\(.* missing required field learning_rate\)",
    ):
        read_results(tmp_path)


def test_a_damaged_summary_is_reported(folder):
    (folder / "squad" / "summary.json").write_text("{")
    with pytest.raises(UserError, match=r"squad/summary\.json is damaged.*Delete it and rerun"):
        read_results(folder)
