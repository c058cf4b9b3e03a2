"""The tasks by their names on the command line."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...pipeline.errors import UserError
from ..finetune_config import FinetuneConfig
from .classification import Classification
from .classify import classify_metrics, read_classify
from .glue import GLUE
from .task import Task


def find_task(name: str, training_files: Sequence[Path], config: FinetuneConfig) -> Task:
    """Return the task `name`; what a task of the user's own is, its training files say.

    Raises `UserError` for an unknown name, and for columns named where the task fixes them.
    """
    if name == "classify":
        return read_classify(training_files, config)
    if name not in GLUE:
        raise UserError(f"There is no task {name!r}; it is one of {', '.join([*GLUE, 'classify'])}.")
    for option in ("text", "text_pair", "label"):
        if getattr(config, option) is not None:
            flag = option.replace("_", "-")
            raise UserError(f"--{flag} is for classify; {name} is read from the columns of the official files.")
    return replace(GLUE[name], max_length=config.max_length)


def saved_task(settings: dict[str, Any]) -> Task:
    """Return the task from what `Task.settings` gave."""
    if settings["task"] in GLUE:
        return replace(GLUE[settings["task"]], max_length=settings["max_length"])
    labels = tuple(settings["labels"])
    return Classification(
        name=settings["task"],
        text=tuple(settings["text"]),
        text_pair=tuple(settings["text_pair"]),
        label=tuple(settings["label"]),
        labels=labels,
        metrics=classify_metrics(labels),
        by_index=False,
        max_length=settings["max_length"],
    )
