"""The tasks by their names on the command line."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...pipeline.errors import UserError
from ..finetuning.config import FinetuneConfig
from . import tables
from .choice import read_choice, restore_choice
from .classify import read_classify, restore_classify
from .glue import GLUE
from .ner import read_ner, restore_ner
from .squad import read_squad, restore_squad
from .task import Task


class TaskEntry(NamedTuple):
    """How a task is made."""

    read: Callable[[Sequence[Path], FinetuneConfig], Task]
    """From its training files and the options."""
    restore: Callable[[dict[str, Any]], Task]
    """From what `Task.settings` gave."""
    suffixes: tuple[str, ...] = tables.SUFFIXES
    """Of its files; empty for any."""
    options: tuple[str, ...] = ()
    """The options that are for this task and not for all."""


def _glue(name: str) -> TaskEntry:
    task = GLUE[name]

    def read(files: Sequence[Path], config: FinetuneConfig) -> Task:
        return replace(task, max_length=config.max_length or task.max_length)

    return TaskEntry(read, lambda settings: replace(task, max_length=settings["max_length"]))


TASKS = {
    **{name: _glue(name) for name in GLUE},
    "classify": TaskEntry(read_classify, restore_classify, options=("text", "text_pair", "label")),
    "squad": TaskEntry(read_squad, restore_squad, (".json",), ("stride", "max_question_length", "max_answer_length")),
    "swag": TaskEntry(read_choice, restore_choice),
    "ner": TaskEntry(read_ner, restore_ner, suffixes=(), options=("features", "lstm_size")),
}
TASK_OPTIONS = frozenset(option for entry in TASKS.values() for option in entry.options)


def find_entry(name: str, config: FinetuneConfig) -> TaskEntry:
    """Return how the task `name` is made.

    Raises `UserError` for an unknown name, and for an option that is for another task.
    """
    if name not in TASKS:
        raise UserError(f"There is no task {name!r}; it is one of {', '.join(TASKS)}.")
    for option in sorted(TASK_OPTIONS.difference(TASKS[name].options)):
        if getattr(config, option) is not None:
            meant = ", ".join(task for task, entry in TASKS.items() if option in entry.options)
            raise UserError(f"--{option.replace('_', '-')} is for {meant}; {name} does not take it.")
    return TASKS[name]


def restore_task(settings: dict[str, Any]) -> Task:
    """Return the task from what `Task.settings` gave."""
    return TASKS[settings["task"]].restore(settings)


def read_task(path: Path) -> Task:
    """Return the task in a ``task.json``; raises `UserError` where that is damaged."""
    try:
        return restore_task(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; fine-tune again.") from None
