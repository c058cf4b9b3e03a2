"""Read the results of all fine-tuning runs below a folder, in percent."""

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from ...pipeline.errors import UserError
from ...pipeline.parsing import parse_json
from ..copies import local_copy
from .records import (
    ADVICE,
    RECORD,
    SUMMARY,
    RunRecord,
    best_of,
    read_records,
    read_summary,
    run_name,
)

IDENTITY = "finetune.json"
RESULTS = "results.csv"
RUN_COLUMNS = ("task", "variant", "checkpoint", "seed", "learning_rate")
LAST_COLUMN = "seconds"
IN_PERCENT = ("squad",)
"""Tasks whose official script reports percent; the metrics of the others are fractions."""
NOT_SCORES = ("total", "_thresh")
"""Suffixes of values that SQuAD 2.0's script reports among its metrics but that are not scores."""


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
    root = local_copy(folder, IDENTITY, SUMMARY, RECORD)
    if not root.is_dir():
        raise UserError(f"{folder} {'is not a folder' if root.exists() else 'does not exist'}.")
    lines: list[ResultLine] = []
    for file in sorted(root.rglob(IDENTITY)):
        records = read_records(file.parent)
        if records:
            lines.extend(_search_lines(file.parent, str(file.parent.relative_to(root)), records))
    if not lines:
        raise UserError(f"{folder} contains no finished run of `clozeworks finetune`.")
    return lines


def _search_lines(
    folder: Path, directory: str, records: Sequence[RunRecord]
) -> Iterator[ResultLine]:
    summary = read_summary(folder)
    data = _read_data_digest(folder)
    first = records[0]
    for record in records:
        if record.scores.keys() != first.scores.keys():
            raise UserError(
                f"{folder}: {run_name(record)} does not have the metrics of {run_name(first)}. "
                f"{ADVICE}"
            )
    metrics = [name for name in first.scores if not name.endswith(NOT_SCORES)]
    best = best_of(records)
    # Seeds say how far luck goes; another rate is another recipe.
    seeds = [record for record in records if record.recipe == best.recipe]
    for metric in metrics:
        values = [_percent(first.task, record.scores[metric]) for record in seeds]
        # What is degenerate is judged by the first metric alone.
        degenerate_runs = None
        if summary is not None and metric == metrics[0]:
            degenerate_runs = summary.degenerate_runs
        yield ResultLine(
            task=first.task,
            variant=first.variant,
            checkpoint=first.checkpoint,
            directory=directory,
            data=data,
            metric=metric,
            runs=len(records),
            learning_rate=best.learning_rate,
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
    return str(parse_json(path.read_bytes(), dict[str, Any], path, ADVICE).get("data", ""))


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
