"""A task: its data (`TaskData`) and its head (`TaskHead`), as one frozen dataclass of settings.

The trainer, prediction and evaluation see a task only through these two halves, and each function
says which of them it needs.
"""

from dataclasses import asdict
from typing import Any, cast

from ..notices import print_notice
from .data import TaskData
from .head import Answer, TaskHead


class Task(TaskData, TaskHead):
    """A task, as a frozen dataclass of its settings.

    A subclass of one of the tasks whose `model` returns another model gives it another head:
    `finetune`, `predict` and `evaluate_task` take such an object instead of a name.
    """

    name: str
    """On the command line."""

    @property
    def variant(self) -> str:
        """Label that sets its results apart within the task, such as SQuAD's version; or ""."""
        return ""

    def prediction(self, example: Any, answer: Answer) -> Answer:
        """Return an answer as `predict` writes it: after the example's texts."""
        return {**self.texts(example), **answer}

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``: `catalogue.restore_task` recreates the task."""
        # A subclass is a dataclass, which the type checker cannot know.
        settings = asdict(cast(Any, self))
        name = settings.pop("name")
        # Other files may have another one.
        settings.pop("encoding", None)
        given = {field: value for field, value in settings.items() if value is not None}
        return {"task": name, **given}


def report_cut(task: TaskData, where: str, num_cut: int, num_examples: int) -> None:
    """Print how many of the examples in `where` (a file or a split) are cut, if any are."""
    if num_cut:
        what, option = task.cut
        print_notice(
            f"{where}: {num_cut:,} of {num_examples:,} {what} cut at `{option}` "
            f"{getattr(task, option)}; fine-tune with a higher one to keep more."
        )
