"""The headers of a tar, plain or decompressed as it comes, whatever is wrong with it.

`tarfile` knows the formats (ustar, GNU, pax); of damage it says nothing, and hostile headers make it run in circles,
fill the memory or skip to the end of time. Here damage is reported, and the next whole header is looked for.
"""

import tarfile
from collections.abc import Callable, Iterator
from tarfile import (
    EmptyHeaderError,  # pyright: ignore[reportAttributeAccessIssue]
    EOFHeaderError,  # pyright: ignore[reportAttributeAccessIssue]
    HeaderError,
    InvalidHeaderError,  # pyright: ignore[reportAttributeAccessIssue]
    ReadError,
    SubsequentHeaderError,  # pyright: ignore[reportAttributeAccessIssue]
    TarFile,
    TarInfo,
)
from typing import Any, BinaryIO, Protocol, Self, cast

# Longer names, and longer headers of other kinds, are made to break readers.
LONGEST_HEADER_BYTES = 1 << 16

_SKIP_BYTES = 1 << 20
_EXTENSIONS = (*tarfile.GNU_TYPES, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_DAMAGE = (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError)
_WITHOUT_END = "it ends without an end mark, so it may be cut off"


class Forward(Protocol):
    """What `walk_tar` needs of a stream; no place is sought that lies before the last one."""

    def tell(self) -> int:
        """Return the place in the stream, in bytes."""
        ...

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, fewer only at the end."""
        ...

    def seek(self, place: int, /) -> int:
        """Go to a place."""
        ...


class ForwardStream:
    """A stream that is sought by reading on, for one that cannot be sought."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._place = 0

    def tell(self) -> int:
        """Return the place in the stream, in bytes."""
        return self._place

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, fewer only at the end."""
        block = self._stream.read(size)
        self._place += len(block)
        return block

    def seek(self, place: int, /) -> int:
        """Read on to a place, or to the end where that comes first."""
        while self._place < place and self.read(min(place - self._place, _SKIP_BYTES)):
            pass
        return self._place


def walk_tar(stream: Forward, report: Callable[[str], None]) -> Iterator[TarInfo]:
    """Yield the header of each member from where the stream is; the caller may read the member's data before the next.

    `report` gets a line for each damage. After a header that is none, the next one is searched. Raise
    `tarfile.ReadError` where the very first is none: the stream is no tar.
    """
    begun = False
    try:
        archive = _Tar(stream, report)
        while info := archive.next():
            # tarfile would keep the headers of all members.
            archive.members = []  # pyright: ignore[reportAttributeAccessIssue]
            begun = True
            yield info
    except _DAMAGE as error:
        if not begun:
            raise ReadError(str(error)) from None
        report(str(error))


class _Tar(TarFile):
    """A tar that is read past its damage."""

    def __init__(self, stream: Forward, report: Callable[[str], None]) -> None:
        self.report = report
        self.start = stream.tell()
        self.expects_header = True
        super().__init__(
            fileobj=cast(Any, stream), tarinfo=_Header, ignore_zeros=True, encoding="utf-8", errors="backslashreplace"
        )


class _Header(TarInfo):
    """A header that cannot be impossible, and that reports where one is missing."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header that a block holds; raise `tarfile.HeaderError` where it holds none."""
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in _EXTENSIONS and header.size > LONGEST_HEADER_BYTES):
            raise InvalidHeaderError("impossible size")
        return header

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> Self:
        """Return the header of the next member; raise `tarfile.HeaderError` where there is none."""
        archive = cast(_Tar, tarfile)
        place = archive.offset
        try:
            header = super().fromtarfile(archive)
        except EOFHeaderError:
            archive.expects_header = False
            raise
        except HeaderError as error:
            if place == archive.start:
                raise ReadError(f"no tar header: {error}") from None
            # What follows an end mark, or a damage that was reported, is nothing new.
            if archive.expects_header:
                archive.report(_WITHOUT_END if isinstance(error, EmptyHeaderError) else str(error))
            archive.expects_header = False
            raise InvalidHeaderError(str(error)) if isinstance(error, SubsequentHeaderError) else error from None
        archive.expects_header = True
        if archive.offset <= place:
            raise ReadError("a header that leads back")
        return header
