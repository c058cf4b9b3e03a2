"""Name, write and read Parquet shards; damage is one line that names the shard."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from .. import storage
from ..errors import UserError
from ..manifests import (
    SCHEMA_VERSION,
    VERSION_KEY,
    DocumentsManifest,
    InstancesManifest,
    check_schema_version,
)
from ..memory import cut_by_size
from ..schemas import DOCUMENTS
from .directory import OutputDirectory

TABLE_BYTES = 8 << 20
"""Size of the batches that `read_columns` yields."""
BATCH_ROWS = 64
"""Rows to read at a time: documents differ in length by a thousand times."""
BUFFER_BYTES = 1 << 20


@dataclass
class Written:
    """Size and SHA-256 of a file, once it is written."""

    num_bytes: int = 0
    sha256: str = ""


@contextmanager
def write_parquet(
    directory: OutputDirectory, name: str, schema: pa.Schema, **options: Any
) -> Iterator[tuple[pq.ParquetWriter, Written]]:
    """Open a Parquet file for writing; afterwards the second value has its size and digest.

    `options` go to `pyarrow.parquet.ParquetWriter`; the compression is zstd unless they say
    otherwise. Each page has a checksum, which `open_shard` and the trainer verify: a bit that
    flips on a disk would otherwise change a word in silence.
    """
    written = Written()
    metadata = {**(schema.metadata or {}), VERSION_KEY: str(SCHEMA_VERSION)}
    writer_options: dict[str, Any] = {
        "compression": "zstd",
        "write_page_checksum": True,
        **options,
    }
    with directory.write(name) as file:
        with pq.ParquetWriter(file, schema.with_metadata(metadata), **writer_options) as writer:
            yield writer, written
        written.num_bytes = file.tell()
        file.seek(0)  # read back from the disk's cache, before it is renamed or uploaded
        written.sha256 = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def shard_name(split: str, index: int, count: int) -> str:
    """Return the name of a shard, for instance ``train-00012-of-00256.parquet``."""
    return f"{split}-{index:05d}-of-{count:05d}.parquet"


def shard_paths(
    directory: str, manifest: DocumentsManifest | InstancesManifest, split: str
) -> list[str]:
    """Return the paths of the shards of a split that a directory's manifest lists, in order."""
    names = [shard.name for shard in manifest.shards if shard.split == split]
    return [storage.join(directory, name) for name in names]


@contextmanager
def open_shard(path: str, stage: str) -> Iterator[pq.ParquetFile]:
    """Open a shard that a stage wrote; damage found meanwhile is a `UserError` that names it."""
    try:
        with (
            storage.open_input(path) as source,
            # With `pre_buffer` a thread of Arrow's reads, and gives what it has read back to Python
            # when it likes: at exit, where that ends the process with an abort.
            pq.ParquetFile(
                source,
                buffer_size=BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            ) as file,
        ):
            footer = file.schema_arrow.metadata or {}
            check_schema_version(int(footer.get(VERSION_KEY, b"1")), path)
            # Errors of the caller's reading are caught below too: pages are checked when read.
            yield file
    except (OSError, ValueError, pa.ArrowException) as error:
        contents = {"ingest": "documents", "build": "instances"}[stage]
        raise UserError(
            f"{path} cannot be read as {contents} ({first_sentence(error)}): "
            f"recreate it with `clozeworks {stage} … --overwrite`."
        ) from None


def first_sentence(error: Exception) -> str:
    """Return what Arrow says of a fault, without the stack of C++ calls that follows."""
    return str(error).partition("\n")[0].split(". ")[0].rstrip(".")


def checked(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema` in `batches`; a `ValueError` names one that does not fit."""
    # Column by column, because an error of a whole table's cast does not name its column.
    table = pa.Table.from_batches(batches)
    columns = []
    for field in schema:
        count = table.column_names.count(field.name)
        if count == 0:
            raise ValueError(f"it has no column {field.name!r}")
        if count > 1:
            raise ValueError(f"it has {count} columns {field.name!r}")
        try:
            column = table[field.name].cast(field.type).combine_chunks()
            column.validate(full=True)  # Parquet's reader does not check UTF-8
        except (ValueError, pa.ArrowException) as error:
            raise ValueError(f"column {field.name}: {error}") from None
        num_missing = column.null_count
        if pa.types.is_list(field.type):
            num_missing += column.flatten().null_count
        if num_missing:
            raise ValueError(f"column {field.name}: a value is missing")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_columns(path: str, *columns: str) -> Iterator[pa.RecordBatch]:
    """Yield these columns of a shard of documents, about `TABLE_BYTES` at a time.

    Raise `UserError` if the shard is damaged.
    """
    schema = pa.schema([DOCUMENTS.field(name) for name in columns])
    num_rows = 0
    with open_shard(path, "ingest") as file:
        # Small batches make large ones of equal size: a number of rows would not.
        batches = file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False)
        for neighbours in cut_by_size(batches, attrgetter("nbytes"), TABLE_BYTES):
            rows = checked(neighbours, schema)
            num_rows += len(rows)
            yield rows
        # Headers of pages have no checksum: a damaged one may end a column early.
        if num_rows != file.metadata.num_rows:
            raise ValueError(f"{num_rows:,} of {file.metadata.num_rows:,} rows are left")
