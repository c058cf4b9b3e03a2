"""Write snapshots of a run in a thread, while training continues."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

T = TypeVar("T")

MOST_WAITING = 2
"""Snapshots in memory at once: the best model, and a checkpoint of the same step."""


class SnapshotWriter:
    """Copies tensors, and writes the copies in a thread, one after the other in their order.

    An error of a write is raised by the next call. Leaving the ``with`` block waits for all writes.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="snapshots")
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._pool.shutdown(wait=True)
        if kind is None:  # else the other error is the reason
            self.wait()

    def submit(self, write: Callable[[T], None], values: T) -> None:
        """Call `write` in the thread with a copy of `values`, whose tensors, nested in any way, may
        change as soon as this returns.
        """
        self._make_room()
        copy = tree_map_only(Tensor, _copy_to_cpu, values)
        # Copies from a GPU queue up on the stream of the training, between two updates: the next
        # update cannot change a tensor before it is copied, and the CPU need not wait. The thread
        # does, for this event, before it reads the copies.
        copied = None
        if torch.cuda.is_initialized():
            copied = torch.cuda.Event()
            copied.record()
        self._pending.append(self._pool.submit(_write, write, copy, copied))

    def _make_room(self) -> None:
        """Wait until one more snapshot may be in memory; raise the errors of finished writes."""
        while self._pending:
            has_room = len(self._pending) < MOST_WAITING
            if has_room and not self._pending[0].done():
                return
            self._pending.popleft().result()

    def wait(self) -> None:
        """Wait until everything is written."""
        while self._pending:
            self._pending.popleft().result()


def _copy_to_cpu(tensor: Tensor) -> Tensor:
    # With CUDA this is only queued, into pinned memory: an event tells when the copy is there.
    return tensor.detach().to("cpu", non_blocking=tensor.is_cuda, copy=True)


def _write(write: Callable[[T], None], copy: T, copied: "torch.cuda.Event | None") -> None:
    if copied:
        copied.synchronize()
    write(copy)
