"""The pages of a MediaWiki XML dump, from any range of its bytes, each as a small XML text of its
own.

A page belongs to the range in which it begins (in ``.bz2``, in which the header of its stream
lies); bytes beyond are read only to complete it. So the ranges of any split give every page exactly
once, without an index.
"""

import bz2
import codecs
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import BinaryIO

from ..execution.counters import Counters
from .compression import counted_damage, decompressed
from .records import InputRange

READ_BYTES = 1 << 20
"""How much is read, or decompressed, at a time."""
MAX_PAGE_BYTES = 1 << 26
"""A page that does not end within these many bytes is given up (MediaWiki allows 2 MB of text)."""
HEAD_BYTES = 1 << 18

# The header of a bz2 stream and the magic of its first block, which is byte-aligned there and only
# there.
_STREAM_HEADER = re.compile(rb"BZh[1-9]1AY&SY")
_STREAM_HEADER_BYTES = 10
_PAGE_OPEN = b"<page>"
_PAGE_CLOSE = b"</page>"
_HEAD_CLOSE = b"</siteinfo>"
_DECLARED_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}encoding=["']([\w.-]{1,40})["']""")

Blocks = Iterator[tuple[bool, bytes]]
"""Decompressed bytes in order, each with whether they belong to the range or only follow it."""


def read_pages(
    file: BinaryIO, part: InputRange, encoding: str, counters: Counters
) -> Iterator[tuple[bytes, str]]:
    """Yield the XML of each page that begins in the range `part` of a seekable file, as bytes, and
    where it was.

    If markup is not ASCII in the `encoding` (UTF-16), the range with byte 0 yields all pages, in
    UTF-8. `counters` gets ``corrupt_bz2_stream``, ``corrupt_file``, ``cut_off_page`` and
    ``oversized_page``, and the neutral counter ``single_stream_files`` (bz2 files that are one
    stream, which cannot be split).
    """
    whole = not is_ascii_compatible(encoding)
    if whole and part.start > 0:
        return
    stop = None if whole else part.stop
    blocks = _blocks(file, part, stop, counters)
    if whole:
        blocks = _transcode(blocks, encoding)
    yield from _split_pages(blocks, part, counters)


def read_head(file: BinaryIO, part: InputRange) -> bytes:
    """Return the first bytes of the dump, decompressed, up to its first page; empty if they cannot
    be read.
    """
    head = b""
    whole = replace(part, start=0, stop=None)
    for _, block in _blocks(file, whole, None, Counters()):
        head += block
        # In a multistream dump the head is a stream of its own: stop before the next one is
        # decompressed.
        if _HEAD_CLOSE in head or _PAGE_OPEN in head or len(head) >= HEAD_BYTES:
            break
    return head.partition(_PAGE_OPEN)[0]


def sniff_encoding(head: bytes) -> str:
    """Return the encoding that a byte order mark or the XML declaration states; UTF-8 if neither
    does.
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head.startswith((b"<\0", b"\0<")):
        return "utf-16-le" if head.startswith(b"<") else "utf-16-be"
    declared = _DECLARED_ENCODING.search(head[:400])
    try:
        encoding = codecs.lookup(declared[1].decode("ascii")).name if declared else "utf-8"
    except LookupError:
        return "utf-8"
    # The declaration was readable as ASCII: one that names UTF-16 is left over from before a
    # conversion.
    return encoding if is_ascii_compatible(encoding) else "utf-8"


def is_ascii_compatible(encoding: str) -> bool:
    """Return whether markup in this encoding is the same bytes as in ASCII."""
    return _PAGE_OPEN.decode("ascii").encode(encoding) == _PAGE_OPEN


def _blocks(file: BinaryIO, part: InputRange, stop: int | None, counters: Counters) -> Blocks:
    if part.name.lower().endswith(".bz2"):
        return _bz2_blocks(file, part, stop, counters)
    file.seek(part.start)
    # A dump may expand to any size; a page may not.
    stream = decompressed(file, part.name, counters, allowance=sys.maxsize)
    return _plain_blocks(stream, part.start, stop)


def _plain_blocks(stream: BinaryIO, position: int, stop: int | None) -> Blocks:
    while block := stream.read(
        READ_BYTES if stop is None or position >= stop else min(READ_BYTES, stop - position)
    ):
        yield stop is None or position < stop, block
        position += len(block)


def _bz2_blocks(file: BinaryIO, part: InputRange, stop: int | None, counters: Counters) -> Blocks:
    """Yield the streams that begin in the range, decompressed, then those after it."""
    num_streams = 0
    for offset, pieces in groupby(_bz2_pieces(file, part.start), itemgetter(0)):
        num_streams += 1
        if num_streams == 1 and part.start == 0 and offset:
            counters.skip(
                "corrupt_bz2_stream", f"{part.name}: stream at byte 0: its header is damaged"
            )
        own = stop is None or offset < stop
        if not own:
            # A consumer that needs nothing beyond the range stops here, before this stream is
            # decompressed.
            yield False, b""
        decompressor = bz2.BZ2Decompressor()
        location = f"{part.name}: stream at byte {offset}"
        with counted_damage("corrupt_bz2_stream", location, counters if own else Counters()):
            for _, piece in pieces:
                for block in _decompress(
                    decompressor, piece
                ):  # raises EOFError if another piece follows the end
                    yield own, block
            if not decompressor.eof:
                raise EOFError("it ends early")
            if (
                decompressor.unused_data
            ):  # likely a stream whose header is damaged, so that it seems to belong to this
                raise EOFError("data follow its end")
    if part.start == 0 and num_streams == 1:
        counters.note("single_stream_files", part.name)


def _decompress(decompressor: bz2.BZ2Decompressor, piece: bytes) -> Iterator[bytes]:
    """Decompress a piece, at most `READ_BYTES` at a time, however much it expands."""
    while block := decompressor.decompress(piece, READ_BYTES):
        yield block
        if decompressor.eof or decompressor.needs_input:
            return
        piece = b""


def _bz2_pieces(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the compressed bytes from the first stream header at or after `start`, as (offset of
    the stream, bytes).
    """
    file.seek(start)
    buffer, offset, stream = b"", start, None
    while True:
        chunk = file.read(READ_BYTES)
        buffer += chunk
        # A header may span two chunks: keep the last bytes, which could be its beginning, for the
        # next one.
        usable = len(buffer) - (_STREAM_HEADER_BYTES - 1) if chunk else len(buffer)
        begin = 0
        for header in _STREAM_HEADER.finditer(buffer):
            if stream is not None and header.start() > begin:
                yield stream, buffer[begin : header.start()]
            begin, stream = header.start(), offset + header.start()
        if usable > begin:
            if stream is not None:
                yield stream, buffer[begin:usable]
            begin = usable
        buffer, offset = buffer[begin:], offset + begin
        if not chunk:
            return


def _transcode(blocks: Blocks, encoding: str) -> Blocks:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for own, block in blocks:
        yield own, decoder.decode(block).encode("utf-8", "replace")


def _split_pages(
    blocks: Blocks, part: InputRange, counters: Counters
) -> Iterator[tuple[bytes, str]]:
    """Yield each page that begins in the range."""
    buffer = b""
    searched = num_pages = 0
    own_end: int | None = None
    for own, block in blocks:
        if not own and own_end is None:
            own_end = len(buffer)
            if not _may_begin_page(buffer):
                return
        buffer += block
        begin = 0
        while (end := buffer.find(_PAGE_CLOSE, searched)) >= 0:
            searched = end = end + len(_PAGE_CLOSE)
            # Damage can cut off a page: then another one opens before the first closes.
            first, last = buffer.find(_PAGE_OPEN, begin, end), buffer.rfind(_PAGE_OPEN, begin, end)
            if first < last:
                counters.skip("cut_off_page", _location(part, num_pages + 1))
            if last >= 0 and (own_end is None or last < own_end):
                num_pages += 1
                yield buffer[last:end], _location(part, num_pages)
            begin = end
            if not own:
                return
        num_bytes = len(buffer)
        buffer, searched = _unfinished(buffer[begin:])
        if own_end is not None and (own_end := own_end - num_bytes + len(buffer)) <= 0:
            return
        if len(buffer) > MAX_PAGE_BYTES:
            counters.skip("oversized_page", _location(part, num_pages + 1))
            if own_end is not None:  # what follows is for the next range
                return
            buffer, searched = b"", 0
    if _PAGE_OPEN in buffer:
        counters.skip("cut_off_page", _location(part, num_pages + 1))


def _location(part: InputRange, number: int) -> str:
    """Return the location of a page, counted from 1, for messages."""
    return f"{part.name}: page {number} from byte {part.start} on"


def _unfinished(buffer: bytes) -> tuple[bytes, int]:
    """Return the part of the buffer that may belong to a page, and the index to search for its end
    from.
    """
    opening = buffer.find(_PAGE_OPEN)
    if opening < 0:
        return buffer[-len(_PAGE_OPEN) :], 0
    return buffer[opening:], max(0, len(buffer) - opening - len(_PAGE_CLOSE))


def _may_begin_page(text: bytes) -> bool:
    """Return whether a page begins in `text` or may begin with its last bytes."""
    tails = (_PAGE_OPEN[:length] for length in range(1, len(_PAGE_OPEN)))
    return _PAGE_OPEN in text or any(text.endswith(tail) for tail in tails)
