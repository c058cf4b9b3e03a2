"""What a task is: how its files are read, how an example becomes tensors, a head, and metrics.

The trainer, prediction and evaluation know a task by `Task` alone. An example becomes one feature, or several where it
is longer than a row (windows); a feature is one row of tokens, or several that are told apart (choices).

Shapes: N features, B rows (N times the choices), L padded length, T real tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..bert import BertModel, dropout, real_tokens
from ..config import ModelConfig
from ..tokenizer import TextTokenizer
from .notices import print_notice

IGNORED = -100
"""Class of a token that is not to be learned; `torch.nn.functional.cross_entropy` leaves it out."""


class TokenRow(NamedTuple):
    """One row of tokens."""

    input_ids: np.ndarray
    """``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``, int32, not padded."""
    segment_b_start: int
    """Index of B's first token; the row's length where there is no B."""
    num_cut: int = 0
    """Tokens of the example that had no room here, and that no other row has."""


class Feature(NamedTuple):
    """What the model gets of an example."""

    rows: tuple[TokenRow, ...]
    """One row; of a multiple-choice task one for each choice."""
    target: np.ndarray | None
    """int64: the index of the class, shape (), those of the first and last token of an answer (2,), or the class of
    each token (L,), `IGNORED` where it has none; float32: a score, shape (). None where there is no label, or none that
    can be trained on."""
    example: int
    """Index of the example among those that were encoded together."""
    context: Any = None
    """What only the task itself looks at, to read the model's outputs: where the tokens stand in the text."""

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return max(len(row.input_ids) for row in self.rows)

    @property
    def is_cut(self) -> bool:
        """Whether a part of the example is lost to the model."""
        return any(row.num_cut for row in self.rows)


class TaskBatch(NamedTuple):
    """Padded rows as `BertModel.forward` takes them, and the targets of their features."""

    input_ids_BL: Tensor
    token_type_ids_BL: Tensor
    attention_mask_BL: Tensor
    token_index_T: Tensor
    target: Tensor | None
    """As in `Feature`, along a first dimension N; None where there are no labels."""

    def pin(self) -> "TaskBatch":
        """Copy the batch to pinned memory, from where a GPU fetches it without waiting."""
        return self._map(Tensor.pin_memory)

    def to(self, device: torch.device) -> "TaskBatch":
        """Copy the batch to `device`."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def _map(self, change: Callable[[Tensor], Tensor]) -> "TaskBatch":
        ids_BL, types_BL, mask_BL, index_T = map(change, self[:4])
        return TaskBatch(ids_BL, types_BL, mask_BL, index_T, None if self.target is None else change(self.target))


class Recipe(NamedTuple):
    """How a task is trained unless the user says otherwise."""

    batch_size: int
    epochs: float
    learning_rates: tuple[float, ...]


class TaskModel(nn.Module):
    """An encoder with the head of a task."""

    bert: BertModel
    per_token: bool = False
    """Whether the head says something of each token: outputs are then (N, L, ...)."""

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return what the head says of each feature, (N, ...)."""
        raise NotImplementedError

    def states(self, batch: TaskBatch) -> Tensor:
        """Return the last hidden states (B, L, D), of which the first stands for the whole row.

        That is [CLS]. In a model that reads from left to right [CLS] sees nothing and the last token, [SEP], all, so
        that the two change places.
        """
        states_BLD = self.bert(*batch[:4])
        if not self.bert.config.is_decoder:
            return states_BLD
        last_B = batch.attention_mask_BL.sum(1) - 1
        rows_B = torch.arange(len(last_B), device=last_B.device)
        changed_BLD = states_BLD.clone()
        changed_BLD[:, 0], changed_BLD[rows_B, last_B] = states_BLD[rows_B, last_B], states_BLD[:, 0]
        return changed_BLD

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean loss over what `num_targets` counts, a scalar."""
        raise NotImplementedError


class LinearHead(TaskModel):
    """An encoder and one linear layer, with the names that ``transformers`` gives them."""

    def __init__(self, config: ModelConfig, num_outputs: int):
        super().__init__()
        self.bert = BertModel(config)
        self.classifier = nn.Linear(config.hidden_size, num_outputs)
        self.rate = config.hidden_dropout_prob

    def classify(self, values: Tensor) -> Tensor:
        """Return what the linear layer says of `values` (..., D), of which some are dropped in training."""
        return self.classifier(dropout(values, self.rate, self.training))


class Task(ABC):
    """A task; examples are whatever its reader makes of a row."""

    name: str
    """On the command line."""
    max_length: int
    """Of a row, in tokens."""

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """How the task is trained unless the user says otherwise."""

    @abstractmethod
    def read(self, path: Path, labelled: bool) -> Iterator[Any]:
        """Yield the examples in a file; raises `UserError` naming file and line."""

    @abstractmethod
    def parse_line(self, line: str, where: str) -> Any:
        """Return the unlabelled example on a line of plain text."""

    @abstractmethod
    def group(self, example: Any) -> str:
        """Return the text whose examples stay together where a part is held out for development."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: TextTokenizer) -> list[Feature]:
        """Return the features of the examples, in their order."""

    def cut_line(self, share: str) -> str:
        """Return what is said where a share of the examples (``5 of 20``) is cut, and what to do about it."""
        return f"{share} examples cut at --max-length {self.max_length}; fine-tune with a higher one to keep more."

    @abstractmethod
    def model(self, config: ModelConfig) -> TaskModel:
        """Return the encoder with this task's head; its weights are not yet those of a checkpoint."""

    def tuned(self, outputs: Sequence[np.ndarray], features: Sequence[Feature], examples: Sequence[Any]) -> "Task":
        """Return the task with what is chosen on the dev examples after training (a threshold); itself if nothing is.

        `outputs` are those of the model for each feature, float32, without padding.
        """
        return self

    @abstractmethod
    def scores(
        self, outputs: Sequence[np.ndarray], features: Sequence[Feature], examples: Sequence[Any]
    ) -> dict[str, float]:
        """Return the official metrics by name, the one that chooses between runs first."""

    @abstractmethod
    def baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> dict[str, float]:
        """Return the metrics on `examples` of always answering what is most frequent in `train`."""

    @abstractmethod
    def answers(
        self, outputs: Sequence[np.ndarray], features: Sequence[Feature], examples: Sequence[Any]
    ) -> list[dict[str, Any]]:
        """Return for each example what `predict` writes: the answer, and ``probabilities`` where there are classes."""

    def official(self, answers: Sequence[dict[str, Any]], examples: Sequence[Any], split: str) -> dict[str, bytes]:
        """Return the files, by name, in the form that the task's server or script takes; none where there is none.

        `split` is the name of the examples' split as in `splits.find_splits`: ``test``, ``test_mismatched``, ...
        """
        return {}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what is kept in ``task.json``, from which the task can be made again."""

    @abstractmethod
    def hf_settings(self) -> dict[str, Any]:
        """Return what ``config.json`` needs beside the encoder's shape for ``transformers`` to load the model."""


def num_cut(features: Sequence[Feature]) -> int:
    """Return how many examples, among those that were encoded together, are cut."""
    return len({feature.example for feature in features if feature.is_cut})


def report_cut(task: Task, where: str, num_cut: int, num_examples: int) -> None:
    """Say how many of the examples in `where` (a file, or a split) are cut, where any are."""
    if num_cut:
        print_notice(f"{where}: {task.cut_line(f'{num_cut:,} of {num_examples:,}')}")


def num_targets(features: Sequence[Feature]) -> int:
    """Return how many targets the features have: one each, or the ends of an answer, or the tokens that have a class.

    A loss is their mean, so that the trainer can put the mean of a batch together from those of its parts.
    """
    targets = [feature.target for feature in features if feature.target is not None]
    return sum(int((target != IGNORED).sum()) if target.dtype.kind == "i" else target.size for target in targets)


def make_batch(features: Sequence[Feature]) -> TaskBatch:
    """Pad the rows of the features to the longest of them, and the targets to the longest target."""
    rows = [row for feature in features for row in feature.rows]
    lengths = np.array([len(row.input_ids) for row in rows])
    places = np.arange(lengths.max())
    mask = torch.from_numpy(places < lengths[:, None])
    input_ids = np.zeros(mask.shape, dtype=np.int64)
    input_ids[mask.numpy()] = np.concatenate([row.input_ids for row in rows])
    starts = np.array([row.segment_b_start for row in rows])
    types = torch.from_numpy(places >= starts[:, None]) & mask
    targets = [torch.from_numpy(feature.target) for feature in features if feature.target is not None]
    return TaskBatch(torch.from_numpy(input_ids), types.long(), mask, real_tokens(mask), _stack(targets))


def _stack(targets: Sequence[Tensor]) -> Tensor | None:
    if not targets:
        return None
    if targets[0].ndim == 0:
        return torch.stack(list(targets))
    return nn.utils.rnn.pad_sequence(list(targets), batch_first=True, padding_value=IGNORED)
