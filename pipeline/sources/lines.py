"""The lines of a text file, plain or compressed, from any range of its bytes.

A line belongs to the range in which it begins, so that the ranges of any split give every line exactly once. A
compressed file is one range; of one that is cut off or damaged, what stands before the damage is read, and of one that
expands beyond measure (see `expansion`), what comes before that.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import BinaryIO

from ..execution.counters import Counters
from .compression import is_compressed
from .expansion import decompressed
from .records import InputRange

LONGEST_LINE_BYTES = 1 << 24
"""A longer line is no document of anyone's: it is left out and counted."""

_READ_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


def plan_line_ranges(path: str, name: str, kind: str, num_bytes: int, range_bytes: int) -> list[InputRange]:
    """Cut a file of format `kind` into equal ranges of at most `range_bytes`; a compressed one is a single range."""
    num_ranges = 1 if is_compressed(name) else max(1, -(-num_bytes // range_bytes))
    if num_ranges == 1:
        return [InputRange(path=path, name=name, format=kind)]
    bounds = [num_bytes * index // num_ranges for index in range(num_ranges + 1)]
    return [InputRange(path=path, name=name, format=kind, start=start, stop=stop) for start, stop in pairwise(bounds)]


def read_lines(
    part: InputRange, open_file: Callable[[str], BinaryIO], counters: Counters, *, beyond: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield the place (in bytes of the decompressed file) and the content of each line that begins in the range.

    Lines have no line break; a byte order mark is passed over. With `beyond`, the lines after the range follow too.
    `counters` gets ``oversized_line`` (more than `LONGEST_LINE_BYTES`) and what `decompressed` names.
    """
    with open_file(part.path) as file:
        expanded = decompressed(file, part.name, counters)
        stream = expanded.buffered() if expanded else file
        place = _seek_line(stream, part.start)
        while beyond or part.stop is None or place < part.stop:
            line = stream.readline(LONGEST_LINE_BYTES)
            if not line:
                return
            if len(line) == LONGEST_LINE_BYTES and not line.endswith(b"\n"):
                counters.skip("oversized_line", f"{part.name}, byte {place}")
                place += len(line) + _skip_line(stream)
                continue
            yield place, (line.removeprefix(BOM) if place == 0 else line).rstrip(b"\r\n")
            place += len(line)


def _seek_line(stream: BinaryIO, start: int) -> int:
    """Go to the first line that begins at byte `start` or after it, and return its place."""
    if start == 0:
        return 0
    stream.seek(start - 1)
    return start - 1 + _skip_line(stream)


def _skip_line(stream: BinaryIO) -> int:
    """Pass over the rest of a line, however long, and return its length in bytes."""
    num_bytes = 0
    while piece := stream.readline(_READ_BYTES):
        num_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return num_bytes
