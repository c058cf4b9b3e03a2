"""What the user names on the command line, as ranges of files that can be read each on its own."""

import posixpath
from collections.abc import Iterator, Sequence

from . import storage
from .books import read_book
from .config import IngestConfig
from .errors import UserError
from .records import InputRange, RawDocument
from .tables import plan_table_ranges, read_table
from .tally import Tally
from .wikipedia import plan_dump_ranges, read_dump

SUFFIXES = {
    ".xml": "wikipedia",
    ".xml.bz2": "wikipedia",
    ".xml.gz": "wikipedia",
    ".xml.xz": "wikipedia",
    ".parquet": "parquet",
    ".txt": "text",
}
MIN_RANGE_BYTES = 1 << 18
MAX_RANGE_BYTES = 1 << 24


def find_inputs(sources: Sequence[str], config: IngestConfig) -> list[InputRange]:
    """Return every file that `sources` (files, folders, globs) name, whole, in the order given.

    A file of a folder that is in no known format is left out; raise `UserError` where a source names no file, a file
    of unknown format, or a file that another source named before.
    """
    inputs: list[InputRange] = []
    for source in sources:
        found = [entry for path in storage.find_files(source) if (entry := _input_at(path, source, config))]
        if not found:
            raise UserError(f"{source} names no file in a known format ({', '.join(SUFFIXES)}); or say --format.")
        inputs.extend(found)
    _refuse_repeated(inputs)
    return inputs


def _input_at(path: str, source: str, config: IngestConfig) -> InputRange | None:
    suffix = max((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), key=len, default=None)
    if suffix is None and (path != source or config.format == "auto"):
        return None
    file_format = config.format if config.format != "auto" else SUFFIXES[str(suffix)]
    return InputRange(path=path, name=_name_of(path, source), format=file_format)


def _name_of(path: str, source: str) -> str:
    """Return the part of `path` that is the same wherever the source lies: the folder's own name and what follows."""
    root = source.rstrip("/")
    below = posixpath.relpath(path, root) if path.startswith(root + "/") else "."
    return posixpath.basename(path) if below == "." else f"{posixpath.basename(root)}/{below}"


def _refuse_repeated(inputs: Sequence[InputRange]) -> None:
    seen: set[str] = set()
    for entry in inputs:
        if entry.path in seen:
            raise UserError(f"{entry.path} is named by two of the sources: give it once.")
        seen.add(entry.path)


def plan_units(inputs: Sequence[InputRange]) -> list[list[InputRange]]:
    """Cut large files into ranges and put small ones together: units of work of similar size.

    They depend on the files' sizes alone, so that every run has the same units.
    """
    sizes = [storage.size(entry.path) for entry in inputs]
    range_bytes = min(max(sum(sizes) // 64, MIN_RANGE_BYTES), MAX_RANGE_BYTES)
    units: list[list[InputRange]] = []
    room = 0
    for entry, size in zip(inputs, sizes, strict=True):
        ranges = _cut(entry, size, range_bytes)
        if len(ranges) == 1 and size <= room:
            units[-1].append(ranges[0])
            room -= size
        else:
            units.extend([part] for part in ranges)
            room = range_bytes - size
    return units


def _cut(entry: InputRange, size: int, range_bytes: int) -> list[InputRange]:
    if entry.format == "wikipedia":
        return plan_dump_ranges(entry.path, entry.name, size, range_bytes)
    if entry.format == "parquet":
        return plan_table_ranges(entry.path, entry.name, storage.open_input)
    return [entry]


def range_bytes(part: InputRange) -> int:
    """Return how much there is to read in a range, in bytes, as far as it tells."""
    if part.stop is None or part.format == "parquet":
        return storage.size(part.path)
    return part.stop - part.start


def read_range(part: InputRange, config: IngestConfig, tally: Tally) -> Iterator[RawDocument]:
    """Yield the documents of one range; what cannot be read is counted in `tally`."""
    if part.format == "wikipedia":
        return read_dump(part, storage.open_input, tally)
    if part.format == "parquet":
        return read_table(part, storage.open_input, tally, config.text_column)
    return read_book(part, storage.open_input, tally, config.documents)
