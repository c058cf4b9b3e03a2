"""Read the lines of a text file, plain or compressed, from any range of its bytes.

A line belongs to the range in which it begins, so the ranges of any split give every line exactly
once. A compressed file is one range.

    bytes    f i r s t \\n s e c o n d \\n t h i r d \\n
    ranges   [     0      ) [     1     ) [  2  )
    lines    first, second  third         (none)
"""

from collections.abc import Iterator
from typing import BinaryIO

from ..config import IngestConfig
from ..counters import Counters
from ..encodings import UTF_8
from .compression import is_compressed
from .records import Input, InputRange

LONGEST_LINE_BYTES = 1 << 24
"""A longer line is not a real document: it is left out and counted."""

_READ_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


def plan_lines(file: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut a file into equal ranges of at most `range_bytes`.

    A compressed one, or one that is not UTF-8 and is recoded while it is read, is a single range.
    """
    if is_compressed(file.name) or file.encoding != UTF_8:
        return file.as_one_range()
    return file.cut_evenly(range_bytes)


def read_lines(
    stream: BinaryIO, input_range: InputRange, counters: Counters, *, beyond: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the content, without its break, of each line that begins in a range.

    Offsets count in the decompressed bytes. With `beyond` the lines after the range follow too.
    `counters` gets ``oversized_line`` (more than `LONGEST_LINE_BYTES`).
    """
    offset = input_range.start
    if offset:
        # One byte earlier: if it is a line break, the line at `start` is ours.
        #   bytes     s e c o n d \n t h i r d          start 8: skipping from 7 ends at 12
        #   offsets   0 1 2 3 4 5 6  7 8 ...            start 7: skipping from 6 ends at 7
        stream.seek(offset - 1)
        offset += _skip_line(stream) - 1
    while beyond or input_range.stop is None or offset < input_range.stop:
        line = stream.readline(LONGEST_LINE_BYTES)
        if not line:
            return
        num_bytes = len(line)
        if num_bytes == LONGEST_LINE_BYTES and not line.endswith(b"\n"):
            counters.skip("oversized_line", f"{input_range.name}, byte {offset}")
            offset += num_bytes + _skip_line(stream)
            continue
        # Not only at offset 0: files may have been joined.
        yield offset, line.removeprefix(BOM).rstrip(b"\r\n")
        offset += num_bytes


def decode(raw: bytes, location: str, counters: Counters, encoding: str = "utf-8") -> str:
    """Return bytes as text, with U+FFFD for bad ones.

    `counters` gets ``invalid_utf8``, or ``invalid_encoding`` if the encoding is another.
    """
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        reason = "invalid_utf8" if encoding == "utf-8" else "invalid_encoding"
        counters.skip(reason, location)
        return raw.decode(encoding, "replace")


def _skip_line(stream: BinaryIO) -> int:
    """Skip the rest of a line, however long, and return its length in bytes."""
    num_bytes = 0
    while piece := stream.readline(_READ_BYTES):
        num_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return num_bytes
