"""A task: how examples are read and become tokens, the model, and what its outputs mean and are
worth.

Shapes: B features, L padded length, D hidden size.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...pipeline.errors import UserError
from ..encoders.attention import dropout
from ..encoders.catalogue import make_encoder
from ..encoders.config import EncoderConfig
from ..encoders.encoder import Encoder, linear
from ..encoders.heads import IGNORED
from ..notices import print_notice
from ..tokenizer import TextTokenizer
from .batches import Feature, Scale, TaskBatch
from .example_tables import SUFFIXES
from .options import ClassReport

ExampleT = TypeVar("ExampleT")
"""What a task reads from a file, such as a text with its label."""
Features = Sequence[Feature]
Outputs = Sequence[np.ndarray]
"""The head's outputs for each feature, without padding."""
Scores = dict[str, float]
"""Metrics by name; the first one chooses between runs."""
Answer = dict[str, Any]
"""A prediction as `predict` writes it: a label, and ``probabilities`` if there are classes."""
Answers = Sequence[Answer]


class Recipe(NamedTuple):
    """The default hyperparameters of a task."""

    batch_size: int
    epochs: float
    learning_rates: tuple[float, ...]


class TaskModel(nn.Module, ABC):
    """An encoder with the head of a task."""

    per_token: bool = False
    """Whether the head classifies tokens: outputs are then (B, L, ...)."""
    uses_pooler: bool = True
    """Whether the head reads the encoder's pooler; if not, ``transformers`` has none there."""
    hf_name: str = ""
    """How the name of its class in ``transformers`` ends; empty if it has none."""
    scale: Scale | None = None
    """In training, of the standardised scores that it gives."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        # Under the name that it has in `transformers`: that is how the weights' names begin.
        encoder = make_encoder(config)
        self.add_module(encoder.prefix, encoder)

    @property
    def encoder(self) -> Encoder:
        """The one child that is an encoder."""
        (encoder,) = (child for child in self.children() if isinstance(child, Encoder))
        return encoder

    @abstractmethod
    def forward(self, batch: TaskBatch) -> Tensor:
        """Return the head's outputs, (B, ...)."""

    def states(self, batch: TaskBatch) -> Tensor:
        """Return the last hidden states (B, L, D); the first of each row represents the whole row:
        [CLS], with which in a left-to-right model the final [SEP] is swapped.
        """
        states_BLD = self.encoder(*batch[:4])
        if not self.encoder.config.is_decoder:
            return states_BLD
        # There [CLS] sees only itself and the final [SEP] sees everything:
        #
        #     [CLS] the film [SEP]   becomes   [SEP] the film [CLS]
        #
        # Written into a clone: the second assignment reads what the first would have overwritten.
        last_B = batch.attention_mask_BL.sum(1) - 1
        rows_B = torch.arange(len(last_B), device=last_B.device)
        swapped_BLD = states_BLD.clone()
        swapped_BLD[:, 0] = states_BLD[rows_B, last_B]
        swapped_BLD[rows_B, last_B] = states_BLD[:, 0]
        return swapped_BLD

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy over the targets that `num_targets` counts, a scalar."""
        assert batch.target is not None
        # (B, K) of rows stays; (B, L, K) of tokens becomes (B * L, K).
        logits = outputs.flatten(0, -2)
        return F.cross_entropy(logits, batch.target.flatten(), ignore_index=IGNORED)


class LinearHead(TaskModel):
    """An encoder, its layers before a head, and a linear layer; names as in ``transformers``."""

    def __init__(self, config: EncoderConfig, num_outputs: int):
        super().__init__(config)
        self.num_outputs = num_outputs
        self.head = self.encoder.task_head()
        if self.per_token:
            self.classifier = linear(config.hidden_size, num_outputs, config.classifier_sigma)
        else:
            self.classifier = self.encoder.row_classifier(num_outputs)
        self.rate = config.classifier_rate

    def pooled(self, batch: TaskBatch) -> Tensor:
        """Return one vector for each row (B, D)."""
        return self.encoder.pool(self.states(batch), batch.attention_mask_BL)

    def classify(self, values: Tensor) -> Tensor:
        """Apply the encoder's own layers, dropout and the linear layer to `values` (..., D)."""
        return self.classifier(dropout(self.head(values), self.rate, self.training))


class Task(ABC, Generic[ExampleT]):
    """A task, as a frozen dataclass of its settings; `model` returns the head."""

    name: str
    max_length: int
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    """What its files end in; empty for any."""
    tables: ClassVar[tuple[str, ...]] = ()
    """Suffixes of files with a row for each example, in order, whose columns predictions keep."""
    pipeline: ClassVar[str] = "text-classification"
    """The Hub's name for such tasks."""
    in_transformers: ClassVar[bool] = True
    """Whether a pipeline of ``transformers`` runs its models, as its card then says."""
    cut: ClassVar[tuple[str, str]] = "examples", "max_length"
    """Name of the texts that are cut if too long, and the field with the limit."""
    depends_on_texts_alone: ClassVar[bool] = True
    """Whether `texts`, if there are any, are all that the answer depends on."""
    tuned_settings: ClassVar[tuple[str, ...]] = ()
    """The fields that `tuned` changes."""
    recipe: ClassVar[Recipe] = Recipe(32, 3.0, (5e-5, 4e-5, 3e-5, 2e-5))
    """The default hyperparameters; unless overridden, the paper's for GLUE (section 4.1)."""

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

    def hf_settings(self) -> dict[str, Any]:
        """Return what ``transformers`` needs in ``config.json`` besides encoder and class."""
        return {}

    # Examples

    @abstractmethod
    def read(self, path: Path, labelled: bool) -> Iterator[ExampleT]:
        """Yield the examples in a file; raises `UserError` naming file and line."""

    @abstractmethod
    def parse_line(self, line: str, where: str) -> ExampleT:
        """Return the unlabelled example on a line of plain text, which errors call `where`."""

    @abstractmethod
    def group(self, example: ExampleT) -> str:
        """Return a key; examples with the same key stay on the same side of a train/dev split."""

    def stratum(self, example: ExampleT) -> object:
        """Return the class of an example; both sides of a train/dev split get a share of each."""
        return None

    def texts(self, example: ExampleT) -> dict[str, str]:
        """Return the texts by name, which `predict` writes before an answer, if any."""
        return {}

    def truth(self, example: ExampleT) -> Any:
        """Return the right answer to an example, as JSON has it; None if it has none."""
        return None

    @abstractmethod
    def encode(self, examples: Sequence[ExampleT], tokenizer: TextTokenizer) -> list[Feature]:
        """Return the features of the examples, in order."""

    # The model, and what its outputs mean

    @abstractmethod
    def model(self, config: EncoderConfig) -> TaskModel:
        """Return an encoder with this task's head; no weights are loaded yet."""

    def tuned(self, outputs: Outputs, features: Features, examples: Sequence[ExampleT]) -> Self:
        """Return the task with its threshold tuned on the dev examples after training, if any."""
        return self

    @abstractmethod
    def answers(
        self, outputs: Outputs, features: Features, examples: Sequence[ExampleT]
    ) -> list[Answer]:
        """Return the answer for each example."""

    @abstractmethod
    def scores(self, outputs: Outputs, features: Features, examples: Sequence[ExampleT]) -> Scores:
        """Return the official metrics."""

    @abstractmethod
    def baseline(self, train: Sequence[ExampleT], examples: Sequence[ExampleT]) -> Scores:
        """Return the metrics on `examples` of the constant answer that is best for `train`."""

    def word_baseline(self, train: Sequence[ExampleT], examples: Sequence[ExampleT]) -> Scores:
        """Return the metrics on `examples` of a model of words alone, fitted to `train`, if any."""
        return {}

    def class_report(self, answers: Answers, examples: Sequence[ExampleT]) -> ClassReport:
        """Return the figures of each class; empty if the task has none."""
        return ClassReport()

    def prediction(self, example: ExampleT, answer: Answer) -> Answer:
        """Return an answer as `predict` writes it: after the example's texts."""
        return {**self.texts(example), **answer}

    def official(
        self, answers: Answers, examples: Sequence[ExampleT], split: str
    ) -> dict[str, bytes]:
        """Return the files by name that the task's server or script expects, if any."""
        return {}


def read_labelled(task: Task[ExampleT], files: Sequence[Path]) -> list[ExampleT]:
    """Return the labelled examples in `files`; raises `UserError` if there are none."""
    examples = [example for file in files for example in task.read(file, labelled=True)]
    if not examples:
        raise UserError(f"{files[0]} contains no rows.")
    return examples


def hf_labels(names: Sequence[str]) -> dict[str, Any]:
    """Return the names of the classes as ``config.json`` stores them."""
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


def prefixed(prefix: str, scores: Scores) -> Scores:
    """Return scores by the names that they have for the dev set with this prefix."""
    return {f"{prefix}{name}": value for name, value in scores.items()}


def report_cut(task: Task[Any], where: str, num_cut: int, num_examples: int) -> None:
    """Print how many of the examples in `where` (a file or a split) are cut, if any are."""
    if num_cut:
        what, field = task.cut
        limit = f"{getattr(task, field)} tokens"
        if field == "max_length":  # an option
            limit = f"`{field}` {task.max_length}"
        print_notice(f"{where}: {num_cut:,} of {num_examples:,} {what} cut at {limit}.")
