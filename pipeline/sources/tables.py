"""Read Parquet files and data sets as documents, one a row; see `rows`.

Documents that `ingest` wrote stay as they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .. import storage
from ..config import IngestConfig
from ..counters import Counters
from ..errors import UserError
from ..schemas import DOCUMENTS
from . import hub
from .records import Input, InputRange, RawDocument
from .rows import Columns, Table, is_text, outermost, row_documents, type_at, with_partition
from .streams import LONGEST_LINE_BYTES, TEXT_ALLOWANCE, counted_damage, decode, is_bomb

RANGE_BYTES = 1 << 24
DAMAGED_FILE = "damaged_parquet_file"
BATCH_ROWS = 128
BATCH_BYTES = 1 << 24
# As of lines: a longer text is not a real document.
LONGEST_ROW_BYTES = LONGEST_LINE_BYTES
BUFFER_BYTES = 1 << 20
SETS_OF_SENTENCES = ("bookcorpus/bookcorpus",)
"""Data sets of the Hub whose rows are a sentence each, joined unless the user says otherwise."""

NumberedBatches = Iterator[tuple[int, pa.RecordBatch]]
"""Consecutive batches of rows, each with the number of its first row."""


def plan_table(file: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Return ranges of row groups, each of about `RANGE_BYTES`.

    Raise `UserError` if there is no text to read.
    """
    damage = Counters()
    with storage.open_input(file.path) as stream, counted_damage(DAMAGED_FILE, file.name, damage):
        is_parquet = stream.read(4) == b"PAR1"
        metadata = pq.read_metadata(stream)
        schema = metadata.schema.to_arrow_schema()
    if damage.bad and is_parquet:
        return file._replace(format=DAMAGED_FILE).as_one_range()
    if damage.bad:
        raise UserError(f"{file.path} is not a Parquet file; give its `format` or leave it out.")
    if not _is_ingested(schema):
        _columns_to_read(schema, file.path, Columns.of(config))
    starts: list[int] = []
    num_bytes = RANGE_BYTES  # so that the first group begins a range
    for group in range(metadata.num_row_groups):
        if num_bytes >= RANGE_BYTES:
            starts.append(group)
            num_bytes = 0
        num_bytes += metadata.row_group(group).total_byte_size
    return file.cut(starts)


def read_table(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of row groups, a batch of rows in memory at a time.

    The source of rows of no wiki is ``parquet``. `counters` gets the bad input
    ``unreadable_row_group``, ``compression_bomb`` and ``oversized_row`` (more than
    `LONGEST_ROW_BYTES` of text), and what `row_documents` names.
    """
    name = input_range.name
    # Parquet is compressed inside: the name has one suffix, never ``.parquet.gz``.
    stem = name
    if name.lower().endswith(".parquet"):
        stem = name[: -len(".parquet")]
    columns = Columns.of(config)
    table = Table(
        name=name, stem=stem, source="parquet", columns=columns, documents=config.documents
    )
    # With a small buffer and no pre-buffering a row group is not in memory as a whole.
    parquet = pq.ParquetFile(
        file, pre_buffer=False, buffer_size=BUFFER_BYTES, page_checksum_verification=True
    )
    schema = parquet.schema_arrow
    first_row = 0
    stop = input_range.stop
    if stop is None:
        stop = parquet.num_row_groups
    if _is_ingested(schema):
        for group in range(input_range.start, stop):
            yield from _read_ingested(parquet, group, f"{name}, row group {group}", counters)
        return
    names = _columns_to_read(schema, input_range.path, columns)
    # Groups before the range are not read, but their rows count: rows are numbered in the file.
    for group in range(stop):
        metadata = parquet.metadata.row_group(group)
        if group >= input_range.start:
            # `iter_batches` counts rows only: a few books are as large as thousands of abstracts.
            fitting_rows = BATCH_BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)
            num_rows = min(BATCH_ROWS, fitting_rows + 1)
            batches = parquet.iter_batches(num_rows, row_groups=[group], columns=names)
            num_compressed = 0
            for chunk in map(metadata.column, range(metadata.num_columns)):
                column = chunk.path_in_schema
                if column in names or outermost(column) in names:
                    num_compressed += chunk.total_compressed_size
            location = f"{name}, row group {group}"
            numbered = _numbered(
                batches, first_row, "unreadable_row_group", location, counters, num_compressed
            )
            rows = with_partition(_rows(numbered, table, counters), input_range.path)
            yield from row_documents(rows, table, counters)
        first_row += metadata.num_rows


def _is_ingested(schema: pa.Schema) -> bool:
    """Return whether a Parquet file has the columns of documents."""
    return all(
        name in schema.names and schema.field(name).type.equals(DOCUMENTS.field(name).type)
        for name in DOCUMENTS.names
    )


def _read_ingested(
    parquet: pq.ParquetFile, group: int, location: str, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a row group, in their sentences; a damaged one is counted
    (``unreadable_row_group``).

    So a corpus grows: yesterday's documents and today's files give the documents that all the files
    would give, for a document's place, its split and which of two equal texts stays depend on its
    id.
    """
    with counted_damage("unreadable_row_group", location, counters):
        batches = parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=DOCUMENTS.names)
        for batch in batches:
            for row in batch.to_pylist():
                yield RawDocument(
                    id=row["doc_id"].removeprefix(f"{row['source']}:"),
                    source=row["source"],
                    title=row["title"],
                    language=row["language"],
                    paragraphs=row["sentences"],
                    is_cut=True,
                )


def plan_data_set(data_set: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Return the ranges of a data set that `hub` opens: of rows if it was saved to disk, else its
    shards, one each.

    Raise `UserError` if it has no text in the text column. If the data set does not declare its
    columns, a few of its first rows are read.
    """
    opened = hub.open_set(data_set.path)
    if opened.is_on_disk:
        num_rows = len(opened.rows)
        num_ranges = min(num_rows, opened.rows.data.nbytes // RANGE_BYTES + 1)
        starts = [num_rows * index // num_ranges for index in range(num_ranges)]
    else:
        starts = list(range(opened.rows.num_shards))
    ranges = data_set.cut(starts)
    schema = opened.schema
    if schema is None and ranges:
        _, batches = next(_shards(opened, ranges[0], None, Counters()))
        for _, batch in batches:
            schema = batch.schema
            break
    if schema is not None:
        _columns_to_read(schema, data_set.name, Columns.of(config))
    return ranges


def read_data_set(
    data_set: hub.DataSet, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a data set, a batch of rows in memory at a time.

    The source of rows of no wiki is the data set's name. `counters` gets ``unreadable_shard``, and
    what `row_documents` names. Raise `UserError` if there is no text in the text column.
    """
    documents = config.documents
    if documents == "auto" and data_set.source in SETS_OF_SENTENCES:
        documents = "sentence"
    columns = Columns.of(config)
    names = None
    if data_set.schema:
        names = _columns_to_read(data_set.schema, input_range.name, columns)
    for stem, batches in _shards(data_set, input_range, names, counters):
        table = Table(
            name=f"{data_set.source}:{stem}",
            stem=stem,
            source=data_set.source,
            columns=columns,
            documents=documents,
        )
        yield from row_documents(_rows(batches, table, counters), table, counters)


def _shards(
    data_set: hub.DataSet,
    input_range: InputRange,
    columns: list[str] | None,
    counters: Counters,
) -> Iterator[tuple[str, NumberedBatches]]:
    """Yield the prefix of ids and the rows, with some of the columns (None: all), of each shard in
    a range; a data set that was saved to disk is one shard.
    """
    rows = data_set.rows
    if columns:
        rows = rows.select_columns(columns)
    rows = rows.with_format("arrow")
    # A range of rows if the data set was saved to disk, else of shards: see `plan_data_set`.
    start = input_range.start
    stop = input_range.stop
    if data_set.is_on_disk:
        shard = rows.select(range(start, stop or len(rows)))
        location = f"{input_range.name}, shard 0"
        batches = _small_batches(shard)
        yield data_set.part, _numbered(batches, start, "unreadable_shard", location, counters)
        return
    num_shards = rows.num_shards
    for index in range(start, stop or num_shards):
        shard = rows.shard(num_shards=num_shards, index=index)
        location = f"{input_range.name}, shard {index}"
        numbered = _numbered(_small_batches(shard), 0, "unreadable_shard", location, counters)
        yield f"{data_set.part}/{index}", numbered


def _small_batches(shard: Any) -> Iterator[pa.RecordBatch]:
    for table in shard.iter(batch_size=BATCH_ROWS):
        for batch in table.to_batches():
            yield from cut_batch(batch)


def cut_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts of about `BATCH_BYTES`, for Python values take several times more."""
    num_rows = BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1) + 1
    for first_row in range(0, batch.num_rows, num_rows):
        yield batch.slice(first_row, num_rows)


def _columns_to_read(schema: pa.Schema, path: str, columns: Columns) -> list[str]:
    """Return the names of the columns to read, those with text first.

    Raise `UserError` if a column for the text is missing or holds something else.
    """
    columns.check_unique(schema.names, path)
    names: dict[str, None] = {}  # in order, each once
    for name in (*columns.text, *columns.others()):
        if type_at(schema, name) is not None:
            names[name if name in schema.names else outermost(name)] = None
    for name in columns.text:
        kind = type_at(schema, name)
        if kind is None:
            shown = ", ".join(schema.names)
            raise UserError(f"{path} has no column {name!r}, only {shown}: give `text_column`.")
        if not is_text(kind):
            raise UserError(
                f"{path}: column {name!r} holds {kind}, not text: give another `text_column`."
            )
    return list(names)


def _numbered(
    batches: Iterable[pa.RecordBatch],
    first_row: int,
    damage: str,
    location: str,
    counters: Counters,
    num_compressed: int | None = None,
) -> NumberedBatches:
    """Yield the batches up to the first one that is damaged, which is counted as `damage`, or to
    where they turn out to be a bomb (``compression_bomb``) if `num_compressed` bytes hold them.

    A dictionary of one long text and the numbers of its rows take a thousand bytes, the rows
    gigabytes.
    """
    num_bytes = 0
    with counted_damage(damage, location, counters):
        for batch in map(_as_strings, batches):
            num_bytes += batch.nbytes
            if num_compressed is not None and is_bomb(num_compressed, num_bytes, TEXT_ALLOWANCE):
                counters.skip("compression_bomb", f"{location}, from row {first_row}")
                return
            yield first_row, batch
            first_row += batch.num_rows


def _rows(
    batches: NumberedBatches, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row and its number; a row with too long a text is counted instead."""
    for first_row, batch in batches:
        columns = _columns_to_read(batch.schema, table.name, table.columns)
        numbers: Sequence[int] = range(first_row, first_row + batch.num_rows)
        # Judged in Arrow: as Python values a text of gigabytes would not fit into memory.
        num_bytes = np.zeros(batch.num_rows, dtype=np.int64)
        for name in columns:
            num_bytes += _bytes_of_rows(batch.column(name))
        fits = num_bytes <= LONGEST_ROW_BYTES
        if not fits.all():
            for number in compress(numbers, ~fits):
                counters.skip("oversized_row", table.location(number))
            numbers = list(compress(numbers, fits))
            batch = batch.filter(pa.array(fits))
        values_by_column: list[list[Any]] = []
        for name in columns:
            column = batch.column(name)
            try:
                values_by_column.append(column.to_pylist())
            except UnicodeDecodeError:  # becomes U+FFFD, and is counted
                values: list[Any] = []
                for number, scalar in zip(numbers, column, strict=True):
                    values.append(_value(scalar, table.location(number), counters))
                values_by_column.append(values)
        for number, *values in zip(numbers, *values_by_column, strict=True):
            yield number, dict(zip(columns, values, strict=True))


def _bytes_of_rows(column: pa.Array) -> np.ndarray:
    """Return the bytes that each row of a column takes (int64); 0 for numbers."""
    if pa.types.is_primitive(column.type):
        return np.zeros(len(column), dtype=np.int64)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        lengths = pc.call_function("binary_length", [column]).fill_null(0)
        return lengths.to_numpy(zero_copy_only=False)
    num_bytes = np.zeros(len(column), dtype=np.int64)
    for row in range(len(column)):
        num_bytes[row] = column.slice(row, 1).nbytes
    return num_bytes


def _as_strings(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows with strings for string views, which Arrow can neither filter nor
    measure, and for strings in a dictionary (categories of pandas).
    """
    for index, field in enumerate(batch.schema):
        is_dictionary = pa.types.is_dictionary(field.type) and is_text(field.type.value_type)
        if is_dictionary or pa.types.is_string_view(field.type):
            strings = batch.column(index).cast(pa.large_string())
            batch = batch.set_column(index, field.name, strings)
    return batch


def _value(scalar: pa.Scalar, location: str, counters: Counters) -> Any:
    if not scalar.is_valid:
        return None
    if is_text(scalar.type):
        return decode(scalar.as_buffer().to_pybytes(), location, counters)
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(item, location, counters) for name, item in scalar.items()}
    if isinstance(scalar, pa.ListScalar):
        return [_value(item, location, counters) for item in scalar.values]
    return scalar.as_py()
