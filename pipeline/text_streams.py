"""Streams of bytes that are read as UTF-8, whatever encoding they are stored in."""

import codecs
import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

from .encodings import CHARACTERS_PER_DAMAGE_IN_PLACES, UTF_8, is_damage
from .errors import UserError

_BLOCK_BYTES = 1 << 16


def recoded(
    stream: BinaryIO, encoding: str, name: str, remedy: str = "convert the file to UTF-8"
) -> BinaryIO:
    """Return a stream of the same text in UTF-8, without byte order mark; UTF-8 stays as it is.

    Bytes that the encoding does not have become U+FFFD. If there are many, reading the stream
    raises `UserError`, which names the text and the remedy.
    """
    if encoding == UTF_8:
        return stream
    return stream_of(_recoded_blocks(stream, encoding, name, remedy))


def _recoded_blocks(stream: BinaryIO, encoding: str, name: str, remedy: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    num_bytes = 0
    while block := stream.read(_BLOCK_BYTES):
        text = decoder.decode(block)
        if not is_damage(text, CHARACTERS_PER_DAMAGE_IN_PLACES):
            raise UserError(
                f"{name} is not in the encoding {encoding} from about byte {num_bytes} on: "
                f"{remedy}."
            )
        num_bytes += len(block)
        yield text.encode(UTF_8, "replace")
    yield decoder.decode(b"", final=True).encode(UTF_8, "replace")


def stream_of(blocks: Iterable[bytes]) -> BinaryIO:
    """Return a stream of the bytes of blocks, with ``peek`` and ``readline``."""
    return cast(BinaryIO, io.BufferedReader(_BlockStream(iter(blocks)), _BLOCK_BYTES))


class _BlockStream(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._block = memoryview(b"")
        self._num_bytes = 0

    def readable(self) -> bool:
        """As `io.BufferedReader` asks."""
        return True

    def tell(self) -> int:
        """Return the number of bytes read, although the stream cannot seek."""
        return self._num_bytes

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fill `buffer` with bytes of one block; return how many, 0 at the end."""
        while not self._block:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._block = memoryview(block)
        piece = self._block[: len(buffer)]
        buffer[: len(piece)] = piece
        self._block = self._block[len(piece) :]
        self._num_bytes += len(piece)
        return len(piece)
