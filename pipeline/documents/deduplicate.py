"""The phase of ingest that decides which documents are removed; the rules are in `duplicates`.

For each document `Scatter` writes a small row, its *key*, by the hash of the text. A unit of this
phase reads the keys of a range of text hashes from all files, so all copies of a text meet. It
lists the documents to remove by the documents' hash, for `Gather` to skip.

Memory: up to 450 bytes per key of a unit, which has half a million keys (below 64 million
documents).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..execution.job import Job, Phase, Record, Unit
from .duplicates import decide
from .layout import ENOUGH_DOCUMENTS, MAX_CANDIDATES, Candidate, KeyRange, plan_keys
from .scatter import Scatter
from .tables import KEYS, LEFT_OUT, NEAR_DUPLICATES

DOCUMENTS_PER_UNIT = 500_000


@dataclass(frozen=True, kw_only=True)
class Deduplicated(Record):
    """The record of a unit: counts of the documents that stay and of those removed."""

    documents: int
    """Documents that stay."""
    left_out: int
    """Documents removed."""
    bucket_bytes: bytes
    """Bytes of text removed from each bucket, as in `Scattered`."""
    bucket_documents: bytes
    """Documents removed from each bucket, as in `Scattered`."""
    candidates: list[Candidate]
    """The documents that stay with the lowest validation hashes, ascending."""


@dataclass(frozen=True)
class Deduplicate(Phase):
    """List the documents to remove."""

    scatter: Scatter

    name = "deduplicate"
    payload_type = KeyRange
    record_type = Deduplicated

    def plan(self, job: Job) -> Sequence[Unit]:
        """Cut the keys into ranges of the texts' hashes."""
        num_documents = self.scatter.num_documents(job)
        return plan_keys("texts", num_documents, DOCUMENTS_PER_UNIT, job.setup.layout)

    def do(self, job: Job, unit: Unit) -> Deduplicated:
        """Decide on the texts of a range."""
        layout = job.setup.layout
        partitions = unit.payload.partitions
        keys = pa.Table.from_batches(KEYS.read(job, partitions), KEYS.schema)
        near_duplicates: list[pa.RecordBatch] = []
        if NEAR_DUPLICATES in self.reads:
            near_duplicates.extend(NEAR_DUPLICATES.read(job, partitions))
        decision = decide(keys, pa.Table.from_batches(near_duplicates, NEAR_DUPLICATES.schema))
        removed = decision.removed
        with LEFT_OUT.write(job, unit.name) as writer:
            writer.write(removed)

        buckets = layout.bucket_of(
            removed["hash"].to_numpy(), removed["validation_hash"].to_numpy()
        )
        num_counts = layout.num_buckets + 1
        bucket_bytes = np.bincount(buckets, weights=decision.removed_bytes, minlength=num_counts)
        bucket_documents = np.bincount(buckets, minlength=num_counts)
        # With several units there are enough documents for the requested share, so each lists only
        # the minimum.
        is_only_unit = len(partitions) == layout.num_key_partitions
        num_candidates = MAX_CANDIDATES if is_only_unit else ENOUGH_DOCUMENTS
        # Versions of a document under one id share their hashes: each counts once.
        _, rows = np.unique(decision.kept["validation_hash"].to_numpy(), return_index=True)
        lowest = decision.kept.take(pa.array(rows[:num_candidates]))
        columns = lowest.select(["validation_hash", "hash", "num_bytes"]).to_pydict()
        return Deduplicated(
            documents=decision.kept.num_rows,
            left_out=removed.num_rows,
            bucket_bytes=bucket_bytes.astype(np.int64).tobytes(),
            bucket_documents=bucket_documents.astype(np.uint32).tobytes(),
            candidates=[Candidate(*values) for values in zip(*columns.values(), strict=True)],
        )
