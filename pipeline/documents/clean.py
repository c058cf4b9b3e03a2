"""Leave the repeated lines that `repeated_lines` lists out of the documents, between deduplication
and `gather`.

A unit reads a partition of the documents, batch by batch, and writes it again. Documents that are
now too short are left out, too, so the shards are planned from what this phase leaves.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np
import pyarrow as pa

from ..config import IngestConfig
from ..execution.counters import CounterRecord, Counters
from ..execution.partitions import partitioned_file, read_partitions, read_phase, write_partitions
from ..execution.phases import Unit
from ..storage.stage import StageDirectory
from .duplicates import (
    LEFT_OUT,
    MIN_VALIDATION_DOCUMENTS,
    Deduplicated,
    document_keys,
    empty_left_out,
)
from .layout import KeyRange, Layout
from .repeated_lines import REPEATED, REPEATED_LINES
from .scatter import SCATTERED, Row, is_too_short


@dataclass(frozen=True, kw_only=True)
class Cleaned(Deduplicated):
    """The record of a unit: what stays, and what is removed beyond duplicates; `left_out` are too
    short.
    """

    counters: CounterRecord


def plan_clean(num_bytes: int, layout: Layout) -> list[Unit[KeyRange]]:
    """Return a unit for each partition of the documents, of `num_bytes` together."""
    number = layout.num_document_partitions
    ranges = (KeyRange(name=_name(part), start=part, stop=part + 1) for part in range(number))
    return [Unit(part.name, num_bytes // number, part) for part in ranges]


def _name(partition: int) -> str:
    return f"clean-{partition:05d}"


def read_clean(directory: StageDirectory, partitions: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield the cleaned documents of some partitions."""
    for partition in partitions:
        yield from read_partitions(
            directory.file(partitioned_file("clean-documents", _name(partition))), [0], 1
        )


def clean(
    directory: StageDirectory, unit: KeyRange, layout: Layout, config: IngestConfig
) -> Cleaned:
    """Write the documents of a partition without repeated lines; those that deduplication removes
    stay, emptied.
    """
    num_partitions = layout.num_document_partitions
    left_out, repeated = (
        pa.Table.from_batches(
            read_phase(directory, phase, kind, unit.partitions, num_partitions), schema
        )
        for phase, kind, schema in (
            ("deduplicate", "left-out", LEFT_OUT),
            ("lines", "repeated", REPEATED),
        )
    )
    remover = LineRemover(repeated, layout, config)
    name = partitioned_file("clean-documents", unit.name)
    with write_partitions(directory, name, SCATTERED, 1) as writer:
        scattered = read_phase(directory, "scatter", "documents", unit.partitions, num_partitions)
        for stay, emptied in empty_left_out(scattered, left_out):
            rows = pa.Table.from_batches([*remover.remove(stay), emptied])
            writer.write(rows, np.zeros(rows.num_rows, np.int64))
    return Cleaned(
        files=(name,),
        counters=remover.counters.to_record(),
        documents=remover.num_documents,
        left_out=int(remover.bucket_documents.sum()),
        bucket_bytes=remover.bucket_bytes.tobytes(),
        bucket_documents=remover.bucket_documents.astype(np.uint32).tobytes(),
        lowest_validation_hashes=remover.lowest_validation_hashes,
    )


class LineRemover:
    """Removes the `REPEATED` lines of a partition from its documents, and counts what stays and
    what is removed.
    """

    def __init__(self, repeated: pa.Table, layout: Layout, config: IngestConfig) -> None:
        keys = document_keys(repeated)
        order = np.argsort(keys)
        self._keys = keys[order]
        self._spans = np.stack(
            [repeated[name].to_numpy()[order] for name in ("start", "stop")], axis=1
        )
        self._layout, self._config = layout, config
        self.counters = Counters()
        self.bucket_bytes, self.bucket_documents = np.zeros((2, layout.num_buckets + 1), np.int64)
        self.num_documents = 0
        self.lowest_validation_hashes: list[int] = []

    def remove(self, documents: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the documents without repeated lines as they are, and the others without those
        lines.
        """
        first, last = (
            np.searchsorted(self._keys, document_keys(documents), side)
            for side in ("left", "right")
        )
        has_lines = np.flatnonzero(last > first)
        rows = documents.take(pa.array(has_lines)).to_pylist()
        spans = [self._spans[first[index] : last[index]] for index in has_lines]
        changed = [row for row, own in zip(rows, spans, strict=True) if self._remove(row, own)]
        results = (
            documents.filter(pa.array(last == first)),
            pa.RecordBatch.from_pylist(changed, SCATTERED),
        )
        for batch in results:
            self.num_documents += batch.num_rows
            hashes = {*self.lowest_validation_hashes, *batch["validation_hash"].to_pylist()}
            self.lowest_validation_hashes = nsmallest(MIN_VALIDATION_DOCUMENTS, hashes)
        return results

    def _remove(self, row: Row, spans: np.ndarray) -> bool:
        """Remove the sentences of some lines from a document; return whether it stays."""
        kept, removed = cut_out(row["sentences"], {(start, stop) for start, stop in spans.tolist()})
        for line in removed:
            self.counters.leave_out_line(REPEATED_LINES, " ".join(line), row["doc_id"])
        bucket = self._layout.bucket_of(
            *(np.array([row[name]], np.uint64) for name in ("hash", "validation_hash"))
        )
        before, after = (
            len(" ".join(sentences).encode()) for sentences in (row["sentences"], kept)
        )
        row["sentences"] = kept
        stays = not is_too_short(kept, self._config)
        self.bucket_bytes[bucket] += before - after if stays else before
        self.bucket_documents[bucket] += not stays
        if not stays:
            self.counters.note("documents_too_short", row["doc_id"])
            self.counters.leave_out("documents_too_short", kept)
        return stays


def cut_out(
    sentences: Sequence[str], spans: Iterable[tuple[int, int]]
) -> tuple[list[str], list[list[str]]]:
    """Return the sentences outside the `spans`, which do not overlap, and those within each."""
    spans = sorted(spans)
    ends = [stop for _, stop in spans]
    kept = [
        sentence
        for end, (start, _) in zip([0, *ends], [*spans, (len(sentences), 0)], strict=True)
        for sentence in sentences[end:start]
    ]
    return kept, [list(sentences[start:stop]) for start, stop in spans]
