"""Read the pages of a MediaWiki XML dump, from any range of its bytes, each as its own small XML.

A page belongs to the range in which it begins (in ``.bz2``, in which the header of its stream
lies); bytes beyond are read only to complete it. So the ranges of any split give every page exactly
once, without an index:

    dump     <page> 1 </page> <page> 2 </page> <page> 3 </page>
    ranges   [       0          )[        1       )[    2     )
    pages     1 and 2             3                 none
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

from ..counters import Counters
from ..encodings import UTF_8
from .streams import InputRange, counted_damage, decompressed

READ_BYTES = 1 << 20
"""How much is read, or decompressed, at a time."""
MAX_PAGE_BYTES = 1 << 26
"""A page that does not end within these many bytes is given up (MediaWiki allows 2 MB of text)."""
HEAD_BYTES = 1 << 18

# The header of a bz2 stream and the magic number of its first block, or of its end if it is empty.
# Those of later blocks begin at any bit, so that no search for bytes takes one for the start of a
# stream.
_STREAM_HEADER = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_PAGE_OPEN = b"<page>"
_PAGE_CLOSE = b"</page>"

Blocks = Iterator[tuple[bool, bytes]]
"""Decompressed bytes in order, each with whether they belong to the range or only follow it."""


def read_pages(
    file: BinaryIO, input_range: InputRange, encoding: str, counters: Counters
) -> Iterator[tuple[bytes, str]]:
    """Yield the XML of each page that begins in a range of a seekable file, and where it was; if
    the `encoding` is not UTF-8, the range with byte 0 yields all pages, in UTF-8.
    """
    blocks = _blocks(file, input_range, counters)
    if encoding != UTF_8:
        if input_range.start:
            return
        whole = replace(input_range, stop=None)
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        blocks = (
            (in_range, decoder.decode(block).encode("utf-8", "replace"))
            for in_range, block in _blocks(file, whole, counters)
        )
    yield from _split_pages(blocks, input_range, counters)


def read_head(file: BinaryIO, input_range: InputRange) -> tuple[str, str]:
    """Return the text of a dump before its first page, and its encoding, UTF-16 by its mark."""
    head = b""
    whole = replace(input_range, start=0, stop=None)
    for _, block in _blocks(file, whole, Counters()):
        head += block
        # In a multistream dump the head is a stream of its own: stop before the next one is
        # decompressed.
        if b"</siteinfo>" in head or _PAGE_OPEN in head or len(head) >= HEAD_BYTES:
            break
    encoding = UTF_8
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    return head.partition(_PAGE_OPEN)[0].decode(encoding, "replace"), encoding


def _blocks(file: BinaryIO, input_range: InputRange, counters: Counters) -> Blocks:
    if input_range.name.lower().endswith(".bz2"):
        yield from _bz2_blocks(file, input_range, counters)
        return
    file.seek(input_range.start)
    # A dump may expand to any size; a page may not.
    stream = decompressed(file, input_range.name, counters, allowance=sys.maxsize)
    stop = input_range.stop or sys.maxsize
    position = input_range.start
    # No block lies on both sides of the range's end.
    while block := stream.read(min(READ_BYTES, stop - position) if position < stop else READ_BYTES):
        yield position < stop, block
        position += len(block)


def _bz2_blocks(file: BinaryIO, input_range: InputRange, counters: Counters) -> Blocks:
    """Yield the streams that begin in the range, decompressed, then those after it."""
    num_streams = 0
    for offset, pieces in groupby(_bz2_pieces(file, input_range.start), itemgetter(0)):
        num_streams += 1
        location = f"{input_range.name}: stream at byte {offset}"
        if num_streams == 1 and input_range.start == 0 and offset:
            counters.skip(
                "corrupt_bz2_stream", f"{input_range.name}: stream at byte 0: its header is damaged"
            )
        in_range = input_range.stop is None or offset < input_range.stop
        if not in_range:
            # A consumer that needs nothing beyond the range stops here, before this stream is
            # decompressed.
            yield False, b""
        decompressor = bz2.BZ2Decompressor()
        # Damage beyond the range is for the next range to count.
        damage = counters if in_range else Counters()
        with counted_damage("corrupt_bz2_stream", location, damage):
            for _, piece in pieces:
                # At most `READ_BYTES` at a time, however much a piece expands. Raises EOFError if
                # the stream ended in an earlier piece.
                while block := decompressor.decompress(piece, READ_BYTES):
                    yield in_range, block
                    if decompressor.eof or decompressor.needs_input:
                        break
                    piece = b""
            if not decompressor.eof:
                raise EOFError("it ends early")
            if decompressor.unused_data:
                # Likely a stream whose header is damaged, so that it seems to belong to this one.
                raise EOFError("data follow its end")
    if input_range.start == 0 and num_streams == 1:
        counters.note("single_stream_files", input_range.name)


def _bz2_pieces(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the compressed bytes from the first stream header at or after `start`.

    Each piece comes with the offset of its stream; a stream may have several pieces:

        reads     [. . H a a a a][a a H b b][b b b]        H: a header
        pieces        [H a a a a][a a][H b b][b b b]
    """
    file.seek(start)
    buffer = b""
    buffer_offset = start
    stream_offset: int | None = None
    while True:
        chunk = file.read(READ_BYTES)
        buffer += chunk
        usable = len(buffer)
        if chunk:
            # A header may span two chunks: keep the last bytes, which could be its beginning, for
            # the next one.
            usable -= 10 - 1
        begin = 0
        for header in _STREAM_HEADER.finditer(buffer):
            if stream_offset is not None and header.start() > begin:
                yield stream_offset, buffer[begin : header.start()]
            begin = header.start()
            stream_offset = buffer_offset + begin
        if usable > begin:
            if stream_offset is not None:
                yield stream_offset, buffer[begin:usable]
            begin = usable
        buffer = buffer[begin:]
        buffer_offset += begin
        if not chunk:
            return


def _split_pages(
    blocks: Blocks, input_range: InputRange, counters: Counters
) -> Iterator[tuple[bytes, str]]:
    """Yield each page that begins in the range."""
    buffer = b""
    num_pages = 0
    # Where the range ends in the buffer, once that is known. It moves left with the buffer's
    # content, and at 0 everything in the buffer is beyond the range.
    range_end: int | None = None
    for in_range, block in blocks:
        if not in_range and range_end is None:
            range_end = len(buffer)
            if b"<" not in buffer:  # with which a page may begin
                return
        buffer += block
        begin = 0
        while (close := buffer.find(_PAGE_CLOSE, begin)) >= 0:
            end = close + len(_PAGE_CLOSE)
            #   buffer    ..</page> <page> cut off <page> whole </page>
            #                begin  ^ first_open   ^ last_open         ^ end
            first_open = buffer.find(_PAGE_OPEN, begin, end)
            last_open = buffer.rfind(_PAGE_OPEN, begin, end)
            if first_open < last_open:
                # Damage can cut off a page: then another one opens before the first closes.
                location = _location(input_range, num_pages + 1)
                counters.skip("cut_off_page", location, record=buffer[first_open:last_open])
            if last_open >= 0 and (range_end is None or last_open < range_end):
                num_pages += 1
                yield buffer[last_open:end], _location(input_range, num_pages)
            begin = end
            if not in_range:
                return
        # What follows may belong to a page, the last bytes to a tag.
        opening = buffer.find(_PAGE_OPEN, begin)
        if opening < 0:
            opening = max(begin, len(buffer) - len(_PAGE_OPEN))
        buffer = buffer[opening:]
        if range_end is not None:
            range_end -= opening
            if range_end <= 0:
                return
        if len(buffer) > MAX_PAGE_BYTES:
            counters.skip("oversized_page", _location(input_range, num_pages + 1))
            if range_end is not None:  # what follows is for the next range
                return
            buffer = b""
    if _PAGE_OPEN in buffer:
        counters.skip("cut_off_page", _location(input_range, num_pages + 1), record=buffer)


def _location(input_range: InputRange, number: int) -> str:
    """Return the location of a page, counted from 1, for messages."""
    return f"{input_range.name}: page {number} from byte {input_range.start} on"
