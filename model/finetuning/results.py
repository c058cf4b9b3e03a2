"""The results of fine-tuning: a summary for each run, one for all runs of an output directory, and
tables of them.

This module does not import torch, so that ``clozeworks results`` is fast.
"""

import csv
import io
import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta, Struct, structs

from ...pipeline.errors import UserError
from ...pipeline.parsing import Count, parse_json
from ..copies import local_copy
from ..tasks.options import CORRELATIONS, ClassReport

IDENTITY = "finetune.json"
SUMMARY = "summary.json"  # as in `training.run`, which needs torch
RUNS = "runs"
RESULTS = "results.csv"
IN_PERCENT = ("squad",)
"""Tasks whose official script reports percent; the metrics of the others are fractions."""
ADVICE = "Delete it and rerun `clozeworks finetune`; it resumes."


class Hyperparameters(Struct, frozen=True, kw_only=True):
    """What tells a run of a search from the others."""

    learning_rate: float
    batch_size: int
    epochs: float
    seed: int

    @property
    def recipe(self) -> tuple[float, int, float]:
        """All but the seed."""
        return self.learning_rate, self.batch_size, self.epochs

    @property
    def in_words(self) -> str:
        """As messages name the run."""
        return (
            f"learning rate {self.learning_rate}, batch size {self.batch_size}, "
            f"epochs {self.epochs:g}, seed {self.seed}"
        )

    @property
    def folder(self) -> str:
        """The run's directory in the output directory."""
        return f"{RUNS}/{self.in_words.replace(', ', '-').replace(' ', '-')}"


class RunSummary(Hyperparameters, frozen=True, kw_only=True):
    """The content of a run's ``summary.json``, which says that the run is finished."""

    task: str
    variant: str
    """The task's, and ``left-to-right`` for such an encoder."""
    checkpoint: str
    step: Count
    """Updates after which the weights were the best on dev."""
    tuned: dict[str, Any]
    """The settings chosen on the dev examples."""
    scores: Annotated[dict[str, int | float], Meta(min_length=1)]
    """The first one chooses between runs."""
    dev_classes: ClassReport
    seconds: float
    last_scores: dict[str, int | float] = {}
    """What was measured last: `scores` are the best, which luck has helped."""

    @property
    def score(self) -> float:
        """The one that chooses between runs."""
        return next(iter(self.scores.values()))

    def is_degenerate(self, constant: float, num_examples: int) -> bool:
        """Return whether the score is within one standard error of that of a constant answer."""
        if "r2" in self.scores:
            # The standard error of a small R² (Olkin and Finn 1995): that of the correlation, twice
            # the correlation times.
            r2 = max(0.0, self.scores["r2"])
            return r2 <= 2 * math.sqrt(r2 / num_examples) * (1 - r2)
        unit = 100 if self.task in IN_PERCENT else 1
        share = constant / unit
        variance = 0.0
        if next(iter(self.scores)) in CORRELATIONS:
            variance = 1.0  # about 1 / N for a correlation of 0
        elif 0 < share < 1:
            variance = share * (1 - share)
        return self.score <= constant + unit * math.sqrt(variance / num_examples)


class FinetuneSummary(TypedDict):
    """The content of ``summary.json`` after all runs, which `finetune` returns."""

    status: str
    task: str
    metric: str
    best: dict[str, Any]
    """The best run's hyperparameters, ``step``, ``tuned`` and ``scores``, as in `RunSummary`."""
    dev_classes: dict[str, Any]
    """How the best run answers each class of the first dev set."""
    runs: Count
    median: float
    """The median score of the runs that differ from the best by their seeds alone."""
    lowest: float
    highest: float
    degenerate_runs: Count
    """Runs within one standard error of a constant answer, by the first metric."""
    baseline: dict[str, int | float]
    word_baseline: dict[str, int | float]
    """Scores of a model that counts single words; empty if the task has none."""
    train_examples: Count
    dev_examples: Count
    train_examples_cut: Count
    dev_examples_cut: Count
    held_out: bool
    test_digest: str
    """Says which test files have their predictions in ``test/``."""
    train_digests: list[str]
    """One for each training file; a data set of the Hub has none."""


def read_summary(directory: Path) -> FinetuneSummary | None:
    """Return the summary of all runs; None if they are not all finished."""
    path = directory / SUMMARY
    if not path.exists():
        return None
    return parse_json(path.read_bytes(), FinetuneSummary, path, ADVICE)


def read_runs(directory: Path) -> list[RunSummary]:
    """Return the summaries of the finished runs, also of earlier calls, the highest rate first."""
    paths = (directory / RUNS).glob(f"*/{SUMMARY}")
    runs = [parse_json(path.read_bytes(), RunSummary, path, ADVICE) for path in paths]
    return sorted(runs, key=_order)


def _order(run: Hyperparameters) -> tuple[float, int, float, int]:
    return -run.learning_rate, run.batch_size, run.epochs, run.seed


def best_of(runs: Sequence[RunSummary]) -> RunSummary:
    """Return the best run; of equal ones the first in the order of `read_runs`."""
    return min(runs, key=lambda run: (-run.score, *_order(run)))


def results_table(runs: Sequence[RunSummary]) -> bytes:
    """Return the content of ``results.csv``: a line per run."""
    text = io.StringIO()
    hyperparameters = ("seed", "learning_rate", "batch_size", "epochs")
    writer = csv.DictWriter(
        text,
        ["task", "variant", "checkpoint", *hyperparameters, *runs[0].scores, "seconds"],
        extrasaction="ignore",  # what was tuned, which only some tasks have
        lineterminator="\n",
    )
    writer.writeheader()
    for run in runs:
        writer.writerow({**structs.asdict(run), **run.scores})
    return text.getvalue().encode()


@dataclass(frozen=True, kw_only=True)
class ResultLine:
    """One metric over the seeds of the best hyperparameters in one output directory, in percent."""

    task: str
    variant: str
    """As in `RunSummary`."""
    checkpoint: str
    directory: str
    data: str
    """A digest of the training and dev data; empty if it is not recorded."""
    metric: str
    runs: int
    learning_rate: float
    """The one of the best run by the first metric."""
    seeds: int
    """Runs with the hyperparameters of the best: the median, best and spread are theirs."""
    finished: bool
    median: float
    last: float | None
    """Median of the last measurements of these runs, the others being the best ones."""
    best: float
    spread: float
    degenerate_runs: int | None
    """As in `FinetuneSummary`; None before the search is finished."""


def read_results(folder: str | Path) -> list[ResultLine]:
    """Return a line per metric and output directory of `finetune` below `folder`, by directory."""
    root = local_copy(folder, IDENTITY, SUMMARY)
    if not root.is_dir():
        raise UserError(f"{folder} {'is not a folder' if root.exists() else 'does not exist'}.")
    lines: list[ResultLine] = []
    for file in sorted(root.rglob(IDENTITY)):
        directory = file.parent
        runs = read_runs(directory)
        if runs:
            identity = parse_json(file.read_bytes(), dict[str, Any], file, ADVICE)
            data = str(identity.get("data", ""))
            name = str(directory.relative_to(root))
            lines.extend(_lines(runs, read_summary(directory), name, data))
    if not lines:
        raise UserError(f"{folder} contains no finished run of `clozeworks finetune`.")
    return lines


def _lines(
    runs: Sequence[RunSummary], summary: FinetuneSummary | None, directory: str, data: str
) -> Iterator[ResultLine]:
    best = best_of(runs)
    unit = 1 if best.task in IN_PERCENT else 100
    # Seeds say how far luck goes; another rate is another recipe.
    seeds = [run for run in runs if run.recipe == best.recipe]
    # SQuAD 2.0's script reports counts and thresholds among its metrics.
    metrics = [name for name in best.scores if not name.endswith(("total", "_thresh"))]
    for metric in metrics:
        factor = 1 if metric == "rmse" else unit
        # Rounded so that 0.28 does not become 28.000000000000004.
        values = [round(factor * run.scores[metric], 6) for run in seeds]
        last = None
        if all(run.last_scores for run in seeds):
            last = round(statistics.median(factor * run.last_scores[metric] for run in seeds), 6)
        # What is degenerate is judged by the first metric alone.
        degenerate_runs = None
        if summary is not None and metric == metrics[0]:
            degenerate_runs = summary["degenerate_runs"]
        yield ResultLine(
            directory=directory,
            data=data,
            task=best.task,
            variant=best.variant,
            checkpoint=best.checkpoint,
            metric=metric,
            runs=len(runs),
            learning_rate=best.learning_rate,
            seeds=len(seeds),
            finished=summary is not None,
            median=statistics.median(values),
            last=last,
            best=max(values),
            spread=max(values) - min(values),
            degenerate_runs=degenerate_runs,
        )


def without_formula(text: str) -> str:
    """Return text for a CSV that a spreadsheet will not take for a formula; a number stays.

    >>> [without_formula(text) for text in ("=1+1", "-1")]
    ["'=1+1", '-1']
    """
    with suppress(ValueError):
        float(text)
        return text
    if text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{text}"
    return text
