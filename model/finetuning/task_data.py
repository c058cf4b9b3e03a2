"""Read the training and dev examples of a task, from its files or from a data set of the hub."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ..checkpoint import files_digest
from ..tasks.catalogue import find_entry
from ..tasks.splits import dev_sets, find_splits, hold_out
from ..tasks.tables import is_hub
from ..tasks.task import Task
from .config import FinetuneConfig


@dataclass(frozen=True)
class TaskData:
    """A task with its training and dev examples."""

    task: Task
    train: list[Any]
    dev: dict[str, list[Any]]
    """By the prefix of the metrics' names: empty, or ``mismatched_`` for MNLI's second dev set."""
    splits: dict[str, list[Path]]
    """The files they come from, and the test files, as `find_splits` returns them."""
    held_out: bool
    """There is no dev file; a tenth of the training examples is held out instead."""

    def digest(self) -> str:
        """Return a digest of the contents of the files, or of the examples of a data set of the hub."""
        files = [file for part in (self.splits["train"], *dev_sets(self.splits).values()) for file in part]
        if any(map(is_hub, files)):
            return f"{stable_hash(repr((self.train, self.dev))):016x}"
        return files_digest(files)


def read_data(task_name: str, data: str | Path, config: FinetuneConfig) -> TaskData:
    """Read the examples for training and development; without a dev file, hold out a tenth by hash.

    Raises `UserError` for bad rows, a missing training file, and a file without rows.
    """
    entry = find_entry(task_name, config)
    splits = find_splits(data, entry.suffixes)
    if "train" not in splits:
        raise UserError(f"{data} holds no file with train in its name, only for {', '.join(splits)}.")
    task = entry.read(splits["train"], config)
    train, dev_files = read_labelled(task, splits["train"]), dev_sets(splits)
    dev = {prefix: read_labelled(task, files) for prefix, files in dev_files.items()}
    held_out = "" not in dev
    if held_out:
        train, dev[""] = hold_out(train, task.group, str(data))
    # Test files are needed only after training: report mistakes in them now.
    for file in (file for split, files in splits.items() if split.startswith("test") for file in files):
        if not sum(1 for _ in task.read(file, labelled=False)):
            raise UserError(f"{file} holds no rows.")
    return TaskData(task, train, dict(sorted(dev.items())), splits, held_out)


def read_labelled(task: Task, files: Sequence[Path]) -> list[Any]:
    """Return the labelled examples in `files`; raises `UserError` if there are none."""
    examples = [example for file in files for example in task.read(file, labelled=True)]
    if not examples:
        raise UserError(f"{files[0]} holds no rows.")
    return examples
