"""The output of WikiExtractor as documents: articles between ``<doc …>`` and ``</doc>``, or JSON Lines (``--json``).

Source, language and prose are found as `rows` says. A file of any size can be read in ranges of bytes: an article
belongs to the range in which its ``<doc`` line begins.
"""

import html
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from ..execution.counters import Counters
from .compression import open_decompressed, without_compression
from .jsonl import read_json_lines
from .lines import BOM, read_lines
from .records import InputRange, RawDocument
from .rows import Table, row_document

HEAD = b"<doc "
LONGEST_ARTICLE_BYTES = 1 << 24

_SNIFFED_BYTES = 16
_END = b"</doc>"
# The attributes stand in this order, and only some versions escape the quotation marks within a title.
_HEADER = re.compile(r'<doc id="([^"]*)"(?: revid="[^"]*")?(?: url="([^"]*)")?(?: title="(.*)")?[^>"]*>\s*$')


class _Article(NamedTuple):
    place: int
    header: bytes
    lines: list[bytes]

    def text(self) -> bytes:
        return b"\n".join(self.lines)


def read_extracted(part: InputRange, open_file: Callable[[str], BinaryIO], counters: Counters) -> Iterator[RawDocument]:
    """Yield the articles of a range of a file that WikiExtractor wrote, in either of its forms.

    The source of articles of no known wiki is ``wikiextractor``. `counters` gets the bad input ``cut_off_article`` (it
    is kept as far as it goes), ``oversized_article``, ``malformed_header``, ``text_outside_articles``, ``invalid_utf8``
    (kept, with U+FFFD for the bad bytes), and what `row_document` and `read_lines` name.
    """
    stem = without_compression(part.name)
    table = Table(name=part.name, stem=stem, source="wikiextractor", unit="byte", extracted=True)
    with open_decompressed(part.path, part.name, open_file, Counters()) as stream:
        is_json = stream.read(_SNIFFED_BYTES).removeprefix(BOM).startswith(b"{")
    if is_json:
        yield from read_json_lines(part, open_file, counters, table)
        return
    for article in _articles(part, open_file, counters):
        if (row := _row(article, table, counters)) and (document := row_document(row, article.place, table, counters)):
            yield document


def _articles(part: InputRange, open_file: Callable[[str], BinaryIO], counters: Counters) -> Iterator[_Article]:
    """Yield the articles whose header begins in the range."""
    article: _Article | None = None
    outside = part.start == 0
    for place, line in read_lines(part, open_file, counters, beyond=True):
        own = part.stop is None or place < part.stop
        if line.startswith(HEAD):
            if article:
                counters.skip("cut_off_article", f"{part.name}, byte {article.place}")
                yield article
            article, outside = _Article(place, line, []) if own else None, False
        elif line.strip() == _END:
            if article:
                yield article
            article, outside = None, True
        elif article and place - article.place > LONGEST_ARTICLE_BYTES:
            counters.skip("oversized_article", f"{part.name}, byte {article.place}")
            article = None
        elif article:
            article.lines.append(line)
        elif outside and own and line.strip():
            counters.skip("text_outside_articles", f"{part.name}, byte {place}")
            outside = False
        if not own and article is None:
            return
    if article:
        counters.skip("cut_off_article", f"{part.name}, byte {article.place}")
        yield article


def _row(article: _Article, table: Table, counters: Counters) -> dict[str, str] | None:
    """Return an article in the columns of a table; None, and a count, where its header cannot be read."""
    header, text = (_decoded(raw, table.place(article.place), counters) for raw in (article.header, article.text()))
    match = _HEADER.match(header)
    if match is None:
        counters.skip("malformed_header", table.place(article.place))
        return None
    page_id, url, title = (html.unescape(value or "") for value in match.groups())
    return {"id": page_id, "url": url, "title": title, "text": text}


def _decoded(raw: bytes, place: str, counters: Counters) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        counters.skip("invalid_utf8", place)
        return raw.decode("utf-8", "replace")
