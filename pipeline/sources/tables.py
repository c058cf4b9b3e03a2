"""Parquet files and data sets as documents, one a row; see `rows`.

If a table has only the text column, and each row is a sentence (``bookcorpus/bookcorpus``), consecutive rows make a
document, see `rows.joined_documents`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain, groupby
from operator import attrgetter
from statistics import median
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..config import IngestConfig
from ..errors import UserError
from ..execution.counters import Counters
from ..execution.hub import DataSet
from .compression import is_failure
from .records import Input, InputRange, OpenFile, RawDocument
from .rows import FIELDS, Table, joined_documents, row_document

RANGE_BYTES = 1 << 24
BATCH_ROWS = 128
BUFFER_BYTES = 1 << 20
SENTENCE_CHARACTERS = 200
"""Rows whose median length is below are sentences."""

NumberedBatches = Iterator[tuple[int, pa.RecordBatch]]
"""Consecutive batches of rows, each with the number of its first row."""


class _RowBatch(NamedTuple):
    """Consecutive rows of a data set."""

    part: str
    """What they are part of: ``20231101.en/train``, and the shard's number if the data set is streamed."""
    first_row: int
    """The number of the first of them in that part."""
    rows: pa.RecordBatch


def plan_table(entry: Input, open_file: OpenFile, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Return ranges of row groups, each of about `RANGE_BYTES` of uncompressed data, that cover a Parquet file.

    Raise `UserError` if the file is not Parquet, or has no text in the text column.
    """
    with open_file(entry.path) as file:
        try:
            metadata = pq.read_metadata(file)
        except pa.ArrowInvalid as error:
            raise UserError(f"{entry.path} is not a Parquet file; give its --format or leave it out.") from error
    _text_columns(metadata.schema.to_arrow_schema(), entry.path, config.text_column)
    starts: list[int] = []
    size = RANGE_BYTES
    for group in range(metadata.num_row_groups):
        if size >= RANGE_BYTES:
            starts.append(group)
            size = 0
        size += metadata.row_group(group).total_byte_size
    return entry.cut(starts)


def read_table(file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    """Yield the documents of a range of row groups, a batch of rows in memory at a time.

    With ``--documents line`` each row is a document, with ``blank-line`` the rows up to an empty one are. The source of
    rows of no wiki is ``parquet``. `counters` gets the bad input ``unreadable_row_group``, and what `row_document`
    names.
    """
    stem = part.name.removesuffix(".parquet")
    table = Table(name=part.name, stem=stem, source="parquet", text_column=config.text_column)
    # With a small buffer and no pre-buffering a row group is not in memory as a whole.
    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES)
    columns = _text_columns(parquet.schema_arrow, part.path, config.text_column)
    joined = _is_joined(parquet.schema_arrow, config.documents)
    sizes = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
    for group in range(part.start, len(sizes) if part.stop is None else part.stop):
        batches = parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns)
        try:
            yield from _documents(_numbered(batches, sum(sizes[:group])), table, counters, joined)
        except (pa.ArrowException, OSError) as error:
            if is_failure(error):
                raise
            counters.skip("unreadable_row_group", f"{part.name}, row group {group}")


def plan_data_set(
    entry: Input, open_set: Callable[[str], AbstractContextManager[DataSet]], range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Return the ranges of a data set that `hub` opens; raise `UserError` if it has no text in the text column.

    If the data set does not declare its columns, a few of its first rows are read.
    """
    with open_set(entry.path) as found:
        ranges = entry.cut(_data_set_starts(found))
        schema = found.schema
        if schema is None and ranges:
            head = next(_data_set_batches(found, ranges[0], None, Counters()), None)
            schema = head.rows.schema if head else None
    if schema is not None:
        _text_columns(schema, entry.name, config.text_column)
    return ranges


def read_data_set(found: DataSet, part: InputRange, config: IngestConfig, counters: Counters) -> Iterator[RawDocument]:
    """Yield the documents of a range of a data set, a batch of rows in memory at a time.

    The source of rows of no wiki is the data set's name; ``--documents`` is as in `read_table`. Raise `UserError` if
    there is no text in the text column.
    """
    columns = _text_columns(found.schema, part.name, config.text_column) if found.schema else None
    for name, batches in groupby(_data_set_batches(found, part, columns, counters), attrgetter("part")):
        head = next(batches)
        columns = columns or _text_columns(head.rows.schema, part.name, config.text_column)
        joined = _is_joined(found.schema or head.rows.schema, config.documents)
        table = Table(name=f"{found.source}:{name}", stem=name, source=found.source, text_column=config.text_column)
        run = ((batch.first_row, batch.rows.select(columns)) for batch in chain([head], batches))
        yield from _documents(run, table, counters, joined)


def _data_set_starts(found: DataSet) -> list[int]:
    """Return where the ranges of a data set begin: at rows if it was saved to disk, else at its shards, one each."""
    if not found.is_on_disk:
        return list(range(found.rows.num_shards))
    num_rows = len(found.rows)
    num_ranges = min(num_rows, found.rows.data.nbytes // RANGE_BYTES + 1)
    return [num_rows * index // num_ranges for index in range(num_ranges)]


def _data_set_batches(
    found: DataSet, part: InputRange, columns: Sequence[str] | None, counters: Counters
) -> Iterator[_RowBatch]:
    """Yield the rows of a range, `columns` of them (None: all), a few in memory at a time.

    `counters` gets ``unreadable_shard``: a shard that is left out from a damaged row on.
    """
    rows = found.rows.select_columns(list(columns)) if columns else found.rows
    rows = rows.with_format("arrow")
    if found.is_on_disk:
        stop = len(rows) if part.stop is None else part.stop
        yield from _batches(rows.select(range(part.start, stop)), found.part, part.start)
        return
    for index in range(part.start, rows.num_shards if part.stop is None else part.stop):
        shard = rows.shard(num_shards=rows.num_shards, index=index)
        try:
            yield from _batches(shard, f"{found.part}/{index}", 0)
        except (ValueError, pa.ArrowException, OSError) as error:
            # An error number or one of these classes means that the disk or the network failed, not the data.
            if isinstance(error, OSError) and (error.errno or isinstance(error, ConnectionError | TimeoutError)):
                raise
            counters.skip("unreadable_shard", f"{part.name}, shard {index}: {error}")


def _batches(rows: Any, part: str, first_row: int) -> Iterator[_RowBatch]:
    for table in rows.iter(batch_size=BATCH_ROWS):
        for batch in table.to_batches():
            yield _RowBatch(part, first_row, batch)
            first_row += batch.num_rows


def _is_joined(schema: pa.Schema, documents: str) -> bool | None:
    """Return whether consecutive rows make a document; None if the rows have to show it."""
    if documents == "auto" and len(schema.names) == 1:
        return None
    return documents == "blank-line"


def _text_columns(schema: pa.Schema, path: str, text_column: str) -> list[str]:
    """Return the names of the columns to read; raise `UserError` if there is no text in `text_column`."""
    if text_column not in schema.names:
        raise UserError(f"{path} has no column {text_column!r} but {', '.join(schema.names)}: give --text-column.")
    kind = schema.field(text_column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(f"{path}: column {text_column!r} holds {kind}, not text: give another --text-column.")
    return [text_column, *(name for name in FIELDS if name in schema.names and name != text_column)]


def _numbered(batches: Iterator[pa.RecordBatch], first_row: int) -> NumberedBatches:
    for batch in batches:
        yield first_row, batch
        first_row += batch.num_rows


def _documents(run: NumberedBatches, table: Table, counters: Counters, joined: bool | None) -> Iterator[RawDocument]:
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
    """Return whether the rows of a batch, of one column, are a sentence each."""
    texts = [text for text in _values(batch.column(0)) if text]
    return len(texts) > 1 and median(map(len, texts)) < SENTENCE_CHARACTERS and not any("\n" in text for text in texts)


def _values(column: pa.Array) -> list[Any]:
    """Return a column as Python values; invalid UTF-8 becomes U+FFFD."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if text is None else text.decode("utf-8", "replace") for text in raw]
