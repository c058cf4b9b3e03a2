"""Collections of books in one file, ``.tar`` (compressed or not) and ``.zip``, read without
unpacking them.

Each text member (``.txt``, also ``.txt.gz`` and so on) is read as `books.read_book` reads a file, a
piece at a time, so memory depends on no size but that of a zip's table of contents. The id of a
document is the archive's name without its suffix, then the member's without ``.txt``. Bad members
are counted and cost only themselves.
"""

import io
import re
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO, cast

from ..config import IngestConfig
from ..execution.counters import Counters
from .books import read_book
from .compression import (
    ARCHIVE_ALLOWANCE,
    TEXT_ALLOWANCE,
    BoundedStream,
    decompressed,
    is_bomb,
    progress,
    stem_of,
)
from .records import Input, InputRange, OpenFile, RawDocument

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:[/\\]")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_NOT_A_ZIP = (
    zipfile.BadZipFile,
    NotImplementedError,
    ValueError,
    OverflowError,
    EOFError,
    struct.error,
)
_NOT_A_TAR = (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError)
# Longer extended headers (names, attributes) are made to break readers.
_LONGEST_HEADER_BYTES = 1 << 16


_Members = Iterator[tuple[str, BinaryIO]]
"""The path of each member within the archive, without dots, and its bytes."""


def plan_archive(
    entry: Input, open_file: OpenFile, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Cut an archive into ranges of whole members, of about `range_bytes` each.

    A zip is cut by its size alone: a member belongs to the range in which its header lies. A tar is
    one range, because it has no table of contents that says where its members begin.
    """
    if _suffix(entry.name) == ".zip":
        return entry.cut_evenly(range_bytes)
    return entry.cut([0])


def read_archive(
    file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of the text members of a range of an archive, in the order of the
    archive.

    `counters` gets the neutral counter ``members_of_unknown_format``, and the bad input
    ``not_an_archive``, ``damaged_archive`` and ``damaged_member`` (what comes before the damage is
    kept), ``unsafe_member`` (an absolute path, or one with ``..``), ``link_or_device_member``,
    ``encrypted_member``, ``unsupported_member`` (a method of compression, or a sparse file),
    ``compression_bomb`` (see `compression`), ``archive_without_text``, and what `read_book` names.
    """
    suffix = _suffix(part.name)
    stem = part.name[: len(part.name) - len(suffix)]
    archive_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    num_bytes = 0
    for member, stream in (_zip_members if suffix == ".zip" else _tar_members)(
        part, file, counters
    ):
        name = f"{part.name}/{member}"
        text = decompressed(stream, name, counters)
        form = "gutenberg" if config.format == "gutenberg" else "text"
        book = InputRange(path=name, name=stem_of(name), format=form)
        if counters.trace:
            counters.trace.restart()
        for document in read_book(text, book, config, counters):
            yield replace(document, id=stem + document.id.removeprefix(part.name))
        num_bytes += text.tell()
        if is_bomb(archive_bytes, num_bytes, ARCHIVE_ALLOWANCE):
            counters.skip("compression_bomb", f"{part.name}, after {member}")
            return


def _suffix(name: str) -> str:
    return max(
        (suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), key=len, default=""
    )


def _wanted_name(raw_name: str, part: InputRange, counters: Counters) -> str:
    """Return the path of a member if it is a text to read; else count it and return nothing."""
    name = "/".join(part for part in raw_name.split("/") if part not in ("", "."))
    location = f"{part.name}: {raw_name}"
    if _ABSOLUTE.match(raw_name) or ".." in name.split("/"):
        counters.skip("unsafe_member", location)
    elif not _is_text(name):
        counters.note("members_of_unknown_format", location)
    else:
        return name
    return ""


def _is_text(name: str) -> bool:
    """Return whether a member's name is that of a text, and not hidden: macOS adds ``._Emma.txt``
    to ``Emma.txt``.
    """
    hidden = any(part.startswith(".") and part != "." for part in name.split("/"))
    return not hidden and stem_of(name.lower()).endswith(".txt")


def _zip_members(part: InputRange, file: BinaryIO, counters: Counters) -> _Members:
    try:
        archive = zipfile.ZipFile(file)
    except _NOT_A_ZIP as error:
        if part.start == 0:
            counters.skip("not_an_archive", f"{part.name}: {error}")
        return
    with archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        if part.start == 0 and not any(_is_text(_zip_name(entry)) for entry in entries):
            counters.skip("archive_without_text", part.name)
        for entry in entries:
            # If the first bytes of the file are missing, the headers of its first members lie
            # before its start.
            offset = max(entry.header_offset, 0)
            own = part.start <= offset and (part.stop is None or offset < part.stop)
            if (
                not own
                or entry.is_dir()
                or not (name := _wanted_name(_zip_name(entry), part, counters))
            ):
                continue
            location = f"{part.name}: {name}"
            if reason := _unreadable(entry):
                counters.skip(reason, location)
                continue
            try:
                read = cast(zipfile.ZipExtFile, archive.open(entry)).read1
            except _NOT_A_ZIP as error:
                counters.skip("damaged_member", f"{location}: {error}")
                continue
            tell = cast(BinaryIO, archive.fp).tell
            yield (
                name,
                BoundedStream(read, tell, location, counters, damage="damaged_member").buffered(),
            )


def _zip_name(entry: zipfile.ZipInfo) -> str:
    # Some tools of Windows write its separators.
    return entry.filename.replace("\\", "/")


def _unreadable(entry: zipfile.ZipInfo) -> str:
    """Return why a member cannot be read, or nothing."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "link_or_device_member"
    if entry.flag_bits & 1:
        return "encrypted_member"
    if is_bomb(entry.compress_size, entry.file_size, TEXT_ALLOWANCE):
        return "compression_bomb"
    return "" if entry.compress_type in _METHODS else "unsupported_member"


def _tar_members(part: InputRange, file: BinaryIO, counters: Counters) -> _Members:
    num_compressed = progress(file)
    last, num_texts, found = "", 0, Counters()
    try:
        unpacked = decompressed(file, part.name, found, ARCHIVE_ALLOWANCE)
        stream = _TarStream(unpacked, can_seek=unpacked is file)
        for info in _walk_tar(stream):
            last = info.name
            if not info.isdir() and (name := _wanted_file(info, part, counters)):
                num_texts += 1
                text = BoundedStream(
                    stream.reader(info.size), num_compressed, f"{part.name}: {name}", counters
                )
                yield name, text.buffered()
        if num_texts == 0 and not found.bad:
            counters.skip("archive_without_text", part.name)
    except _NOT_A_TAR as error:
        # If decompression ended early, the tar in it ends early too: one damage, counted once.
        if not found.bad:
            reason, where = (
                ("damaged_archive", f", after {last}") if last else ("not_an_archive", "")
            )
            counters.skip(reason, f"{part.name}{where}: {error}")
    counters.add(found.to_record())


def _wanted_file(info: tarfile.TarInfo, part: InputRange, counters: Counters) -> str:
    """Return the path of a member if it is a text to read; else count it and return nothing."""
    location = f"{part.name}: {info.name}"
    if not info.isreg():
        counters.skip("link_or_device_member", location)
        return ""
    name = _wanted_name(info.name, part, counters)
    if name and info.issparse():
        counters.skip("unsupported_member", f"{location} (a sparse file)")
        return ""
    return name


class _TarStream:
    """What `tarfile` reads headers from: a stream that seeks only forwards and reads little at a
    time.
    """

    def __init__(self, stream: BinaryIO, *, can_seek: bool) -> None:
        self._stream = stream
        self._size = stream.seek(0, io.SEEK_END) if can_seek else None
        self._offset = stream.seek(0) if can_seek else 0
        self.last_block = b""

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._offset

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer only at the end; raise `tarfile.ReadError` if no header is
        so long.
        """
        if not 0 <= size <= _LONGEST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self.last_block = self._stream.read(size)
        self._offset += len(self.last_block)
        return self.last_block

    def seek(self, offset: int) -> None:
        """Skip to an offset, or to the end if that comes first."""
        if self._size is not None:
            self._offset = self._stream.seek(min(offset, self._size))
        while self._offset < offset and self.read(
            min(offset - self._offset, _LONGEST_HEADER_BYTES)
        ):
            pass

    def reader(self, num_bytes: int) -> Callable[[int], bytes]:
        """Return a function that reads a member: the next `num_bytes`."""
        stop = self._offset + num_bytes
        return lambda size: self.read(min(size, stop - self._offset))


def _walk_tar(stream: _TarStream) -> Iterator[tarfile.TarInfo]:
    """Yield each member's header, whose data may then be read; raise one of `_NOT_A_TAR` at damage
    or data after the end.
    """
    with tarfile.open(
        fileobj=cast(Any, stream), mode="r:", encoding="utf-8", errors="backslashreplace"
    ) as archive:
        while info := archive.next():
            # tarfile would keep the headers of all members.
            archive.members = []  # pyright: ignore[reportAttributeAccessIssue]
            if archive.offset <= info.offset:  # pyright: ignore[reportAttributeAccessIssue]
                raise tarfile.ReadError("a header with a negative size")
            yield info
    # tarfile also stops without an error at a block that is not a header; the end mark is a block
    # of zeros.
    if stream.last_block != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError("no header and no end mark follow")
    while block := stream.read(_LONGEST_HEADER_BYTES):
        if block.strip(tarfile.NUL):
            raise tarfile.ReadError("data follow the end mark")
