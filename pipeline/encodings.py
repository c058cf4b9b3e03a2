"""Tell the encoding of a text, and read texts as UTF-8, whatever they are stored in.

A text is UTF-8, or UTF-16 or UTF-32 with a byte order mark, or in the encoding that the user gives.
No other is read: an encoding that chardet guesses is only named in the refusal, as one to try.
"""

import codecs
import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

from .errors import UserError

AUTO = "auto"
UTF_8 = "utf-8"
SAMPLE_BYTES = 1 << 20
"""Bytes by which the encoding of a text is judged."""

CHARACTERS_PER_DAMAGE = 1000
"""A whole text may have one damaged character in this many."""
CHARACTERS_PER_DAMAGE_IN_PLACES = 100
"""The same of a piece of a text, since damage may be all in one place."""

_BLOCK_BYTES = 1 << 16

_MARKS = {  # UTF-32's mark begins with that of UTF-16
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def check_encoding(name: str) -> str:
    """Return Python's name of an encoding; raise `UserError` if there is none of this name."""
    try:
        "".encode(name)  # bytes-to-bytes codecs such as "hex" are not encodings
        codecs.getincrementaldecoder(name)("replace").decode(b"")  # "idna" cannot replace
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise UserError(
            f"`encoding` is {name}, which is not the name of an encoding: give one such as cp1251, "
            "koi8-r, shift_jis, gb18030, or auto."
        ) from None


def read_sample(stream: BinaryIO) -> bytes:
    """Return the first `SAMPLE_BYTES` of a text, at most, in whole lines."""
    head = stream.read(SAMPLE_BYTES)
    if len(head) < SAMPLE_BYTES:
        return head
    # Without a line break the last character goes, which may be cut, and four bytes long.
    return head[: head.rfind(b"\n") + 1] or head[:-4]


def text_encoding(
    sample: bytes, path: str, given: str = AUTO, remedy: str = "give `encoding` {guess}"
) -> str:
    """Return the encoding of a text, by Python's name, from a sample of whole lines.

    A text with a byte order mark, or that is valid UTF-8, is that, whatever encoding is `given`.
    So are UTF-8 with a few damaged characters, ASCII with fewer than a foreign byte in a thousand,
    and what is not a text, which readers count. Raise `UserError` if a text is in another encoding
    and none is given; `remedy` says what to do.
    """
    for mark, marked in _MARKS.items():
        if sample.startswith(mark):
            return marked
    try:
        sample.decode(UTF_8)
        is_utf_8 = True
    except UnicodeDecodeError:
        is_utf_8 = False
    if given != AUTO and (sample.isascii() or not is_utf_8):
        # ASCII may still be UTF-16 without a mark, or ISO-2022, if the user says so.
        return check_encoding(given)
    if is_utf_8 or b"\0" in sample:
        return UTF_8
    num_ascii = len(sample.translate(None, bytes(range(0x80, 0x100))))
    if len(sample) - num_ascii < len(sample) / CHARACTERS_PER_DAMAGE:
        return UTF_8
    decoded = sample.decode(UTF_8, "replace")
    # Few characters are damaged, and fewer than are valid and not ASCII.
    if is_damage(decoded) and len(decoded) - num_ascii > 2 * decoded.count("\ufffd"):
        return UTF_8
    import chardet

    # It looks at the first 200,000 bytes. Lines of pure ASCII say nothing.
    lines = b"".join(line for line in sample.splitlines(keepends=True) if not line.isascii())
    guess = chardet.detect(lines, compat_names=False, prefer_superset=True)["encoding"]
    if guess is None:
        raise UserError(f"{path} is not UTF-8, and looks like no other encoding: is it a text?")
    remedy = remedy.replace("{guess}", guess)
    raise UserError(f"{path} is not UTF-8: if it is {guess}, as chardet guesses, {remedy}.")


def is_damage(text: str, characters_per_damage: int = CHARACTERS_PER_DAMAGE) -> bool:
    """Return whether so few characters are U+FFFD that it is damage, not another encoding."""
    num_damaged = text.count("\ufffd")
    return num_damaged <= max(5, len(text) // characters_per_damage)


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
        try:
            text = decoder.decode(block)
        except UnicodeError:  # UTF-16 or UTF-32 without a byte order mark cannot be replaced
            text = None
        if text is None or not is_damage(text, CHARACTERS_PER_DAMAGE_IN_PLACES):
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

    def readable(self) -> bool:
        return True

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
        return len(piece)
