"""Read WikiExtractor's output: articles between ``<doc …>`` and ``</doc>``, or JSON Lines.

`rows` finds source, language and prose. A file of any size can be read in ranges of bytes: an
article belongs to the range in which its ``<doc`` line begins.
"""

import html
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from ..config import IngestConfig
from ..counters import Counters
from .columns import Columns
from .compression import decompressed, stem_of
from .jsonl import read_objects
from .lines import BOM, decode, read_lines
from .records import InputRange, RawDocument
from .rows import Table, row_documents

HEAD = b"<doc "
LONGEST_ARTICLE_BYTES = 1 << 24

_SNIFFED_BYTES = 16
_END = b"</doc>"
# The attributes come in this order, and only some versions escape the quotation marks within a
# title.
_HEADER = re.compile(
    r'<doc id="([^"]*)"(?: revid="[^"]*")?(?: url="([^"]*)")?(?: title="(.*)")?[^>"]*>\s*$'
)


class _DocElement(NamedTuple):
    """An article as it is in the file, from its ``<doc`` line on."""

    offset: int
    header: bytes
    lines: list[bytes]


def read_extracted(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the articles of a range of a file that WikiExtractor wrote, in either of its forms.

    The source of articles of no known wiki is ``wikiextractor``. `counters` gets the bad input
    ``cut_off_article`` (kept as far as it goes), ``oversized_article``, ``malformed_header``,
    ``text_outside_articles``, ``invalid_utf8`` (kept, with U+FFFD for the bad bytes), and what
    `row_documents` and `read_lines` name.
    """
    name = input_range.name
    table = Table(
        name=name,
        stem=stem_of(name),
        source="wikiextractor",
        columns=Columns(),
        unit="byte",
        extracted=True,
    )
    head = decompressed(file, name, Counters()).read(_SNIFFED_BYTES)
    file.seek(0)
    stream = decompressed(file, name, counters)
    if head.removeprefix(BOM).startswith(b"{"):
        rows = read_objects(stream, input_range, table, counters)
    else:
        rows = _read_articles(stream, input_range, table, counters)
    return row_documents(rows, table, counters)


def _read_articles(
    stream: BinaryIO, input_range: InputRange, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the articles whose header begins in the range, as rows with their offsets."""
    for article in _articles(stream, input_range, counters):
        location = table.location(article.offset)
        header = decode(article.header, location, counters)
        text = decode(b"\n".join(article.lines), location, counters)
        match = _HEADER.match(header)
        if match is None:
            counters.skip("malformed_header", location)
            continue
        page_id, url, title = (html.unescape(value or "") for value in match.groups())
        yield article.offset, {"id": page_id, "url": url, "title": title, "text": text}


def _articles(
    stream: BinaryIO, input_range: InputRange, counters: Counters
) -> Iterator[_DocElement]:
    """Yield the articles whose header begins in the range; the last may end beyond it."""
    article: _DocElement | None = None
    # Text outside articles is counted once a gap. A range that begins within the file may begin
    # within an article of the range before: nothing is outside until that one ends.
    counts_outside = input_range.start == 0
    for offset, line in read_lines(stream, input_range, counters, beyond=True):
        in_range = input_range.stop is None or offset < input_range.stop
        if line.startswith(HEAD):
            if article:
                counters.skip("cut_off_article", f"{input_range.name}, byte {article.offset}")
                yield article
            article = None
            if in_range:
                article = _DocElement(offset, line, [])
            counts_outside = False
        elif line.strip() == _END:
            if article:
                yield article
            article = None
            counts_outside = True
        elif article and offset - article.offset > LONGEST_ARTICLE_BYTES:
            counters.skip("oversized_article", f"{input_range.name}, byte {article.offset}")
            article = None
        elif article:
            article.lines.append(line)
        elif counts_outside and in_range and line.strip():
            counters.skip("text_outside_articles", f"{input_range.name}, byte {offset}")
            counts_outside = False
        if not in_range and article is None:
            return
    if article:
        counters.skip("cut_off_article", f"{input_range.name}, byte {article.offset}")
        yield article
