"""Parquet files and data sets as documents: one row a document. What a row becomes is for `rows` to say.

Where a table has no other column than the text, and a row is a sentence (``bookcorpus/bookcorpus``), rows that follow
each other are a document together, as `rows.joined_documents` has it.
"""

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from operator import attrgetter
from statistics import median
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import UserError
from ..execution.counters import Counters
from . import hub
from .compression import is_failure
from .records import Documents, InputRange, RawDocument
from .rows import FIELDS, Table, joined_documents, row_document

RANGE_BYTES = 1 << 24
BATCH_ROWS = 128
BUFFER_BYTES = 1 << 20
SENTENCE_CHARACTERS = 200
"""Rows whose middle length is below are sentences."""

Run = Iterator[tuple[int, pa.RecordBatch]]
"""Batches that follow each other, each with the number of its first row."""


def plan_table_ranges(
    path: str, name: str, open_file: Callable[[str], BinaryIO], text_column: str = "text"
) -> list[InputRange]:
    """Return ranges of row groups, each of about `RANGE_BYTES` of uncompressed data, that cover a Parquet file.

    Raise `UserError` where the file is no Parquet, or where `text_column` is no text column.
    """
    with open_file(path) as stream:
        try:
            metadata = pq.read_metadata(stream)
        except pa.ArrowInvalid as error:
            raise UserError(f"{path} is no Parquet file; name its --format or leave it out.") from error
    _text_columns(metadata.schema.to_arrow_schema(), path, text_column)
    ranges: list[InputRange] = []
    start = size = 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= RANGE_BYTES or group == metadata.num_row_groups - 1:
            ranges.append(InputRange(path=path, name=name, format="parquet", start=start, stop=group + 1))
            start, size = group + 1, 0
    return ranges


def read_table(
    source: InputRange,
    open_file: Callable[[str], BinaryIO],
    counters: Counters,
    text_column: str = "text",
    documents: Documents = "auto",
) -> Iterator[RawDocument]:
    """Yield the documents of a range of row groups, a batch of rows in memory at a time.

    With `documents` ``line`` a row is a document in any case, with ``blank-line`` the rows up to an empty one are. The
    source of rows of no wiki is ``parquet``. Rows without text and row groups that cannot be read are skipped and
    counted.
    """
    stem = source.name.removesuffix(".parquet")
    rows_of = Table(name=source.name, stem=stem, source="parquet", text_column=text_column)
    with open_file(source.path) as stream:
        # With a small buffer and no pre-buffering a row group is not in memory as a whole.
        table = pq.ParquetFile(stream, pre_buffer=False, buffer_size=BUFFER_BYTES)
        columns = _text_columns(table.schema_arrow, source.path, text_column)
        joined = _is_joined(table.schema_arrow, documents)
        sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
        for group in range(source.start, len(sizes) if source.stop is None else source.stop):
            batches = table.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns)
            try:
                yield from _documents(_numbered(batches, sum(sizes[:group])), rows_of, counters, joined)
            except (pa.ArrowException, OSError) as error:
                if is_failure(error):
                    raise
                counters.skip("unreadable_row_group", f"{source.name}, row group {group}")


def plan_data_set_ranges(path: str, name: str, text_column: str = "text") -> list[InputRange]:
    """Return ranges of a data set, as `hub.plan_set_ranges` does; raise `UserError` where `text_column` is none.

    Where only rows show the columns, a few of the first are read.
    """
    ranges = hub.plan_set_ranges(path, name)
    schema = hub.open_set(path).schema
    if schema is None and ranges:
        head = next(hub.range_batches(ranges[0], None, Counters()), None)
        schema = head.rows.schema if head else None
    if schema is not None:
        _text_columns(schema, name, text_column)
    return ranges


def read_data_set(
    part: InputRange, counters: Counters, text_column: str = "text", documents: Documents = "auto"
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a data set that `hub` opens, a batch of rows in memory at a time.

    The source of rows of no wiki is the data set's name; `documents` is as in `read_table`. Raise `UserError` where
    `text_column` is no text column.
    """
    found = hub.open_set(part.path)
    columns = _text_columns(found.schema, part.name, text_column) if found.schema else None
    for name, batches in groupby(hub.range_batches(part, columns, counters), attrgetter("part")):
        head = next(batches)
        columns = columns or _text_columns(head.rows.schema, part.name, text_column)
        joined = _is_joined(found.schema or head.rows.schema, documents)
        table = Table(name=f"{found.source}:{name}", stem=name, source=found.source, text_column=text_column)
        run = ((batch.first_row, batch.rows.select(columns)) for batch in chain([head], batches))
        yield from _documents(run, table, counters, joined)


def _is_joined(schema: pa.Schema, documents: Documents) -> bool | None:
    """Return whether rows make a document together; None where that is for the rows to show."""
    if documents == "auto" and len(schema.names) == 1:
        return None
    return documents == "blank-line"


def _text_columns(schema: pa.Schema, path: str, text_column: str) -> list[str]:
    """Return the names of the columns to read; raise `UserError` where there is no text in `text_column`."""
    if text_column not in schema.names:
        raise UserError(f"{path} has no column {text_column!r} but {', '.join(schema.names)}: give --text-column.")
    kind = schema.field(text_column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(f"{path}: column {text_column!r} holds {kind}, not text: give another --text-column.")
    return [text_column, *(name for name in FIELDS if name in schema.names and name != text_column)]


def _numbered(batches: Iterator[pa.RecordBatch], first_row: int) -> Run:
    for batch in batches:
        yield first_row, batch
        first_row += batch.num_rows


def _documents(run: Run, table: Table, counters: Counters, joined: bool | None) -> Iterator[RawDocument]:
    """Yield the documents of the rows of a run."""
    head = next(run, None)
    if head is None:
        return
    run = chain([head], run)
    if _holds_sentences(head[1]) if joined is None else joined:
        texts = ((number, text) for start, batch in run for number, text in enumerate(_values(batch.column(0)), start))
        yield from joined_documents(texts, table)
        return
    for first_row, batch in run:
        columns = [_values(column) for column in batch.columns]
        for number, values in enumerate(zip(*columns, strict=True), first_row):
            if document := row_document(dict(zip(batch.schema.names, values, strict=True)), number, table, counters):
                yield document


def _holds_sentences(batch: pa.RecordBatch) -> bool:
    """Whether the rows of a batch, of one column, are a sentence each."""
    texts = [text for text in _values(batch.column(0)) if text]
    return len(texts) > 1 and median(map(len, texts)) < SENTENCE_CHARACTERS and not any("\n" in text for text in texts)


def _values(column: pa.Array) -> list[Any]:
    """Return a column as Python values; bytes that are no UTF-8 become U+FFFD."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if text is None else text.decode("utf-8", "replace") for text in raw]
