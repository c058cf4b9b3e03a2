"""Read CSV and TSV as documents, one a row.

**CSV** is quoted (RFC 4180): a field in quotes may contain delimiters, line breaks and doubled
quotes. Only its beginning says whether a line break is inside quotes, so a file is one range.

**TSV** is not quoted: a quote is an ordinary character, a line is a row, and files are read in
parallel. Quoted files with tabs are read if `config.format` is ``csv``.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from ..config import IngestConfig
from ..counters import Counters
from ..parsing import csv_delimiter
from .row_documents import Columns, Table, lacking, no_column, row_documents
from .streams import LONGEST_LINE_BYTES, InputRange, RawDocument, plan_lines
from .texts import Lines

_Row = tuple[list[tuple[int, str]], list[str]]
"""The lines of a row with their first bytes until the next, and its fields; none if empty."""


def plan_delimited(
    lines: Lines, file: InputRange, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Return a CSV file as one range, or cut a TSV file into ranges, as `plan_lines` does."""
    header = _header(_delimited_rows(lines.head()))
    columns = Columns(config)
    for name in columns.text:
        if name not in header:
            shown = header or ["a line that is not CSV or does not end in LF"]
            raise no_column(file.path, name, shown)
    columns.check_unique(header, file.path)
    file = replace(file, lacks=lacking(header, config))
    if file.format == "csv":
        return [file]
    return plan_lines(file, range_bytes, config)


def read_delimited(
    lines: Lines, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a CSV file, or of a range of a TSV file."""
    rows = _delimited_rows(lines)
    # The header is in the first range.
    first_rows = rows if input_range.start == 0 else _delimited_rows(lines.head())
    header = _header(first_rows)
    table = Table.of(input_range, Columns(config), config, unit="byte")
    rows_by_column = _rows_by_column(header, rows, table, counters)
    return row_documents(rows_by_column, table, counters)


def _delimited_rows(lines: Lines) -> Iterator[_Row]:
    if lines.input_range.format == "csv":
        return csv_rows(lines, lines.input_range.name, lines.counters)
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
        elif not fields and table.config.documents == "sentence":
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
    row = []

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
