"""Instances as tensors: padded batches of rows of similar length.

Shapes: B rows, L padded length, T real tokens, M predicted tokens.
"""

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from .data import InstanceRows, select


class PretrainBatch(NamedTuple):
    """The arguments of ``BertForPreTraining.forward``, in their order."""

    input_ids_BL: Tensor
    token_type_ids_BL: Tensor
    attention_mask_BL: Tensor | None
    token_index_T: Tensor | None
    masked_index_M: Tensor
    masked_ids_M: Tensor
    next_sentence_label_B: Tensor | None

    def pin(self) -> "PretrainBatch":
        """Copy the batch to pinned memory, from which a GPU copies without the CPU waiting."""
        return PretrainBatch(*cast(Any, (None if x is None else x.pin_memory() for x in self)))

    def to(self, device: torch.device) -> "PretrainBatch":
        """Copy the batch to `device`."""
        return PretrainBatch(*cast(Any, (None if x is None else x.to(device, non_blocking=True) for x in self)))


def make_batches(
    rows: InstanceRows, batch_size: int, objective: str = "mlm+nsp", multiple: int = 1
) -> list[PretrainBatch]:
    """Return `rows` in batches of at most `batch_size`, sorted by length so that there is little padding.

    Rows are padded to a multiple of `multiple` tokens. `objective` is that of `PretrainConfig`: only ``mlm+nsp`` has
    next-sentence labels; ``ltr`` restores the masked tokens and predicts each token but the first from those before.
    """
    order = np.argsort(-rows.lengths, kind="stable")
    parts = (order[first : first + batch_size] for first in range(0, len(order), batch_size))
    return [_make_batch(select(rows, part), objective, multiple) for part in parts]


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
        predicted_M = np.repeat(np.arange(num_rows) * max_length, rows.num_masked) + rows.masked_positions
        labels_M = rows.masked_ids.astype(np.int64)
    tensor = torch.from_numpy
    padding = (None, None) if mask_BL.all() else (tensor(mask_BL), tensor(np.flatnonzero(mask_BL)))
    next_sentence_B = tensor(rows.next_sentence_label.astype(np.int64)) if objective == "mlm+nsp" else None
    return PretrainBatch(
        tensor(ids_BL), tensor(types_BL), *padding, tensor(predicted_M), tensor(labels_M), next_sentence_B
    )
