"""Find the files of the sources that a user names, cut them into ranges, and read these.

The format of a file is `config.format`; by default it follows from the name, or from the first
bytes if the name has no suffix (WikiExtractor's ``wiki_00``) or ``.json``, which may be anything.
"""

import os
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any, BinaryIO

from .. import storage
from ..config import IngestConfig
from ..counters import Counters, name_counts
from ..data_card import CARD
from ..encodings import read_sample, text_encoding
from ..errors import RunError, UserError
from ..source_formats import FORMATS
from ..storage.state import BAD_INPUTS, MACHINE_MADE, MANIFEST, TIMINGS, unfinished_stage
from . import hub
from .streams import (
    ARTICLE_HEAD,
    BOM,
    DAMAGED_FILE,
    InputRange,
    RawDocument,
    decompressed,
    is_compressed,
    stem_of,
)
from .texts import content_of

MIN_RANGE_BYTES = 1 << 20
EMPTY_FILE = "empty_file"

_SNIFFED_BYTES = 1 << 16
_ARCHIVE_NAME = re.compile(r"\.(?:tar|tar\.(?:gz|bz2|xz|zst)|tgz|zip)$", re.IGNORECASE)
# "enwiki-20261101-pages-articles1.xml-p1p41242.bz2": large dumps come in parts.
_DUMP_NAME = re.compile(r"\.xml(?:-p\d+p\d+)?(?:\.(?:bz2|gz|xz))?$")
# Lists of titles, states, and pages without their text lie beside dumps; sums beside any files.
_BESIDE_DUMPS = re.compile(
    r"multistream-index\d*\.txt(?:-p\d+p\d+)?(?:\.bz2)?$"
    r"|^(?:.*[-_.])?(?:md5|sha\d+|check)sums?(?:\.(?:txt|json))?$"
    r"|^dump(?:status|runinfo)\.(?:json|txt)$"
    r"|-siteinfo-namespaces\.json(?:\.gz)?$"
    r"|\.xml(?:-p\d+p\d+)?(?:\.\w+)?-rss\.xml$"
    r"|-(?:abstract|pages-logging|stub-[a-z-]+)[\w-]*\.xml(?:-p\d+p\d+)?(?:\.\w+)?$"
)
# Beside the tables of Spark and others: "_SUCCESS", "_committed_1234".
_MARKER = re.compile(r"_(?:SUCCESS|metadata|common_metadata|(?:committed|started)_\d+)")
# Python decodes the bytes of a file name that are not UTF-8 to these.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def find_inputs(
    sources: Sequence[str], output: str | None, config: IngestConfig
) -> tuple[list[InputRange], Counters]:
    """Return every file and data set of the `sources`, in the order given, and what is left out.

    Raise `UserError` if a source has no file, one of another source, or the `output`, or has a text
    that is not UTF-8 and whose encoding is not given.
    """
    files = {}  # by their real paths
    left_out = Counters()
    for source in sources:
        folder: str | None = source
        is_saved = os.path.isdir(source) and hub.is_saved(source)
        if is_saved or source.startswith(hub.PREFIX) or config.format == "hf":
            folder = hub.folder_of(source)
            data_set = hub.open_set(source)
            whole = InputRange(
                path=data_set.address,
                name=data_set.name,
                format="hf",
                num_bytes=data_set.num_bytes,
                digest=data_set.digest,
            )
            found = [whole]
        else:
            found = _find_files(source, config, left_out)
        if output:
            _refuse_overlap(source, folder, found, output)
        others = set(files)
        for file in found:
            real_path = file.path
            if os.path.exists(file.path):  # on this machine, where two links may lead to one file
                real_path = os.path.realpath(file.path)
            if real_path in others:
                raise UserError(f"{file.path} is listed twice among the sources: list it once.")
            if files.setdefault(real_path, file) is not file:
                left_out.note("linked_files", file.name)
    path_of_ids = {}
    for file in files.values():
        # They would be taken for copies.
        other = path_of_ids.setdefault((file.format, file.stem), file.path)
        if other is not file.path:
            raise UserError(
                f"{file.path} and {other} have the same name but for suffixes, so that their "
                "documents would have the same ids: rename one, or give the folder above both."
            )
    with ThreadPoolExecutor(storage.NUM_READERS) as pool:
        inputs = list(pool.map(partial(examined, config=config), files.values()))
    return inputs, left_out


def _refuse_overlap(
    source: str, folder: str | None, found: Sequence[InputRange], output: str
) -> None:
    """Raise `UserError` if a run would read its own output: it could not be resumed."""
    output_folder = storage.absolute(output).rstrip("/") + "/"
    overlaps = any(storage.absolute(file.path).startswith(output_folder) for file in found)
    if folder and not storage.has_wildcard(folder):
        overlaps |= output_folder.startswith(storage.absolute(folder).rstrip("/") + "/")
    if overlaps:
        raise UserError(
            f"`output` {output} is inside the source {source}, or contains it: choose another, or "
            "it would be read too."
        )


def examined(file: InputRange, config: IngestConfig) -> InputRange:
    """Return an input with its version, and the encoding of its text."""
    if file.format == "hf":
        return file
    with storage.open_input(file.path) as stream:
        file = replace(file, version=storage.version_of(stream))
        if FORMATS[file.format].kind == "bytes" or file.num_bytes == 0:
            return file
        sample = read_sample(decompressed(stream, file.name, Counters()))
    return replace(file, encoding=text_encoding(sample, file.path, config.encoding))


def _find_files(source: str, config: IngestConfig, left_out: Counters) -> list[InputRange]:
    """Return the files of a source that are in a known format, and count the rest in `left_out`."""
    bytes_of, reasons = storage.list_files(source)
    root = source  # a file's own name may contain the characters of a glob
    folders = {posixpath.dirname(path) or "." for path in bytes_of if path.endswith(".parquet")}
    if source not in bytes_of:
        root = storage.glob_root(source)
        folders.add(source)
    for folder in sorted(folders):
        if unfinished_stage(folder):
            raise UserError(f"{folder} is unfinished: rerun the command that writes it first.")
    _drop_files_of_stages(bytes_of)
    # Names do not depend on where the source lies: /data/books/a/b.txt of the source /data/books is
    # books/a/b.txt.
    folder_above = posixpath.dirname(storage.absolute(root).rstrip("/")).rstrip("/") + "/"
    names = {
        path: storage.absolute(path).removeprefix(folder_above) for path in (*bytes_of, *reasons)
    }
    inputs = []
    for path, num_bytes in bytes_of.items():
        if _LONE_SURROGATE.search(names[path]):
            raise UserError(f"{os.fsencode(path)!r} is not a valid UTF-8 file name: rename it.")
        # Not left out: it may be most of a corpus.
        if _ARCHIVE_NAME.search(path):
            command = "unzip" if path.lower().endswith("zip") else "tar xf"
            unpack = f"{command} {shlex.quote(posixpath.basename(path))}"
            raise UserError(f"{path} is an archive: unpack it ({unpack}) and give the folder.")
        file_format = _format_of(path, config)
        if _MARKER.fullmatch(posixpath.basename(path)):
            reasons[path] = "hidden_files"
        elif file_format is None:
            reasons[path] = "files_of_unknown_format"
        else:
            inputs.append(
                InputRange(path=path, name=names[path], format=file_format, num_bytes=num_bytes)
            )
    if not inputs:
        raise _no_files(source, reasons.values())
    for path, reason in reasons.items():
        shown = names[path].encode("utf-8", "backslashreplace").decode()
        if reason in ("broken_link", "unreadable_folder"):
            left_out.file = shown
            left_out.skip(reason, shown)
        else:
            left_out.note(reason, shown)
    return inputs


def _drop_files_of_stages(bytes_of: dict[str, int]) -> None:
    """Remove the files beside the documents of directories that `ingest` wrote; raise `UserError`
    for what another stage wrote.
    """
    for path in [path for path in bytes_of if path.endswith(f"/{MANIFEST}")]:
        folder = posixpath.dirname(path)
        stage = _stage_of(path, bytes_of[path])
        if stage == "ingest":
            for other in list(bytes_of):
                name = other.removeprefix(f"{folder}/")
                is_own = name in (MANIFEST, TIMINGS, MACHINE_MADE, CARD)
                if is_own or name.startswith(f"{BAD_INPUTS}/"):
                    del bytes_of[other]
        elif stage:
            content = {"vocab": "a vocabulary", "build": "instances"}[stage]
            raise UserError(
                f"{folder} holds {content}, written by `clozeworks {stage}`, not texts: give the "
                "documents that it was made from, or other sources."
            )


def _no_files(source: str, reasons: Collection[str]) -> UserError:
    """Return the error of a source without a file to read; `reasons` are those of what it has."""
    if reasons:
        counts = name_counts(Counter(reasons))
        suffixes = chain.from_iterable(known.suffixes for known in FORMATS.values())
        return UserError(
            f"{source}: no file in a known format, only {counts}: rename files "
            f"(.xml, {', '.join(suffixes)}, .json with an object a line, WikiExtractor's "
            "wiki_00) or give `format`."
        )
    if storage.has_wildcard(source):
        return UserError(f"{source} matches no file.")
    if os.path.isdir(source):
        return UserError(f"The folder {source} is empty.")
    return UserError(f"{source} does not exist.")


def _stage_of(manifest: str, num_bytes: int) -> str:
    """Return the stage that wrote a manifest; "" for those of others, who use this name too."""
    with storage.open_input(manifest) as file:
        file.seek(max(0, num_bytes - _SNIFFED_BYTES))  # the keys are sorted
        end = file.read()
    # The last: that of the documents, which it was made from, comes before.
    stage = re.search(rb'.*"stage":\s*"(ingest|vocab|build)".*"clozeworks":', end, re.DOTALL)
    return stage[1].decode() if stage else ""


def _format_of(path: str, config: IngestConfig) -> str | None:
    """Return a file's format by `config.format`, its name or its first bytes; None if unknown."""
    name = posixpath.basename(path).lower()
    if config.format != "auto":
        return config.format
    if _BESIDE_DUMPS.search(name):
        return None
    if _DUMP_NAME.search(name):
        return "wikipedia"
    _, suffix = posixpath.splitext(stem_of(name))
    if suffix in ("", ".json"):
        return _sniffed_format(path)
    for name_of_format, known in FORMATS.items():
        if suffix in known.suffixes:
            return name_of_format
    return None


def _sniffed_format(path: str) -> str | None:
    """Return the format that the first bytes of a file show; None if it is not a known one."""
    with storage.open_input(path) as file:
        head = decompressed(file, path, Counters()).read(_SNIFFED_BYTES)
    head = head.removeprefix(BOM).lstrip()
    if head.startswith(ARTICLE_HEAD):
        return "wikiextractor"
    if head.startswith(b"<mediawiki") or (head.startswith(b"<?xml") and b"<mediawiki" in head):
        return "wikipedia"
    # Parquet cannot be read as a stream.
    if head.startswith(b"PAR1") and not is_compressed(path):
        return "parquet"
    line, line_break, _ = head.partition(b"\n")
    # It may be longer than the head.
    is_cut = not line_break and len(head) > _SNIFFED_BYTES // 2
    if re.match(rb'\{\s*"', line) and (is_cut or line.rstrip().endswith(b"}")):
        return "jsonl"
    return None


def plan_units(inputs: Sequence[InputRange], config: IngestConfig) -> list[list[InputRange]]:
    """Return the ranges that one worker reads at a time: parts of large files, or small files.

    They depend on the files alone, so that any number of workers gets the same units.
    """
    # A unit takes as long to begin and end as to read 0.1 MB.
    #   total     below 64 MB    to 4 GB     to 256 GB    to 2.6 TB     beyond
    #   a unit    1 MB           a 64th      64 MB        a 4,096th     640 MB
    total_bytes = sum(file.num_bytes for file in inputs)
    range_bytes = max(min(total_bytes // 64, 64 << 20), total_bytes // 4096)
    range_bytes = min(max(range_bytes, MIN_RANGE_BYTES), 640 << 20)
    units = []
    free_bytes = 0  # room in the last unit for small files that follow
    for file in inputs:
        if file.num_bytes == 0 and file.format != "hf":
            ranges = [replace(file, format=EMPTY_FILE)]
        else:
            ranges = plan_input(file, range_bytes, config)
        # A unit for each of a million small files would spend its time on starting and on records.
        if units and len(ranges) == 1 and file.num_bytes <= free_bytes:
            units[-1].extend(ranges)
            free_bytes -= file.num_bytes
        else:
            units.extend([input_range] for input_range in ranges)
            free_bytes = range_bytes - file.num_bytes
    _refuse_missing_columns(chain.from_iterable(units), config)
    return units


def _refuse_missing_columns(ranges: Iterable[InputRange], config: IngestConfig) -> None:
    """Raise `UserError` if no table has a column that the user named."""
    tables = [each for each in ranges if each.format in ("jsonl", "csv", "tsv", "parquet", "hf")]
    for column, option in config.named_columns.items():
        if all(column in table.lacks for table in tables):
            raise UserError(
                f"`{option}` is {column!r}, but no source has a column of this name: give one that "
                f"there is, or leave `{option}` out."
            )


def plan_input(file: InputRange, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut an input into ranges; raise `UserError` if it is a table without the text column."""
    known = FORMATS[file.format]
    if not known.plan:
        return [file]
    plan = _function(known.plan)
    if known.kind == "bytes":
        return plan(file, range_bytes, config)
    with storage.open_input(file.path) as stream:
        return plan(content_of(stream, file, Counters()), file, range_bytes, config)


def read_documents(
    sources: str | Sequence[str],
    config: IngestConfig | None = None,
    counters: Counters | None = None,
) -> Iterator[RawDocument]:
    """Return the documents in `sources` one by one, as `ingest` reads them before it selects any.

    Bad input is counted by reason in `counters` and skipped. Raises `UserError` if a source does
    not exist or its format is unknown.
    """
    config = config or IngestConfig()
    counters = counters or Counters()
    # Now, not with the first document: a source that does not exist is an error of this call.
    ranges = plan_reading(sources, config, counters)
    return chain.from_iterable(read_range(each, config, counters) for each in ranges)


def names_of(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return sources, or a single one, as text."""
    if isinstance(sources, str | os.PathLike):
        sources = [sources]
    return tuple(os.fspath(source) for source in sources)


def plan_reading(
    sources: str | Sequence[str], config: IngestConfig, counters: Counters
) -> list[InputRange]:
    """Return the ranges to read; count files that are not read."""
    inputs, left_out = find_inputs(names_of(sources), None, config)
    counters.add(left_out.to_record())
    return list(chain.from_iterable(plan_units(inputs, config)))


def read_range(
    input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of one range; what cannot be read is counted in `counters`."""
    counters.file = input_range.name
    if input_range.format in (EMPTY_FILE, DAMAGED_FILE):
        counters.skip(input_range.format, input_range.name)
        return
    if input_range.format == "hf":
        data_set = hub.open_set(input_range.path)
        yield from _function(FORMATS["hf"].read)(data_set, input_range, config, counters)
        return
    try:
        with storage.open_input(input_range.path) as file:
            yield from read_opened(file, input_range, config, counters)
    except Exception:
        _refuse_changed(input_range)  # which may be why it cannot be read
        raise
    _refuse_changed(input_range)


def read_opened(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of an open file."""
    content = content_of(file, input_range, counters)
    if content is not None:
        read = _function(FORMATS[input_range.format].read)
        yield from read(content, input_range, config, counters)


def _function(name: str) -> Callable[..., Any]:
    """Return a function of a reader, as `FORMATS` names it; only this reader is imported."""
    module, _, function = name.partition(".")
    return getattr(import_module(f".{module}", __package__), function)


def _refuse_changed(input_range: InputRange) -> None:
    """Raise `RunError` if a file is not the one that was planned, and perhaps hashed."""
    try:
        with storage.open_input(input_range.path) as file:
            version = storage.version_of(file)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        version = "none"
    if input_range.version not in ("", version):
        raise RunError(
            f"{input_range.path} was changed or removed while it was read. Restore it and rerun; "
            "or start over with `overwrite`."
        )
