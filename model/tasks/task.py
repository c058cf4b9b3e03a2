"""A task: its data (`TaskData`) and its head (`TaskHead`), as one frozen dataclass of settings.

Each function of the trainer, of prediction and evaluation says which of the halves it needs.
"""

from dataclasses import asdict
from typing import Any, cast

from .data import ExampleT, TaskData
from .head import Answer, TaskHead


class Task(TaskData[ExampleT], TaskHead[ExampleT]):
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

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``: `catalogue.restore_task` recreates the task."""
        # A subclass is a dataclass, which the type checker cannot know.
        settings = asdict(cast(Any, self))
        name = settings.pop("name")
        given = {field: value for field, value in settings.items() if value is not None}
        return {"task": name, **given}

    def prediction(self, example: ExampleT, answer: Answer) -> Answer:
        """Return an answer as `predict` writes it: after the example's texts."""
        return {**self.texts(example), **answer}
