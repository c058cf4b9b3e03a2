"""Read CSV and TSV files as documents, one a row, in the columns that `rows` names.

The first line names the columns.

CSV is quoted (RFC 4180): a field in quotes may contain delimiters, line breaks and doubled quotes.
The delimiter is the comma, semicolon or tab that the first line has most of. Only its beginning
says whether a line break is inside quotes, so a file is one range. TSV is not quoted: a quote is an
ordinary character, a line is a row, and files are read in parallel. Quoted files with tabs are read
if `config.format` is ``csv``.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from .. import storage
from ..config import IngestConfig
from ..counters import Counters
from ..errors import UserError
from ..parsing import csv_delimiter
from .columns import Columns, with_partition
from .compression import stem_of, text_stream
from .lines import LONGEST_LINE_BYTES, decode, plan_lines, read_lines
from .records import Input, InputRange, RawDocument
from .rows import Table, row_documents

_LONGEST_SHOWN = 200
# Characters that may be read again for each new one, beside one row. Without a limit a file of bad
# rows would take quadratic time.
_AGAIN_PER_CHARACTER = 4


_Row = tuple[int, list[str]]
"""The first byte of a row's first line, and its fields; none for an empty line."""
_NO_ROW: _Row = (0, [])


def plan_csv(file: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Return the file as one range; raise `UserError` if its first line lacks the text column."""
    _check_header(file, config)
    return file.as_one_range()


def plan_tsv(file: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut the file into ranges, as `plan_lines` does; raise `UserError` as `plan_csv` does."""
    _check_header(file, config)
    return plan_lines(file, range_bytes, config)


def read_csv(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a CSV file, one row in memory at a time.

    `counters` gets the bad input ``not_csv`` (a quote that is not closed, or inside a field),
    ``oversized_row`` (more than `LONGEST_LINE_BYTES`), ``wrong_number_of_columns``, and what
    `read_lines` and `row_documents` name.
    """
    stream = text_stream(file, input_range.name, input_range.encoding, counters)
    rows = csv_rows(_lines(stream, input_range, counters), input_range.name, counters)
    _, header = next(rows, _NO_ROW)
    return _documents(header, rows, input_range, config, counters)


def read_tsv(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a TSV file.

    `counters` gets the bad input of `read_csv` that TSV can have.
    """
    stream = text_stream(file, input_range.name, input_range.encoding, counters)
    rows = tsv_rows(_lines(stream, input_range, counters))
    if input_range.start == 0:
        _, header = next(rows, _NO_ROW)
    else:
        # The header is in the first range. What is bad there is counted by its reader.
        whole = replace(input_range, start=0, stop=None)
        _, header = next(tsv_rows(_lines(stream, whole, Counters())), _NO_ROW)
    return _documents(header, rows, input_range, config, counters)


def tsv_rows(lines: Iterable[tuple[int, str]]) -> Iterator[_Row]:
    """Yield the fields of each line.

    >>> list(tsv_rows([(0, 'a\\tsay "b"')]))
    [(0, ['a', 'say "b"'])]
    """
    for offset, line in lines:
        yield offset, line.split("\t") if line else []


def csv_rows(lines: Iterable[tuple[int, str]], name: str, counters: Counters) -> Iterator[_Row]:
    """Yield the rows of numbered lines, whose quotes may join several of them.

    After a row that is not CSV reading resumes at the line after its first, so that a missing
    quote costs one row. It costs all lines of the row if the file has many such rows, because
    reading them again and again would take quadratic time:

        1  a,"b        no closing quote: the row runs on to the next quote, in line 3
        2  c,d
        3  e,"f"       a quote inside a field: not CSV. Line 1 is counted, lines 2 and 3 given back
    """
    # The module's default of 128 KiB is less than an article.
    csv.field_size_limit(LONGEST_LINE_BYTES + 1)
    source = _Lines(lines)
    # The first line shows the delimiter, and is then read as the header.
    first_line = next(source, "")
    source.give_back([(0, first_line.removesuffix("\n"))])
    # Strict, because a lenient reader would take a missing quote for the rest of the file.
    reader = csv.reader(source, delimiter=csv_delimiter(first_line), strict=True)
    while True:
        source.taken.clear()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _OversizedRowError) as error:
            (offset, _), *following = source.taken
            reason = "oversized_row"
            if isinstance(error, csv.Error):
                reason = "not_csv"
            counters.skip(reason, f"{name}, byte {offset}")
            if source.may_give_back(following):
                source.give_back(following)
            continue
        offset, _ = source.taken[0]
        yield offset, fields


class _OversizedRowError(Exception):
    """More text belongs to a row than a document may have."""


class _Lines:
    """An iterator over lines, with their breaks, that remembers those `taken`.

    Lines can be given back to it; it returns them next.
    """

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        self.taken: list[tuple[int, str]] = []
        self._lines = iter(lines)
        self._given_back: list[tuple[int, str]] = []  # the next one is the last
        self._num_taken_characters = 0
        self._allowance = LONGEST_LINE_BYTES

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        if not self.taken:
            self._num_taken_characters = 0
        if self._given_back:
            offset, line = self._given_back.pop()
        else:
            offset, line = next(self._lines)
            self._allowance += _AGAIN_PER_CHARACTER * len(line)
        self.taken.append((offset, line))
        self._num_taken_characters += len(line) + 1
        if self._num_taken_characters > LONGEST_LINE_BYTES:
            raise _OversizedRowError
        return f"{line}\n"

    def may_give_back(self, lines: Sequence[tuple[int, str]]) -> bool:
        """Return whether `lines` may be read again, and count them as such."""
        num_characters = sum(len(line) for _, line in lines)
        if num_characters > self._allowance:
            return False
        self._allowance -= num_characters
        return True

    def give_back(self, lines: Sequence[tuple[int, str]]) -> None:
        """Return `lines` next, in their order, before all others."""
        self._given_back.extend(reversed(lines))


def _lines(
    stream: BinaryIO, input_range: InputRange, counters: Counters
) -> Iterator[tuple[int, str]]:
    for offset, line in read_lines(stream, input_range, counters):
        yield offset, decode(line, f"{input_range.name}, byte {offset}", counters)


def _documents(
    header: Sequence[str],
    rows: Iterable[_Row],
    input_range: InputRange,
    config: IngestConfig,
    counters: Counters,
) -> Iterator[RawDocument]:
    header = _names(header)
    table = Table(
        name=input_range.name,
        stem=stem_of(input_range.name, ".csv", ".tsv"),
        source=input_range.format,
        columns=Columns.of(config),
        documents=config.documents,
        unit="byte",
    )
    named_rows = _rows_by_column(header, rows, table, counters)
    named_rows = with_partition(named_rows, input_range.path)
    return row_documents(named_rows, table, counters)


def _rows_by_column(
    header: Sequence[str],
    rows: Iterable[_Row],
    table: Table,
    counters: Counters,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row by column; an empty line is not a row, but may end a document."""
    for offset, fields in rows:
        if len(fields) == len(header):
            yield offset, dict(zip(header, fields, strict=True))
        elif not fields and table.documents == "sentence":
            yield offset, {}
        elif fields:
            counters.skip("wrong_number_of_columns", table.location(offset))


def _names(fields: Iterable[str]) -> list[str]:
    """Return the names in a header, without the spaces that some write after each comma."""
    return [name.strip() for name in fields]


def _check_header(file: Input, config: IngestConfig) -> None:
    (whole,) = file.as_one_range()
    with storage.open_input(file.path) as stream:
        text = text_stream(stream, file.name, file.encoding, Counters())
        lines = _lines(text, whole, Counters())
        if file.format == "tsv":
            rows = tsv_rows(lines)
        else:
            rows = csv_rows(lines, file.name, Counters())
        _, fields = next(rows, _NO_ROW)
    header = _names(fields)
    columns = Columns.of(config)
    for name in columns.text:
        if name not in header:
            shown = ", ".join(header)[:_LONGEST_SHOWN] or "empty"
            raise UserError(
                f"{file.path} has no column {name!r}; its first line, which names the columns, is "
                f"{shown}: give `text_column`."
            )
    columns.check_unique(header, file.path)
