"""Temporary Arrow files between the phases of a stage: rows by a hash, written part by part.

A file consists of parts of about `PART_BYTES`, so that a unit of any size is written in bounded
memory. A part has one record batch for each *partition*, a range of a 64-bit hash; a reader takes
the batches of its partitions from every part, and reads none of the others.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from .. import storage
from ..storage.directory import WORK
from ..storage.stage import StageDirectory
from .phases import unit_names

# Batches are small: to share out the columns of each costs more than to compress them.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
PART_BYTES = 32 << 20  # in memory

_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)


def range_of(hashes: np.ndarray, num_ranges: int) -> np.ndarray:
    """Return hash * num_ranges / 2**64 in whole numbers, from the upper 32 bits so that nothing
    overflows.
    """
    return ((hashes >> np.uint64(32)) * np.uint64(num_ranges) >> np.uint64(32)).astype(np.int64)


def cut_evenly(length: int, num_pieces: int) -> list[range]:
    """Return at most `num_pieces` runs of neighbours that make up ``range(length)``."""
    ends = [length * (i + 1) // num_pieces for i in range(num_pieces)]
    return [
        range(start, stop)
        for start, stop in zip([0, *ends[:-1]], ends, strict=True)
        if stop > start
    ]


class PartWriter:
    """A partitioned file that is being written."""

    def __init__(self, writer: Any, schema: pa.Schema, num_partitions: int) -> None:
        self._writer, self._schema, self._num_partitions = writer, schema, num_partitions
        self._held: list[tuple[pa.Table, np.ndarray]] = []
        self._num_bytes = 0

    def write(self, table: pa.Table, partitions: np.ndarray) -> None:
        """Add row i of `table` to partition ``partitions[i]``, behind the rows that are there."""
        self._held.append((table, partitions))
        self._num_bytes += table.nbytes
        if self._num_bytes >= PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows held as a part, if there are any."""
        if not self._held:
            return
        tables, partitions = zip(*self._held, strict=True)
        nothing = pa.RecordBatch.from_pylist([], self._schema)
        rows = next(iter(pa.concat_tables(tables).combine_chunks().to_batches()), nothing)
        partition_of = np.concatenate(partitions)
        order = np.argsort(partition_of, kind="stable")
        ends = np.searchsorted(partition_of[order], np.arange(self._num_partitions), side="right")
        for start, stop in zip([0, *ends[:-1]], ends, strict=True):
            # A slice would be written with all the values of its lists, not only its own.
            self._writer.write_batch(
                rows.take(pa.array(order[start:stop])) if stop > start else nothing
            )
        self._held, self._num_bytes = [], 0


def partitioned_file(kind: str, unit: str) -> str:
    """Return the name of the file of this `kind` that a unit writes."""
    return f"{WORK}/{kind}/{unit}.arrow"


@contextmanager
def write_partitions(
    directory: StageDirectory, name: str, schema: pa.Schema, num_partitions: int
) -> Iterator[PartWriter]:
    """Open a partitioned file; it appears when it is complete."""
    with (
        directory.write(name) as file,
        pa.ipc.new_file(file, schema, options=_WRITE_OPTIONS) as writer,
    ):
        parts = PartWriter(writer, schema, num_partitions)
        yield parts
        parts.flush()


def read_partitions(
    path: str, wanted: Iterable[int], num_partitions: int
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of the `wanted` partitions of a file with so many, one part after
    the other.
    """
    wanted = list(wanted)
    with storage.open_input(path) as file, pa.ipc.open_file(file, options=_READ_OPTIONS) as reader:
        for part in range(0, reader.num_record_batches, num_partitions):
            for partition in wanted:
                batch = reader.get_batch(part + partition)
                if batch.num_rows:
                    yield batch


def read_phase(
    directory: StageDirectory, phase: str, kind: str, wanted: Iterable[int], num_partitions: int
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of the `wanted` partitions of all files of this `kind` that a phase
    wrote.
    """
    wanted = list(wanted)
    for unit in unit_names(directory, phase):
        yield from read_partitions(
            directory.file(partitioned_file(kind, unit)), wanted, num_partitions
        )
