"""Instances as tensors: padded batches of rows of similar length, or packed ones of rows one after
the other.

A packed batch has few different shapes, so that a compiled model meets no new ones: its tokens are
padded to a multiple of `TOKEN_BLOCK`, its predictions to one of `PREDICTION_BLOCK`, and its rows to
a number that the caller sets.

Shapes: B rows, L padded length, T real tokens, M predicted tokens, N and P blocks of tokens and of
predictions.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..heads import IGNORED
from .rows import InstanceRows, select

TOKEN_BLOCK = 1024
PREDICTION_BLOCK = 256


class PretrainBatch(NamedTuple):
    """The arguments of ``BertForPreTraining.forward``, in their order; a packed batch has the last
    three.
    """

    input_ids: Tensor
    """(B, L), or packed (N, `TOKEN_BLOCK`)."""
    token_type_ids: Tensor
    attention_mask_BL: Tensor | None
    token_index_T: Tensor | None
    masked_index: Tensor
    """(M,), or packed (P, `PREDICTION_BLOCK`)."""
    masked_ids: Tensor
    next_sentence_label_B: Tensor | None
    position_ids: Tensor | None = None
    row_starts: Tensor | None = None
    max_length: int = 0

    def pin(self) -> "PretrainBatch":
        """Copy the batch to pinned memory, from which a GPU copies without the CPU waiting."""
        return self._map(Tensor.pin_memory)

    def to(self, device: torch.device) -> "PretrainBatch":
        """Copy the batch to `device`."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def _map(self, change: Callable[[Tensor], Tensor]) -> "PretrainBatch":
        return PretrainBatch._make(
            change(part) if isinstance(part, Tensor) else part for part in self
        )


def make_batches(
    rows: InstanceRows, batch_size: int, objective: str = "mlm+nsp", multiple: int = 1
) -> list[PretrainBatch]:
    """Return `rows` in batches of at most `batch_size`, sorted by length so that there is little
    padding.

    Rows are padded to a multiple of `multiple` tokens. `objective` is that of `PretrainConfig`:
    only ``mlm+nsp`` has next-sentence labels; ``ltr`` restores the masked tokens and predicts each
    token but the first from those before.
    """
    order = np.argsort(-rows.lengths, kind="stable")
    parts = (order[first : first + batch_size] for first in range(0, len(order), batch_size))
    return [_make_batch(select(rows, part), objective, multiple) for part in parts]


def pack_batches(
    rows: InstanceRows, batch_size: int, max_length: int, objective: str = "mlm+nsp"
) -> list[PretrainBatch]:
    """Return `rows`, of at most `max_length` tokens, in their order in packed batches of at most
    `batch_size`.

    Batches have nearly equal numbers of rows, and so of tokens. `objective` is as in
    `make_batches`.
    """
    # What pads the tokens are rows too: attention leaves the output of tokens outside of all rows
    # undefined.
    num_rows = batch_size + -(-2 * TOKEN_BLOCK // max_length)
    parts = np.array_split(np.arange(len(rows)), -(-len(rows) // batch_size))
    return [_pack_batch(select(rows, part), max_length, num_rows, objective) for part in parts]


def _pack_batch(
    rows: InstanceRows, max_length: int, num_rows: int, objective: str
) -> PretrainBatch:
    num_tokens, left_to_right = int(rows.offsets[-1]), objective == "ltr"
    ids = (rows.unmasked_ids() if left_to_right else rows.input_ids).astype(np.int64)
    positions = np.arange(num_tokens) - np.repeat(rows.offsets[:-1], rows.lengths)
    types = (positions >= np.repeat(rows.segment_b_start, rows.lengths)).astype(np.int64)
    if left_to_right:
        targets = np.flatnonzero(positions)
        predicted, labels = targets - 1, ids[targets]
    else:
        predicted = np.repeat(rows.offsets[:-1], rows.num_masked) + rows.masked_positions
        labels = rows.masked_ids.astype(np.int64)
    ids, types, positions = (_padded(part, TOKEN_BLOCK) for part in (ids, types, positions))
    positions[num_tokens:] = np.arange(len(positions) - num_tokens) % max_length
    ends = np.append(rows.offsets, np.arange(num_tokens + max_length, len(ids), max_length))
    next_sentence = None
    if objective == "mlm+nsp":
        next_sentence = torch.full((num_rows,), IGNORED)
        next_sentence[: len(rows)] = torch.from_numpy(rows.next_sentence_label.astype(np.int64))
    row_starts = torch.full((num_rows + 1,), len(ids), dtype=torch.int32)
    row_starts[: len(ends)] = torch.from_numpy(ends)
    tokens = (torch.from_numpy(part).view(-1, TOKEN_BLOCK) for part in (ids, types, positions))
    input_ids, token_type_ids, position_ids = tokens
    return PretrainBatch(
        input_ids,
        token_type_ids,
        attention_mask_BL=None,
        token_index_T=None,
        masked_index=torch.from_numpy(_padded(predicted, PREDICTION_BLOCK)).view(
            -1, PREDICTION_BLOCK
        ),
        masked_ids=torch.from_numpy(_padded(labels, PREDICTION_BLOCK, IGNORED)).view(
            -1, PREDICTION_BLOCK
        ),
        next_sentence_label_B=next_sentence,
        position_ids=position_ids,
        row_starts=row_starts,
        max_length=max_length,
    )


def _padded(values: np.ndarray, multiple: int, value: int = 0) -> np.ndarray:
    # Two blocks at least: a single one is a dimension of size 1, for which torch.compile makes a
    # graph of its own.
    return np.pad(
        values, (0, max(2 * multiple - len(values), -len(values) % multiple)), constant_values=value
    )


def _make_batch(rows: InstanceRows, objective: str, multiple: int) -> PretrainBatch:
    num_rows, max_length = len(rows), -(-int(rows.lengths.max()) // multiple) * multiple
    column_L = np.arange(max_length)
    mask_BL = column_L < rows.lengths[:, None]
    left_to_right = objective == "ltr"
    ids_BL = np.zeros(mask_BL.shape, np.int64)
    ids_BL[mask_BL] = rows.unmasked_ids() if left_to_right else rows.input_ids
    types_BL = ((column_L >= rows.segment_b_start[:, None]) & mask_BL).astype(np.int64)
    if left_to_right:
        targets_BL = mask_BL.copy()
        targets_BL[:, 0] = False
        # A token is predicted from the hidden state of the token before it.
        predicted_M, labels_M = np.flatnonzero(targets_BL) - 1, ids_BL[targets_BL]
    else:
        predicted_M = (
            np.repeat(np.arange(num_rows) * max_length, rows.num_masked) + rows.masked_positions
        )
        labels_M = rows.masked_ids.astype(np.int64)
    tensor = torch.from_numpy
    padding = (None, None) if mask_BL.all() else (tensor(mask_BL), tensor(np.flatnonzero(mask_BL)))
    next_sentence_B = (
        tensor(rows.next_sentence_label.astype(np.int64)) if objective == "mlm+nsp" else None
    )
    return PretrainBatch(
        tensor(ids_BL),
        tensor(types_BL),
        *padding,
        tensor(predicted_M),
        tensor(labels_M),
        next_sentence_B,
    )
