"""The tasks by their names on the command line."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...pipeline.errors import UserError
from ...pipeline.parsing import parse_json
from . import tables
from .bilstm import bilstm_size
from .choice import Choice, read_choice
from .classification import Classification, read_classify
from .glue import GLUE
from .ner import EntityRecognition, read_ner
from .options import TaskOptions, check_task
from .squad import Squad, read_squad
from .task import Size, Task


class TaskEntry(NamedTuple):
    """How a task is created."""

    kind: type[Task]
    read: Callable[[Sequence[Path], TaskOptions], Task]
    """From its training files and the options."""
    suffixes: tuple[str, ...] = tables.SUFFIXES
    """Of its files; empty for any."""


def _glue(task: Classification) -> TaskEntry:
    def read(_: Sequence[Path], options: TaskOptions) -> Classification:
        return replace(task, **options.given("max_length"), lstm_size=bilstm_size(options))

    return TaskEntry(Classification, read)


TASKS = {
    **{name: _glue(task) for name, task in GLUE.items()},
    "classify": TaskEntry(Classification, read_classify),
    "squad": TaskEntry(Squad, read_squad, (".json",)),
    "swag": TaskEntry(Choice, read_choice),
    "ner": TaskEntry(EntityRecognition, read_ner, suffixes=()),
}


def find_entry(name: str, options: TaskOptions) -> TaskEntry:
    """Return the entry of the task `name`; raises `UserError` for an unknown name or another task's
    option.
    """
    check_task(name, options)
    return TASKS[name]


def restore_task(settings: dict[str, Any]) -> Task:
    """Recreate a task from its `Task.settings`."""
    name = settings["task"]
    if name in GLUE:
        max_length = msgspec.convert(settings["max_length"], Size)
        return replace(
            GLUE[name],
            max_length=max_length,
            lstm_size=msgspec.convert(settings.get("lstm_size"), Size | None),
        )
    return msgspec.convert({**settings, "name": name}, TASKS[name].kind)


def read_task(path: Path) -> Task:
    """Return the task in a ``task.json``; raises `UserError` if the file is damaged."""
    try:
        return restore_task(parse_json(path.read_bytes(), dict[str, Any], path, "Fine-tune again."))
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged or belongs to another task. Fine-tune again.") from None
