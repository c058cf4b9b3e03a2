"""The tasks by their names on the command line."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Required, TypedDict

from msgspec import Meta

from ...pipeline.errors import UserError
from ...pipeline.parsing import parse_json
from ..finetuning.config import FinetuneConfig
from . import tables
from .choice import Choice, read_choice
from .classify import classify_task, read_classify
from .glue import GLUE
from .ner import EntityRecognition, read_ner
from .squad import Squad, read_squad
from .task import Task


class TaskEntry(NamedTuple):
    """How a task is created."""

    read: Callable[[Sequence[Path], FinetuneConfig], Task]
    """From its training files and the options."""
    restore: Callable[..., Task]
    """From its `Task.settings`, as keyword arguments."""
    suffixes: tuple[str, ...] = tables.SUFFIXES
    """Of its files; empty for any."""
    options: tuple[str, ...] = ()
    """The options that only this task takes."""


def _glue(name: str) -> TaskEntry:
    task = GLUE[name]

    def read(files: Sequence[Path], config: FinetuneConfig) -> Task:
        return replace(task, **config.given("max_length"))

    return TaskEntry(read, lambda max_length, **_: replace(task, max_length=max_length))


TASKS = {
    **{name: _glue(name) for name in GLUE},
    "classify": TaskEntry(read_classify, classify_task, options=("text", "text_pair", "label")),
    "squad": TaskEntry(read_squad, Squad, (".json",), ("stride", "max_question_length", "max_answer_length")),
    "swag": TaskEntry(read_choice, Choice),
    "ner": TaskEntry(read_ner, EntityRecognition, suffixes=(), options=("features", "lstm_size")),
}
_Size = Annotated[int, Meta(ge=1, le=1 << 16)]
TASK_OPTIONS = frozenset(option for entry in TASKS.values() for option in entry.options)


def find_entry(name: str, config: FinetuneConfig) -> TaskEntry:
    """Return the entry of the task `name`; raises `UserError` for an unknown name or another task's option."""
    if name not in TASKS:
        raise UserError(f"There is no task {name!r}; choose one of {', '.join(TASKS)}.")
    for option in sorted(TASK_OPTIONS.difference(TASKS[name].options)):
        if getattr(config, option) is not None:
            owners = ", ".join(task for task, entry in TASKS.items() if option in entry.options)
            raise UserError(f"--{option.replace('_', '-')} is for {owners}; {name} does not take it.")
    return TASKS[name]


def restore_task(settings: dict[str, Any]) -> Task:
    """Recreate a task from its `Task.settings`."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return TASKS[str(fields.pop("task"))].restore(**fields)


class _Settings(TypedDict, total=False):
    """What a ``task.json`` may hold; which of it, the task decides."""

    task: Required[str]
    max_length: Required[_Size]
    text: list[str]
    text_pair: list[str]
    label: list[str]
    labels: list[str]
    types: Annotated[list[str], Meta(min_length=1)]
    features: Literal[
        "embeddings", "second-to-last", "last", "weighted-sum-last-four", "concat-last-four", "weighted-sum-all"
    ]
    lstm_size: _Size
    num_choices: Annotated[int, Meta(ge=2, le=1 << 16)]
    version: Literal["1.1", "2.0"]
    stride: _Size
    max_question_length: _Size
    max_answer_length: _Size
    tau: float


def read_task(path: Path) -> Task:
    """Return the task in a ``task.json``; raises `UserError` if the file is damaged."""
    try:
        return restore_task({**parse_json(path.read_bytes(), _Settings, path, "Fine-tune again.")})
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged or of another task. Fine-tune again.") from None
