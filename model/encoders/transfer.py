"""The tensors of a batch on their way to a GPU: in one piece of pinned memory, which takes one
allocation and one copy, without waiting for the GPU.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 16
"""Bytes, as kernels read them at once."""


def pin(values: Sequence[Any]) -> list[Any]:
    """Return the values with their tensors in pinned memory."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    num_bytes = sum(-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors)
    pinned = _laid_out(torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True), tensors)
    for tensor, copy in zip(tensors, pinned, strict=True):
        copy.copy_(tensor)
    return _replaced(values, pinned)


def send(values: Sequence[Any], device: torch.device) -> list[Any]:
    """Return the values with their tensors on the device."""
    if device.type == "cuda" and piece_of(values) is None:
        # Before a copy from memory that is not pinned the driver may wait for the GPU.
        values = pin(values)
    tensors = [value for value in values if isinstance(value, Tensor)]
    piece = piece_of(values)
    if piece is None:
        return _replaced(values, [tensor.to(device, non_blocking=True) for tensor in tensors])
    return _replaced(values, _laid_out(piece.to(device, non_blocking=True), tensors))


def piece_of(values: Iterable[Any]) -> Tensor | None:
    """Return the piece of memory, as bytes, that all tensors among the values lie in, None if they
    lie apart.
    """
    pieces = [value._base for value in values if isinstance(value, Tensor)]
    piece = pieces[0] if pieces else None
    if piece is None or any(other is not piece for other in pieces):
        return None
    return piece if piece.dtype == torch.uint8 else None


def _laid_out(piece: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of these shapes and types that lie in the piece one behind the other."""
    places: list[Tensor] = []
    start = 0
    for tensor in tensors:
        place = piece[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        places.append(place)
        start += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    return places


def _replaced(values: Sequence[Any], tensors: Iterable[Tensor]) -> list[Any]:
    rest = iter(tensors)
    return [next(rest) if isinstance(value, Tensor) else value for value in values]
