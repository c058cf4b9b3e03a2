"""What the user names on the command line, as ranges of files that can be read each on its own.

`FORMATS` says for each format how a file is cut into ranges and how a range is read. The format of a file is what
``--format`` says; else its name tells it, or its first bytes where the name has no suffix (WikiExtractor's ``wiki_00``)
or ``.json``, which may be anything.
"""

import json
import os.path
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..config import IngestConfig
from ..errors import UserError
from ..execution import storage
from ..execution.counters import Counters
from . import hub
from .archives import SUFFIXES as ARCHIVE_SUFFIXES
from .archives import plan_archive_ranges, read_archive
from .books import read_book
from .compression import is_compressed, open_decompressed, without_compression
from .jsonl import check_first_objects, json_table, read_json_lines
from .lines import plan_line_ranges
from .records import InputRange, RawDocument
from .tables import plan_data_set_ranges, plan_table_ranges, read_data_set, read_table
from .wikiextractor import HEAD, read_extracted
from .wikipedia import plan_dump_ranges, read_dump

MIN_RANGE_BYTES = 1 << 18
MAX_RANGE_BYTES = 1 << 24
KNOWN_NAMES = ".xml, .txt, .tar, .zip, .jsonl, .ndjson, .json with an object a line, .parquet, WikiExtractor's wiki_00"

_SNIFFED_BYTES = 1 << 16
_DUMP_NAME = re.compile(r"\.xml(?:-p\d+p\d+)?(?:\.(?:bz2|gz|xz))?$")
_DUMP_INDEX_NAME = re.compile(r"multistream-index\d*\.txt(?:-p\d+p\d+)?(?:\.bz2)?$")
_SUFFIXES = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class Input(NamedTuple):
    """One whole file, or data set, to read."""

    path: str
    name: str  # as in ids and messages, see `records.InputRange`
    format: str
    num_bytes: int
    digest: str = ""
    """Tells the content of what is no file."""


class PlannedUnit(NamedTuple):
    """What one worker reads at a time: ranges of files, with what they weigh together."""

    ranges: list[InputRange]
    num_bytes: int


def find_inputs(sources: Sequence[str], output: str, config: IngestConfig) -> tuple[list[Input], list[str]]:
    """Return every file and data set that `sources` name, in the order given, and the names of the files left out.

    A source is a file, a folder, a glob, or a data set as `hub` names it. Files of a folder that are in no known format
    are left out, unless ``--format`` says what they are. Raise `UserError` where a source names no file, or one that
    another source named before, or holds the `output`.
    """
    inputs: list[Input] = []
    left_out: list[str] = []
    for source in sources:
        if source.startswith(hub.PREFIX) or config.format == "hf" or hub.is_saved(source):
            if folder := hub.folder_of(source):
                _refuse_output_within(folder, output, ())
            found = hub.open_set(source)
            inputs.append(Input(found.address, found.name, "hf", found.num_bytes, found.digest))
            continue
        files, others = _find_files(source, output, config)
        inputs.extend(files)
        left_out.extend(others)
    _refuse_repeated(inputs)
    return inputs, left_out


def _find_files(source: str, output: str, config: IngestConfig) -> tuple[list[Input], list[str]]:
    found = storage.find_files(source)
    _refuse_output_within(source, output, found)
    if not found:
        raise UserError(f"{source} names no file: there is nothing there.")
    if strange := [path for path in found if not _is_utf8(_name_of(path, source))]:
        raise UserError(f"{os.fsencode(strange[0])!r} is no name in UTF-8, as documents and manifests need: rename it.")
    known = {path: kind for path in found if (kind := _format_of(path, config))}
    if not known:
        raise UserError(f"{source} names no file in a known format ({KNOWN_NAMES}): rename it or say --format.")
    inputs = [Input(path, _name_of(path, source), kind, found[path]) for path, kind in known.items()]
    return inputs, [_name_of(path, source) for path in found if path not in known]


def _is_utf8(path: str) -> bool:
    """Whether a file's name is UTF-8; Python keeps the bytes of one that is not as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def _format_of(path: str, config: IngestConfig) -> str | None:
    """Return the format that ``--format``, the name or the first bytes of a file say; None where nothing does."""
    name = posixpath.basename(path).lower()
    if config.format in ("auto", "text", "gutenberg") and name.endswith(ARCHIVE_SUFFIXES):
        return "archive"
    if config.format != "auto":
        return config.format
    if _DUMP_NAME.search(name):
        return "wikipedia"
    if _DUMP_INDEX_NAME.search(name):
        return None
    suffix = posixpath.splitext(without_compression(name))[1]
    return _SUFFIXES.get(suffix) or (_sniffed_format(path) if suffix in ("", ".json") else None)


def _sniffed_format(path: str) -> str | None:
    """Return the format that the first bytes of a file show."""
    with open_decompressed(path, path, storage.open_input, Counters()) as file:
        head = file.read(_SNIFFED_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(HEAD):
        return "wikiextractor"
    if head.startswith(b"<mediawiki") or (head.startswith(b"<?xml") and b"<mediawiki" in head):
        return "wikipedia"
    if head.startswith(b"PAR1") and not is_compressed(path):
        return "parquet"
    return "jsonl" if _begins_with_object(head) else None


def _begins_with_object(head: bytes) -> bool:
    """Whether a file's first line is a JSON object, or longer than its `head` and begins like one."""
    line, end, _ = head.partition(b"\n")
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return not end and len(head) > _SNIFFED_BYTES // 2 and re.match(rb'\{\s*"', line) is not None


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
    places: dict[str, str] = {}
    named: dict[str, str] = {}
    for entry in inputs:
        path = _absolute(entry.path)
        place = path if storage.is_remote(path) or entry.format == "hf" else os.path.realpath(path)
        if other := places.get(place):
            same = f"{entry.path} is" if _absolute(other) == path else f"{other} and {entry.path} are one file,"
            raise UserError(f"{same} named twice by the sources: give it once.")
        places[place] = entry.path
        if (other := named.setdefault(entry.name, path)) != path:
            # Names stand in the ids of documents: the second would be taken for a copy of the first.
            raise UserError(f"{other} and {path} have one name, {entry.name}: give the folder that holds both.")


def plan_units(inputs: Sequence[Input], config: IngestConfig) -> list[PlannedUnit]:
    """Cut large files into ranges and put small ones together: units of work of similar size.

    They depend on the files alone, so that every run has the same units. Raise `UserError` where a file cannot be read
    as the `config` says.
    """
    total = sum(entry.num_bytes for entry in inputs)
    range_bytes = min(max(total // 64, MIN_RANGE_BYTES), MAX_RANGE_BYTES)
    units: list[PlannedUnit] = []
    room = 0
    for entry in inputs:
        ranges = _cut(entry, range_bytes, config)
        if units and len(ranges) == 1 and entry.num_bytes <= room:
            units[-1] = PlannedUnit([*units[-1].ranges, *ranges], units[-1].num_bytes + entry.num_bytes)
            room -= entry.num_bytes
        else:
            units.extend(PlannedUnit([part], entry.num_bytes // len(ranges)) for part in ranges)
            room = range_bytes - entry.num_bytes
    return units


def _cut(entry: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    if not entry.num_bytes and entry.format != "hf":
        return [InputRange(path=entry.path, name=entry.name, format="empty")]
    return FORMATS[entry.format].plan(entry, range_bytes, config)


def read_range(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    """Yield the documents of one range; what cannot be read is counted in `counters`."""
    if part.format == "empty":
        counters.skip("empty_file", part.name)
        return iter(())
    return FORMATS[part.format].read(part, config, counters)


class Format(NamedTuple):
    """How the files of one format are cut into ranges of about so many bytes, and how a range is read."""

    plan: Callable[[Input, int, IngestConfig], list[InputRange]]
    read: Callable[[InputRange, IngestConfig, Counters], Iterator[RawDocument]]


def _plan_dump(entry: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    return plan_dump_ranges(entry.path, entry.name, entry.num_bytes, range_bytes)


def _plan_lines(entry: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    return plan_line_ranges(entry.path, entry.name, entry.format, entry.num_bytes, range_bytes)


def _plan_json_lines(entry: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    check_first_objects(entry.path, storage.open_input, config.text_column)
    return _plan_lines(entry, range_bytes, config)


def _plan_table(entry: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    return plan_table_ranges(entry.path, entry.name, storage.open_input, config.text_column)


def _plan_set(entry: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    return plan_data_set_ranges(entry.path, entry.name, config.text_column)


def _plan_whole(entry: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    return [InputRange(path=entry.path, name=entry.name, format=entry.format)]


def _read_dump(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    return read_dump(part, storage.open_input, counters)


def _read_extracted(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    return read_extracted(part, storage.open_input, counters)


def _read_json_lines(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    table = json_table(part.name, config.text_column)
    return read_json_lines(part, storage.open_input, counters, table, config.documents)


def _read_table(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    return read_table(part, storage.open_input, counters, config.text_column, config.documents)


def _read_set(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    return read_data_set(part, counters, config.text_column, config.documents)


def _read_book(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    return read_book(part, storage.open_input, counters, config.documents)


def _plan_archive(entry: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    return plan_archive_ranges(entry.path, entry.name, entry.num_bytes, range_bytes, storage.open_input)


def _read_archive(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    return read_archive(part, storage.open_input, counters, config.documents)


FORMATS = {
    "wikipedia": Format(_plan_dump, _read_dump),
    "wikiextractor": Format(_plan_lines, _read_extracted),
    "jsonl": Format(_plan_json_lines, _read_json_lines),
    "parquet": Format(_plan_table, _read_table),
    "hf": Format(_plan_set, _read_set),
    "text": Format(_plan_whole, _read_book),
    "gutenberg": Format(_plan_whole, _read_book),
    "archive": Format(_plan_archive, _read_archive),
}
