"""What a task is: how its files are read, how an example becomes tensors, a head, and metrics.

The trainer, prediction and evaluation know a task by `Task` alone. Shapes: B rows, L padded length, T real tokens.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..bert import BertModel, real_tokens
from ..config import ModelConfig
from .tokenizer import TextTokenizer


class Feature(NamedTuple):
    """What the model gets for an example."""

    input_ids: np.ndarray
    """``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``, int32, not padded."""
    segment_b_start: int
    """Index of B's first token; the row's length where there is no B."""
    target: float | None
    """Index of the class, or the score; None where there are no labels."""


class Batch(NamedTuple):
    """Padded rows as `BertModel.forward` takes them, and their targets."""

    input_ids_BL: Tensor
    token_type_ids_BL: Tensor
    attention_mask_BL: Tensor
    token_index_T: Tensor
    target_B: Tensor | None
    """float32; None where there are no labels."""

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to `device`."""
        input_ids_BL, token_type_ids_BL, attention_mask_BL, token_index_T = (x.to(device) for x in self[:4])
        target_B = None if self.target_B is None else self.target_B.to(device)
        return Batch(input_ids_BL, token_type_ids_BL, attention_mask_BL, token_index_T, target_B)


class TaskModel(nn.Module):
    """An encoder with the head of a task."""

    bert: BertModel

    def forward(self, batch: Batch) -> Tensor:
        """Return what the head says of each row, (B, ...)."""
        raise NotImplementedError

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss over the rows, a scalar."""
        raise NotImplementedError


class Task(Protocol):
    """A task; examples are whatever its reader makes of a row."""

    @property
    def name(self) -> str:
        """The task's name on the command line."""
        ...

    @property
    def max_length(self) -> int:
        """Longest row in tokens."""
        ...

    def read(self, path: Path, labelled: bool) -> Iterator[Any]:
        """Yield the examples in a file; raises `UserError` naming file and line."""
        ...

    def text_line(self, line: str, where: str) -> Any:
        """Return the unlabelled example on a line of plain text."""
        ...

    def encode(self, examples: Sequence[Any], tokenizer: TextTokenizer) -> list[Feature]:
        """Return the features of the examples, in order."""
        ...

    def model(self, config: ModelConfig) -> TaskModel:
        """Return the encoder with this task's head; its weights are not yet those of a checkpoint."""
        ...

    def scores(self, outputs: Sequence[np.ndarray], examples: Sequence[Any]) -> dict[str, float]:
        """Return the official metrics by name, the one that chooses between runs first."""
        ...

    def baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> dict[str, float]:
        """Return the metrics on `examples` of always answering what is most frequent in `train`."""
        ...

    def answers(self, outputs: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """Return for each row what `predict` writes: the answer, and ``probabilities`` where there are classes."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return what is kept in ``task.json``, from which the task can be made again."""
        ...

    def hf_settings(self) -> dict[str, Any]:
        """Return what ``config.json`` needs beside the encoder's shape for ``transformers`` to load the model."""
        ...


def make_batch(features: Sequence[Feature]) -> Batch:
    """Pad the features to the longest of them."""
    lengths = np.array([len(feature.input_ids) for feature in features])
    places = np.arange(lengths.max())
    mask = torch.from_numpy(places < lengths[:, None])
    input_ids = np.zeros(mask.shape, dtype=np.int64)
    input_ids[mask.numpy()] = np.concatenate([feature.input_ids for feature in features])
    starts = np.array([feature.segment_b_start for feature in features])
    types = torch.from_numpy(places >= starts[:, None]) & mask
    targets = [feature.target for feature in features if feature.target is not None]
    target = torch.tensor(targets, dtype=torch.float32) if targets else None
    return Batch(torch.from_numpy(input_ids), types.long(), mask, real_tokens(mask), target)
