"""Batches made ahead of the step that needs them, in a thread."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def prefetch(make: Callable[[int], T], items: Iterable[int], depth: int = 4) -> Generator[T, None, None]:
    """Yield ``make(item)`` for each of `items` in order, computed in one thread up to `depth` items ahead."""
    pending: deque[Any] = deque()
    pool = ThreadPoolExecutor(1, thread_name_prefix="loader")
    try:
        for item in items:
            pending.append(pool.submit(make, item))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
