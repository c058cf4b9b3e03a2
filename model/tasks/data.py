"""The half of a task that knows its examples: how they are read, split, labelled and encoded."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..tokenizer import TextTokenizer
from .batches import Feature


class TaskData(ABC):
    """The examples of a task, which are of the task's own type."""

    max_length: int
    """Of a row, in tokens."""
    cut: ClassVar[tuple[str, str]] = "examples", "max_length"
    """Name of the texts that are cut if too long, and the field with the limit."""
    depends_on_texts_alone: ClassVar[bool] = True
    """Whether `texts`, if there are any, are all that the answer depends on."""

    @abstractmethod
    def read(self, path: Path, labelled: bool) -> Iterator[Any]:
        """Yield the examples in a file; raises `UserError` naming file and line."""

    @abstractmethod
    def parse_line(self, line: str, where: str) -> Any:
        """Return the unlabelled example on a line of plain text, which errors call `where`."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: TextTokenizer) -> list[Feature]:
        """Return the features of the examples, in order."""

    @abstractmethod
    def group(self, example: Any) -> str:
        """Return a key; examples with the same key stay on the same side of a train/dev split."""

    def stratum(self, example: Any) -> Any:
        """Return the class of an example, of which both sides of a train/dev split get a share."""
        return None

    def check_dev(self, examples: Sequence[Any]) -> None:  # noqa: B027
        """Raise `UserError` if dev examples cannot tell a good model from a bad one."""

    def texts(self, example: Any) -> dict[str, str]:
        """Return the texts of an example by name, which `predict` writes before its answer.

        They are empty if the answer has them.
        """
        return {}

    def truth(self, example: Any) -> Any:
        """Return the right answer to an example, as JSON has it; None if it has none."""
        return None
