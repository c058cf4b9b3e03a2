"""Folders of books as they are passed around: ``.tar``, compressed or not, and ``.zip``, without unpacking them.

Each text member (``.txt``, also ``.txt.gz`` and so on) is read as `books.read_book` reads a file, a piece at a time:
nothing is written to disk, and memory depends neither on the archive's size nor on a member's, but for the table of
contents that a zip ends with (half a kilobyte a member). The id of a document is the archive's name without its suffix,
then the member's without ``.txt``: ``novels/shelf/Emma`` of ``shelf/Emma.txt`` in ``novels.tar.gz``.

Bad members are counted and cost only themselves. A damaged tar is read up to the damage.
"""

import io
import re
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple, cast

from ..execution import storage
from ..execution.counters import Counters
from .books import read_book
from .compression import is_compressed, open_decompressed, without_compression
from .expansion import ARCHIVE_ALLOWANCE, MEMBER_ALLOWANCE, Bounded, decompressed, is_bomb, progress
from .records import Documents, InputRange, RawDocument

FORMAT = "archive"
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:[/\\]")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_NOT_A_ZIP = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError, struct.error)
_NOT_A_TAR = (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError)
# Longer extended headers (names, attributes) are made to break readers.
_LONGEST_HEADER_BYTES = 1 << 16


class _Member(NamedTuple):
    name: str
    """Its path within the archive, without dots."""
    stream: Bounded


def plan_archive_ranges(
    path: str, name: str, num_bytes: int, range_bytes: int, open_file: Callable[[str], BinaryIO]
) -> list[InputRange]:
    """Cut an archive into ranges of whole members, of about `range_bytes` each.

    A zip is cut by its size alone: a member belongs to the range in which its header lies. A plain tar on this machine
    is cut at headers, which are looked up (15 µs a member). A compressed tar, or one elsewhere, is one range.

    Args:
        path: where to open the archive.
        name: its name in messages, which tells the kind.
        num_bytes: its size.
        range_bytes: the size that a range should have, in bytes.
        open_file: opens `path` for reading bytes; what it returns must be seekable.
    """
    suffix = _suffix(name)
    bounds = [0]
    if suffix == ".zip":
        num_ranges = max(1, -(-num_bytes // range_bytes))
        bounds = [num_bytes * index // num_ranges for index in range(num_ranges)]
    elif suffix == ".tar" and num_bytes > range_bytes and not storage.is_remote(path):
        with open_file(path) as file:
            bounds = _header_bounds(file, range_bytes)
    return [
        InputRange(path=path, name=name, format=FORMAT, start=start, stop=stop)
        for start, stop in pairwise([*bounds, None])
        if start is not None
    ]


def read_archive(
    source: InputRange,
    open_file: Callable[[str], BinaryIO],
    counters: Counters,
    documents: Documents = "auto",
) -> Iterator[RawDocument]:
    """Yield the documents of the text members of a range of an archive, in the order in which they lie there.

    Args:
        source: the range; its name tells the kind of archive.
        open_file: opens ``source.path`` for reading bytes; what it returns must be seekable.
        counters: gets the neutral counter ``members_of_unknown_format``, and the bad input ``not_an_archive``,
            ``damaged_archive`` and ``damaged_member`` (what stands before the damage is kept), ``unsafe_member`` (an
            absolute path, or one with ``..``), ``link_or_device_member``, ``encrypted_member``,
            ``unsupported_member`` (a method of compression), ``compression_bomb`` (see `expansion`),
            ``archive_without_text``, and what `read_book` names.
        documents: what a document is in a member, as `read_book` has it.
    """
    stem = source.name[: len(source.name) - len(_suffix(source.name))]
    num_bytes = 0
    with open_file(source.path) as file:
        archive_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        members = _zip_members if _suffix(source.name) == ".zip" else _tar_members
        for member in members(source, file, counters):
            place = f"{source.name}/{member.name}"
            text = _text_of(member, place, counters)
            for document in _read_text(text, place, counters, documents):
                yield replace(document, id=stem + document.id.removeprefix(source.name))
            num_bytes += text.tell()
            if is_bomb(archive_bytes, num_bytes, ARCHIVE_ALLOWANCE):
                counters.skip("compression_bomb", f"{source.name}, after {member.name}")
                return


def _suffix(name: str) -> str:
    return max((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), key=len, default="")


def _text_of(member: _Member, place: str, counters: Counters) -> Bounded:
    """Return the bytes of a member's text, which may be compressed by itself."""
    if not is_compressed(member.name):
        return member.stream
    return cast(Bounded, decompressed(member.stream.buffered(), place, counters))


def _read_text(
    text: Bounded,
    place: str,
    counters: Counters,
    documents: Documents,
) -> Iterator[RawDocument]:
    """Yield the documents of one member; their ids begin with `place`, the member's name with the archive's."""
    source = InputRange(path=place, name=without_compression(place), format="text")
    return read_book(source, lambda _: text.buffered(), counters, documents)


def _wanted_name(raw_name: str, source: InputRange, counters: Counters) -> str:
    """Return the name of a file in an archive if it is a text to read; else count it and return nothing."""
    name = "/".join(part for part in raw_name.split("/") if part not in ("", "."))
    place = f"{source.name}: {raw_name}"
    if _ABSOLUTE.match(raw_name) or ".." in name.split("/"):
        counters.skip("unsafe_member", place)
    elif not _is_text(name):
        counters.note("members_of_unknown_format", place)
    else:
        return name
    return ""


def _is_text(name: str) -> bool:
    """Whether a member is a text by its name, and not hidden: macOS puts a ``._Emma.txt`` beside each ``Emma.txt``."""
    hidden = any(part.startswith(".") and part != "." for part in name.split("/"))
    return not hidden and without_compression(name.lower()).endswith(".txt")


def _zip_members(source: InputRange, file: BinaryIO, counters: Counters) -> Iterator[_Member]:
    try:
        archive = zipfile.ZipFile(file)
    except _NOT_A_ZIP as error:
        if source.start == 0:
            counters.skip("not_an_archive", f"{source.name}: {error}")
        return
    with archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        if source.start == 0 and not any(_is_text(_zip_name(entry)) for entry in entries):
            counters.skip("archive_without_text", source.name)
        for entry in entries:
            own = source.start <= entry.header_offset and (source.stop is None or entry.header_offset < source.stop)
            if own and not entry.is_dir() and (name := _wanted_name(_zip_name(entry), source, counters)):
                yield from _zip_member(archive, entry, name, source, counters)


def _zip_name(entry: zipfile.ZipInfo) -> str:
    # Some tools of Windows write its separators.
    return entry.filename.replace("\\", "/")


def _zip_member(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, source: InputRange, counters: Counters
) -> Iterator[_Member]:
    place = f"{source.name}: {name}"
    if reason := _unreadable(entry):
        counters.skip(reason, place)
        return
    try:
        opened = cast(zipfile.ZipExtFile, archive.open(entry))
    except _NOT_A_ZIP as error:
        counters.skip("damaged_member", f"{place}: {error}")
        return
    stream = Bounded(opened.read1, cast(BinaryIO, archive.fp).tell, place, counters)
    yield _Member(name, stream)
    if stream.damage:
        counters.skip("damaged_member", f"{place}: {stream.damage}")


def _unreadable(entry: zipfile.ZipInfo) -> str:
    """Return why a member cannot be read, or nothing."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "link_or_device_member"
    if entry.flag_bits & 1:
        return "encrypted_member"
    if is_bomb(entry.compress_size, entry.file_size, MEMBER_ALLOWANCE):
        return "compression_bomb"
    return "" if entry.compress_type in _METHODS else "unsupported_member"


def _tar_members(source: InputRange, file: BinaryIO, counters: Counters) -> Iterator[_Member]:
    num_compressed = progress(file)
    last, num_texts, found = "", 0, Counters()
    try:
        stream = _open_tar(source, file, found)
        for info in _walk_tar(stream):
            if source.stop is not None and info.offset >= source.stop:
                return
            last = info.name
            if not info.isdir() and (name := _wanted_file(info, source, counters)):
                num_texts += 1
                read = _reader(stream, info.size)
                yield _Member(name, Bounded(read, num_compressed, f"{source.name}: {name}", counters))
        if num_texts == 0 and source.start == 0 and not found.bad:
            counters.skip("archive_without_text", source.name)
    except _NOT_A_TAR as error:
        # If decompression ended early, the tar in it ends early too: one damage, counted once.
        if not found.bad:
            reason, where = ("damaged_archive", f", after {last}") if last else ("not_an_archive", "")
            counters.skip(reason, f"{source.name}{where}: {error}")
    counters.add(found.to_record())


def _open_tar(source: InputRange, file: BinaryIO, counters: Counters) -> "_TarStream":
    """Return the decompressed bytes of a tar, from the start of the range."""
    name = re.sub(r"\.tgz$", ".tar.gz", source.name, flags=re.IGNORECASE)
    opened = open_decompressed(source.path, name, lambda _: file, counters)
    if opened is file:
        return _TarStream(file, source.start, file.seek(0, io.SEEK_END))
    read = cast(io.BufferedReader, opened).read1
    return _TarStream(Bounded(read, progress(file), source.name, counters, ARCHIVE_ALLOWANCE).buffered())


class _TarStream:
    """What `tarfile` reads headers from: a stream that is only sought forwards, and never read far at a time."""

    def __init__(self, stream: BinaryIO, offset: int = 0, size: int | None = None) -> None:
        """Begin at `offset`; `size` is the length of a file that can be sought, None for one that cannot."""
        self._stream = stream
        self._offset = offset if size is None else stream.seek(offset)
        self._size = size
        self.last_block = b""

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._offset

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer only at the end; raise `tarfile.ReadError` if no header is so long."""
        if not 0 <= size <= _LONGEST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self.last_block = self._stream.read(size)
        self._offset += len(self.last_block)
        return self.last_block

    def seek(self, offset: int) -> None:
        """Skip to an offset, or to the end if that comes first."""
        if self._size is not None:
            self._offset = self._stream.seek(min(offset, self._size))
        while self._offset < offset and self.read(min(offset - self._offset, _LONGEST_HEADER_BYTES)):
            pass


def _walk_tar(stream: _TarStream) -> Iterator[tarfile.TarInfo]:
    """Yield the header of each member; the caller may read the member's data before the next.

    Raise one of `_NOT_A_TAR` at the first damage, and if anything follows the end mark.
    """
    with tarfile.open(fileobj=cast(Any, stream), mode="r:", encoding="utf-8", errors="backslashreplace") as archive:
        while info := archive.next():
            # tarfile would keep the headers of all members.
            archive.members = []  # pyright: ignore[reportAttributeAccessIssue]
            if archive.offset <= info.offset:  # pyright: ignore[reportAttributeAccessIssue]
                raise tarfile.ReadError("a header with a negative size")
            yield info
    # tarfile ends in silence at a block that is no header, too; at the end mark that block is zeros.
    if stream.last_block != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError("no header and no end mark follow")
    while block := stream.read(_LONGEST_HEADER_BYTES):
        if block.strip(tarfile.NUL):
            raise tarfile.ReadError("data follow the end mark")


def _reader(stream: _TarStream, num_bytes: int) -> Callable[[int], bytes]:
    """Return what reads a member: the next `num_bytes` of a tar."""
    left = num_bytes

    def read(size: int) -> bytes:
        nonlocal left
        block = stream.read(min(size, left))
        left -= len(block)
        return block

    return read


def _wanted_file(info: tarfile.TarInfo, source: InputRange, counters: Counters) -> str:
    """Return the name of a member if it is a text to read; else count it and return nothing."""
    place = f"{source.name}: {info.name}"
    if not info.isreg():
        counters.skip("link_or_device_member", place)
        return ""
    name = _wanted_name(info.name, source, counters)
    if name and info.issparse():
        counters.skip("unsupported_member", f"{place} (a sparse file)")
        return ""
    return name


def _header_bounds(file: BinaryIO, range_bytes: int) -> list[int]:
    """Return the offsets of headers in a tar that are about `range_bytes` apart, the first of them 0."""
    bounds = [0]
    with suppress(*_NOT_A_TAR):
        for info in _walk_tar(_TarStream(file, 0, file.seek(0, io.SEEK_END))):
            if info.offset >= bounds[-1] + range_bytes:
                bounds.append(info.offset)
    return bounds
