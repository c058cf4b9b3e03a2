"""Parquet files and data sets as documents, one a row; see `rows`.

If a table has only the text column, and each row is a sentence (``bookcorpus/bookcorpus``),
consecutive rows make a document; see `rows.row_documents`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain, compress
from statistics import median
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..config import IngestConfig
from ..errors import UserError
from ..execution.counters import Counters
from ..storage.hub import DataSet
from .compression import counted_damage
from .lines import LONGEST_LINE_BYTES
from .records import Input, InputRange, OpenFile, RawDocument
from .rows import FIELDS, Table, row_documents

RANGE_BYTES = 1 << 24
DAMAGED_FILE = "damaged_parquet_file"
BATCH_ROWS = 128
BATCH_BYTES = 1 << 24
# As of lines: a longer text is not a real document.
LONGEST_ROW_BYTES = LONGEST_LINE_BYTES
BUFFER_BYTES = 1 << 20
SENTENCE_CHARACTERS = 200
"""Rows whose median length is below are sentences."""

NumberedBatches = Iterator[tuple[int, pa.RecordBatch]]
"""Consecutive batches of rows, each with the number of its first row."""


def plan_table(
    entry: Input, open_file: OpenFile, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Return ranges of row groups, each of about `RANGE_BYTES`; raise `UserError` if there is no
    text to read.
    """
    damage = Counters()
    with open_file(entry.path) as file, counted_damage(DAMAGED_FILE, entry.name, damage):
        is_parquet = file.read(4) == b"PAR1"
        metadata = pq.read_metadata(file)
        schema = metadata.schema.to_arrow_schema()
    if damage.bad and is_parquet:
        return entry._replace(format=DAMAGED_FILE).cut([0])
    if damage.bad:
        raise UserError(f"{entry.path} is not a Parquet file; give its --format or leave it out.")
    _text_columns(schema, entry.path, config.text_column)
    starts: list[int] = []
    size = RANGE_BYTES
    for group in range(metadata.num_row_groups):
        if size >= RANGE_BYTES:
            starts.append(group)
            size = 0
        size += metadata.row_group(group).total_byte_size
    return entry.cut(starts)


def read_table(
    file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of row groups, a batch of rows in memory at a time.

    With ``--documents line`` each row is a document, with ``blank-line`` the rows up to an empty
    one are. The source of rows of no wiki is ``parquet``. `counters` gets the bad input
    ``unreadable_row_group`` and ``oversized_row`` (more than `LONGEST_ROW_BYTES` of text), and what
    `row_document` names.
    """
    stem = part.name[: -len(".parquet")] if part.name.lower().endswith(".parquet") else part.name
    table = Table(name=part.name, stem=stem, source="parquet", text_column=config.text_column)
    # With a small buffer and no pre-buffering a row group is not in memory as a whole.
    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES)
    columns = _text_columns(parquet.schema_arrow, part.path, config.text_column)
    groups = [parquet.metadata.row_group(group) for group in range(parquet.num_row_groups)]
    sizes = [group.num_rows for group in groups]
    for group in range(part.start, len(sizes) if part.stop is None else part.stop):
        num_rows = min(
            BATCH_ROWS, BATCH_BYTES * sizes[group] // max(groups[group].total_byte_size, 1) + 1
        )
        batches = parquet.iter_batches(num_rows, row_groups=[group], columns=columns)
        location = f"{part.name}, row group {group}"
        run = _numbered(batches, sum(sizes[:group]), "unreadable_row_group", location, counters)
        yield from _documents(run, parquet.schema_arrow, table, config, counters)


def plan_data_set(
    entry: Input,
    open_set: Callable[[str], AbstractContextManager[DataSet]],
    range_bytes: int,
    config: IngestConfig,
) -> list[InputRange]:
    """Return the ranges of a data set that `hub` opens; raise `UserError` if it has no text in the
    text column.

    If the data set does not declare its columns, a few of its first rows are read.
    """
    with open_set(entry.path) as found:
        ranges = entry.cut(_data_set_starts(found))
        schema = found.schema
        for shard in _shards(found, ranges[0], None) if schema is None and ranges else ():
            head = next(_shard_batches(shard, entry.name, Counters()), None)
            schema = head[1].schema if head else None
    if schema is not None:
        _text_columns(schema, entry.name, config.text_column)
    return ranges


def read_data_set(
    found: DataSet, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a data set, a batch of rows in memory at a time.

    The source of rows of no wiki is the data set's name; ``--documents`` is as in `read_table`.
    Raise `UserError` if there is no text in the text column.
    """
    columns = _text_columns(found.schema, part.name, config.text_column) if found.schema else None
    for shard in _shards(found, part, columns):
        name = found.part if found.is_on_disk else f"{found.part}/{shard.number}"
        table = Table(
            name=f"{found.source}:{name}",
            stem=name,
            source=found.source,
            text_column=config.text_column,
        )
        yield from _documents(
            _shard_batches(shard, part.name, counters), found.schema, table, config, counters
        )


def _data_set_starts(found: DataSet) -> list[int]:
    """Return where the ranges of a data set begin: at rows if it was saved to disk, else at its
    shards, one each.
    """
    if not found.is_on_disk:
        return list(range(found.rows.num_shards))
    num_rows = len(found.rows)
    num_ranges = min(num_rows, found.rows.data.nbytes // RANGE_BYTES + 1)
    return [num_rows * index // num_ranges for index in range(num_ranges)]


class _Shard(NamedTuple):
    """A part of a data set that is read by itself."""

    number: int
    first_row: int
    rows: Any


def _shards(found: DataSet, part: InputRange, columns: Sequence[str] | None) -> Iterator[_Shard]:
    """Yield the shards of a range, with some of the columns (None: all); one if the data set was
    saved to disk.
    """
    rows = found.rows.select_columns(list(columns)) if columns else found.rows
    rows = rows.with_format("arrow")
    if found.is_on_disk:
        yield _Shard(
            0,
            part.start,
            rows.select(range(part.start, len(rows) if part.stop is None else part.stop)),
        )
        return
    for index in range(part.start, rows.num_shards if part.stop is None else part.stop):
        yield _Shard(index, 0, rows.shard(num_shards=rows.num_shards, index=index))


def _shard_batches(shard: _Shard, name: str, counters: Counters) -> NumberedBatches:
    """Yield the rows of a shard, a few in memory at a time; `counters` gets ``unreadable_shard``."""
    batches = (
        batch for table in shard.rows.iter(batch_size=BATCH_ROWS) for batch in table.to_batches()
    )
    batches = (part for batch in batches for part in _cut(batch))
    return _numbered(
        batches, shard.first_row, "unreadable_shard", f"{name}, shard {shard.number}", counters
    )


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts of about `BATCH_BYTES`, because as Python values they would take
    several times as much.
    """
    num_rows = BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1) + 1
    return (batch.slice(first, num_rows) for first in range(0, batch.num_rows, num_rows))


def _text_columns(schema: pa.Schema, path: str, text_column: str) -> list[str]:
    """Return the names of the columns to read; raise `UserError` if there is no text in
    `text_column`.
    """
    if text_column not in schema.names:
        raise UserError(
            f"{path} has no column {text_column!r}, only {', '.join(schema.names)}: give --text-column."
        )
    columns = [
        text_column,
        *(name for name in FIELDS if name in schema.names and name != text_column),
    ]
    if repeated := [name for name in columns if schema.names.count(name) > 1]:
        raise UserError(
            f"{path} has several columns {repeated[0]!r}: rename or remove all but one."
        )
    kind = schema.field(text_column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(
            f"{path}: column {text_column!r} holds {kind}, not text: give another --text-column."
        )
    return columns


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


def _documents(
    run: NumberedBatches,
    schema: pa.Schema | None,
    table: Table,
    config: IngestConfig,
    counters: Counters,
) -> Iterator[RawDocument]:
    """Yield the documents of the rows of a run; `schema` is that of the whole table, None if only
    the rows show it.
    """
    head = next(run, None)
    if head is None:
        return
    names: list[str] = (schema or head[1].schema).names
    columns = _text_columns(schema or head[1].schema, table.name, table.text_column)
    joined = config.documents == "blank-line"
    if config.documents == "auto" and len(names) == 1:
        joined = _holds_sentences(head[1])
    yield from row_documents(
        _rows(chain([head], run), columns, table, counters), table, counters, joined=joined
    )


def _rows(
    run: NumberedBatches, columns: list[str], table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, Any]]]:
    for first_row, batch in run:
        numbers: Iterable[int] = range(first_row, first_row + batch.num_rows)
        sizes = pc.call_function("binary_length", [batch.column(columns[0])]).fill_null(0)
        fits = sizes.to_numpy(zero_copy_only=False) <= LONGEST_ROW_BYTES
        if not fits.all():
            for number in compress(numbers, ~fits):
                counters.skip("oversized_row", table.location(number))
            numbers, batch = compress(numbers, fits), batch.filter(pa.array(fits))
        values = [_values(batch.column(name)) for name in columns]
        for number, row in zip(numbers, zip(*values, strict=True), strict=True):
            yield number, dict(zip(columns, row, strict=True))


def _holds_sentences(batch: pa.RecordBatch) -> bool:
    """Return whether the rows of a batch, of one column, are a sentence each."""
    texts = [text for text in _values(batch.column(0)) if text]
    return (
        len(texts) > 1
        and median(map(len, texts)) < SENTENCE_CHARACTERS
        and not any("\n" in text for text in texts)
    )


def _values(column: pa.Array) -> list[Any]:
    """Return a column as Python values; invalid UTF-8 becomes U+FFFD."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if text is None else text.decode("utf-8", "replace") for text in raw]
