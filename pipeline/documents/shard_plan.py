"""Plan the shards of ingest and the documents in each, by the sizes that earlier phases counted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from ..counters import Counters, count_of, name_counts
from ..errors import UserError
from ..execution.job import Unit
from ..execution.temporary import range_of
from ..manifests import Split
from ..storage.shards import shard_name
from .duplicates import DUPLICATE, NEAR_DUPLICATE, Deduplicated
from .layout import (
    ENOUGH_DOCUMENTS,
    MIN_DOCUMENTS,
    Candidate,
    HashLayout,
    borders,
    check_shard_size,
    cut_shards,
    cut_validation,
    group_by_partition,
    num_held_out,
    partitions_between,
)
from .scatter import OTHER_LANGUAGES, Scattered

NO_SHARD = -1
MOST_TEXT_BYTES = (1 << 31) - 1
"""Limit of a shard: Arrow's offsets of a column of strings have 32 bits."""
LEFT_OUT_AS = (
    "rows_without_text",
    "rows_without_prose",
    "empty_pages",
    "redirects",
    "disambiguation_pages",
    "other_namespaces",
    "other_models",
    "documents_too_short",
    OTHER_LANGUAGES,
    DUPLICATE,
    NEAR_DUPLICATE,
)
"""The counters of rows and pages that are no documents, and of documents that are not selected."""


@dataclass(frozen=True, kw_only=True)
class ShardRun:
    """Neighbouring shards of a split, which one unit writes.

    Shard ``first + i`` of `count` holds hashes from ``edges[i]`` up to ``edges[i + 1]`` (their
    upper 32 bits). Documents whose validation hash is below `validation_below` are the validation
    split, the others are for training.
    """

    split: Split
    first: int
    count: int
    edges: list[int]
    validation_below: int

    def names(self) -> list[str]:
        """Return the names of the shards."""
        numbers = range(self.first, self.first + len(self.edges) - 1)
        return [shard_name(self.split, number, self.count) for number in numbers]

    def partitions(self, layout: HashLayout) -> list[int]:
        """Return the partitions of `SCATTERED` that hold the documents."""
        # A file has first the partitions of the validation documents: V0 V1 T0 T1 T2 T3.
        num_held_out = layout.num_validation_partitions
        validation = partitions_between(self.edges[0], self.edges[-1], num_held_out)
        in_training = partitions_between(self.edges[0], self.edges[-1], layout.num_partitions)
        training = [num_held_out + partition for partition in in_training]
        if self.split == "train":
            return training
        if self.validation_below > layout.validation_below:
            # In a small corpus the share asked for may hold too few documents; the next ones are
            # among the others.
            return [*validation, *training]
        return list(validation)

    def shard_of(self, rows: pa.RecordBatch | pa.Table) -> np.ndarray:
        """Return for each row the index of its shard, `NO_SHARD` if it belongs to none of these."""
        #   edges             20          40          60
        #   upper bits    19  20  21  39  40  41  59  60
        #   index         -1   0   0   0   1   1   1   2      2 belongs to the next unit
        #   shard         -1   0   0   0   1   1   1  -1      -1 is NO_SHARD already
        num_shards = len(self.edges) - 1
        edges = np.array(self.edges, np.uint64)
        upper_bits = rows["hash"].to_numpy() >> np.uint64(32)
        shard_index = np.searchsorted(edges, upper_bits, side="right") - 1
        shard_index[shard_index == num_shards] = NO_SHARD

        validation_hashes = rows["validation_hash"].to_numpy()
        is_validation = validation_hashes < np.uint64(self.validation_below)
        is_of_other_split = is_validation != (self.split == "validation")
        shard_index[is_of_other_split] = NO_SHARD
        return shard_index


def plan_shards(
    scattered: Sequence[Scattered],
    deduplicated: Sequence[Deduplicated],
    num_shards: int | None,
    layout: HashLayout,
) -> list[Unit]:
    """Cut the hashes into `num_shards`, or by size; raise `UserError` for too few or too large."""
    num_documents = sum(record.documents for record in deduplicated)
    if num_documents < MIN_DOCUMENTS + 2:
        raise UserError(_too_few(scattered, deduplicated))
    bucket_bytes = _remaining(scattered, deduplicated, "bucket_bytes", np.int64)
    bucket_documents = _remaining(scattered, deduplicated, "bucket_documents", np.uint32)
    validation_below = layout.validation_below
    # The first bucket holds what the share asked for holds out.
    for candidate in _also_held_out(deduplicated, num_documents, bucket_documents[0], layout):
        validation_below = candidate.validation_hash + 1
        # It is not below the layout's, so that its hash alone says the bucket.
        hashes = np.array([candidate.hash], np.uint64)
        [bucket] = 1 + range_of(hashes, layout.num_buckets)
        bucket_bytes[bucket] = max(bucket_bytes[bucket] - candidate.num_bytes, 0)
        bucket_bytes[0] += candidate.num_bytes
        bucket_documents[bucket] = max(bucket_documents[bucket] - 1, 0)
    validation_bytes, *train_bytes = bucket_bytes
    if num_shards is None:
        train_edges = cut_shards(train_bytes, bucket_documents[1:], layout.num_partitions)
    else:
        if max(train_bytes) > MOST_TEXT_BYTES:
            raise UserError(
                f"A train shard would hold {max(train_bytes):,} bytes of text, more than "
                f"{MOST_TEXT_BYTES:,}: raise `shards`."
            )
        # With `shards`, each of the buckets but the first is a shard.
        check_shard_size("train", min(bucket_documents[1:]), num_shards)
        train_edges = borders(range(num_shards + 1), num_shards)
    train_units = _plan_split(
        "train", train_edges, sum(train_bytes), layout.num_partitions, validation_below
    )
    validation_units = _plan_split(
        "validation",
        cut_validation(validation_bytes),
        validation_bytes,
        layout.num_validation_partitions,
        validation_below,
    )
    return [*train_units, *validation_units]


def _also_held_out(
    deduplicated: Sequence[Deduplicated], num_documents: int, num_asked: int, layout: HashLayout
) -> list[Candidate]:
    """Return the documents to hold out beyond those of the layout, by their validation hashes."""
    # Each unit lists its lowest, so that the lowest of all are among them. A document whose
    # versions differ is listed by several units.
    candidates = chain.from_iterable(record.candidates for record in deduplicated)
    by_hash = {candidate.validation_hash: candidate for candidate in candidates}
    lowest = [by_hash[validation_hash] for validation_hash in sorted(by_hash)]
    if len(deduplicated) > 1:
        lowest = lowest[:ENOUGH_DOCUMENTS]  # after these, documents may be missing
    held_out = lowest[: num_held_out(lowest, num_documents, num_asked)]
    return [
        candidate for candidate in held_out if candidate.validation_hash >= layout.validation_below
    ]


def _plan_split(
    split: Split, edges: list[int], num_bytes: int, num_partitions: int, validation_below: int
) -> list[Unit]:
    units = []
    for numbers in group_by_partition(edges, num_partitions):
        shards = ShardRun(
            split=split,
            first=numbers[0],
            count=len(edges) - 1,
            edges=edges[numbers[0] : numbers[-1] + 2],
            validation_below=validation_below,
        )
        share_of_hashes = shards.edges[-1] - shards.edges[0]  # of 2**32
        cost = num_bytes * share_of_hashes >> 32
        units.append(Unit(shards.names()[0], cost, shards))
    return units


def _remaining(
    scattered: Sequence[Scattered], deduplicated: Sequence[Deduplicated], field: str, dtype: type
) -> list[int]:
    """Return what is left per bucket after deduplication, of counts that records hold as bytes."""
    total = np.int64(0)
    for sign, records in ((1, scattered), (-1, deduplicated)):
        # One at a time: 15,000 records of 4,097 counts would be 1 GB at once.
        for record in records:
            counts = np.frombuffer(getattr(record, field), dtype)
            total = total + sign * counts.astype(np.int64)
    # A document that occurs in two sources under one id can be subtracted twice.
    return np.maximum(total, 0).tolist()


def _too_few(scattered: Sequence[Scattered], deduplicated: Sequence[Deduplicated]) -> str:
    """Say that there are too few documents, and why the others were left out."""
    num_documents = sum(record.documents for record in deduplicated)
    total = Counters()
    for record in scattered:
        total.add(record.counters)
    for record in deduplicated:
        total.counts.update(record.left_out)
    reasons = total.bad + Counter({name: total.counts[name] for name in LEFT_OUT_AS})
    message = (
        f"The sources hold {count_of(num_documents, 'document')}; "
        f"at least {MIN_DOCUMENTS + 2} different ones are needed"
    )
    if reasons:
        message += f", and these were left out: {name_counts(reasons)}"
    return (
        f"{message}. If each line or paragraph is a document, give `documents` line or blank-line; "
        "to keep short documents, lower `min_characters`."
    )
