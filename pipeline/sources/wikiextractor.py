"""Read what WikiExtractor wrote: articles between ``<doc …>`` and ``</doc>``, or JSON Lines."""

import html
import re
from collections.abc import Iterator
from typing import BinaryIO

from ..config import IngestConfig
from ..counters import Counters
from .jsonl import read_objects
from .row_documents import Columns, Table, row_documents
from .streams import ARTICLE_HEAD, BOM, InputRange, RawDocument, decode, decompressed, read_lines
from .texts import Lines

# The attributes come in this order, and only some versions escape the quotation marks within a
# title.
_ARTICLE_HEADER = re.compile(
    r'<doc id="([^"]*)"(?: revid="[^"]*")?(?: url="([^"]*)")?(?: title="(.*)")?[^>"]*>\s*$'
)


def read_extracted(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the articles of a file that WikiExtractor wrote, in either of its forms."""
    name = input_range.name
    config = IngestConfig()  # the form of its rows is known
    table = Table.of(input_range, Columns(config), config, unit="byte", extracted=True)
    head = decompressed(file, name, Counters()).read(len(BOM) + 1)
    file.seek(0)
    stream = decompressed(file, name, counters)
    if head.removeprefix(BOM).startswith(b"{"):
        rows = read_objects(Lines(stream, input_range, counters), table, counters)
    else:
        rows = _read_articles(stream, input_range, table, counters)
    return row_documents(rows, table, counters)


def _read_articles(
    stream: BinaryIO, input_range: InputRange, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the articles as rows, with their offsets."""
    for offset, header, lines in _articles(stream, input_range, table, counters):
        location = table.location(offset)
        match = _ARTICLE_HEADER.match(decode(header, location, counters))
        text = decode(b"\n".join(lines), location, counters)
        if match is None:
            counters.skip("malformed_header", location, record=header)
            continue
        page_id, url, title = (html.unescape(value or "") for value in match.groups())
        yield offset, {"id": page_id, "url": url, "title": title, "text": text}


def _articles(
    stream: BinaryIO, input_range: InputRange, table: Table, counters: Counters
) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Yield the offset, the ``<doc`` line and the other lines of each article."""
    article: tuple[int, bytes, list[bytes]] | None = None
    counts_outside = True  # text outside articles is counted once a gap
    for offset, line in read_lines(stream, input_range, counters):
        if line.startswith(ARTICLE_HEAD):
            if article:
                counters.skip("cut_off_article", table.location(article[0]))
                yield article
            article = (offset, line, [])
            counts_outside = False
        elif line.strip() == b"</doc>":
            if article:
                yield article
            article = None
            counts_outside = True
        elif article and offset - article[0] > 1 << 24:  # its end may be missing
            counters.skip("oversized_article", table.location(article[0]))
            article = None
        elif article:
            article[2].append(line)
        elif counts_outside and line.strip():
            counters.skip("text_outside_articles", table.location(offset), record=line)
            counts_outside = False
    if article:
        counters.skip("cut_off_article", table.location(article[0]))
        yield article
