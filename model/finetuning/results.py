"""The results of all fine-tuning runs below a folder, beside those in the BERT paper (arXiv
1810.04805).

All numbers are in percent, as in the paper.
"""

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

from msgspec import Meta, Struct

from ...pipeline.errors import UserError
from ...pipeline.parsing import Count, Finite, convert, parse_json, read_csv
from ..mirror import local_copy

RESULTS = "results.csv"
SUMMARY = "summary.json"  # as in `run`, which needs torch
RUN_COLUMNS = ("task", "variant", "checkpoint", "seed", "learning_rate")
LAST_COLUMN = "seconds"
LEFT_TO_RIGHT = "left-to-right"
IN_PERCENT = ("squad",)
"""Tasks whose official script reports percent; the metrics of the others are fractions."""
NOT_SCORES = ("total", "_thresh")
"""Suffixes of values that SQuAD 2.0's script reports among its metrics but that are not scores."""
_ADVICE = "Move it away, or rerun `clozeworks finetune`."


class BestRun(TypedDict):
    """The best run of a search."""

    learning_rate: float
    seed: int
    tuned: dict[str, Any]
    """The settings chosen on the dev examples."""
    scores: Annotated[dict[str, int | float], Meta(min_length=1)]


class RunRecord(BestRun):
    """What a run of `finetune` leaves in its ``run.json``."""

    task: str
    variant: str
    """The task's, and ``left-to-right`` for such an encoder."""
    checkpoint: str
    seconds: float


class SearchSummary(TypedDict):
    """What ``summary.json`` holds after all runs of `finetune`."""

    status: Literal["finished"]
    task: str
    metric: str
    best: BestRun
    runs: Count
    median: float
    lowest: float
    highest: float
    degenerate_runs: Count
    baseline: dict[str, int | float]
    word_baseline: dict[str, int | float]
    train_examples: Count
    dev_examples: Count
    train_examples_cut: Count
    dev_examples_cut: Count
    held_out: bool
    test_digest: NotRequired[str]
    """Of the test files whose predictions lie in ``test/``."""


class RunRow(Struct):
    """What describes a run in ``results.csv``, beside its scores."""

    task: str
    checkpoint: str
    seed: int
    learning_rate: float
    seconds: float
    variant: str = ""  # version 0.1 had no such column


class Figure(NamedTuple):
    """A result in the paper."""

    value: float
    split: str
    """``dev``, or ``test`` if the paper has none on dev; results on GLUE's server are usually a
    little lower.
    """


class Figures(NamedTuple):
    """The paper's two models on one task."""

    base: Figure | None
    large: Figure | None


@dataclass(frozen=True, kw_only=True)
class ResultLine:
    """One metric over all runs in one output directory."""

    task: str
    variant: str
    """As in `RunRecord`."""
    checkpoint: str
    directory: str
    metric: str
    runs: int
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
    paper: Figures


def _figures(base: float | None, large: float | None, split: str) -> Figures:
    return Figures(*(None if value is None else Figure(value, split) for value in (base, large)))


# By task, variant and metric. On dev: SST-2, MRPC and MNLI of table 6 (rows 12/768/12 and
# 24/1024/16), QNLI of table 5, SQuAD of tables 2 and 3, SWAG of table 4, CoNLL-2003 of table 7,
# left to right "LTR & No NSP" of table 5. On test: 1.
PAPER = {
    ("cola", "", "matthews"): _figures(52.1, 60.5, "test"),
    ("sst2", "", "accuracy"): _figures(92.9, 93.7, "dev"),
    ("mrpc", "", "f1"): _figures(88.9, 89.3, "test"),
    ("mrpc", "", "accuracy"): _figures(86.7, 87.8, "dev"),
    ("qqp", "", "f1"): _figures(71.2, 72.1, "test"),
    ("stsb", "", "spearman"): _figures(85.8, 86.5, "test"),
    ("mnli", "", "accuracy"): _figures(84.4, 86.6, "dev"),
    ("mnli", "", "mismatched_accuracy"): _figures(83.4, 85.9, "test"),
    ("qnli", "", "accuracy"): Figures(Figure(88.4, "dev"), Figure(92.7, "test")),
    ("rte", "", "accuracy"): _figures(66.4, 70.1, "test"),
    ("squad", "1.1", "f1"): _figures(88.5, 90.9, "dev"),
    ("squad", "1.1", "exact_match"): _figures(80.8, 84.1, "dev"),
    ("squad", "2.0", "f1"): _figures(None, 81.9, "dev"),
    ("squad", "2.0", "exact"): _figures(None, 78.7, "dev"),
    ("swag", "", "accuracy"): _figures(81.6, 86.6, "dev"),
    ("ner", "", "f1"): _figures(96.4, 96.6, "dev"),
    ("ner", "embeddings", "f1"): _figures(91.0, None, "dev"),
    ("ner", "second-to-last", "f1"): _figures(95.6, None, "dev"),
    ("ner", "last", "f1"): _figures(94.9, None, "dev"),
    ("ner", "weighted-sum-last-four", "f1"): _figures(95.9, None, "dev"),
    ("ner", "concat-last-four", "f1"): _figures(96.1, None, "dev"),
    ("ner", "weighted-sum-all", "f1"): _figures(95.5, None, "dev"),
    ("mnli", LEFT_TO_RIGHT, "accuracy"): _figures(82.1, None, "dev"),
    ("qnli", LEFT_TO_RIGHT, "accuracy"): _figures(84.3, None, "dev"),
    ("mrpc", LEFT_TO_RIGHT, "accuracy"): _figures(77.5, None, "dev"),
    ("sst2", LEFT_TO_RIGHT, "accuracy"): _figures(92.1, None, "dev"),
    ("squad", f"1.1 {LEFT_TO_RIGHT}", "f1"): _figures(77.8, None, "dev"),
    ("mnli", f"bilstm {LEFT_TO_RIGHT}", "accuracy"): _figures(82.1, None, "dev"),
    ("qnli", f"bilstm {LEFT_TO_RIGHT}", "accuracy"): _figures(84.1, None, "dev"),
    ("mrpc", f"bilstm {LEFT_TO_RIGHT}", "accuracy"): _figures(75.7, None, "dev"),
    ("sst2", f"bilstm {LEFT_TO_RIGHT}", "accuracy"): _figures(91.6, None, "dev"),
    ("squad", f"1.1 bilstm {LEFT_TO_RIGHT}", "f1"): _figures(84.9, None, "dev"),
}
NO_FIGURES = Figures(None, None)
_TASK_ORDER = list(dict.fromkeys(task for task, _, _ in PAPER))


def read_results(folder: str | Path) -> list[ResultLine]:
    """Return a line per metric and output directory of `finetune` below `folder`; raises
    `UserError` without any.
    """
    root = results_folder(folder, RESULTS, SUMMARY)
    files = sorted(path for path in root.rglob(RESULTS) if path.is_file())
    if not files:
        raise UserError(
            f"{folder} contains no {RESULTS}; `clozeworks finetune` writes it into its output directory."
        )
    lines = [line for file in files for line in _lines_of(file, str(file.parent.relative_to(root)))]
    return sorted(
        lines,
        key=lambda line: _TASK_ORDER.index(line.task) if line.task in _TASK_ORDER else len(PAPER),
    )


def results_folder(folder: str | Path, *names: str) -> Path:
    """Return the local copy of a folder, with the files of these names; raises `UserError` if there
    is no folder.
    """
    root = local_copy(folder, *names)
    if not root.is_dir():
        raise UserError(
            f"{folder} is not a folder." if root.exists() else f"{folder} does not exist."
        )
    return root


def _lines_of(file: Path, directory: str) -> Iterator[ResultLine]:
    rows = read_runs(file)
    if not rows:
        return
    summary = read_summary(file.parent)
    first, first_scores = rows[0]
    metrics = [name for name in first_scores if not name.endswith(NOT_SCORES)]
    for metric in metrics:
        # Rounded so that 0.28 does not become 28.000000000000004.
        factor = 1 if first.task in IN_PERCENT else 100
        values = [round(factor * scores[metric], 6) for _, scores in rows]
        yield ResultLine(
            task=first.task,
            variant=first.variant,
            checkpoint=first.checkpoint,
            directory=directory,
            metric=metric,
            runs=len(rows),
            finished=summary is not None,
            median=statistics.median(values),
            best=max(values),
            spread=max(values) - min(values),
            degenerate_runs=summary["degenerate_runs"]
            if summary and metric == metrics[0]
            else None,
            paper=PAPER.get((first.task, first.variant, metric), NO_FIGURES),
        )


def results_table(records: Sequence[RunRecord]) -> bytes:
    """Return the content of ``results.csv``."""
    text = io.StringIO()
    columns = [*RUN_COLUMNS, *records[0]["scores"], LAST_COLUMN]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({**record, **record["scores"]} for record in records)
    return text.getvalue().encode()


def read_runs(file: Path) -> list[tuple[RunRow, dict[str, float]]]:
    """Return the runs in a ``results.csv``, each with its scores."""
    lines = read_csv(file.read_bytes(), file, _ADVICE)
    rows = convert(lines, list[RunRow], file, _ADVICE, strict=False)
    own = {*RUN_COLUMNS, LAST_COLUMN}
    named = [{name: value for name, value in line.items() if name not in own} for line in lines]
    scores = convert(named, list[dict[str, Finite]], file, _ADVICE, strict=False)
    return list(zip(rows, scores, strict=True))


def read_summary(directory: Path) -> SearchSummary | None:
    """Return the summary in an output directory of `finetune`; None if its runs are not all
    finished.
    """
    path = directory / SUMMARY
    if not path.exists():
        return None
    return parse_json(
        path.read_bytes(),
        SearchSummary,
        path,
        "Delete it and rerun `clozeworks finetune`; it resumes.",
    )


def as_record(line: ResultLine) -> dict[str, Any]:
    """Return a line as plain values by column, for JSON and CSV."""
    record = {name: value for name, value in vars(line).items() if name != "paper"}
    for name, figure in line.paper._asdict().items():
        record |= {
            f"paper_{name}": figure and figure.value,
            f"paper_{name}_split": figure and figure.split,
        }
    return record
