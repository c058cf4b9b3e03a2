"""Read rows in text files as documents: JSON Lines, CSV, TSV, and WikiExtractor's articles.

**JSON Lines**: an object a line. The standard library's ``json`` decodes 180 MB (Korean in ``\\u``
escapes) to 800 MB (English) of text a second on one core; pyarrow's reader has two thirds of that
rate, and does not say which line is bad.

**CSV** is quoted (RFC 4180): a field in quotes may contain delimiters, line breaks and doubled
quotes. Only its beginning says whether a line break is inside quotes, so a file is one range.

**TSV** is not quoted: a quote is an ordinary character, a line is a row, and files are read in
parallel. Quoted files with tabs are read if `config.format` is ``csv``.

**WikiExtractor** writes articles between ``<doc …>`` and ``</doc>``, or JSON Lines. An article
belongs to the range in which its ``<doc`` line begins.
"""

import csv
import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO

from .. import storage
from ..config import IngestConfig
from ..counters import Counters
from ..errors import UserError
from ..parsing import csv_delimiter
from .row_documents import Columns, Table, no_column, row_documents
from .streams import (
    ARTICLE_HEAD,
    BOM,
    LONGEST_LINE_BYTES,
    InputRange,
    RawDocument,
    decode,
    decompressed,
    plan_lines,
    read_lines,
    text_stream,
)

LONGEST_ARTICLE_BYTES = 1 << 24
_ARTICLE_END = b"</doc>"
# The attributes come in this order, and only some versions escape the quotation marks within a
# title.
_ARTICLE_HEADER = re.compile(
    r'<doc id="([^"]*)"(?: revid="[^"]*")?(?: url="([^"]*)")?(?: title="(.*)")?[^>"]*>\s*$'
)

# pandas writes NaN, which is not JSON, for what is missing.
_JSON = json.JSONDecoder(parse_constant=lambda constant: None)
_HEAD_BYTES = 1 << 16

_Row = tuple[list[tuple[int, str]], list[str]]
"""The lines of a row with their first bytes, until the next row is read, and its fields; none for
an empty line.
"""


def plan_json_lines(file: InputRange, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut a JSON Lines file into ranges; raise `UserError` if no object of its head has the text
    column. One is enough: other lines are bad input, which `read_json_lines` counts.
    """
    damage = Counters()
    head = replace(file, stop=_HEAD_BYTES)
    with storage.open_input(file.path) as stream:
        text = text_stream(stream, file.path, file.encoding, damage)
        lines = [line for _, line in read_lines(text, head, damage)]
    if damage.bad:
        # The file ends in the middle of the last line.
        lines = lines[:-1]
    parsed = [_parse_object(line, file.path, damage) for line in lines]
    objects = [row for row in parsed if row is not None]
    columns = Columns.of(config)
    if objects and not any(map(columns.has_text, objects)):
        raise no_column(file.path, ",".join(columns.text), objects[0])
    if objects and all(columns.read_text(row) is None for row in objects):
        name = ",".join(columns.text)
        raise UserError(f"{file.path}: {name!r} does not hold text: give another `text_column`.")
    return plan_lines(file, range_bytes, config)


def read_json_lines(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a JSON Lines file, a megabyte of text in memory at a time.

    `counters` gets the bad input ``not_json``, ``no_json_object``, ``no_text_column``,
    ``invalid_utf8``, and what `read_lines` and `row_documents` name.
    """
    table = _table(input_range, config)
    stream = text_stream(file, input_range.name, input_range.encoding, counters)
    return row_documents(_read_objects(stream, input_range, table, counters), table, counters)


def _read_objects(
    stream: BinaryIO, input_range: InputRange, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects that begin in a range, each with the offset of its line in bytes."""
    for offset, line in read_lines(stream, input_range, counters):
        if not line.strip():
            continue
        location = table.location(offset)
        row = _parse_object(line, location, counters)
        if row is None:
            continue
        if table.columns.has_text(row):
            yield offset, row
        elif row.keys() == {"index"}:  # in the dumps of Cirrus, before each article
            counters.count("index_lines")
        else:
            counters.skip("no_text_column", location, record=line)


def _parse_object(line: bytes, location: str, counters: Counters) -> dict[str, Any] | None:
    """Return the JSON object that a line holds; None, and a count, if it holds none."""
    try:
        value = _JSON.decode(decode(line, location, counters))
    except (ValueError, RecursionError) as error:
        counters.skip("not_json", location, str(error), line)
        return None
    if not isinstance(value, dict):
        counters.skip("no_json_object", location, record=line)
        return None
    return value


def plan_delimited(file: InputRange, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Return a CSV file as one range, or cut a TSV file into ranges, as `plan_lines` does."""
    with storage.open_input(file.path) as stream:
        text = text_stream(stream, file.name, file.encoding, Counters())
        header = _header(_delimited_rows(text, file, Counters()))
    columns = Columns.of(config)
    for name in columns.text:
        if name not in header:
            raise no_column(file.path, name, header)
    columns.check_unique(header, file.path)
    if file.format == "csv":
        return [file]
    return plan_lines(file, range_bytes, config)


def read_delimited(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a CSV file, or of a range of a TSV file, one row in memory at a time.

    `counters` gets the bad input ``wrong_number_of_columns`` and, for CSV, ``not_csv``, and what
    `read_lines` and `row_documents` name.
    """
    stream = text_stream(file, input_range.name, input_range.encoding, counters)
    rows = _delimited_rows(stream, input_range, counters)
    if input_range.start == 0:
        header = _header(rows)
    else:
        # The header is in the first range. What is bad there is counted by its reader.
        whole = replace(input_range, start=0, stop=None)
        header = _header(_delimited_rows(stream, whole, Counters()))
    table = _table(input_range, config)
    return row_documents(_rows_by_column(header, rows, table, counters), table, counters)


def _delimited_rows(
    stream: BinaryIO, input_range: InputRange, counters: Counters
) -> Iterator[_Row]:
    name = input_range.name
    lines = (
        (offset, decode(line, f"{name}, byte {offset}", counters))
        for offset, line in read_lines(stream, input_range, counters)
    )
    if input_range.format == "csv":
        return csv_rows(lines, name, counters)
    return (([each], each[1].split("\t") if each[1] else []) for each in lines)


def _header(rows: Iterator[_Row]) -> list[str]:
    """Return the names in the first row, without the spaces that some write after each comma."""
    _, fields = next(rows, ([], []))
    return [name.strip() for name in fields]


def _rows_by_column(
    header: Sequence[str], rows: Iterable[_Row], table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row by column; an empty line is not a row, but may end a document."""
    for lines, fields in rows:
        offset, _ = lines[0]
        if len(fields) == len(header):
            yield offset, dict(zip(header, fields, strict=True))
        elif not fields and table.documents == "sentence":
            yield offset, {}
        elif fields:
            reason = f"{len(fields)} columns, but {len(header)} names"
            record = "\n".join(line for _, line in lines)
            counters.skip("wrong_number_of_columns", table.location(offset), reason, record)


def csv_rows(lines: Iterable[tuple[int, str]], name: str, counters: Counters) -> Iterator[_Row]:
    """Yield the rows of numbered lines, whose quotes may join several of them.

    After a quote that is not closed, or inside a field, reading resumes at the line after the next
    quote. Each line before that is counted as ``not_csv``.
    """
    # The module's default of 128 KiB is less than an article.
    csv.field_size_limit(LONGEST_LINE_BYTES)
    lines = iter(lines)
    first = next(lines, (0, ""))
    row: list[tuple[int, str]] = []

    def numbered_lines() -> Iterator[str]:
        for numbered in chain([first], lines):
            row.append(numbered)
            yield f"{numbered[1]}\n"

    # Strict, because a lenient reader would take a missing quote for the rest of the file. The
    # first line shows the delimiter.
    reader = csv.reader(numbered_lines(), delimiter=csv_delimiter(first[1]), strict=True)
    while True:
        row.clear()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            for offset, line in row:
                counters.skip("not_csv", f"{name}, byte {offset}", str(error), line)
            continue
        yield row, fields


def _table(input_range: InputRange, config: IngestConfig) -> Table:
    return Table(
        name=input_range.name,
        stem=input_range.stem,
        source=input_range.format,
        columns=Columns.of(config),
        documents=config.documents,
        keep_lines=config.keep_lines,
        path=input_range.name,
        unit="byte",
        continues=input_range.start > 0,
    )


def read_extracted(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the articles of a range of a file that WikiExtractor wrote, in either of its forms.

    `counters` gets the bad input ``cut_off_article`` (kept as far as it goes),
    ``oversized_article``, ``malformed_header``, ``text_outside_articles``, ``invalid_utf8``, and
    what `row_documents` and `read_lines` name.
    """
    name = input_range.name
    table = Table(
        name=name,
        stem=input_range.stem,
        source="wikiextractor",
        columns=Columns(),
        unit="byte",
        extracted=True,
    )
    head = decompressed(file, name, Counters()).read(len(BOM) + 1)
    file.seek(0)
    stream = decompressed(file, name, counters)
    if head.removeprefix(BOM).startswith(b"{"):
        rows = _read_objects(stream, input_range, table, counters)
    else:
        rows = _read_articles(stream, input_range, table, counters)
    return row_documents(rows, table, counters)


def _read_articles(
    stream: BinaryIO, input_range: InputRange, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the articles whose header begins in the range, as rows with their offsets."""
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
    """Yield the offset, the ``<doc`` line and the other lines of each article whose header begins
    in the range; the last may end beyond it.
    """
    article: tuple[int, bytes, list[bytes]] | None = None
    # Text outside articles is counted once a gap. A range that begins within the file may begin
    # within an article of the range before: nothing is outside until that one ends.
    counts_outside = input_range.start == 0
    for offset, line in read_lines(stream, input_range, counters, beyond=True):
        in_range = input_range.stop is None or offset < input_range.stop
        if line.startswith(ARTICLE_HEAD):
            if article:
                counters.skip("cut_off_article", table.location(article[0]))
                yield article
            article = (offset, line, []) if in_range else None
            counts_outside = False
        elif line.strip() == _ARTICLE_END:
            if article:
                yield article
            article = None
            counts_outside = True
        elif article and offset - article[0] > LONGEST_ARTICLE_BYTES:
            counters.skip("oversized_article", table.location(article[0]))
            article = None
        elif article:
            article[2].append(line)
        elif counts_outside and in_range and line.strip():
            counters.skip("text_outside_articles", table.location(offset), record=line)
            counts_outside = False
        if not in_range and article is None:
            return
    if article:
        counters.skip("cut_off_article", table.location(article[0]))
        yield article
