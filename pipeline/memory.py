"""Return freed memory to the system."""

import ctypes
import sys

# glibc's; musl and macOS have none.
_MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def trim_heap() -> None:
    """Return the heap's free memory to the system, where its allocator can (glibc)."""
    if _MALLOC_TRIM:
        _MALLOC_TRIM(0)
