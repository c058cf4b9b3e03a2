"""The sources that the user names, as ranges of files that can be read independently.

`FORMATS` gives each format's planner and reader. The format of a file is ``--format``; by default
it follows from the name, or from the first bytes if the name has no suffix (WikiExtractor's
``wiki_00``) or ``.json``, which may be anything.
"""

import json
import os.path
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NamedTuple

from .. import storage
from ..config import IngestConfig
from ..errors import UserError
from ..execution.counters import Counters, name_counts
from ..storage import hub
from .archives import SUFFIXES as ARCHIVE_SUFFIXES
from .archives import plan_archive, read_archive
from .books import read_book
from .compression import decompressed, is_compressed, stem_of
from .delimited import plan_csv, plan_tsv, read_csv, read_tsv
from .jsonl import plan_json_lines, read_json_lines
from .lines import BOM, plan_lines
from .records import Input, InputRange, OpenFile, RawDocument
from .tables import DAMAGED_FILE, plan_data_set, plan_table, read_data_set, read_table
from .wikiextractor import HEAD, read_extracted
from .wikipedia import plan_dump, read_dump

MIN_RANGE_BYTES = 1 << 18
MAX_RANGE_BYTES = 640 << 20
LARGE_RANGE_BYTES = 64 << 20
EMPTY_FILE = "empty_file"
KNOWN_NAMES = (
    ".xml, .txt, .tar, .zip, .jsonl, .ndjson, .json with an object a line, .csv, .tsv, .parquet, WikiExtractor's "
    "wiki_00"
)

_SNIFFED_BYTES = 1 << 16
_DUMP_NAME = re.compile(r"\.xml(?:-p\d+p\d+)?(?:\.(?:bz2|gz|xz))?$")
_DUMP_INDEX_NAME = re.compile(r"multistream-index\d*\.txt(?:-p\d+p\d+)?(?:\.bz2)?$")
# What Python keeps of the bytes of a file name that is not UTF-8.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SUFFIXES = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


class PlannedUnit(NamedTuple):
    """What one worker reads at a time: ranges of files, with their size together."""

    ranges: list[InputRange]
    num_bytes: int


def find_inputs(
    sources: Sequence[str], output: str | None, config: IngestConfig
) -> tuple[list[Input], Counters]:
    """Return every file and data set of the `sources`, in the order given, and a count of the files
    left out.

    A source is a file, a folder, a glob, or a data set as `hub` names it. Files of a folder that
    are in no known format are left out (``files_of_unknown_format``), unless ``--format`` is given,
    and so is what `storage.list_files` leaves out: ``broken_link`` and ``unreadable_folder`` are
    bad input, the others neutral counters.

    Raise `UserError` if a source has no file, or one that another source has too, or contains the
    `output`.
    """
    inputs: list[Input] = []
    left_out = Counters()
    for source in sources:
        if source.startswith(hub.PREFIX) or config.format == "hf" or hub.is_saved(source):
            if folder := hub.folder_of(source):
                _refuse_output_within(folder, output, ())
            found = hub.open_set(source)
            inputs.append(Input(found.address, found.name, "hf", found.num_bytes, found.digest))
            continue
        inputs.extend(_find_files(source, output, config, left_out))
    _refuse_repeated(inputs)
    return inputs, left_out


def _find_files(
    source: str, output: str | None, config: IngestConfig, left_out: Counters
) -> list[Input]:
    found, unread = storage.list_files(source)
    _refuse_output_within(source, output, found)
    if not found:
        raise UserError(_why_empty(source, Counter(unread.values())))
    if strange := [path for path in found if _LONE_SURROGATE.search(_name_of(path, source))]:
        raise UserError(f"{os.fsencode(strange[0])!r} is not a valid UTF-8 file name: rename it.")
    known = {path: kind for path in found if (kind := _format_of(path, config))}
    if not known:
        what = "is not" if source in found else "has no file"
        raise UserError(
            f"{source} {what} in a known format ({KNOWN_NAMES}): rename it or give --format."
        )
    unknown = {path: "files_of_unknown_format" for path in found if path not in known}
    for path, reason in {**unknown, **unread}.items():
        record = left_out.skip if reason in ("broken_link", "unreadable_folder") else left_out.note
        record(reason, _name_of(path, source).encode("utf-8", "backslashreplace").decode())
    return [Input(path, _name_of(path, source), kind, found[path]) for path, kind in known.items()]


def _why_empty(source: str, unread: Counter[str]) -> str:
    if unread:
        return f"{source} has no file to read ({name_counts(unread)})."
    if storage.has_wildcard(source):
        return f"{source} matches no file."
    return (
        f"The folder {source} is empty." if os.path.isdir(source) else f"{source} does not exist."
    )


def _format_of(path: str, config: IngestConfig) -> str | None:
    """Return the format by ``--format``, the name or the first bytes of a file; None if it is
    unknown.
    """
    name = posixpath.basename(path).lower()
    if config.format in ("auto", "text", "gutenberg") and name.endswith(ARCHIVE_SUFFIXES):
        return "archive"
    if config.format != "auto":
        return config.format
    if _DUMP_NAME.search(name):
        return "wikipedia"
    if _DUMP_INDEX_NAME.search(name):
        return None
    suffix = posixpath.splitext(stem_of(name))[1]
    return _SUFFIXES.get(suffix) or (_sniffed_format(path) if suffix in ("", ".json") else None)


def _sniffed_format(path: str) -> str | None:
    """Return the format that the first bytes of a file show."""
    with storage.open_input(path) as file:
        head = decompressed(file, path, Counters()).read(_SNIFFED_BYTES).removeprefix(BOM).lstrip()
    if head.startswith(HEAD):
        return "wikiextractor"
    if head.startswith(b"<mediawiki") or (head.startswith(b"<?xml") and b"<mediawiki" in head):
        return "wikipedia"
    if head.startswith(b"PAR1") and not is_compressed(path):
        return "parquet"
    return "jsonl" if _begins_with_object(head) else None


def _begins_with_object(head: bytes) -> bool:
    """Return whether a file's first line is a JSON object, or longer than its `head` and begins
    like one.
    """
    line, end, _ = head.partition(b"\n")
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return (
            not end and len(head) > _SNIFFED_BYTES // 2 and re.match(rb'\{\s*"', line) is not None
        )


def _name_of(path: str, source: str) -> str:
    """Return the part of `path` that does not depend on where the source lies: from the source's
    own name on.
    """
    root, path = _absolute(storage.glob_root(source) if path != source else source), _absolute(path)
    below = path.removeprefix(root.rstrip("/") + "/") if path != root else ""
    return posixpath.join(posixpath.basename(root), below).rstrip("/")


def _absolute(path: str) -> str:
    return storage.absolute(path).rstrip("/")


def _refuse_output_within(source: str, output: str | None, found: Iterable[str]) -> None:
    """Raise `UserError` if a run would read its own output: the next one would see other input, and
    not resume.
    """
    if output is None:  # nothing is written
        return
    folder = f"{_absolute(output)}/"
    own = f"{_absolute(source)}/"
    in_folder = not storage.has_wildcard(source) and folder.startswith(own)
    if in_folder or any(_absolute(path).startswith(folder) for path in found):
        relation = "is" if folder == own else "is inside" if in_folder else "holds files of"
        raise UserError(
            f"--output {output} {relation} the source {source}: choose another, or it would be read too."
        )


def _refuse_repeated(inputs: Sequence[Input]) -> None:
    paths: dict[str, str] = {}
    named: dict[str, str] = {}
    for entry in inputs:
        path = _absolute(entry.path)
        real = path if storage.is_remote(path) or entry.format == "hf" else os.path.realpath(path)
        if other := paths.get(real):
            same = (
                f"{entry.path} is"
                if _absolute(other) == path
                else f"{other} and {entry.path} are the same file,"
            )
            raise UserError(f"{same} listed twice among the sources: list it once.")
        paths[real] = entry.path
        if (other := named.setdefault(entry.name, path)) != path:
            # Names are part of the documents' ids: the second file would be taken for a copy of the
            # first.
            raise UserError(
                f"{other} and {path} have the same name, {entry.name}: give the folder that contains both."
            )


def choose_range_bytes(total_bytes: int) -> int:
    """Return how much a unit reads: 1/64 of a small corpus, 64 MB of a large one, more to stay
    below 4,096 units.
    """
    wanted = max(min(total_bytes // 64, LARGE_RANGE_BYTES), total_bytes // 4096)
    return min(max(wanted, MIN_RANGE_BYTES), MAX_RANGE_BYTES)


def plan_units(inputs: Sequence[Input], config: IngestConfig) -> list[PlannedUnit]:
    """Cut large files into ranges and group small ones, by the files alone; raise `UserError` if
    `config` is unfit.
    """
    range_bytes = choose_range_bytes(sum(entry.num_bytes for entry in inputs))
    units: list[PlannedUnit] = []
    room = 0
    for entry in inputs:
        if not entry.num_bytes and entry.format != "hf":
            entry = entry._replace(format=EMPTY_FILE)
        form = FORMATS[entry.format]
        ranges = form.plan(entry, form.open, range_bytes, config)
        if units and len(ranges) == 1 and entry.num_bytes <= room:
            units[-1] = PlannedUnit(
                [*units[-1].ranges, *ranges], units[-1].num_bytes + entry.num_bytes
            )
            room -= entry.num_bytes
        else:
            units.extend(PlannedUnit([part], entry.num_bytes // len(ranges)) for part in ranges)
            room = range_bytes - entry.num_bytes
    return units


def read_range(part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    """Yield the documents of one range; what cannot be read is counted in `counters`."""
    form = FORMATS[part.format]
    with form.open(part.path) as opened:
        yield from form.read(opened, part, config, counters)


def _plan_whole(
    entry: Input, open_file: OpenFile, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    return entry.cut([0])


def _read_nothing(
    file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    counters.skip(part.format, part.name)
    return iter(())


class Format(NamedTuple):
    """How the inputs of one format are cut into ranges of about so many bytes, and how a range is
    read.
    """

    plan: Callable[[Input, Any, int, IngestConfig], list[InputRange]]
    read: Callable[[Any, InputRange, IngestConfig, Counters], Iterator[RawDocument]]
    open: Callable[[str], AbstractContextManager[Any]] = storage.open_input
    """Opens an input for `plan` and `read`: a file, or a `hub.DataSet`."""


FORMATS = {
    "wikipedia": Format(plan_dump, read_dump),
    "wikiextractor": Format(plan_lines, read_extracted),
    "jsonl": Format(plan_json_lines, read_json_lines),
    "csv": Format(plan_csv, read_csv),
    "tsv": Format(plan_tsv, read_tsv),
    "parquet": Format(plan_table, read_table),
    "hf": Format(plan_data_set, read_data_set, hub.opened_set),
    "text": Format(_plan_whole, read_book),
    "gutenberg": Format(_plan_whole, read_book),
    "archive": Format(plan_archive, read_archive),
    EMPTY_FILE: Format(_plan_whole, _read_nothing),
    DAMAGED_FILE: Format(_plan_whole, _read_nothing),
}
