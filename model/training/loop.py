"""What both training loops do around their steps: make batches ahead of time, and heed signals."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def prefetch(
    make: Callable[[int], T], items: Iterable[int], depth: int = 4
) -> Generator[T, None, None]:
    """Yield ``make(item)`` for each of `items` in order, computed in one thread up to `depth` items
    ahead.
    """
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


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event, so that the current update is finished and saved; a
    second one kills.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(number, previous[signal.Signals(number)])

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
