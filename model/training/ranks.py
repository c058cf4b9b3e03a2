"""The processes that train together, one per GPU, as torchrun starts them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from ...pipeline.errors import UserError
from .device import find_device


class Ranks(NamedTuple):
    """This process among those that train together (just one without torchrun), and its device."""

    rank: int
    num_ranks: int
    device: torch.device

    def rows(self, batch_size: int) -> np.ndarray:
        """Return the indices, int64, of this rank's rows in a global batch."""
        return np.arange(batch_size * self.rank // self.num_ranks, batch_size * (self.rank + 1) // self.num_ranks)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of `values` over all ranks, in place."""
        if self.num_ranks > 1:
            dist.all_reduce(values)
        return values

    def sum_all(self, values: list[torch.Tensor]) -> None:
        """Replace each of `values`, all of one dtype, by its sum over all ranks, with a single all-reduce."""
        if self.num_ranks > 1:
            flat = self.sum(torch.cat([value.flatten() for value in values]))
            for value, part in zip(values, flat.split([value.numel() for value in values]), strict=True):
                value.copy_(part.view_as(value))

    def wait(self) -> None:
        """Wait until all ranks are here."""
        # On a GPU the sum is only queued; reading the result makes the CPU wait for it.
        self.sum(torch.zeros(1, device=self.device)).item()


@contextmanager
def join_ranks(device_name: str, batch_size: int) -> Iterator[Ranks]:
    """Join the processes that torchrun started, or run alone; each needs at least one row of a batch."""
    device = find_device(device_name)
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if batch_size < num_ranks:
        raise UserError(f"--batch-size is {batch_size}, but {num_ranks} processes need at least one row each.")
    if num_ranks == 1:
        yield Ranks(0, 1, device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # Imported at the first update, torch._dynamo would keep the group as a default argument. The group would outlive
    # destroy_process_group, and gloo's threads, which own tensors, would abort one exit in five.
    import_module("torch._dynamo")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), num_ranks, device)
    finally:
        dist.destroy_process_group()
