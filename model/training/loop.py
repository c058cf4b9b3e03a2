"""Pieces of both training loops: batches made ahead of time, and a way to stop early."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

T = TypeVar("T")


def prefetch(
    make: Callable[[int], T], items: Iterable[int], depth: int = 4
) -> Generator[T, None, None]:
    """Yield ``make(item)`` for each of `items` in order, computed in one thread up to `depth` items
    ahead.
    """
    pending: deque[Future[T]] = deque()
    # One thread: a `RowSequence` caches the block it reads, which threads would take from each
    # other. NumPy and Parquet do their work without the interpreter's lock, beside training.
    pool = ThreadPoolExecutor(1, thread_name_prefix="loader")
    try:
        for item in items:
            pending.append(pool.submit(make, item))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        # Also where the caller stops early and closes the generator: batches that nobody will take
        # are not begun, and no thread reads on.
        pool.shutdown(wait=True, cancel_futures=True)


class StopRequest:
    """Lets another thread end a training early: the current update is finished, and all is saved.

    A training loop enters it while it can stop, and looks at it before each update. The command
    line's kind handles signals between entering and leaving, and only then.
    """

    def __init__(self) -> None:
        self._event = threading.Event()

    def request(self) -> None:
        """Ask the training to stop; may be called from any thread."""
        self._event.set()

    @property
    def is_requested(self) -> bool:
        """Whether the training has been asked to stop."""
        return self._event.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
