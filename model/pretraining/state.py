"""What a pre-training remembers between its updates, and the summary at its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from ...pipeline.parsing import Count, Finite
from ..training import run
from .evaluate import NUM_SUMS


class Summary(TypedDict):
    """The content of ``summary.json``, which `pretrain` returns."""

    status: str
    step: Count
    parameters: Count
    tokens: Count
    rows: Count
    initial: Mapping[str, Finite]
    final: Mapping[str, Finite]
    best: Mapping[str, Finite] | None
    validation_rows: Count
    """Held-out rows that the metrics are measured on."""


def _check_metrics(*measured: Mapping[str, float] | None) -> None:
    """Raise `ValueError` unless the metrics before training, at its end and of the best model have
    the same names.
    """
    names = [metrics.keys() - {"step"} for metrics in measured if metrics is not None]
    if any("loss" not in metrics or metrics != names[0] for metrics in names):
        raise ValueError("initial, final and best do not have the same metrics")


@dataclass
class PretrainState:
    """Everything that a run remembers besides weights and optimiser; saved with each checkpoint."""

    step: int = 0
    num_tokens: int = 0
    num_rows: int = 0
    seconds: float = 0.0
    """Time spent training, for a budget of hours; otherwise 0, so that equal runs have equal
    checkpoints.
    """
    sums: list[float] = field(default_factory=lambda: [0.0] * NUM_SUMS)
    """Added up since the last line of the log; see `evaluate.batch_sums`."""
    initial: Mapping[str, int | float] | None = None
    best: Mapping[str, int | float] | None = None
    final: Mapping[str, int | float] | None = None
    num_threads: int | None = None
    """Threads of each operation on a CPU, which decide the last bits; None on a GPU."""

    def __post_init__(self) -> None:
        _check_metrics(self.initial, self.final, self.best)


def read_summary(output: Path) -> Summary | None:
    """Return the summary of a finished run, None if it is not finished."""

    def check(summary: Summary) -> None:
        _check_metrics(summary["initial"], summary["final"], summary["best"])

    return run.read_summary(output, Summary, check)
