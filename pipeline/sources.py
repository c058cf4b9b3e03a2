"""What the user names on the command line, as ranges of files that can be read each on its own."""

import os.path
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

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


class Input(NamedTuple):
    """One whole file to read."""

    path: str
    name: str  # as in ids and messages, see `records.InputRange`
    format: str
    num_bytes: int


class PlannedUnit(NamedTuple):
    """What one worker reads at a time: ranges of files, with what they weigh together."""

    ranges: list[InputRange]
    num_bytes: int


def find_inputs(sources: Sequence[str], output: str, config: IngestConfig) -> tuple[list[Input], list[str]]:
    """Return every file that `sources` (files, folders, globs) name, in the order given, and the names left out.

    Files of a folder that are in no known format are left out, unless ``--format`` says what they are. Raise
    `UserError` where a source names no file, or one that another source named before, or holds the `output`.
    """
    inputs: list[Input] = []
    left_out: list[str] = []
    for source in sources:
        found = storage.find_files(source)
        _refuse_output_within(source, output, found)
        if not found:
            raise UserError(f"{source} names no file: there is nothing there.")
        known = {path: kind for path in found if (kind := _format_of(path, config))}
        if not known:
            raise UserError(
                f"{source} names no file in a known format ({', '.join(SUFFIXES)}): rename it or say --format."
            )
        inputs.extend(Input(path, _name_of(path, source), kind, found[path]) for path, kind in known.items())
        left_out.extend(_name_of(path, source) for path in found if path not in known)
    _refuse_repeated(inputs)
    return inputs, left_out


def _format_of(path: str, config: IngestConfig) -> str | None:
    suffix = max((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), key=len, default="")
    return SUFFIXES.get(suffix) if config.format == "auto" else config.format


def _name_of(path: str, source: str) -> str:
    """Return the part of `path` that is the same wherever the source lies: its own last name and what follows."""
    root, path = _absolute(storage.glob_root(source) if path != source else source), _absolute(path)
    below = path.removeprefix(root.rstrip("/") + "/") if path != root else ""
    return posixpath.join(posixpath.basename(root), below).rstrip("/")


def _absolute(path: str) -> str:
    return path.rstrip("/") if storage.is_remote(path) else os.path.abspath(path)


def _refuse_output_within(source: str, output: str, found: Iterable[str]) -> None:
    """What a run writes must not be input to the next one, which could not resume it."""
    place = f"{_absolute(output)}/"
    in_folder = not storage.has_wildcard(source) and place.startswith(f"{_absolute(source)}/")
    if in_folder or any(_absolute(path).startswith(place) for path in found):
        raise UserError(f"--output {output} lies in the source {source} and would be read with it: give another place.")


def _refuse_repeated(inputs: Sequence[Input]) -> None:
    paths: set[str] = set()
    named: dict[str, str] = {}
    for entry in inputs:
        if (path := _absolute(entry.path)) in paths:
            raise UserError(f"{entry.path} is named by two of the sources: give it once.")
        paths.add(path)
        if (other := named.setdefault(entry.name, path)) != path:
            # Names stand in the ids of documents: the second would be taken for a copy of the first.
            raise UserError(f"{other} and {path} have one name, {entry.name}: give the folder that holds both.")


def plan_units(inputs: Sequence[Input]) -> list[PlannedUnit]:
    """Cut large files into ranges and put small ones together: units of work of similar size.

    They depend on the files' sizes alone, so that every run has the same units.
    """
    total = sum(entry.num_bytes for entry in inputs)
    range_bytes = min(max(total // 64, MIN_RANGE_BYTES), MAX_RANGE_BYTES)
    units: list[PlannedUnit] = []
    room = 0
    for entry in inputs:
        ranges = _cut(entry, range_bytes)
        if len(ranges) == 1 and entry.num_bytes <= room:
            units[-1] = PlannedUnit([*units[-1].ranges, *ranges], units[-1].num_bytes + entry.num_bytes)
            room -= entry.num_bytes
        else:
            units.extend(PlannedUnit([part], entry.num_bytes // len(ranges)) for part in ranges)
            room = range_bytes - entry.num_bytes
    return units


def _cut(entry: Input, range_bytes: int) -> list[InputRange]:
    if entry.format == "wikipedia":
        return plan_dump_ranges(entry.path, entry.name, entry.num_bytes, range_bytes)
    if entry.format == "parquet":
        return plan_table_ranges(entry.path, entry.name, storage.open_input)
    return [InputRange(path=entry.path, name=entry.name, format=entry.format)]


def read_range(part: InputRange, config: IngestConfig, tally: Tally) -> Iterator[RawDocument]:
    """Yield the documents of one range; what cannot be read is counted in `tally`."""
    if part.format == "wikipedia":
        return read_dump(part, storage.open_input, tally)
    if part.format == "parquet":
        return read_table(part, storage.open_input, tally, config.text_column)
    return read_book(part, storage.open_input, tally, config.documents)
