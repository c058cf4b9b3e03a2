"""Parquet files and data sets as documents: one row a document. What a row becomes is for `rows` to say."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from . import hub
from .errors import UserError
from .records import InputRange, RawDocument
from .rows import FIELDS, Table, row_document
from .tally import Tally

RANGE_BYTES = 1 << 24
BATCH_ROWS = 128
BUFFER_BYTES = 1 << 20


def plan_table_ranges(path: str, name: str, open_file: Callable[[str], BinaryIO]) -> list[InputRange]:
    """Return ranges of row groups, each of about `RANGE_BYTES` of uncompressed data, that cover a Parquet file.

    Raise `UserError` where the file is no Parquet.
    """
    with open_file(path) as stream:
        try:
            metadata = pq.read_metadata(stream)
        except pa.ArrowInvalid as error:
            raise UserError(f"{path} is no Parquet file; name its --format or leave it out.") from error
    ranges: list[InputRange] = []
    start = size = 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= RANGE_BYTES or group == metadata.num_row_groups - 1:
            ranges.append(InputRange(path=path, name=name, format="parquet", start=start, stop=group + 1))
            start, size = group + 1, 0
    return ranges


def read_table(
    source: InputRange, open_file: Callable[[str], BinaryIO], tally: Tally, text_column: str = "text"
) -> Iterator[RawDocument]:
    """Yield the documents of a range of row groups, a batch of rows in memory at a time.

    The source of rows of no wiki is ``parquet``. Rows without text and row groups that cannot be read are skipped and
    counted. Raise `UserError` where `text_column` is no text column.
    """
    stem = source.name.removesuffix(".parquet")
    rows_of = Table(name=source.name, stem=stem, source="parquet", text_column=text_column)
    with open_file(source.path) as stream:
        # With a small buffer and no pre-buffering a row group is not in memory as a whole.
        table = pq.ParquetFile(stream, pre_buffer=False, buffer_size=BUFFER_BYTES)
        columns = _text_columns(table.schema_arrow, source.path, text_column)
        sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
        for group in range(source.start, len(sizes) if source.stop is None else source.stop):
            row_number = sum(sizes[:group])
            try:
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
                    yield from _documents(batch, row_number, rows_of, tally)
                    row_number += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                # An error number means that the disk or the network failed, not that the data is bad.
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                tally.skip("unreadable_row_group", f"{source.name}, row group {group}")


def read_data_set(part: InputRange, tally: Tally, text_column: str = "text") -> Iterator[RawDocument]:
    """Yield the documents of a range of a data set that `hub` opens, a batch of rows in memory at a time.

    The source of rows of no wiki is the data set's name. Raise `UserError` where `text_column` is no text column.
    """
    found = hub.open_set(part.path)
    columns = _text_columns(found.schema, part.name, text_column) if found.schema else None
    for batch in hub.range_batches(part, columns, tally):
        columns = columns or _text_columns(batch.rows.schema, part.name, text_column)
        table = Table(
            name=f"{found.source}:{batch.part}", stem=batch.part, source=found.source, text_column=text_column
        )
        yield from _documents(batch.rows.select(columns), batch.first_row, table, tally)


def _text_columns(schema: pa.Schema, path: str, text_column: str) -> list[str]:
    """Return the names of the columns to read; raise `UserError` where there is no text in `text_column`."""
    if text_column not in schema.names:
        raise UserError(f"{path} has no column {text_column!r} but {', '.join(schema.names)}: give --text-column.")
    kind = schema.field(text_column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(f"{path}: column {text_column!r} holds {kind}, not text: give another --text-column.")
    return [text_column, *(name for name in FIELDS if name in schema.names and name != text_column)]


def _documents(batch: pa.RecordBatch, first_row: int, table: Table, tally: Tally) -> Iterator[RawDocument]:
    """Yield the documents of the rows of a batch, the first of which has the number `first_row`."""
    columns = [_values(batch.column(name)) for name in batch.schema.names]
    for number, values in enumerate(zip(*columns, strict=True), first_row):
        if document := row_document(dict(zip(batch.schema.names, values, strict=True)), number, table, tally):
            yield document


def _values(column: pa.Array) -> list[Any]:
    """Return a column as Python values; bytes that are no UTF-8 become U+FFFD."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if text is None else text.decode("utf-8", "replace") for text in raw]
