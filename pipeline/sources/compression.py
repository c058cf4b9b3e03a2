"""The bytes of compressed files: of one that is cut off or damaged, what stands before the damage."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

import pyarrow as pa

from ..execution.counters import Counters

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")

_READ_BYTES = 1 << 20
# Arrow keeps what it has decompressed of a call in which the file ends too early: small calls lose little.
_ZSTD_READ_BYTES = 1 << 13
_BUFFER_BYTES = 1 << 17

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What decompressing raises; see `is_failure`."""


def is_failure(error: Exception) -> bool:
    """Tell whether an error has an error number: then the disk or the network failed, and the data may be good."""
    return isinstance(error, OSError) and error.errno is not None


def is_compressed(name: str) -> bool:
    """Tell whether a file's name says that it is compressed."""
    return name.lower().endswith(COMPRESSED_SUFFIXES)


def without_compression(name: str) -> str:
    """Return a file's name without the suffix of its compression.

    >>> without_compression("part-0.jsonl.zst")
    'part-0.jsonl'
    """
    suffix = next((suffix for suffix in COMPRESSED_SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]


def open_decompressed(path: str, name: str, open_file: Callable[[str], BinaryIO], counters: Counters) -> BinaryIO:
    """Open a file for reading bytes, decompressed as its `name` says, a small part of it in memory at a time.

    A compressed stream cannot be sought. Where it is damaged or cut off it ends, and `counters` gets ``corrupt_file``.
    """
    file = open_file(path)
    if not is_compressed(name):
        return file
    return cast(BinaryIO, io.BufferedReader(_Decompressed(file, name, counters), _BUFFER_BYTES))


class _Decompressed(io.RawIOBase):
    """The decompressed bytes of a file, up to the first damage."""

    def __init__(self, file: BinaryIO, name: str, counters: Counters) -> None:
        self._file = file
        self._name = name
        self._tally = counters
        self._blocks = decompressed_blocks(file, name)
        self._block = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not self._block:
            self._block = memoryview(self._next_block())
        num_bytes = min(len(buffer), len(self._block))
        buffer[:num_bytes] = self._block[:num_bytes]
        self._block = self._block[num_bytes:]
        return num_bytes

    def _next_block(self) -> bytes:
        try:
            return next(self._blocks, b"")
        except DAMAGE as error:
            if is_failure(error):
                raise
            self._tally.skip("corrupt_file", f"{self._name}: {error}")
            return b""

    def close(self) -> None:
        self._file.close()
        super().close()


def decompressed_blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield what a compressed file holds, one raw read at a time: damage then costs nothing of what stood before it.

    Raise one of `DAMAGE` where it is damaged or cut off; the file stays open.
    """
    suffix = name.lower().rpartition(".")[2]
    if suffix == "zst":
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        while block := stream.read(_ZSTD_READ_BYTES):
            yield block
        return
    opener = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}[suffix]
    with opener(file) as opened:
        while block := opened.read1(_READ_BYTES):  # pyright: ignore[reportAttributeAccessIssue]
            yield block
