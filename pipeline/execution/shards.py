"""Parquet shards: their names, and the one way in which they are written."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal

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


class HashingWriter:
    """A binary file that hashes and counts what is written through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self.num_bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write `data`, and take it into the digest."""
        self._sha256.update(data)
        self._file.write(data)
        self.num_bytes += memoryview(data).nbytes
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Pass on to the file."""
        self._file.flush()

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.num_bytes

    def close(self) -> None:
        """Do nothing: the one who opened the file closes it."""

    def hexdigest(self) -> str:
        """Return the SHA-256 of all that was written."""
        return self._sha256.hexdigest()


@contextmanager
def write_parquet(
    directory: StageDirectory, name: str, schema: pa.Schema, **options: Any
) -> Iterator[tuple[pq.ParquetWriter, HashingWriter]]:
    """Open a Parquet file for writing; afterwards the second value knows its length and digest.

    `options` go to `pyarrow.parquet.ParquetWriter`; the compression is zstd unless they say otherwise.
    """
    with directory.write(name) as file:
        sink = HashingWriter(file)
        with pq.ParquetWriter(sink, schema, **{"compression": "zstd", **options}) as writer:
            yield writer, sink


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
