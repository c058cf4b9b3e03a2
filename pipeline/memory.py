"""Keep memory bounded: cut what comes into lists, and return to the system what was freed."""

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

# glibc's; musl and macOS have none.
_MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def trim_heap() -> None:
    """Return the heap's free memory to the system, where its allocator can (glibc)."""
    if _MALLOC_TRIM:
        _MALLOC_TRIM(0)


def cut_by_size(items: Iterable[T], size_of: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield the items in lists, each of at least this size; the last has the rest."""
    held = []
    size = 0
    for item in items:
        held.append(item)
        size += size_of(item)
        if size >= least:
            yield held
            held = []
            size = 0
    if held:
        yield held
