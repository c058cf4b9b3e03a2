"""Temporary Arrow files between the phases of a stage: rows that lie by a hash, written part by part.

A file consists of parts, each the size of what a worker holds at a time, so that a unit of any size is written in
bounded memory. A part has one record batch for each *place*; a reader takes the batches of its places from every part
and needs none of the others. Places are ranges of a 64-bit hash, and so are *buckets*, which are finer: shards are made
of buckets, but a record batch for each of them would cost more than the text in it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from . import storage
from .directory import StageDirectory

ALL_HASHES = 1 << 64
_PLACE_INPUT_BYTES = 16 << 20
_MIN_PLACES, _MAX_PLACES = 4, 128
# Batches are small: to share out the columns of each costs more than to compress them.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)


def num_places(input_bytes: int) -> int:
    """Return how many places the temporary files of a stage have that reads this many bytes."""
    return min(max(1 << (input_bytes // _PLACE_INPUT_BYTES).bit_length(), _MIN_PLACES), _MAX_PLACES)


def range_of(hashes: np.ndarray, num_ranges: int) -> np.ndarray:
    """Return hash * num_ranges / 2**64 in whole numbers, from the upper 32 bits so that nothing overflows."""
    return ((hashes >> np.uint64(32)) * np.uint64(num_ranges) >> np.uint64(32)).astype(np.int64)


def overlapping(ranges: range, num_ranges: int, num_others: int) -> range:
    """Return those of `num_others` equal ranges that `ranges`, of `num_ranges`, have a part of.

    >>> overlapping(range(3, 5), 10, 4)
    range(1, 2)
    """
    return range(ranges.start * num_others // num_ranges, -(-ranges.stop * num_others // num_ranges))


def cut_evenly(length: int, num_pieces: int) -> list[range]:
    """Return at most `num_pieces` runs of neighbours that make up ``range(length)``."""
    ends = [length * (i + 1) // num_pieces for i in range(num_pieces)]
    return [range(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True) if stop > start]


def counts_to_text(counts: np.ndarray) -> str:
    """Return whole numbers as text: in a record they take a tenth of the memory, and of the time, of a list."""
    return " ".join(map(str, counts.tolist()))


def counts_from_text(text: str) -> np.ndarray:
    """Return the numbers that `counts_to_text` wrote, int64.

    >>> counts_from_text("3 0 17")
    array([ 3,  0, 17])
    """
    return np.fromstring(text, np.int64, sep=" ")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the documents of one run of ingest lie in its temporary files."""

    num_buckets: int
    """Equal ranges of the documents' hash of which shards are made."""
    num_places: int
    """Ranges of a hash in each file; documents have one place more, before the others, for the validation split."""
    validation_below: int
    """Documents with a validation hash below are in the first place."""

    @property
    def num_band_places(self) -> int:
        """Ranges of a hash in files of bands: there are many bands to a document, and they are small."""
        return 4 * self.num_places

    def bucket_of(self, hashes: np.ndarray, validation_hashes: np.ndarray) -> np.ndarray:
        """Return for each document 0 where it is for validation, else 1 + its bucket."""
        return self._after_validation(range_of(hashes, self.num_buckets), validation_hashes)

    def place_of(self, hashes: np.ndarray, validation_hashes: np.ndarray) -> np.ndarray:
        """Return for each document 0 where it is for validation, else 1 + its range of hashes."""
        return self._after_validation(range_of(hashes, self.num_places), validation_hashes)

    def _after_validation(self, ranges: np.ndarray, validation_hashes: np.ndarray) -> np.ndarray:
        return np.where(validation_hashes < np.uint64(self.validation_below), 0, ranges + 1)


class PartWriter:
    """One scattered file that is being written."""

    def __init__(self, writer: Any, schema: pa.Schema, places: int) -> None:
        self._writer, self._schema, self._places = writer, schema, places

    def write(self, table: pa.Table, places: np.ndarray) -> None:
        """Add a part: row i of `table` goes to place ``places[i]``, in order within a place."""
        nothing = pa.RecordBatch.from_pylist([], self._schema)
        rows = next(iter(table.combine_chunks().to_batches()), nothing)
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(self._places), side="right")
        for start, stop in zip([0, *ends[:-1]], ends, strict=True):
            # A slice would be written with all the values of its lists, not only its own.
            self._writer.write_batch(rows.take(pa.array(order[start:stop])) if stop > start else nothing)


@contextmanager
def write_scattered(directory: StageDirectory, name: str, schema: pa.Schema, places: int) -> Iterator[PartWriter]:
    """Open a scattered file of so many places; it appears when it is complete."""
    with directory.write(name) as file, pa.ipc.new_file(file, schema, options=_WRITE_OPTIONS) as writer:
        yield PartWriter(writer, schema, places)


def read_scattered(path: str, wanted: Iterable[int], places: int) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of the `wanted` places of a file with so many, one part after the other."""
    wanted = list(wanted)
    with storage.open_input(path) as file, pa.ipc.open_file(file, options=_READ_OPTIONS) as reader:
        for part in range(0, reader.num_record_batches, places):
            for place in wanted:
                batch = reader.get_batch(part + place)
                if batch.num_rows:
                    yield batch
