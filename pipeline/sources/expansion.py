"""How far compressed text may expand: what goes beyond is a bomb, and is read no further.

English text shrinks to a third or a quarter, the most repetitive text that people keep to a twentieth. What expands to
more than `BOMB_RATIO` times its size, and beyond an allowance in bytes, is no text of anyone's.
"""

import io
import zipfile
from collections.abc import Callable
from typing import BinaryIO, cast

from ..execution.counters import Counters
from .compression import DAMAGE, is_failure, open_decompressed

BOMB_RATIO = 200
"""Times its compressed size that text may expand to."""
MEMBER_ALLOWANCE = 1 << 24
"""Bytes that one text may expand to whatever the ratio."""
ARCHIVE_ALLOWANCE = 1 << 30
"""Bytes that all texts of an archive may expand to whatever the ratio."""

# zipfile decompresses whole reads of its rarer methods, at up to 20,000 times their size.
_READ_BYTES = 1 << 13
_BUFFER_BYTES = 1 << 17


def is_bomb(num_compressed: int, num_bytes: int, allowance: int) -> bool:
    """Whether `num_bytes` of text are too many for the bytes they were compressed to.

    >>> is_bomb(1_000, 1_000_000, allowance=10_000_000), is_bomb(1_000, 20_000_000, allowance=10_000_000)
    (False, True)
    """
    return num_bytes > allowance and num_bytes > BOMB_RATIO * num_compressed


def progress(file: BinaryIO) -> Callable[[], int]:
    """Return what says how many bytes of `file` were read, also when Arrow has closed it at its end."""
    place = 0

    def tell() -> int:
        nonlocal place
        place = place if file.closed else file.tell()
        return place

    return tell


def decompressed(file: BinaryIO, name: str, counters: Counters) -> "Bounded | None":
    """Return the bytes of a file that is compressed as its `name` says; None where it is not.

    `counters` gets ``compression_bomb`` and what `open_decompressed` names.
    """
    opened = open_decompressed(name, name, lambda _: file, counters)
    return None if opened is file else Bounded(cast(io.BufferedReader, opened).read1, progress(file), name, counters)


class Bounded(io.RawIOBase):
    """The bytes of a text up to where it is damaged, or a bomb.

    A bomb is counted in `counters` as ``compression_bomb``; `damage` says what is wrong with the data, or nothing.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        num_compressed: Callable[[], int],
        name: str,
        counters: Counters,
        allowance: int = MEMBER_ALLOWANCE,
    ) -> None:
        """Make a stream of what `read` returns, called with a number of bytes that it may fall short of.

        `num_compressed` says how many bytes have been decompressed so far.
        """
        self._read = read
        self._num_compressed = num_compressed
        self._start = num_compressed()
        self._name = name
        self._tally = counters
        self._allowance = allowance
        self._num_bytes = 0
        self._is_bomb = False
        self.damage = ""

    def buffered(self) -> BinaryIO:
        """Return the same bytes with ``peek`` and ``readline``."""
        return cast(BinaryIO, io.BufferedReader(self, _BUFFER_BYTES))

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._num_bytes

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fill `buffer` with the next bytes as far as there are any at hand; return how many, 0 at the end."""
        if self._is_bomb or self.damage:
            return 0
        try:
            block = self._read(min(len(buffer), _READ_BYTES))
        except (*DAMAGE, zipfile.BadZipFile) as error:
            if is_failure(error):
                raise
            self.damage = str(error) or type(error).__name__
            return 0
        if not block:
            return 0
        self._num_bytes += len(block)
        if is_bomb(self._num_compressed() - self._start, self._num_bytes, self._allowance):
            self._is_bomb = True
            self._tally.skip("compression_bomb", f"{self._name}, beyond byte {self._num_bytes}")
            return 0
        buffer[: len(block)] = block
        return len(block)
