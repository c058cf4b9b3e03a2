"""The options that a task is made from, and which tasks take them; needs no PyTorch."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from ...pipeline.errors import UserError, did_you_mean

MAX_TASK_SIZE = 1 << 16
"""The most tokens or units that a task's settings may name."""
Size = Annotated[int, Meta(ge=1, le=MAX_TASK_SIZE)]
"""A number of tokens or units in a task's settings."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The user's choices for a task; None means the task's default.

    `FinetuneConfig` has the same fields, with a help text each, and checks their values.
    """

    max_length: int | None = None
    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    stride: int | None = None
    max_question_length: int | None = None
    max_answer_length: int | None = None
    metric: Literal["squad", "korquad"] | None = None
    encoding: str | None = None
    class_weights: Literal["none", "balanced"] | None = None
    regression: bool | None = None
    separator: str | None = None
    temperature: float | None = None
    matryoshka: tuple[int, ...] | None = None

    def given(self, *names: str) -> dict[str, Any]:
        """Return the options `names` that are not None, with their values."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


_GLUE = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli")
TASK_OPTIONS = {
    **dict.fromkeys(_GLUE, ("encoding",)),
    "classify": (
        *("text", "text_pair", "label", "class_weights", "regression", "separator"),
        *("stride", "encoding"),
    ),
    "multilabel": ("text", "text_pair", "label", "separator", "stride", "encoding"),
    "similarity": ("text", "text_pair", "label", "encoding", "temperature", "matryoshka"),
    "squad": ("stride", "max_question_length", "max_answer_length", "metric"),
    "swag": ("encoding",),
    "ner": ("encoding",),
    "pos": ("encoding",),
}
"""By the task's name: the options that other tasks do not take."""


def check_task(name: str, options: TaskOptions) -> None:
    """Raise `UserError` for an unknown name or another task's option."""
    if name not in TASK_OPTIONS:
        raise UserError(f"There is no task {name!r}{did_you_mean(name, TASK_OPTIONS)}.")
    # An option that no task is named for, `max_length`, is for all of them.
    tasks_of_option: dict[str, list[str]] = {}
    for task, taken in TASK_OPTIONS.items():
        for option in taken:
            tasks_of_option.setdefault(option, []).append(task)
    for option, tasks in sorted(tasks_of_option.items()):
        if name not in tasks and getattr(options, option) is not None:
            raise UserError(f"`{option}` is for {', '.join(tasks)}; {name} does not take it.")
