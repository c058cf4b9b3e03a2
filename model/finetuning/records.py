"""The records of a search: what tells its runs apart, each run's scores, and the summary of all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from ...pipeline.parsing import Count, Finite, convert, parse_json, read_csv
from ..tasks.options import ClassReport

SUMMARY = "summary.json"  # as in `run`, which needs torch
RUNS = "runs"
RECORD = "run.json"
LOG = "metrics.csv"
ADVICE = "Delete it, or rerun `clozeworks finetune`."
VARIED = ("batch_size", "epochs")
"""Hyperparameters that a run is named for only if the search has several values of them."""


class Trial(Struct, frozen=True, kw_only=True):
    """The hyperparameters that tell a run of a search from the others."""

    learning_rate: float
    seed: int
    batch_size: int | UnsetType = UNSET
    """Only if the search has several."""
    epochs: float | UnsetType = UNSET
    """Only if the search has several."""

    @property
    def recipe(self) -> tuple[float | UnsetType, ...]:
        """The hyperparameters but the seed."""
        return self.learning_rate, self.batch_size, self.epochs

    @property
    def varied(self) -> dict[str, int | float]:
        """The values of `VARIED` that this run has."""
        values = {name: getattr(self, name) for name in VARIED}
        return {name: value for name, value in values.items() if value is not UNSET}


def run_name(trial: Trial) -> str:
    """Return the name of a run's folder.

    >>> run_name(Trial(learning_rate=5e-05, seed=0, batch_size=16))
    'learning-rate-5e-05-seed-0-batch-size-16'
    """
    values = _values_in_words(trial).items()
    return "-".join(f"{name.replace(' ', '-')}-{value}" for name, value in values)


def describe_run(trial: Trial) -> str:
    """Return the run's hyperparameters in words.

    >>> describe_run(Trial(learning_rate=5e-05, seed=0, epochs=2.0))
    'learning rate 5e-05, seed 0, epochs 2'
    """
    return ", ".join(f"{name} {value}" for name, value in _values_in_words(trial).items())


def _values_in_words(trial: Trial) -> dict[str, str]:
    values = {"learning rate": str(trial.learning_rate), "seed": str(trial.seed)}
    for name, value in trial.varied.items():
        values[name.replace("_", " ")] = f"{value:g}"
    return values


def run_order(trial: Trial) -> tuple[float, int, str]:
    """Return a key that sorts runs: the highest learning rate first, then the lowest seed."""
    return -trial.learning_rate, trial.seed, run_name(trial)


class BestRun(Trial, frozen=True, kw_only=True):
    """The best run of a search."""

    tuned: dict[str, Any]
    """The settings chosen on the dev examples."""
    scores: Annotated[dict[str, int | float], Meta(min_length=1)]
    step: int = 0
    """Updates after which the weights were the best on dev."""


class RunRecord(BestRun, frozen=True, kw_only=True):
    """The content of a run's ``run.json``, which says that the run is done."""

    task: str
    variant: str
    """The task's, and ``left-to-right`` for such an encoder."""
    checkpoint: str
    dev_classes: ClassReport = ClassReport()
    """Of the first dev set."""
    seconds: float

    def as_best(self) -> BestRun:
        """Return the part of the record that the summary has."""
        names = [field.name for field in structs.fields(BestRun)]
        return BestRun(**{name: getattr(self, name) for name in names})


def best_of(records: Sequence[RunRecord]) -> RunRecord:
    """Return the record of the best run; of equal ones, the one with the highest learning rate and
    then the lowest seed.
    """

    def best_first(record: RunRecord) -> tuple[float, float, int, str]:
        return -main_score(record.scores), *run_order(record)

    return min(records, key=best_first)


def main_score(scores: Mapping[str, float]) -> float:
    """Return the score that chooses between runs, which is the first."""
    return next(iter(scores.values()))


class SearchSummary(Struct, frozen=True, kw_only=True):
    """The content of ``summary.json``, after all runs of `finetune`."""

    status: Literal["finished"] = "finished"
    task: str
    metric: str
    best: BestRun
    dev_classes: ClassReport = ClassReport()
    """Of the best run, on the first dev set."""
    runs: Count
    median: float
    """Of the runs with the hyperparameters of the best, which differ by their seeds."""
    lowest: float
    """Of these, as `highest`."""
    highest: float
    degenerate_runs: Count
    """Runs no better than a constant answer, by the first metric."""
    baseline: dict[str, int | float]
    """Scores of a constant answer."""
    word_baseline: dict[str, int | float]
    """Scores of a model that counts single words; empty if the task has none."""
    train_examples: Count
    dev_examples: Count
    train_examples_cut: Count
    dev_examples_cut: Count
    held_out: bool
    test_digest: str = ""
    """Of the test files whose predictions lie in ``test/``."""
    train_digests: list[str] = []
    """Of each training file; none of a data set of the Hub."""


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


def read_records(directory: Path) -> list[RunRecord]:
    """Return the records of the finished runs in an output directory, also of earlier calls, the
    highest learning rate first.
    """
    paths = (directory / RUNS).glob(f"*/{RECORD}")
    records = [parse_json(path.read_bytes(), RunRecord, path, ADVICE) for path in paths]
    return sorted(records, key=run_order)


class LogLine(Struct):
    """A line of a run's ``metrics.csv``."""

    step: int
    split: Literal["train", "dev"]
    loss: Finite | None = None
    score: Finite | None = None
    """By the metric that chooses."""


def read_log(directory: Path, trial: Trial, metric: str) -> list[LogLine]:
    """Return what a run logged, with its scores by `metric`; empty if its log is missing."""
    path = directory / RUNS / run_name(trial) / LOG
    if not path.exists():
        return []
    lines = []
    for row in read_csv(path.read_bytes(), path, ADVICE):
        line = {**row, "score": row.get(metric)}
        # A cell is empty where a line has no such figure.
        lines.append({name: value for name, value in line.items() if value})
    return convert(lines, list[LogLine], path, ADVICE, strict=False)
