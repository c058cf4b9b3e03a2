"""Make batches ahead of time, in a thread."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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
