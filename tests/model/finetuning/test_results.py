"""The table of all results: what is found and computed, and its forms."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from clozeworks.cli.results import results
from clozeworks.model.finetuning.results import RunSummary, read_results
from clozeworks.model.tasks.options import ClassReport
from clozeworks.pipeline.errors import UserError

COUNTED = ("train_examples", "dev_examples", "train_examples_cut", "dev_examples_cut")
SUMMARY = {
    **{"status": "finished", "task": "t", "metric": "m", "runs": 1, "held_out": False},
    **{"median": 0.5, "lowest": 0.5, "highest": 0.5, "best": {"scores": {"m": 0.5}}},
    **{"dev_classes": {}, "baseline": {}, "word_baseline": {}},
    **{"test_digest": "", "train_digests": []},
    **dict.fromkeys(COUNTED, 0),
}


def write_results(
    folder: Path, run: dict[str, Any], rates_and_scores: list[Any], summary: dict[str, Any] | None
) -> None:
    common = {"variant": "", "tuned": {}, "batch_size": 32, "epochs": 3.0, "step": 9}
    common |= {"dev_classes": {}, "seconds": 9.5, **run}
    for seed, (rate, scores) in enumerate(rates_and_scores):
        path = folder / "runs" / str(seed) / "summary.json"
        path.parent.mkdir(parents=True)
        path.write_text(
            json.dumps({**common, "seed": seed, "learning_rate": rate, "scores": scores})
        )
    (folder / "finetune.json").write_text('{"data": "d1"}')
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # The best run is at 4e-5, where the median of three seeds is 85; at 5e-5 all are worse.
    scores = [(4e-5, 0.85, 0.8), (4e-5, 0.9, 0.86), (4e-5, 0.81, 0.68), (5e-5, 0.5, 0.4)]
    write_results(
        tmp_path / "glue" / "mrpc",
        {"task": "mrpc", "checkpoint": "runs/base", "last_scores": {"f1": 0.805, "accuracy": 0.67}},
        [(rate, {"f1": f1, "accuracy": accuracy}) for rate, f1, accuracy in scores],
        SUMMARY | {"degenerate_runs": 1},
    )
    squad = {"best_f1": 80.5, "best_f1_thresh": -1.25, "exact": 77.5, "f1": 80.25}
    write_results(
        tmp_path / "squad",
        {"task": "squad", "variant": "2.0", "checkpoint": "runs/large"},
        [(5e-5, {**squad, "NoAns_f1": 60.0, "NoAns_total": 400})],
        SUMMARY | {"degenerate_runs": 0},
    )
    own = {"task": "classify", "checkpoint": "runs/base"}
    write_results(tmp_path / "own", own, [(5e-5, {"macro_f1": 0.28})], None)
    # One of `pretrain` has no runs in it.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text('{"status": "finished"}')
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


@pytest.mark.parametrize(
    ("task", "metric", "constant", "num_examples", "limit"),
    [
        ("sst2", "accuracy", 0.5, 100, 0.55),
        ("squad", "exact", 20.0, 100, 24.0),
        ("stsb", "spearman", 0.0, 400, 0.05),
        ("ner", "f1", 0.0, 100, 0.0),
        ("stsb", "r2", -0.01, 400, 0.00980392),  # where R = 2 (1 - R²) / √400
    ],
)
def test_a_run_within_a_standard_error_of_a_constant_answer_is_degenerate(
    task, metric, constant, num_examples, limit
):
    for score, is_degenerate in ((limit, True), (limit + 1e-6, False)):
        run = RunSummary(
            task=task, variant="", checkpoint="c", step=1, tuned={}, scores={metric: score},
            dev_classes=ClassReport(), seconds=1.0,
            learning_rate=1e-4, batch_size=8, epochs=1.0, seed=0,
        )  # fmt: skip
        assert run.is_degenerate(constant, num_examples) == is_degenerate


def test_the_table_says_what_is_not_finished(folder):
    text = CliRunner().invoke(results, [str(folder)]).output
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "mrpc f1 4 4e-05 3 85.0 80.5 90.0 9.0 1 glue/mrpc base" in rows
    assert "accuracy 4 3 80.0 67.0 86.0 18.0" in rows
    assert "squad 2.0 exact 1 5e-05 1 77.5 77.5 0.0 0 squad large" in rows
    assert "classify macro f1 1 so far 5e-05 1 28.0 28.0 0.0 own base" in rows
    assert "NoAns f1" in text
    assert "best f1" not in text


def test_json_holds_every_line(folder):
    listed = json.loads(CliRunner().invoke(results, [str(folder), "--json"]).output)
    assert listed == [asdict(line) for line in read_results(folder)]


def test_folders_without_results_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"/none does not exist\.$"):
        read_results(tmp_path / "none")
    with pytest.raises(UserError, match=r"contains no finished run of `clozeworks finetune`"):
        read_results(tmp_path)


def test_a_damaged_summary_is_reported(folder):
    (folder / "squad" / "summary.json").write_text("{")
    with pytest.raises(UserError, match=r"squad/summary\.json is damaged.*Delete it and rerun"):
        read_results(folder)
