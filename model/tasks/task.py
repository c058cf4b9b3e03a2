"""A task: how its examples are read, labelled and encoded, and what its model answers to them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from ..encoders.config import EncoderConfig
from ..notices import print_notice
from ..tokenizer import TextTokenizer
from .batches import Feature
from .class_report import ClassReport
from .head import Answer, Outputs, Recipe, Scores, TaskModel
from .tables import SUFFIXES

ExampleT = TypeVar("ExampleT")
"""What a task reads from a file, such as a text with its label."""


class Task(ABC, Generic[ExampleT]):
    """A task, as a frozen dataclass of its settings.

    A subclass of one of the tasks whose `model` returns another model gives it another head:
    `finetune`, `predict` and `evaluate_task` take such an object instead of a name.
    """

    name: str
    """On the command line."""
    max_length: int
    """Of a row, in tokens."""
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    """Of its files; empty for any."""
    pipeline: ClassVar[str] = "text-classification"
    """The Hub's name for such tasks."""
    cut: ClassVar[tuple[str, str]] = "examples", "max_length"
    """Name of the texts that are cut if too long, and the field with the limit."""
    depends_on_texts_alone: ClassVar[bool] = True
    """Whether `texts`, if there are any, are all that the answer depends on."""
    tuned_settings: ClassVar[tuple[str, ...]] = ()
    """The fields that `tuned` changes."""
    has_new_weights: ClassVar[bool] = True
    """Whether the model has a head, which must be trained before it can answer."""
    whole_batches: bool = False
    """Whether the loss compares the examples of a batch, so that it cannot be divided."""

    @property
    def variant(self) -> str:
        """Label that sets its results apart within the task, such as SQuAD's version; or ""."""
        return ""

    @property
    def recipe(self) -> Recipe:
        """The default hyperparameters; unless overridden, the paper's for GLUE (section 4.1)."""
        return Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5, 4e-5, 3e-5, 2e-5))

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``: `catalogue.restore_task` recreates the task."""
        # A subclass is a dataclass, which the type checker cannot know.
        settings = asdict(cast(Any, self))
        name = settings.pop("name")
        # Other files may have another one.
        settings.pop("encoding", None)
        given = {field: value for field, value in settings.items() if value is not None}
        return {"task": name, **given}

    # The examples.

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
        """Return the class of an example, of which both sides of a train/dev split get a share."""
        return None

    def check_dev(self, examples: Sequence[ExampleT]) -> None:
        """Raise `UserError` if dev examples cannot tell a good model from a bad one."""

    def texts(self, example: ExampleT) -> dict[str, str]:
        """Return the texts of an example by name, which `predict` writes before its answer.

        They are empty if the answer has them.
        """
        return {}

    def truth(self, example: ExampleT) -> Any:
        """Return the right answer to an example, as JSON has it; None if it has none."""
        return None

    # The model, and what its outputs mean and are worth.

    @abstractmethod
    def model(self, config: EncoderConfig) -> TaskModel:
        """Return an encoder with this task's head; no weights are loaded yet."""

    def hf_settings(self) -> dict[str, Any]:
        """Return what ``transformers`` needs in ``config.json`` besides encoder and class."""
        return {}

    def companion_files(self, config: EncoderConfig) -> dict[str, bytes]:
        """Return files by name that other libraries than ``transformers`` need with the model."""
        return {}

    def tuned(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[ExampleT]
    ) -> Self:
        """Return the task with its threshold tuned on the dev examples after training, if any."""
        return self

    @abstractmethod
    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[ExampleT]
    ) -> list[Answer]:
        """Return the answer for each example."""

    def prediction(self, example: ExampleT, answer: Answer) -> Answer:
        """Return an answer as `predict` writes it: after the example's texts."""
        return {**self.texts(example), **answer}

    @abstractmethod
    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[ExampleT]
    ) -> Scores:
        """Return the official metrics."""

    @abstractmethod
    def baseline(self, train: Sequence[ExampleT], examples: Sequence[ExampleT]) -> Scores:
        """Return the metrics on `examples` of always giving the most frequent answer in `train`."""

    def word_baseline(self, train: Sequence[ExampleT], examples: Sequence[ExampleT]) -> Scores:
        """Return the metrics on `examples` of a model of words alone, fitted to `train`.

        They are empty if the task has no such model.
        """
        return {}

    def class_report(self, answers: Sequence[Answer], examples: Sequence[ExampleT]) -> ClassReport:
        """Return the figures of each class; empty if the task has none."""
        return ClassReport()

    def official(
        self, answers: Sequence[Answer], examples: Sequence[ExampleT], split: str
    ) -> dict[str, bytes]:
        """Return the files, by name, that the task's server or script expects; empty if none does.

        `split` is the split of the examples as in `splits.find_splits`: ``test``,
        ``test_mismatched``, ...
        """
        return {}


def report_cut(task: Task[Any], where: str, num_cut: int, num_examples: int) -> None:
    """Print how many of the examples in `where` (a file or a split) are cut, if any are."""
    if num_cut:
        what, option = task.cut
        print_notice(
            f"{where}: {num_cut:,} of {num_examples:,} {what} cut at `{option}` "
            f"{getattr(task, option)}; fine-tune with a higher one to keep more."
        )
