"""Read the results of all fine-tuning runs below a folder, in percent."""

import csv
import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from ...pipeline.errors import UserError
from ...pipeline.parsing import Finite, convert, parse_json, read_csv
from ..mirror import local_copy
from .records import SUMMARY, VARIED, RunRecord, Trial, read_summary

IDENTITY = "finetune.json"
RESULTS = "results.csv"
RUN_COLUMNS = ("task", "variant", "checkpoint", "seed", "learning_rate")
LAST_COLUMN = "seconds"
IN_PERCENT = ("squad",)
"""Tasks whose official script reports percent; the metrics of the others are fractions."""
NOT_SCORES = ("total", "_thresh")
"""Suffixes of values that SQuAD 2.0's script reports among its metrics but that are not scores."""
_ADVICE = "Move it away, or rerun `clozeworks finetune`."


class RunRow(Trial, frozen=True, kw_only=True):
    """The description of a run in ``results.csv``, beside its scores."""

    task: str
    checkpoint: str
    seconds: float
    variant: str = ""  # version 0.1 had no such column


class RecordedRun(NamedTuple):
    """A line of ``results.csv``."""

    row: RunRow
    scores: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class ResultLine:
    """One metric over the seeds of the best hyperparameters in one output directory."""

    task: str
    variant: str
    """As in `RunRecord`."""
    checkpoint: str
    directory: str
    data: str
    """A digest of the training and dev data; empty if it is not recorded."""
    metric: str
    runs: int
    learning_rate: float
    """Of the best run by the first metric."""
    seeds: int
    """Runs with the hyperparameters of the best: the median, best and spread are theirs."""
    finished: bool
    """Whether all runs of the search have ended."""
    median: float
    best: float
    spread: float
    """Best minus worst."""
    degenerate_runs: int | None
    """Runs no better than a constant answer, by the first metric; None before the search is
    finished.
    """


def read_results(folder: str | Path) -> list[ResultLine]:
    """Return a line per metric and output directory of `finetune` below `folder`, by directory.

    Raises `UserError` if there are none.
    """
    root = local_copy(folder, RESULTS, SUMMARY, IDENTITY)
    if not root.is_dir():
        raise UserError(f"{folder} {'is not a folder' if root.exists() else 'does not exist'}.")
    files = sorted(path for path in root.rglob(RESULTS) if path.is_file())
    if not files:
        raise UserError(
            f"{folder} contains no {RESULTS}; "
            "`clozeworks finetune` writes it into its output directory."
        )
    lines: list[ResultLine] = []
    for file in files:
        directory = str(file.parent.relative_to(root))
        lines.extend(_search_lines(file, directory))
    return lines


def _search_lines(file: Path, directory: str) -> Iterator[ResultLine]:
    runs = read_runs(file)
    if not runs:
        return
    summary = read_summary(file.parent)
    data = _read_data_digest(file.parent)
    first = runs[0]
    metrics = [name for name in first.scores if not name.endswith(NOT_SCORES)]
    best = max(runs, key=lambda run: run.scores[metrics[0]])
    # Seeds say how far luck goes; another rate is another recipe.
    seeds = [run for run in runs if run.row.recipe == best.row.recipe]
    for metric in metrics:
        values = [_percent(first.row.task, run.scores[metric]) for run in seeds]
        # What is degenerate is judged by the first metric alone.
        degenerate_runs = None
        if summary is not None and metric == metrics[0]:
            degenerate_runs = summary.degenerate_runs
        yield ResultLine(
            task=first.row.task,
            variant=first.row.variant,
            checkpoint=first.row.checkpoint,
            directory=directory,
            data=data,
            metric=metric,
            runs=len(runs),
            learning_rate=best.row.learning_rate,
            seeds=len(seeds),
            finished=summary is not None,
            median=statistics.median(values),
            best=max(values),
            spread=max(values) - min(values),
            degenerate_runs=degenerate_runs,
        )


def _percent(task: str, score: float) -> float:
    """Return a score as the paper and the leaderboards give it."""
    factor = 1 if task in IN_PERCENT else 100
    # Rounded so that 0.28 does not become 28.000000000000004.
    return round(factor * score, 6)


def _read_data_digest(directory: Path) -> str:
    path = directory / IDENTITY
    if not path.exists():
        return ""
    return str(parse_json(path.read_bytes(), dict[str, Any], path, _ADVICE).get("data", ""))


def results_table(records: Sequence[RunRecord]) -> bytes:
    """Return the content of ``results.csv``: a line per run."""
    metrics = list(records[0].scores)
    varied = list(records[0].varied)
    text = io.StringIO()
    writer = csv.DictWriter(
        text,
        [*RUN_COLUMNS, *varied, *metrics, LAST_COLUMN],
        extrasaction="ignore",  # what was tuned, which only some tasks have
        lineterminator="\n",
    )
    writer.writeheader()
    for record in records:
        writer.writerow({**structs.asdict(record), **record.scores})
    return text.getvalue().encode()


def read_runs(file: Path) -> list[RecordedRun]:
    """Return the runs in a ``results.csv``."""
    lines = read_csv(file.read_bytes(), file, _ADVICE)
    rows = convert(lines, list[RunRow], file, _ADVICE, strict=False)
    # All other columns are metrics.
    scores = [_without(line, (*RUN_COLUMNS, *VARIED, LAST_COLUMN)) for line in lines]
    numbers = convert(scores, list[dict[str, Finite]], file, _ADVICE, strict=False)
    return list(map(RecordedRun, rows, numbers))


def _without(line: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in line.items() if name not in names}
