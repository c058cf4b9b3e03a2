"""The lines of a text file, plain or compressed, from any range of its bytes.

A line belongs to the range in which it begins, so the ranges of any split give every line exactly
once. A compressed file is one range.
"""

from collections.abc import Iterator
from typing import BinaryIO

from ..config import IngestConfig
from ..execution.counters import Counters
from .compression import is_compressed
from .records import Input, InputRange, OpenFile

LONGEST_LINE_BYTES = 1 << 24
"""A longer line is not a real document: it is left out and counted."""

_READ_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


def plan_lines(
    entry: Input, open_file: OpenFile, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Cut a file into equal ranges of at most `range_bytes`; a compressed one is a single range."""
    return entry.cut([0]) if is_compressed(entry.name) else entry.cut_evenly(range_bytes)


def read_lines(
    stream: BinaryIO, part: InputRange, counters: Counters, *, beyond: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the content of each line of `stream` that begins in the range `part`,
    without its break.

    Offsets count in the decompressed bytes. With `beyond` the lines after the range follow too.
    `counters` gets ``oversized_line`` (more than `LONGEST_LINE_BYTES`).
    """
    offset = part.start
    if offset:
        stream.seek(offset - 1)
        offset += _skip_line(stream) - 1
    while beyond or part.stop is None or offset < part.stop:
        line = stream.readline(LONGEST_LINE_BYTES)
        if not line:
            return
        if len(line) == LONGEST_LINE_BYTES and not line.endswith(b"\n"):
            counters.skip("oversized_line", f"{part.name}, byte {offset}")
            offset += len(line) + _skip_line(stream)
            continue
        yield offset, (line.removeprefix(BOM) if offset == 0 else line).rstrip(b"\r\n")
        offset += len(line)


def decode(raw: bytes, location: str, counters: Counters, encoding: str = "utf-8") -> str:
    """Return bytes as text, with U+FFFD for bad ones (``invalid_utf8`` or ``invalid_encoding`` in
    `counters`).
    """
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        counters.skip("invalid_utf8" if encoding == "utf-8" else "invalid_encoding", location)
        return raw.decode(encoding, "replace")


def _skip_line(stream: BinaryIO) -> int:
    """Skip the rest of a line, however long, and return its length in bytes."""
    num_bytes = 0
    while piece := stream.readline(_READ_BYTES):
        num_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return num_bytes
