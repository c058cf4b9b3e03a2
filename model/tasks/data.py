"""The half of a task that knows its examples: how they are read, split, labelled and encoded."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from ..notices import print_notice
from ..tokenizer import TextTokenizer
from .batches import Feature
from .tables import SUFFIXES

ExampleT = TypeVar("ExampleT")
"""What a task reads from a file, such as a text with its label."""


class TaskData(ABC, Generic[ExampleT]):
    """The examples of a task."""

    max_length: int
    """Of a row, in tokens."""
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    """Of its files; empty for any."""
    cut: ClassVar[tuple[str, str]] = "examples", "max_length"
    """Name of the texts that are cut if too long, and the field with the limit."""
    depends_on_texts_alone: ClassVar[bool] = True
    """Whether `texts`, if there are any, are all that the answer depends on."""

    @abstractmethod
    def read(self, path: Path, labelled: bool) -> Iterator[ExampleT]:
        """Yield the examples in a file; raises `UserError` naming file and line."""

    @abstractmethod
    def parse_line(self, line: str, where: str) -> ExampleT:
        """Return the unlabelled example on a line of plain text, which errors call `where`."""

    @abstractmethod
    def encode(self, examples: Sequence[ExampleT], tokenizer: TextTokenizer) -> list[Feature]:
        """Return the features of the examples, in order."""

    @abstractmethod
    def group(self, example: ExampleT) -> str:
        """Return a key; examples with the same key stay on the same side of a train/dev split."""

    def stratum(self, example: ExampleT) -> object:
        """Return the class of an example; both sides of a train/dev split get a share of each."""
        return None

    def texts(self, example: ExampleT) -> dict[str, str]:
        """Return the texts of an example by name, which `predict` writes before its answer.

        They are empty if the answer has them.
        """
        return {}

    def truth(self, example: ExampleT) -> Any:
        """Return the right answer to an example, as JSON has it; None if it has none."""
        return None


def report_cut(task: TaskData[Any], where: str, num_cut: int, num_examples: int) -> None:
    """Print how many of the examples in `where` (a file or a split) are cut, if any are."""
    if num_cut:
        what, option = task.cut
        print_notice(
            f"{where}: {num_cut:,} of {num_examples:,} {what} cut at `{option}` "
            f"{getattr(task, option)}."
        )
