"""Read Parquet files and data sets as documents, one a row; see `row_documents`.

Documents that `ingest` wrote stay as they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .. import storage
from ..config import IngestConfig
from ..counters import Counters
from . import hub
from .row_documents import (
    Table,
    columns_of,
    columns_to_read,
    is_list_type,
    lacking,
    outermost,
    row_documents,
)
from .streams import (
    DAMAGED_FILE,
    LONGEST_LINE_BYTES,
    TEXT_ALLOWANCE,
    InputRange,
    RawDocument,
    counted_damage,
    is_bomb,
)

RANGE_BYTES = 1 << 24
BATCH_ROWS = 128
BATCH_BYTES = 1 << 24
BUFFER_BYTES = 1 << 20

NumberedBatches = Iterator[tuple[int, pa.RecordBatch]]
"""Consecutive batches of rows, each with the number of its first row."""


def plan_table(file: InputRange, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Return ranges of row groups, each of about `RANGE_BYTES`."""
    damage = Counters()
    with storage.open_input(file.path) as stream, counted_damage(DAMAGED_FILE, file.name, damage):
        metadata = pq.read_metadata(stream)
        schema = metadata.schema.to_arrow_schema()
    if damage.bad:
        return [replace(file, format=DAMAGED_FILE)]
    columns_to_read(schema, file.path, columns_of(schema, config))
    file = replace(file, lacks=lacking(schema.names, config))
    starts = []
    num_bytes = RANGE_BYTES  # so that the first group begins a range
    for group in range(metadata.num_row_groups):
        if num_bytes >= RANGE_BYTES:
            starts.append(group)
            num_bytes = 0
        num_bytes += metadata.row_group(group).total_byte_size
    return file.cut(starts)


class _Expansion:
    """The bytes of the texts of a range, and of what they were compressed to: a dictionary of one
    long text and the numbers of its rows take a thousand bytes, the rows gigabytes.
    """

    num_compressed = 0
    num_bytes = 0


def read_table(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of row groups, a batch of rows in memory at a time."""
    metadata = pq.read_metadata(file)
    schema = metadata.schema.to_arrow_schema()
    columns = columns_of(schema, config)
    names = columns_to_read(schema, input_range.path, columns)
    table = Table.of(input_range, columns, config)
    expansion = _Expansion()
    first_row = 0
    # Groups before the range are not read, but their rows count: rows are numbered in the file.
    for group in range(input_range.stop or metadata.num_row_groups):
        if group >= input_range.start:
            batches = _group_batches(file, metadata, group, names, expansion)
            location = f"{input_range.name}, row group {group}"
            numbered = _numbered(batches, first_row, "unreadable_row_group", location, counters)
            rows = _rows(numbered, table, counters, expansion)
            yield from row_documents(rows, replace(table, continues=group > 0), counters)
            if is_bomb(expansion.num_compressed, expansion.num_bytes, TEXT_ALLOWANCE):
                return
        first_row += metadata.row_group(group).num_rows


def _group_batches(
    file: BinaryIO, metadata: pq.FileMetaData, group: int, names: list[str], expansion: _Expansion
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group, a few at a time, columns that lie in a dictionary as such: a
    few long texts may be those of many rows.
    """
    row_group = metadata.row_group(group)
    in_dictionary = []
    for chunk in map(row_group.column, range(row_group.num_columns)):
        column = chunk.path_in_schema
        if column not in names and outermost(column) not in names:
            continue
        expansion.num_compressed += chunk.total_compressed_size
        if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY":
            # All else are indices into it, of up to four bytes, and the headers of their pages.
            num_dictionary_bytes = chunk.data_page_offset - chunk.dictionary_page_offset
            num_other_bytes = chunk.total_compressed_size - num_dictionary_bytes
            if num_other_bytes <= 4 * chunk.num_values + 1000:
                in_dictionary.append(column)
    # With a small buffer and no pre-buffering a row group is not in memory as a whole.
    parquet = pq.ParquetFile(
        file,
        metadata=metadata,
        read_dictionary=in_dictionary,
        pre_buffer=False,
        buffer_size=BUFFER_BYTES,
        page_checksum_verification=True,
    )
    # `iter_batches` counts rows only: a few books are as large as thousands of abstracts.
    fitting_rows = BATCH_BYTES * row_group.num_rows // max(row_group.total_byte_size, 1)
    num_rows = min(BATCH_ROWS, fitting_rows + 1)
    yield from parquet.iter_batches(num_rows, row_groups=[group], columns=names)


def plan_data_set(data_set: InputRange, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Return the ranges of a data set: of rows if it was saved to disk, else its shards."""
    opened = hub.open_set(data_set.path)
    if opened.is_on_disk:
        num_rows = len(opened.rows)
        num_ranges = min(num_rows, opened.rows.data.nbytes // RANGE_BYTES + 1)
        starts = [num_rows * index // num_ranges for index in range(num_ranges)]
    else:
        starts = list(range(opened.rows.num_shards))
    if opened.schema:
        columns_to_read(opened.schema, data_set.name, columns_of(opened.schema, config))
        names = opened.schema.names
    else:
        names = []
        with counted_damage(DAMAGED_FILE, data_set.name, Counters()):  # which its reader counts
            names = list(next(iter(opened.rows), {}))
    return replace(data_set, lacks=lacking(names, config)).cut(starts)


def read_data_set(
    data_set: hub.DataSet, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a data set, a batch of rows in memory at a time."""
    # Its rows are a sentence each.
    if config.documents == "auto" and data_set.source == "bookcorpus/bookcorpus":
        config = replace(config, documents="sentence")
    columns = columns_of(data_set.schema, config)
    if data_set.schema:
        names = columns_to_read(data_set.schema, input_range.name, columns)
        data_set = replace(data_set, rows=data_set.rows.select_columns(names))
    rows = data_set.rows.with_format("arrow")
    start = input_range.start
    stop = input_range.stop
    first_row = 0
    indices = range(start, stop or rows.num_shards) if not data_set.is_on_disk else [0]
    for index in indices:
        if data_set.is_on_disk:
            shard = rows.select(range(start, stop or len(rows)))
            stem = data_set.part
            first_row = start
        else:
            shard = rows.shard(num_shards=rows.num_shards, index=index)
            stem = f"{data_set.part}/{index}"
        table = Table(
            name=f"{data_set.source}:{stem}",
            stem=stem,
            source=data_set.source,
            columns=columns,
            config=config,
            continues=first_row > 0,
        )
        tables = shard.iter(batch_size=BATCH_ROWS)
        batches = chain.from_iterable(each.to_batches() for each in tables)
        location = f"{input_range.name}, shard {index}"
        numbered = _numbered(batches, first_row, "unreadable_shard", location, counters)
        yield from row_documents(_rows(numbered, table, counters), table, counters)


def _numbered(
    batches: Iterable[pa.RecordBatch],
    first_row: int,
    damage: str,
    location: str,
    counters: Counters,
) -> NumberedBatches:
    """Yield the batches up to the first one that is damaged, which is counted as `damage`."""
    with counted_damage(damage, location, counters):
        for batch in batches:
            yield first_row, batch
            first_row += batch.num_rows


def _rows(
    batches: NumberedBatches, table: Table, counters: Counters, expansion: _Expansion | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row and its number, up to a bomb, without those with too long a text."""
    for first_row, batch in batches:
        batch = batch.select(columns_to_read(batch.schema, table.name, table.columns))
        for index, column in enumerate(batch.columns):
            if pa.types.is_string_view(column.type):
                # Arrow can neither take from views nor measure them.
                name = batch.schema.names[index]
                batch = batch.set_column(index, name, column.cast(pa.large_string()))
        # Judged in Arrow: as Python values a text of gigabytes would not fit into memory.
        num_bytes = np.sum([_bytes_of_items(column) for column in batch.columns], axis=0)
        if expansion:
            expansion.num_bytes += int(num_bytes.sum())
            if is_bomb(expansion.num_compressed, expansion.num_bytes, TEXT_ALLOWANCE):
                counters.skip("compression_bomb", table.location(first_row))
                return
        numbers = first_row + np.arange(len(batch))
        fits = num_bytes <= LONGEST_LINE_BYTES
        if not fits.all():
            for number in numbers[~fits].tolist():
                counters.skip("oversized_row", table.location(number))
            batch = batch.filter(pa.array(fits))
            numbers = numbers[fits]
        # In parts of about `BATCH_BYTES`, for Python values take several times more.
        num_rows = BATCH_BYTES // max(1, num_bytes[fits].max(initial=0)) + 1
        for start in range(0, len(batch), num_rows):
            part_numbers = numbers[start : start + num_rows].tolist()
            part = batch.slice(start, num_rows)
            try:
                rows = part.to_pylist()
            except UnicodeDecodeError:
                yield from _valid_rows(part, part_numbers, table, counters)
            else:
                yield from zip(part_numbers, rows, strict=True)


def _valid_rows(
    batch: pa.RecordBatch, numbers: Sequence[int], table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows without those with text that is not UTF-8, which Parquet does not allow."""
    for index, number in enumerate(numbers):
        try:
            yield number, batch.slice(index, 1).to_pylist()[0]
        except UnicodeDecodeError as error:
            counters.skip("invalid_utf8", table.location(number), str(error))


def _bytes_of_items(array: pa.Array) -> np.ndarray:
    """Return the bytes of text that each item of an array takes (int64)."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = _bytes_of_items(array.dictionary)
        indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return lengths[indices] if len(lengths) else np.zeros(len(array), np.int64)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        lengths = pc.call_function("binary_length", [array]).fill_null(0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    num_bytes = np.zeros(len(array), np.int64)
    if is_list_type(kind):
        # Sums over the items of each list, by the differences of running sums.
        sums = np.concatenate([[0], np.cumsum(_bytes_of_items(array.flatten()))])
        lengths = pc.call_function("list_value_length", [array]).fill_null(0)
        ends = np.cumsum(lengths.to_numpy(zero_copy_only=False))
        num_bytes = np.diff(sums[ends], prepend=0)
    if pa.types.is_struct(kind):
        for field in array.flatten():
            num_bytes += _bytes_of_items(field)
    return num_bytes
