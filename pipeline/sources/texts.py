"""The one place where files of text become `str`, in pieces or lines, whatever their encoding."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, BinaryIO, Self

from ..counters import Counters
from ..encodings import CHARACTERS_PER_DAMAGE_IN_PLACES, is_damage, recoded
from ..source_formats import FORMATS
from ..text.sentences import compose
from ..text.wikitext.repair import GAP
from .streams import BOM, InputRange, decode, decompressed, read_lines

HEAD_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
# The bytes that follow the first one of a character in UTF-8.
_CONTINUATIONS = bytes(range(0x80, 0xC0))


@dataclass(frozen=True)
class Lines:
    """The lines of a range of a text in UTF-8, decoded, each after its offset in bytes."""

    stream: BinaryIO
    input_range: InputRange
    counters: Counters

    def __iter__(self) -> Iterator[tuple[int, str]]:
        name = self.input_range.name
        for offset, line in read_lines(self.stream, self.input_range, self.counters):
            yield offset, decode(line, f"{name}, byte {offset}", self.counters)

    def head(self, num_bytes: int | None = None) -> Self:
        """Return the file's first lines; what is bad there is counted where the range is read."""
        first = replace(self.input_range, start=0, stop=num_bytes)
        return replace(self, input_range=first, counters=Counters())


def content_of(file: BinaryIO, input_range: InputRange, counters: Counters) -> Any:
    """Return what the reader of an open file gets, by `Format.kind`; None if it is ``not_text``."""
    kind = FORMATS[input_range.format].kind
    if kind == "bytes":
        return file
    name = input_range.name
    remedy = "give another `encoding`, or convert the file to UTF-8"
    unpacked = decompressed(file, name, counters)
    stream = recoded(unpacked, input_range.encoding, name, remedy)
    if kind == "rows":
        return Lines(stream, input_range, counters)
    return text_pieces(stream, name, counters)


def text_pieces(stream: BinaryIO, name: str, counters: Counters) -> Iterator[str] | None:
    """Return a text in UTF-8 in pieces of whole lines, the first of about `HEAD_BYTES`, without
    byte order mark, composed (NFC) and without U+FFFC, which would be taken for a `GAP`.

    A few bad bytes become U+FFFD, or a `GAP` where all else is ASCII, and their lines are counted;
    where there are many, the text is in another encoding, and its rest is left out
    (``unknown_encoding``).
    """
    chunks = _chunks(stream, counters)
    first_chunk = next(chunks, b"")
    if b"\0" in first_chunk:  # no text has it, but nearly all other files
        counters.skip("not_text", name)
        return None
    return _decoded_chunks(chain([first_chunk], chunks), name, counters)


def _chunks(stream: BinaryIO, counters: Counters) -> Iterator[bytes]:
    """Yield a stream in pieces of whole lines; a line of more than a piece is cut after a word."""
    # One piece ahead, because only then it is known whether this one ends in the middle of a line.
    start = stream.read(len(BOM)).removeprefix(BOM)
    chunk = start + stream.read(HEAD_BYTES - len(start)) + stream.readline(LONGEST_LINE_BYTES)
    while chunk:
        following = stream.read(CHUNK_BYTES) + stream.readline(LONGEST_LINE_BYTES)
        if following and not chunk.endswith(b"\n"):
            # Files of old Macs have "\r" at the end of each line.
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if end == 0:
                end = chunk.rfind(b" ", -1000) + 1  # no word is as long
                if end == 0:  # before the last character, which may be cut
                    end = len(chunk.rstrip(_CONTINUATIONS)) - 1
                counters.count("long_lines_cut")
            following = chunk[end:] + following
            chunk = chunk[:end]
        yield chunk
        chunk = following


def _decoded_chunks(chunks: Iterable[bytes], name: str, counters: Counters) -> Iterator[str]:
    """Yield the text of chunks, up to one that is not UTF-8."""
    num_bytes = 0
    has_nul = False
    for chunk in chunks:
        if b"\0" in chunk:  # zeros that a power failure left
            if not has_nul:
                counters.skip("nul_bytes", f"{name}, from about byte {num_bytes} on")
            has_nul = True
            chunk = chunk.replace(b"\0", b"")
        text = _decoded(chunk, counters)
        # The search is fast, and most texts have none.
        if "\ufffd" in text:
            num_readable = _num_readable(text)
            if num_readable < len(text):
                num_bytes += len(text[:num_readable].encode())
                counters.skip("unknown_encoding", f"{name}, from about byte {num_bytes} on")
                yield text[:num_readable]
                return
            # In ASCII nothing shows which letters they were: their sentences lack them.
            if text.replace("\ufffd", "").isascii():
                text = text.replace("\ufffd", GAP)
        yield text
        num_bytes += len(chunk)


def _num_readable(text: str) -> int:
    """Return how many characters, in whole lines, come before a place that is not UTF-8."""
    place_characters = 1 << 14
    for start in range(0, len(text), place_characters):
        place = text[start : start + place_characters]
        if not is_damage(place, CHARACTERS_PER_DAMAGE_IN_PLACES):
            return text.rfind("\n", 0, start + place.index("\ufffd")) + 1
    return len(text)


def _decoded(chunk: bytes, counters: Counters) -> str:
    if b"\r" in chunk:  # rare, and the search is cheaper than the replacements
        # "\r\r\n" is what Windows makes of "\r\n".
        chunk = re.sub(rb"\r{0,2}\n|\r", b"\n", chunk)
    chunk = chunk.removesuffix(b"\n")
    try:
        text = chunk.decode("utf-8")
    except UnicodeDecodeError:
        lines = []
        for line in chunk.split(b"\n"):
            text = line.decode("utf-8", "replace")
            if "\ufffd" in text and text.encode() != line:
                counters.count("text_lines_with_invalid_utf8")
            lines.append(text)
        text = "\n".join(lines)
    return compose(text.replace(GAP, ""))
