"""Write and read temporary tables: rows that the units of one phase leave to a later phase.

Each unit writes an Arrow file, cut into *partitions* so that a reader takes what it needs and no
more. The file is written in chunks of about `CHUNK_BYTES`, so that a unit of any size is written
in bounded memory. A chunk has one record batch for each partition::

    chunk 0:  | partition 0 | partition 1 | partition 2 |
    chunk 1:  | partition 0 | partition 1 | partition 2 |    a reader of partition 1
                            ^^^^^^^^^^^^^^                   takes these from every file

Each batch has a checksum: a bit that flips on the disk is an error, not another word.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from .. import storage
from ..arrow import take
from ..errors import UserError
from .job import Job

CHUNK_BYTES = 32 << 20
"""Rows held in memory until they are written."""

_CHECKSUM = b"crc32"


Cut = Callable[[Any], tuple[int, Callable[[pa.Table], np.ndarray]]]
"""Returns, from `Job.setup`, the number of partitions and what finds the partition of each row."""


def _uncut(setup: Any) -> tuple[int, Callable[[pa.Table], np.ndarray]]:
    return 1, lambda rows: np.zeros(len(rows), np.int64)


@dataclass(frozen=True)
class TemporaryTable:
    """A table between two phases."""

    name: str
    """The name of its folder among the temporary files."""
    phase: str
    """The name of the phase whose units each write a file of it."""
    schema: pa.Schema
    cut: Cut = _uncut
    """By default a single partition, as every reader needs all rows."""

    @contextmanager
    def write(self, job: Job, unit_name: str) -> Iterator["TableWriter"]:
        """Open the file of a unit for writing; it appears when it is complete."""
        # Batches are small: sharing out their columns to threads costs more than compressing them.
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        with (
            job.write(job.temporary(f"{self.name}/{unit_name}.arrow")) as file,
            pa.ipc.new_file(file, self.schema, options=options) as writer,
        ):
            rows = TableWriter(writer, self, job)
            yield rows
            rows.flush()

    def read(
        self,
        job: Job,
        partitions: Iterable[int] = (0,),
        unit_names_to_read: Iterable[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of these partitions: of every unit, or only of some."""
        partitions = list(partitions)
        if unit_names_to_read is None:
            unit_names_to_read = [unit.name for unit in job.units(self.phase)]
        for unit_name in unit_names_to_read:
            yield from self._read_file(job, unit_name, partitions)

    def _read_file(
        self, job: Job, unit_name: str, partitions: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        path = job.file(job.temporary(f"{self.name}/{unit_name}.arrow"))
        num_partitions, _ = self.cut(job.setup)
        try:
            with (
                storage.open_input(path) as file,
                pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader,
            ):
                # Partition p of chunk c is batch c * num_partitions + p: no index is needed.
                for first_of_chunk in range(0, reader.num_record_batches, num_partitions):
                    for partition in partitions:
                        index = first_of_chunk + partition
                        batch, metadata = reader.get_batch_with_custom_metadata(index)
                        if metadata is None or metadata[_CHECKSUM] != _checksum(batch):
                            raise pa.ArrowInvalid("its checksum differs")
                        if batch.num_rows:
                            yield batch
        except (pa.ArrowException, FileNotFoundError) as error:
            # Not OSError, such as that of a store that is away: a runner tries again.
            raise UserError(
                f"{path} is damaged ({error}). Rerun with `overwrite`, which starts over."
            ) from None


@dataclass
class TableWriter:
    """The file of one unit, while it is written."""

    writer: Any
    table: TemporaryTable
    job: Job
    held: list[pa.Table] = field(default_factory=list)
    held_bytes: int = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows; those of one partition keep the order in which they were added."""
        self.held.append(rows)
        self.held_bytes += rows.nbytes
        if self.held_bytes >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows held as a chunk, if there are any."""
        if not self.held:
            return
        table = pa.concat_tables(self.held).combine_chunks()
        self.held = []  # or rows would be in memory three times: held, combined, taken
        self.held_bytes = 0
        empty = pa.RecordBatch.from_pylist([], self.table.schema)
        # A combined table is one batch, or none if it has no rows.
        rows = next(iter(table.to_batches()), empty)
        num_partitions, partition_of = self.table.cut(self.job.setup)
        partition_of_row = partition_of(table)
        # Rows in the order of their partitions, and where each partition ends among them:
        #   partition_of_row  2 0 1 0        order  1 3 2 0        ends  2 3 4
        order = np.argsort(partition_of_row, kind="stable")
        ends = np.searchsorted(partition_of_row[order], np.arange(num_partitions), side="right")
        start = 0
        for end in ends:
            # An empty partition gets a batch too, because readers count batches.
            rows_of_partition = empty
            if end > start:
                # Not a slice: it would be written with all the values of its lists, not only its
                # own.
                rows_of_partition = take(rows, order[start:end])
            checksum = _checksum(rows_of_partition)
            self.writer.write_batch(rows_of_partition, {_CHECKSUM: checksum})
            start = end


def _checksum(batch: pa.RecordBatch) -> bytes:
    return b"%08x" % zlib.crc32(batch.serialize())


def range_of(hashes: np.ndarray, num_ranges: int) -> np.ndarray:
    """Return hash * num_ranges / 2**64 in whole numbers, for uint64 hashes.

    Only the upper 32 bits count, so that nothing overflows.
    """
    upper = hashes >> np.uint64(32)
    return (upper * np.uint64(num_ranges) >> np.uint64(32)).astype(np.int64)
