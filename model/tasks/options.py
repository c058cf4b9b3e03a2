"""What needs no PyTorch: the options that a task is made from, which tasks take them, metrics, and
the figures of each class.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ...pipeline.config import check_ranges, option
from ...pipeline.errors import UserError, did_you_mean

MAX_TASK_SIZE = 1 << 16
"""The most tokens or units that a task's settings may name."""
Size = Annotated[int, Meta(ge=1, le=MAX_TASK_SIZE)]
"""A number of tokens or units in a task's settings."""


METRICS: dict[str, tuple[str, ...]] = {
    "accuracy": ("a class",),
    "f1": (),  # of class 1 of two, which only GLUE says
    "macro_f1": ("a class", "classes"),  # the mean of the classes'
    "micro_f1": ("classes",),  # of all decisions
    "matthews": ("a class",),
    "pearson": ("a score",),
    "spearman": ("a score",),
    "r2": ("a score",),  # the share of the variance that is explained; below 0 if none is
    "rmse": (),  # of which less is better
}
"""What `metrics.measure` computes, and which rows of a user's own table it can be named for."""
CORRELATIONS = ("matthews", "pearson", "spearman")
"""Metrics of which answers by chance have 0, with a standard error of 1 / sqrt(N)."""

_OWN_DATA = "Your own data (classify)"


class ClassReport(Struct, frozen=True, kw_only=True):
    """How well a model answers each class."""

    classes: dict[str, dict[str, int | float]] = {}
    """``precision``, ``recall``, ``f1`` and ``count`` (of its examples) by the class's name."""
    confusion: list[list[int]] = []
    """How many examples of a class (the row) are taken for which (the column), if counted."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The user's choices for a task; None means the task's default."""

    max_length: Annotated[int, Meta(ge=8, le=MAX_TASK_SIZE)] | None = option(
        None,
        "Longest row in tokens, with [CLS] and [SEP]; the default is 128, "
        "for squad 384 (in windows).",
    )
    text: str | None = option(
        None,
        "Column of the text, for classify, or both columns of a pair, such as question,answer; the "
        "default is text or sentence.",
        group=_OWN_DATA,
    )
    label: str | None = option(
        None,
        "Column of the class or score, for classify; the default is label.",
        group=_OWN_DATA,
    )
    metric: str | None = option(
        None,
        "What chooses between runs, and each run's weights: accuracy (the default), macro_f1 or "
        "matthews; for several labels micro_f1 or macro_f1; for scores spearman, pearson or r2.",
        group=_OWN_DATA,
        identity=False,
    )
    class_weights: Literal["balanced"] | None = option(
        None,
        "Weigh the loss so that rare classes count as much as frequent ones.",
        group=_OWN_DATA,
        identity=False,
    )
    group: str | None = option(
        None,
        "Column of the author, patient or source, for data without a dev file: all rows of one are "
        "either trained on or held out.",
        group=_OWN_DATA,
        identity=False,
    )
    stride: Size | None = option(
        None,
        "Tokens from one window of a long text to the next: for squad, where the default is 128, "
        "and for classify, which cuts long texts by default.",
        group="Long texts",
    )

    def __post_init__(self) -> None:
        check_ranges(self)

    def given(self, *names: str) -> dict[str, Any]:
        """Return the options `names` that are not None, with their values."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


TASK_NAMES = (
    *("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"),
    *("classify", "squad", "ner", "pos"),
)
_TASKS_OF_OPTION = {
    **dict.fromkeys(("text", "label", "metric", "class_weights", "group"), ("classify",)),
    "stride": ("classify", "squad"),
}


def check_task(name: str, options: TaskOptions) -> None:
    """Raise `UserError` for an unknown name or another task's option."""
    if name not in TASK_NAMES:
        raise UserError(f"There is no task {name!r}{did_you_mean(name, TASK_NAMES)}.")
    for option_name in options.given(*_TASKS_OF_OPTION):
        tasks = _TASKS_OF_OPTION[option_name]
        if name not in tasks:
            raise UserError(f"`{option_name}` is for {', '.join(tasks)}; {name} does not take it.")
