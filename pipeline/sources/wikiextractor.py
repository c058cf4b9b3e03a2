"""The output of WikiExtractor as documents: articles between ``<doc …>`` and ``</doc>``, or JSON
Lines (``--json``).

`rows` finds source, language and prose. A file of any size can be read in ranges of bytes: an
article belongs to the range in which its ``<doc`` line begins.
"""

import html
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from ..config import IngestConfig
from ..execution.counters import Counters
from .compression import decompressed, peekable, stem_of
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
    offset: int
    header: bytes
    lines: list[bytes]


def read_extracted(
    file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the articles of a range of a file that WikiExtractor wrote, in either of its forms.

    The source of articles of no known wiki is ``wikiextractor``. `counters` gets the bad input
    ``cut_off_article`` (kept as far as it goes), ``oversized_article``, ``malformed_header``,
    ``text_outside_articles``, ``invalid_utf8`` (kept, with U+FFFD for the bad bytes), and what
    `row_document` and `read_lines` name.
    """
    table = Table(
        name=part.name, stem=stem_of(part.name), source="wikiextractor", unit="byte", extracted=True
    )
    stream = peekable(decompressed(file, part.name, counters))
    head: bytes = stream.peek(_SNIFFED_BYTES)[:_SNIFFED_BYTES]  # pyright: ignore[reportAttributeAccessIssue]
    is_json = head.removeprefix(BOM).startswith(b"{")
    return row_documents(
        (read_objects if is_json else _read_articles)(stream, part, table, counters),
        table,
        counters,
    )


def _read_articles(
    stream: BinaryIO, part: InputRange, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the articles whose header begins in the range, each with its offset, in the columns of
    a table.
    """
    for article in _articles(stream, part, counters):
        location = table.location(article.offset)
        header, text = (
            decode(raw, location, counters) for raw in (article.header, b"\n".join(article.lines))
        )
        if match := _HEADER.match(header):
            page_id, url, title = (html.unescape(value or "") for value in match.groups())
            yield article.offset, {"id": page_id, "url": url, "title": title, "text": text}
        else:
            counters.skip("malformed_header", location)


def _articles(stream: BinaryIO, part: InputRange, counters: Counters) -> Iterator[_DocElement]:
    article: _DocElement | None = None
    outside = part.start == 0
    for offset, line in read_lines(stream, part, counters, beyond=True):
        own = part.stop is None or offset < part.stop
        if line.startswith(HEAD):
            if article:
                counters.skip("cut_off_article", f"{part.name}, byte {article.offset}")
                yield article
            article, outside = _DocElement(offset, line, []) if own else None, False
        elif line.strip() == _END:
            if article:
                yield article
            article, outside = None, True
        elif article and offset - article.offset > LONGEST_ARTICLE_BYTES:
            counters.skip("oversized_article", f"{part.name}, byte {article.offset}")
            article = None
        elif article:
            article.lines.append(line)
        elif outside and own and line.strip():
            counters.skip("text_outside_articles", f"{part.name}, byte {offset}")
            outside = False
        if not own and article is None:
            return
    if article:
        counters.skip("cut_off_article", f"{part.name}, byte {article.offset}")
        yield article
