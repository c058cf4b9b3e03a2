"""Threads beside a training, for batches and snapshots; and how many compute on a CPU."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Self, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ...pipeline.counters import count_of
from ..notices import print_notice

T = TypeVar("T")


def use_threads(recorded: int | None, device: torch.device) -> int | None:
    """Compute with as many threads as the run did so far, `recorded`, and return their number.

    The number of threads decides the order of sums, and with it the last bits of the weights.
    ``OMP_NUM_THREADS`` overrides it; a line says what changes. A run on a GPU has no such number
    (None), and a new one takes what PyTorch offers.
    """
    if device.type != "cpu":
        return None
    offered = torch.get_num_threads()
    chosen = recorded or offered
    if recorded and recorded != offered:
        differs = ""
        if "OMP_NUM_THREADS" in os.environ:
            chosen = offered
            differs = ": its weights will differ in their last digits"
        elif offered < recorded:
            differs = (
                f" on {count_of(offered, 'core')}; OMP_NUM_THREADS={offered} is faster, but "
                "changes the last digits of the weights"
            )
        print_notice(f"The run began with {recorded} threads and resumes with {chosen}{differs}.")
    # Even if it is the same number: this also forbids MKL to take fewer threads when it sees fit.
    torch.set_num_threads(chosen)
    return chosen


@contextmanager
def kept_threads() -> Iterator[None]:
    """Give the caller's number of threads back as it was."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def prefetch(make: Callable[[int], T], items: Iterable[int]) -> Generator[T, None, None]:
    """Yield ``make(item)`` for each of `items`, computed in a thread up to four items ahead."""
    pending: deque[Future[T]] = deque()
    # One thread: a `RowSequence` caches the block it reads, which threads would take from each
    # other. NumPy and Parquet do their work without the interpreter's lock, beside training.
    pool = ThreadPoolExecutor(1, thread_name_prefix="loader")
    try:
        for item in items:
            pending.append(pool.submit(make, item))
            if len(pending) > 4:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        # Also where the caller stops early and closes the generator: batches that nobody will take
        # are not begun, and no thread reads on.
        pool.shutdown(wait=True, cancel_futures=True)


class SnapshotWriter:
    """Writes copies of tensors in a thread; an error of a write is raised by the next call."""

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
        """Call `write` in the thread with a copy of `values`, tensors nested in any way."""
        # At most two snapshots are in memory, the best model and a checkpoint of the same step;
        # errors of finished writes are raised here.
        while self._pending:
            has_room = len(self._pending) < 2
            if has_room and not self._pending[0].done():
                break
            self._pending.popleft().result()
        # Copies from a GPU queue up on the stream of the training, between two updates: the next
        # update cannot change a tensor before it is copied, and the CPU need not wait. The thread
        # does, for this event, before it reads the copies, which lie in pinned memory.
        copy = tree_map_only(
            Tensor,
            lambda tensor: tensor.detach().to("cpu", non_blocking=tensor.is_cuda, copy=True),
            values,
        )
        copied = None
        if torch.cuda.is_initialized():
            copied = torch.cuda.Event()
            copied.record()

        def write_copy() -> None:
            if copied:
                copied.synchronize()
            write(copy)

        self._pending.append(self._pool.submit(write_copy))

    def wait(self) -> None:
        """Wait until everything is written."""
        while self._pending:
            self._pending.popleft().result()
