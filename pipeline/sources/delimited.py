"""CSV and TSV files as documents, one a row, in the columns that `rows` names; the first line names
the columns.

CSV is quoted (RFC 4180): a field in quotes may contain delimiters, line breaks and doubled quotes.
The delimiter is the comma, semicolon or tab that the first line has most of. Only its beginning
says whether a line break is inside quotes, so a file is one range. TSV is not quoted: a quote is an
ordinary character, a line is a row, and files are read in parallel. Quoted files with tabs are read
with ``--format csv``.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from ..config import IngestConfig
from ..errors import UserError
from ..execution.counters import Counters
from .compression import decompressed, stem_of
from .lines import LONGEST_LINE_BYTES, decode, plan_lines, read_lines
from .records import Input, InputRange, OpenFile, RawDocument
from .rows import FIELDS, Table, row_documents

DELIMITERS = ",;\t"
_QUOTED = re.compile(r'"[^"]*"')
_LONGEST_SHOWN = 200
# Characters that are read again for each new one, beside one row: else a file of bad rows would
# take quadratic time.
_AGAIN_PER_CHARACTER = 4


class DelimitedRow(NamedTuple):
    """One row of a file."""

    offset: int
    """Of its first line, in bytes."""
    fields: list[str]


def plan_csv(
    entry: Input, open_file: OpenFile, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Return the file as one range; raise `UserError` if its first line does not name the text
    column.
    """
    _check_header(entry, open_file, config)
    return entry.cut([0])


def plan_tsv(
    entry: Input, open_file: OpenFile, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Cut the file into ranges, as `plan_lines` does; raise `UserError` as `plan_csv` does."""
    _check_header(entry, open_file, config)
    return plan_lines(entry, open_file, range_bytes, config)


def read_csv(
    file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a CSV file, one row in memory at a time.

    `counters` gets the bad input ``not_csv`` (a quote that is not closed, or inside a field),
    ``oversized_row`` (more than `LONGEST_LINE_BYTES`), ``wrong_number_of_columns``, and what
    `read_lines` and `row_document` name.
    """
    rows = csv_rows(
        _lines(decompressed(file, part.name, counters), part, counters), part.name, counters
    )
    return _documents(next(rows, DelimitedRow(0, [])).fields, rows, part, config, counters)


def read_tsv(
    file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a TSV file; `counters` gets the bad input of `read_csv`
    that TSV can have.
    """
    stream = decompressed(file, part.name, counters)
    header: list[str] = []
    if part.start:
        head = InputRange(path=part.path, name=part.name, format=part.format)
        header = next(tsv_rows(_lines(stream, head, Counters()))).fields
    rows = tsv_rows(_lines(stream, part, counters))
    if not part.start:
        header = next(rows, DelimitedRow(0, [])).fields
    return _documents(header, rows, part, config, counters)


def tsv_rows(lines: Iterable[tuple[int, str]]) -> Iterator[DelimitedRow]:
    """Yield the fields of each line.

    >>> list(tsv_rows([(0, 'a\\tsay "b"')]))
    [DelimitedRow(offset=0, fields=['a', 'say "b"'])]
    """
    return (DelimitedRow(offset, line.split("\t")) for offset, line in lines)


def csv_rows(
    lines: Iterable[tuple[int, str]], name: str, counters: Counters
) -> Iterator[DelimitedRow]:
    """Yield the rows of numbered lines, whose quotes may join several of them; an empty line is a
    row of one field.

    After a row that is not CSV reading resumes at the line behind its first, so that a missing
    quote costs one row; all its lines if the file has so many such rows that reading them again and
    again would take quadratic time.
    """
    # The module's default of 128 KiB is less than an article.
    csv.field_size_limit(LONGEST_LINE_BYTES + 1)
    source = _Lines(lines)
    first = next(source, "")
    source.give_back([(0, first)])
    plain = _QUOTED.sub("", first)
    reader = csv.reader(source, delimiter=max(DELIMITERS, key=plain.count), strict=True)
    while True:
        source.taken.clear()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _OversizedRowError) as error:
            (offset, _), *others = source.taken
            counters.skip(
                "not_csv" if isinstance(error, csv.Error) else "oversized_row",
                f"{name}, byte {offset}",
            )
            if source.may_give_back(others):
                source.give_back(others)
            continue
        yield DelimitedRow(source.taken[0][0], fields or [""])


class _OversizedRowError(Exception):
    pass


class _Lines:
    """An iterator over lines, with their breaks, that remembers those `taken` and can take lines
    back.
    """

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        self.taken: list[tuple[int, str]] = []
        self._lines = iter(lines)
        self._returned: list[tuple[int, str]] = []
        self._size = 0
        self._allowance = LONGEST_LINE_BYTES

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        self._size = self._size if self.taken else 0
        if self._returned:
            offset, line = self._returned.pop()
        else:
            offset, line = next(self._lines)
            self._allowance += _AGAIN_PER_CHARACTER * len(line)
        self.taken.append((offset, line))
        self._size += len(line) + 1
        if self._size > LONGEST_LINE_BYTES:
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
        self._returned.extend((offset, line.removesuffix("\n")) for offset, line in reversed(lines))


def _lines(stream: BinaryIO, part: InputRange, counters: Counters) -> Iterator[tuple[int, str]]:
    for offset, line in read_lines(stream, part, counters):
        yield offset, decode(line, f"{part.name}, byte {offset}", counters)


def _documents(
    header: Sequence[str],
    rows: Iterable[DelimitedRow],
    part: InputRange,
    config: IngestConfig,
    counters: Counters,
) -> Iterator[RawDocument]:
    stem = stem_of(part.name, ".csv", ".tsv")
    table = Table(
        name=part.name, stem=stem, source=part.format, text_column=config.text_column, unit="byte"
    )
    joined = config.documents == "blank-line"
    return row_documents(
        _named(header, rows, table, counters, joined), table, counters, joined=joined
    )


def _named(
    header: Sequence[str],
    rows: Iterable[DelimitedRow],
    table: Table,
    counters: Counters,
    joined: bool,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row by column; empty lines, which end a document of `joined` rows, have no
    columns.
    """
    for offset, fields in rows:
        if len(fields) == len(header):
            yield offset, dict(zip(header, fields, strict=True))
        elif fields != [""]:
            counters.skip("wrong_number_of_columns", table.location(offset))
        elif joined:
            yield offset, {}


def _check_header(entry: Input, open_file: OpenFile, config: IngestConfig) -> None:
    head = InputRange(path=entry.path, name=entry.name, format=entry.format)
    with open_file(entry.path) as file:
        lines = _lines(decompressed(file, entry.name, Counters()), head, Counters())
        rows = tsv_rows(lines) if entry.format == "tsv" else csv_rows(lines, entry.name, Counters())
        header = next(rows, DelimitedRow(0, [])).fields
    if config.text_column not in header:
        columns = ", ".join(header)[:_LONGEST_SHOWN] or "empty"
        raise UserError(
            f"{entry.path} has no column {config.text_column!r}; its first line, which names the "
            f"columns, is {columns}: give --text-column."
        )
    if repeated := [name for name in (config.text_column, *FIELDS) if header.count(name) > 1]:
        raise UserError(
            f"{entry.path} has several columns {repeated[0]!r}: rename or remove all but one."
        )
