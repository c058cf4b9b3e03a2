"""examples/compare fine-tunes all starts on small data, and prints a table."""

import csv
from pathlib import Path

import compare
import pytest
from click.testing import CliRunner

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.task_data import write_task_data


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_task_data(tmp_path_factory.mktemp("data"))


def run(data: Path, output: Path, *args: str) -> str:
    small = ["--epochs=0.2", "--seeds=1", "--rate=1e-3", "--max-length=32"]
    arguments = [f"--data={data}", f"--output={output}", *small, *args]
    result = CliRunner().invoke(compare.compare, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_a_start_and_random_weights_are_compared(data, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "checkpoint", max_position_embeddings=64)
    output = tmp_path / "compared"
    printed = run(data, output, f"--start=mine={checkpoint}")
    assert "qnli is skipped" in printed
    head, _, mine, random = (output / "starts.md").read_text().splitlines()[:4]
    tasks = ["stsb (spearman)", "mnli (accuracy)", "rte (accuracy)", "ner (f1)", "squad (f1)"]
    assert head == f"|  | {' | '.join(tasks)} |"
    assert mine.startswith("| mine | ") and random.startswith("| random | ")
    for task in ("stsb", "mnli", "rte", "ner", "squad"):
        with (output / "random" / task / "results.csv").open(newline="") as file:
            assert next(csv.DictReader(file))["checkpoint"] == "random weights"

    # A start that is added keeps the runs of the others.
    times = {path: path.stat().st_mtime_ns for path in output.rglob("run.json")}
    run(data, output, f"--start=mine={checkpoint}", f"--start=again={checkpoint}")
    assert (
        times.items()
        <= {path: path.stat().st_mtime_ns for path in output.rglob("run.json")}.items()
    )
    assert "| again | " in (output / "starts.md").read_text()
