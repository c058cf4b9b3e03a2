"""Read collections of books in one file, ``.tar`` (compressed or not) and ``.zip``, in place.

Each text member (``.txt``, also ``.txt.gz`` and so on) is read as `books.read_book` reads a file, a
piece at a time, so memory depends on no size but a zip's table of contents. The id of a
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
from ..counters import Counters
from ..encodings import SAMPLE_BYTES, detect, sample_of
from ..text_streams import EncodingUserError, stream_of, with_head
from .books import read_book
from .compression import (
    ARCHIVE_ALLOWANCE,
    TEXT_ALLOWANCE,
    bounded_blocks,
    decompressed,
    is_bomb,
    progress,
    stem_of,
)
from .records import Input, InputRange, RawDocument

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:[/\\]")
_ZIP_HEADER = b"PK\3\4"
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


def plan_archive(file: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut an archive into ranges of whole members, of about `range_bytes` each.

    A zip is cut by its size alone: a member belongs to the range in which its header lies. A tar is
    one range, because it has no table of contents that says where its members begin.
    """
    if _suffix(file.name) == ".zip":
        return file.cut_evenly(range_bytes)
    return file.as_one_range()


def read_archive(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of the text members of a range, in the order of the archive.

    `counters` gets the neutral counter ``members_of_unknown_format``, and the bad input
    ``not_an_archive``, ``damaged_archive`` and ``damaged_member`` (what comes before the damage is
    kept), ``unsafe_member`` (an absolute path, or one with ``..``), ``link_or_device_member``,
    ``encrypted_member``, ``unsupported_member`` (a method of compression, or a sparse file),
    ``compression_bomb`` (see `compression`), ``archive_without_text``, ``unknown_encoding`` (of a
    text that changes it, what was read before stays), and what `read_book` names.
    """
    archive_name = input_range.name
    suffix = _suffix(archive_name)
    stem = archive_name[: len(archive_name) - len(suffix)]
    archive_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    if suffix == ".zip":
        members = _zip_members(input_range, file, counters)
    else:
        members = _tar_members(input_range, file, counters)
    num_bytes = 0
    for member, stream in members:
        name = f"{archive_name}/{member}"
        text = decompressed(stream, name, counters)
        head = text.read(SAMPLE_BYTES)
        detection = detect(sample_of(head), config.encoding)
        if detection.doubt:
            counters.skip("unknown_encoding", f"{name} (convert it to UTF-8)")
            continue
        if detection.is_detected:
            counters.note(f"texts_read_as_{detection.encoding}", name)
        book_format = "text"
        if config.format == "gutenberg":
            book_format = "gutenberg"
        book = InputRange(
            path=name, name=stem_of(name), format=book_format, encoding=detection.encoding
        )
        try:
            for document in read_book(with_head(head, text), book, config, counters):
                yield replace(document, id=stem + document.id.removeprefix(archive_name))
        except EncodingUserError:
            reason = f"not all of it is {detection.encoding}: convert it to UTF-8"
            counters.skip("unknown_encoding", f"{name} ({reason})")
        # A member may be a small bomb, and an archive many small bombs.
        num_bytes += text.tell()
        if is_bomb(archive_bytes, num_bytes, ARCHIVE_ALLOWANCE):
            counters.skip("compression_bomb", f"{archive_name}, after {member}")
            return


def _suffix(name: str) -> str:
    matching = [suffix for suffix in SUFFIXES if name.lower().endswith(suffix)]
    return max(matching, key=len, default="")


def _text_path(raw_path: str, archive: str, counters: Counters) -> str:
    """Return the path of a member if it is a text to read; else count it and return nothing."""
    parts = [part for part in raw_path.split("/") if part not in ("", ".")]
    path = "/".join(parts)
    location = f"{archive}: {raw_path}"
    if _ABSOLUTE.match(raw_path) or ".." in parts:
        counters.skip("unsafe_member", location)
        return ""
    if not _is_text(path):
        counters.note("members_of_unknown_format", location)
        return ""
    return path


def _is_text(path: str) -> bool:
    """Return whether a member is a text by its name.

    Hidden ones are not: macOS adds ``._Emma.txt``, with attributes, to ``Emma.txt``.
    """
    is_hidden = any(part.startswith(".") and part != "." for part in path.split("/"))
    return not is_hidden and stem_of(path.lower()).endswith(".txt")


def _zip_members(input_range: InputRange, file: BinaryIO, counters: Counters) -> _Members:
    try:
        archive = zipfile.ZipFile(file)
    except _NOT_A_ZIP as error:
        if input_range.start == 0:
            counters.skip("not_an_archive", f"{input_range.name}: {error}")
        return
    with archive:
        # In the order of the file, so that a range is read forwards; the table's order may differ.
        infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
        if input_range.start == 0 and not any(_is_text(_zip_path(info)) for info in infos):
            counters.skip("archive_without_text", input_range.name)
        if input_range.start == 0 and infos and infos[0].header_offset > 0:
            _count_preceding(file, infos[0].header_offset, input_range.name, counters)
        for info in infos:
            if info.is_dir() or not _begins_in(input_range, info):
                continue
            path = _text_path(_zip_path(info), input_range.name, counters)
            if not path:
                continue
            location = f"{input_range.name}: {path}"
            if reason := _unreadable(info):
                counters.skip(reason, location)
                continue
            try:
                read = cast(zipfile.ZipExtFile, archive.open(info)).read1
            except _NOT_A_ZIP as error:
                counters.skip("damaged_member", f"{location}: {error}")
                continue
            tell = cast(BinaryIO, archive.fp).tell
            blocks = bounded_blocks(read, tell, location, counters, damage="damaged_member")
            yield path, stream_of(blocks)


def _count_preceding(file: BinaryIO, offset: int, name: str, counters: Counters) -> None:
    """Count an archive before that at `offset`, as of two that were joined: only the last one's
    members are listed. Other bytes there are a program that unpacks it.
    """
    file.seek(0)
    if file.read(len(_ZIP_HEADER)) == _ZIP_HEADER:
        counters.skip("damaged_archive", f"{name}: what precedes byte {offset} is not listed")


def _begins_in(input_range: InputRange, info: zipfile.ZipInfo) -> bool:
    # If the first bytes of the file are missing, the headers of its first members seem to lie
    # before its start.
    offset = max(info.header_offset, 0)
    if offset < input_range.start:
        return False
    return input_range.stop is None or offset < input_range.stop


def _zip_path(info: zipfile.ZipInfo) -> str:
    # Some tools of Windows write its separators.
    return info.filename.replace("\\", "/")


def _unreadable(info: zipfile.ZipInfo) -> str:
    """Return why a member cannot be read, or nothing."""
    if stat.S_ISLNK(info.external_attr >> 16):
        return "link_or_device_member"
    if info.flag_bits & 1:
        return "encrypted_member"
    if is_bomb(info.compress_size, info.file_size, TEXT_ALLOWANCE):
        return "compression_bomb"
    if info.compress_type not in _METHODS:
        return "unsupported_member"
    if info.header_offset < 0:  # bytes of the archive are missing before it
        return "damaged_member"
    return ""


def _tar_members(input_range: InputRange, file: BinaryIO, counters: Counters) -> _Members:
    archive_name = input_range.name
    num_compressed = progress(file)
    # Counted apart: if decompression ends early, the tar in it ends early too, which is one damage.
    decompression = Counters()
    last_path = ""
    num_texts = 0
    try:
        unpacked = decompressed(file, archive_name, decompression, ARCHIVE_ALLOWANCE)
        stream = _TarStream(unpacked, can_seek=unpacked is file)
        for info in _walk_tar(stream):
            last_path = info.name
            if info.isdir():
                continue
            path = _text_path_in_tar(info, archive_name, counters)
            if path:
                num_texts += 1
                read = stream.reader(info.size)
                location = f"{archive_name}: {path}"
                yield path, stream_of(bounded_blocks(read, num_compressed, location, counters))
        if num_texts == 0 and not decompression.bad:
            counters.skip("archive_without_text", archive_name)
    except _NOT_A_TAR as error:
        if not decompression.bad and last_path:
            counters.skip("damaged_archive", f"{archive_name}, after {last_path}: {error}")
        elif not decompression.bad:
            counters.skip("not_an_archive", f"{archive_name}: {error}")
    counters.add(decompression.to_record())


def _text_path_in_tar(info: tarfile.TarInfo, archive: str, counters: Counters) -> str:
    """Return the path of a member if it is a text to read; else count it and return nothing."""
    location = f"{archive}: {info.name}"
    if not info.isreg():
        counters.skip("link_or_device_member", location)
        return ""
    path = _text_path(info.name, archive, counters)
    if path and info.issparse():
        counters.skip("unsupported_member", f"{location} (a sparse file)")
        return ""
    return path


class _TarStream:
    """A stream for `tarfile` to read headers from, that seeks only forwards.

    It reads little at a time, so that a header that lies about its size costs no memory.
    """

    def __init__(self, stream: BinaryIO, *, can_seek: bool) -> None:
        self._stream = stream
        self._size: int | None = None
        self._offset = 0
        if can_seek:
            self._size = stream.seek(0, io.SEEK_END)
            stream.seek(0)
        self.last_block = b""

    def tell(self) -> int:
        return self._offset

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer only at the end.

        Raise `tarfile.ReadError` if no header is that long.
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
        while self._offset < offset:
            block = self.read(min(offset - self._offset, _LONGEST_HEADER_BYTES))
            if not block:
                return

    def reader(self, num_bytes: int) -> Callable[[int], bytes]:
        """Return a function that reads a member: the next `num_bytes`."""
        stop = self._offset + num_bytes
        return lambda size: self.read(min(size, stop - self._offset))


def _walk_tar(stream: _TarStream) -> Iterator[tarfile.TarInfo]:
    """Yield each member's header, whose data may then be read.

    Raise one of `_NOT_A_TAR` at damage, or if data follow the end.
    """
    with tarfile.open(
        fileobj=cast(Any, stream), mode="r:", encoding="utf-8", errors="backslashreplace"
    ) as archive:
        while info := archive.next():
            # tarfile would keep the headers of all members in memory.
            archive.members = []  # pyright: ignore[reportAttributeAccessIssue]
            if archive.offset <= info.offset:  # pyright: ignore[reportAttributeAccessIssue]
                raise tarfile.ReadError("a header with a negative size")
            yield info
    # tarfile also stops, without an error, at a block that is not a header; the end mark is a block
    # of zeros.
    if stream.last_block != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError("no header and no end mark follow")
    while block := stream.read(_LONGEST_HEADER_BYTES):
        if block.strip(tarfile.NUL):
            raise tarfile.ReadError("data follow the end mark")
