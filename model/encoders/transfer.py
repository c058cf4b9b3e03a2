"""The tensors of a batch on their way to a GPU: in one piece of pinned memory, which takes one
allocation and one copy, without waiting for the GPU.

A batch is a named tuple whose field `piece` holds the bytes of all its tensors, or None.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def pin(batch: Any) -> Any:
    """Return a batch with its piece in pinned memory; its tensors stay where they are."""
    tensors = [value for value in batch if isinstance(value, Tensor)]
    num_bytes = sum(map(_room, tensors))
    piece = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
    content = piece.numpy()  # whose views take a tenth of the time of a tensor's
    start = 0
    for tensor in tensors:
        values = tensor.numpy().reshape(-1).view(np.uint8)
        content[start : start + len(values)] = values
        start += _room(tensor)
    return batch._replace(piece=piece)


def send(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on the device, on a GPU in its piece there."""
    if device.type != "cuda":
        return batch._make(
            value.to(device) if isinstance(value, Tensor) else value for value in batch
        )
    if batch.piece is None:
        # Before a copy from memory that is not pinned the driver may wait for the GPU.
        batch = pin(batch)
    piece = batch.piece.to(device, non_blocking=True)
    sent: list[Any] = []
    start = 0
    for value in batch._replace(piece=None):
        if isinstance(value, Tensor):
            place = piece[start : start + value.nbytes].view(value.dtype).view(value.shape)
            sent.append(place)
            start += _room(value)
        else:
            sent.append(value)
    return batch._make(sent)._replace(piece=piece)


def _room(tensor: Tensor) -> int:
    # Whole 16 bytes, which kernels read at once.
    return -(-tensor.nbytes // 16) * 16
