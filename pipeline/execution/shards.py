"""Parquet shards: their names, and the one way in which they are written."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import UserError
from ..manifests import DocumentsManifest
from ..schemas import DOCUMENTS
from . import storage
from .directory import StageDirectory

SPLITS: tuple[Literal["train", "validation"], ...] = ("train", "validation")
TABLE_BYTES = 8 << 20
BATCH_ROWS = 64
BUFFER_BYTES = 1 << 20


@dataclass
class Written:
    """Length and SHA-256 of a file, once it is written."""

    num_bytes: int = 0
    sha256: str = ""


@contextmanager
def write_parquet(
    directory: StageDirectory, name: str, schema: pa.Schema, **options: Any
) -> Iterator[tuple[pq.ParquetWriter, Written]]:
    """Open a Parquet file for writing; afterwards the second value knows its length and digest.

    `options` go to `pyarrow.parquet.ParquetWriter`; the compression is zstd unless they say otherwise.
    """
    written = Written()
    with directory.write(name) as file:
        with pq.ParquetWriter(file, schema, **{"compression": "zstd", **options}) as writer:
            yield writer, written
        written.num_bytes = file.tell()
        file.seek(0)
        written.sha256 = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def shard_name(split: str, index: int, count: int) -> str:
    """Return the name of a shard, for instance ``train-00012-of-00256.parquet``."""
    return f"{split}-{index:05d}-of-{count:05d}.parquet"


def shard_paths(directory: str, manifest: DocumentsManifest, split: str) -> list[str]:
    """Return the paths of the shards of `split` that the manifest of `directory` lists, in order."""
    return [storage.join(directory, shard.name) for shard in manifest.shards if shard.split == split]


def read_documents(path: str, *columns: str) -> Iterator[pa.Table]:
    """Yield these columns of a shard of documents, about `TABLE_BYTES` at a time, so that it is never held whole.

    Raise `UserError` where the shard is broken.
    """
    try:
        with storage.open_input(path) as source, pq.ParquetFile(source, buffer_size=BUFFER_BYTES) as file:
            if missing := [name for name in columns if name not in file.schema_arrow.names]:
                raise KeyError(missing[0])
            batches: list[pa.RecordBatch] = []
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False):
                batches.append(batch)
                if sum(held.nbytes for held in batches) >= TABLE_BYTES:
                    yield _documents(batches, columns)
                    batches = []
            if batches:
                yield _documents(batches, columns)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        is_missing = isinstance(error, KeyError)
        reason = f"it has no column {error}" if is_missing else str(error).split(". ")[0].rstrip(".")
        again = "recreate it with `clozeworks ingest … --overwrite`"
        raise UserError(f"{path} cannot be read as documents, {again}: {reason}.") from None


def _documents(batches: list[pa.RecordBatch], columns: Sequence[str]) -> pa.Table:
    """Return the rows of all batches, each column in one chunk of the type that `DOCUMENTS` has."""
    schema = pa.schema([DOCUMENTS.field(name) for name in columns])
    return pa.Table.from_batches(batches).cast(schema).combine_chunks()
