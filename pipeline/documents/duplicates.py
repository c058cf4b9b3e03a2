"""The phase of ingest that decides which documents are removed.

Of all documents with the same text, the one with the lowest hash stays, whatever its source. For
each document `Scatter` writes a small row, its *key*, by the hash of the text. A unit reads the
keys of a range of text hashes from all files, so all copies of a text meet. It lists the documents
to remove by the documents' hash, for `Gather` to skip.

Memory: up to 450 bytes per key of a unit, which has half a million keys (below 64 million
documents).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..arrow import SetLookupOptions, call_function, sort_order, take
from ..execution.job import Job, Phase, Record, Unit
from ..ragged import begins_run
from .layout import ENOUGH_DOCUMENTS, MAX_CANDIDATES, Candidate, plan_keys
from .phase_tables import KEYS, LEFT_OUT, NEAR_DUPLICATES
from .scatter import Scatter

DUPLICATE = "duplicate_texts"
NEAR_DUPLICATE = "near_duplicates"
DOCUMENTS_PER_UNIT = 500_000


@dataclass(frozen=True, kw_only=True)
class Deduplicated(Record):
    """The record of a unit: counts of the documents that stay and of those removed."""

    documents: int
    left_out: dict[str, int]
    """Documents removed, by reason."""
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
    payload_type = tuple[int, int]
    record_type = Deduplicated

    def plan(self, job: Job) -> Sequence[Unit]:
        num_documents = self.scatter.num_documents(job)
        return plan_keys("texts", num_documents, DOCUMENTS_PER_UNIT, job.setup.layout)

    def do(self, job: Job, unit: Unit) -> Deduplicated:
        layout = job.setup.layout
        partitions = range(*unit.payload)
        keys = pa.Table.from_batches(KEYS.read(job, partitions), KEYS.schema)
        near_duplicates = []
        if self.scatter.config.near_duplicates is not None:
            near_duplicates.extend(NEAR_DUPLICATES.read(job, partitions))
        documents = decide(keys, pa.Table.from_batches(near_duplicates, NEAR_DUPLICATES.schema))
        stays = call_function("is_null", [documents["kept"]]).to_numpy()
        staying = take(documents, np.flatnonzero(stays))
        removed = take(documents, np.flatnonzero(~stays))
        with LEFT_OUT.write(job, unit.name) as writer:
            writer.write(removed.select(LEFT_OUT.schema.names))

        buckets = layout.bucket_of(removed)
        num_counts = layout.num_buckets + 1
        removed_bytes = removed["num_bytes"].to_numpy()
        bucket_bytes = np.bincount(buckets, weights=removed_bytes, minlength=num_counts)
        bucket_documents = np.bincount(buckets, minlength=num_counts)
        # With several units there are enough documents for the requested share, so each lists only
        # the minimum.
        is_only_unit = len(partitions) == layout.num_key_partitions
        num_candidates = MAX_CANDIDATES if is_only_unit else ENOUGH_DOCUMENTS
        # Versions of a document under one id share their hashes: each counts once.
        _, rows = np.unique(staying["validation_hash"].to_numpy(), return_index=True)
        lowest = take(staying, rows[:num_candidates])
        candidates = lowest.select(Candidate._fields).to_pylist()
        return Deduplicated(
            documents=staying.num_rows,
            left_out=Counter(removed["reason"].to_pylist()),
            bucket_bytes=bucket_bytes.astype(np.int64).tobytes(),
            bucket_documents=bucket_documents.astype(np.uint32).tobytes(),
            candidates=[Candidate(**candidate) for candidate in candidates],
        )


def decide(keys: pa.Table, near_duplicates: pa.Table) -> pa.Table:
    """Return the distinct `keys` with two more columns: ``kept``, the document that stays instead,
    null for documents that stay themselves, and the ``reason``.

    `near_duplicates` lists texts to remove as well, and the document kept instead. A document that
    occurs twice with the same id and text counts once: it is not a duplicate but a repeated id,
    which `Gather` handles. If that drops the kept document in favour of another text with the same
    id, no copy of its own stays.
    """
    #   text  a  a  a  b  c  c        keys by text, then hash; c is nearly another text
    #   hash  1  4  7  2  3  8
    #         *        *  *           first of its text
    #            x  x     n  x        removed: x as a duplicate, n as a near-duplicate
    keys = take(keys, sort_order(keys, "text_hash", "text_hash_low", "hash", "doc_id"))
    columns = [keys[name].to_numpy() for name in ("text_hash", "text_hash_low", "hash")]
    is_distinct = begins_run(*columns)
    keys = take(keys, np.flatnonzero(is_distinct))
    high, low, _ = columns
    is_first = begins_run(high[is_distinct], low[is_distinct])
    #   is_first        1  0  0  1  1  0
    #   row if first    0  0  0  3  4  0        the running maximum  0  0  0  3  4  4
    rows = np.arange(len(is_first))
    row_if_first = np.where(is_first, rows, 0)
    row_of_first = np.maximum.accumulate(row_if_first)
    first_ids = take(keys["doc_id"], row_of_first)
    # The first of a text stands for it among the near-duplicates; its copies are duplicates anyway.
    options = SetLookupOptions(near_duplicates["text_hash"])
    row_in_near = call_function("index_in", [keys["text_hash"]], options)
    similar_ids = call_function("take", [near_duplicates["kept"], row_in_near])
    kept = call_function("if_else", [pa.array(is_first), similar_ids, first_ids])
    reasons = np.where(is_first, NEAR_DUPLICATE, DUPLICATE)
    keys = keys.append_column("reason", pa.array(reasons))
    return keys.append_column("kept", kept)
