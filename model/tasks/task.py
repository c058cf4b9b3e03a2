"""The interface of a task: read its files, encode examples as tensors, compute a loss, and score
predictions.

The trainer, prediction and evaluation see a task only through `Task`. An example becomes one
feature, or several if it is longer than a row (windows). A feature is one row of tokens, or one row
per choice (multiple choice).

Shapes: N features, B rows (N times the choices), L padded length, T real tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from ..bert import BertModel, dropout, real_tokens
from ..config import ModelConfig
from ..heads import IGNORED
from ..tokenizer import TextTokenizer, TokenRow
from ..training.ranks import print_notice
from .options import MAX_TASK_SIZE

Outputs = Sequence[np.ndarray]
"""The head's outputs for each feature, float32, without padding."""
Scores = dict[str, float]
"""Metrics by name; the first one chooses between runs."""
Answer = dict[str, Any]
"""What `predict` writes for an example: its label and so on, and ``probabilities`` if there are
classes.
"""
Size = Annotated[int, Meta(ge=1, le=MAX_TASK_SIZE)]
"""A number of tokens or units in a task's settings."""


class Feature(NamedTuple):
    """The model's input for an example or a part of it."""

    rows: tuple[TokenRow, ...]
    """One row, or one per choice."""
    target: np.ndarray | None
    """int64: the index of the class, shape (); of the first and last token of an answer, (2,); or
    of the class of each token, (L,), `IGNORED` if it has none. float32: a score, shape (). None if
    there is no usable label.
    """
    example: int
    """Index of the example among those encoded together."""
    context: Any = None
    """The task's own data for decoding the outputs, such as the positions of words."""

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return max(len(row.input_ids) for row in self.rows)


class TaskBatch(NamedTuple):
    """Padded rows as `BertModel.forward` takes them, and the targets of their features."""

    input_ids_BL: Tensor
    token_type_ids_BL: Tensor
    attention_mask_BL: Tensor
    token_index_T: Tensor
    target: Tensor | None
    """As in `Feature`, with a leading dimension N; None without labels."""
    share: float = 1.0
    """Of the targets of the update that this batch is a part of."""

    def to(self, device: torch.device) -> "TaskBatch":
        """Copy the batch to `device`."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def map(self, change: Callable[[Tensor], Tensor]) -> "TaskBatch":
        """Return the batch with each tensor changed."""
        return TaskBatch._make(
            change(value) if isinstance(value, Tensor) else value for value in self
        )


class Recipe(NamedTuple):
    """The default hyperparameters of a task."""

    batch_size: int
    epochs: float
    learning_rates: tuple[float, ...]


class TaskModel(nn.Module, ABC):
    """An encoder with the head of a task."""

    bert: BertModel
    per_token: bool = False
    """Whether the head classifies tokens: outputs are then (N, L, ...)."""

    @abstractmethod
    def forward(self, batch: TaskBatch) -> Tensor:
        """Return the head's outputs, (N, ...)."""

    def states(self, batch: TaskBatch) -> Tensor:
        """Return the last hidden states (B, L, D); the first of each row represents the whole row.

        That is [CLS]. In a left-to-right model [CLS] sees only itself and the final [SEP] sees
        everything, so the two are swapped.
        """
        states_BLD = self.bert(*batch[:4])
        if not self.bert.config.is_decoder:
            return states_BLD
        last_B = batch.attention_mask_BL.sum(1) - 1
        rows_B = torch.arange(len(last_B), device=last_B.device)
        swapped_BLD = states_BLD.clone()
        swapped_BLD[:, 0], swapped_BLD[rows_B, last_B] = (
            states_BLD[rows_B, last_B],
            states_BLD[:, 0],
        )
        return swapped_BLD

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy over the targets that `num_targets` counts, a scalar."""
        assert batch.target is not None
        return F.cross_entropy(outputs.flatten(0, -2), batch.target.flatten(), ignore_index=IGNORED)


class LinearHead(TaskModel):
    """An encoder and one linear layer; parameter names as in ``transformers``."""

    def __init__(self, config: ModelConfig, num_outputs: int):
        super().__init__()
        self.bert = BertModel(config)
        self.classifier = nn.Linear(config.hidden_size, num_outputs)
        self.rate = config.hidden_dropout_prob

    def classify(self, values: Tensor) -> Tensor:
        """Apply dropout and the linear layer to `values` (..., D)."""
        return self.classifier(dropout(values, self.rate, self.training))


class Task(ABC):
    """A task, as a frozen dataclass of its settings; examples are of the task's own type.

    A subclass of one of the tasks whose `model` returns another model gives it another head:
    `finetune`, `predict` and `evaluate_task` take such an object instead of a name.
    """

    name: str
    """On the command line."""
    max_length: int
    """Of a row, in tokens."""
    cut: ClassVar[tuple[str, str]] = "examples", "max_length"
    """What is cut if it is too long, and the field with the limit."""
    tuned_settings: ClassVar[tuple[str, ...]] = ()
    """The fields that `tuned` changes."""

    @property
    def variant(self) -> str:
        """What distinguishes its results from others of the task, such as the version of SQuAD; may
        be empty.
        """
        return ""

    @property
    def recipe(self) -> Recipe:
        """The default hyperparameters: those of the paper for GLUE (section 4.1), unless
        overridden.
        """
        return Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5, 4e-5, 3e-5, 2e-5))

    @abstractmethod
    def read(self, path: Path, labelled: bool) -> Iterator[Any]:
        """Yield the examples in a file; raises `UserError` naming file and line."""

    @abstractmethod
    def parse_line(self, line: str, where: str) -> Any:
        """Return the unlabelled example on a line of plain text; `where` names the line in errors."""

    @abstractmethod
    def group(self, example: Any) -> str:
        """Return a key; examples with the same key stay on the same side of a train/dev split."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: TextTokenizer) -> list[Feature]:
        """Return the features of the examples, in order."""

    @abstractmethod
    def model(self, config: ModelConfig) -> TaskModel:
        """Return an encoder with this task's head; the weights are not initialised from a
        checkpoint.
        """

    def tuned(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> "Task":
        """Return the task with its threshold tuned on the dev examples after training; itself if it
        has none.
        """
        return self

    @abstractmethod
    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> Scores:
        """Return the official metrics."""

    @abstractmethod
    def baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> Scores:
        """Return the metrics on `examples` of always giving the most frequent answer in `train`."""

    def word_baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> Scores:
        """Return the metrics on `examples` of a model of words alone, fitted to `train`; empty if
        the task has none.
        """
        return {}

    @abstractmethod
    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> list[Answer]:
        """Return the answer for each example."""

    def official(
        self, answers: Sequence[Answer], examples: Sequence[Any], split: str
    ) -> dict[str, bytes]:
        """Return the files, by name, that the task's server or script expects; empty if there is
        none.

        `split` is the split of the examples as in `splits.find_splits`: ``test``,
        ``test_mismatched``, ...
        """
        return {}

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``, from which `catalogue.restore_task` recreates the
        task.
        """
        settings = {
            name: value for name, value in asdict(cast(Any, self)).items() if value is not None
        }
        return {"task": settings.pop("name"), **settings}

    def hf_settings(self) -> dict[str, Any]:
        """Return what ``transformers`` needs in ``config.json`` beside the encoder's shape and the
        model's class.
        """
        return {}


def hf_labels(names: Sequence[str]) -> dict[str, Any]:
    """Return the names of the classes as ``config.json`` stores them."""
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


def num_cut(features: Sequence[Feature]) -> int:
    """Return how many of the examples encoded together are cut."""
    return len(
        {feature.example for feature in features if any(row.num_cut for row in feature.rows)}
    )


def report_cut(task: Task, where: str, num_cut: int, num_examples: int) -> None:
    """Print how many of the examples in `where` (a file or a split) are cut, if any are, and how to
    avoid it.
    """
    if num_cut:
        what, option = task.cut
        found = f"{num_cut:,} of {num_examples:,} {what} cut at --{option.replace('_', '-')} {getattr(task, option)}"
        print_notice(f"{where}: {found}; fine-tune with a higher one to keep more.")


def num_targets(features: Sequence[Feature]) -> int:
    """Return the number of targets: one per feature, two per answer (its ends), or one per token
    with a class.

    Losses are means over targets, so the trainer weighs each micro-batch by its share of them.
    """
    targets = [feature.target for feature in features if feature.target is not None]
    return sum(
        int((target != IGNORED).sum()) if target.dtype.kind == "i" else target.size
        for target in targets
    )


def make_batch(features: Sequence[Feature]) -> TaskBatch:
    """Pad the rows of the features to the longest of them, and the targets to the longest target."""
    rows = [row for feature in features for row in feature.rows]
    lengths = np.array([len(row.input_ids) for row in rows])
    columns = np.arange(lengths.max())
    mask = torch.from_numpy(columns < lengths[:, None])
    input_ids = np.zeros(mask.shape, dtype=np.int64)
    input_ids[mask.numpy()] = np.concatenate([row.input_ids for row in rows])
    starts = np.array([row.segment_b_start for row in rows])
    types = torch.from_numpy(columns >= starts[:, None]) & mask
    targets = [
        torch.from_numpy(feature.target) for feature in features if feature.target is not None
    ]
    target = None
    if targets and targets[0].ndim:
        target = nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=IGNORED)
    elif targets:
        target = torch.stack(targets)
    return TaskBatch(torch.from_numpy(input_ids), types.long(), mask, real_tokens(mask), target)
