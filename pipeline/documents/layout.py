"""Cut the range of the documents' hashes into partitions, buckets and shards.

A document has a hash, by which it is shuffled, and a validation hash, by which it is held out.
Temporary files are cut into *partitions*, equal ranges of the hash: first for the validation
documents, then for the others. Shards are cut at the finer borders of *buckets*, so that they come
out equal. Borders are the upper 32 bits of a hash::

    hash         0                                                  2**64
    partitions   |       0       |       1       |       2       |  3   ...  what a reader can skip
    buckets      | | | | | | | | | | | | | | | | | | | | | | | | | | | |     where text is counted
    shards       |          0          |          1        |      2          what ingest writes
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..config import IngestConfig
from ..counters import CounterRecord, count_of
from ..errors import UserError
from ..execution.job import Unit
from ..execution.temporary import range_of
from ..manifests import Split
from ..ragged import divide_up, offsets_of

SHARD_TEXT_BYTES = 64 << 20
"""Text of a shard, at most, unless `shards` is given."""
NUM_BUCKETS = 4096
PARTITION_INPUT_BYTES = 16 << 20
MIN_PARTITIONS, MAX_PARTITIONS, MAX_KEY_PARTITIONS = 4, 512, 1024
# Who opens a file reads the index of all its partitions: from here on, more of them would cost more
# than they save.
HUGE_INPUT_BYTES, HUGE_PARTITIONS = 32 << 30, 256
BORDER_BITS = 32


@dataclass(frozen=True, kw_only=True)
class HashLayout:
    """The partitions and buckets of one run."""

    num_buckets: int
    """Equal ranges of the hash over which text is counted."""
    num_partitions: int
    """Equal ranges of the hashes of training documents."""
    num_validation_partitions: int
    """The same for validation documents, which come first in a file."""
    validation_below: int
    """Documents with a validation hash below are held out."""

    @property
    def num_document_partitions(self) -> int:
        """Partitions in a file of documents."""
        return self.num_validation_partitions + self.num_partitions

    @property
    def num_key_partitions(self) -> int:
        """Partitions in a file of small rows: keys of documents, or bands of their signatures."""
        return min(4 * self.num_partitions, MAX_KEY_PARTITIONS)

    def bucket_of(self, rows: pa.Table) -> np.ndarray:
        """Return 0 for each document that is held out, else 1 + its bucket."""
        hashes, is_held_out = self._hashes(rows)
        return np.where(is_held_out, 0, 1 + range_of(hashes, self.num_buckets))

    def partition_of(self, rows: pa.Table) -> np.ndarray:
        """Return the partition of each document."""
        hashes, is_held_out = self._hashes(rows)
        held_out = range_of(hashes, self.num_validation_partitions)
        others = self.num_validation_partitions + range_of(hashes, self.num_partitions)
        return np.where(is_held_out, held_out, others)

    def _hashes(self, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        is_held_out = rows["validation_hash"].to_numpy() < np.uint64(self.validation_below)
        return rows["hash"].to_numpy(), is_held_out


def choose_layout(input_bytes: int, config: IngestConfig) -> HashLayout:
    """Return the layout for sources of this size; a partition may hold several shards."""
    most_partitions = HUGE_PARTITIONS if input_bytes > HUGE_INPUT_BYTES else MAX_PARTITIONS
    wanted = max(input_bytes // PARTITION_INPUT_BYTES + 1, config.shards or 1)
    # A power of two, because `cut_shards` deals out 2**12 buckets evenly among the partitions.
    num_partitions = 1 << (wanted - 1).bit_length()
    num_partitions = min(max(num_partitions, MIN_PARTITIONS), most_partitions)
    return HashLayout(
        num_buckets=config.shards or NUM_BUCKETS,
        num_partitions=num_partitions,
        num_validation_partitions=max(1, round(config.validation_share * num_partitions)),
        validation_below=int(config.validation_share * 2**64),
    )


@dataclass(frozen=True, kw_only=True)
class IngestSetup:
    """Facts about the inputs that all phases of ingest need."""

    layout: HashLayout
    left_out: CounterRecord
    """Counts files that are not read."""
    bad_inputs: list[str] = field(default_factory=list)
    """`Counters.listed` of these files."""


def plan_keys(kind: str, num_rows: int, rows_per_unit: int, layout: HashLayout) -> list[Unit]:
    """Return the units that read all small rows of one kind, each a range of partitions."""
    num_units = min(num_rows // rows_per_unit + 1, layout.num_key_partitions)
    # A unit reads whole partitions; hashes are uniform, so each has about the same number of rows.
    starts = [layout.num_key_partitions * index // num_units for index in range(num_units + 1)]
    rows_of_partition = num_rows / layout.num_key_partitions
    return [
        Unit(f"{kind}-{number:05d}", int(rows_of_partition * (stop - start)), (start, stop))
        for number, (start, stop) in enumerate(pairwise(starts))
    ]


def check_shard_size(split: Split, num_documents: int, num_shards: int | None) -> None:
    """Raise `UserError` if a shard would hold too few documents for a pair from two of them."""
    if num_documents >= 2:
        return
    advice = "lower `shards`"
    if num_shards is None:
        advice = "of documents with the same id only one stays"
        if split == "train":
            advice += "; a lower `validation_share` holds out fewer"
    raise UserError(f"A {split} shard would hold {count_of(num_documents, 'document')}: {advice}.")


def cut_shards(
    bucket_bytes: Sequence[int], bucket_documents: Sequence[int], num_partitions: int
) -> list[int]:
    """Return the borders of the training shards, from 0 to 2**32: neighbouring buckets of at most
    `SHARD_TEXT_BYTES`, as equal as the buckets allow.

    A document of that size still shares its shard with a second one, as pairs need two. If there
    are more shards than partitions, none crosses the border of a partition, so that a partition is
    read only once.
    """
    sizes = np.asarray(bucket_bytes)
    starts = merge_buckets(sizes)
    if len(starts) <= num_partitions:
        documents_before = offsets_of(bucket_documents)
        with_two_each = [0]
        for start in starts[1:]:
            in_this_shard = documents_before[start] - documents_before[with_two_each[-1]]
            in_later_shards = documents_before[-1] - documents_before[start]
            if in_this_shard >= 2 and in_later_shards >= 2:
                with_two_each.append(start)
        return borders([*with_two_each, len(sizes)], len(sizes))
    # The buckets of a huge corpus may be too large for equal shards. They are cut further, without
    # counting again: the many documents of a bucket lie evenly in its range, as hashes do.
    #   bytes of buckets   40          8           with 2 ranges for each bucket
    #   bytes of ranges    20    20    4     4
    most_range_bytes = SHARD_TEXT_BYTES // 8
    ranges_per_bucket = divide_up(int(sizes.max()), most_range_bytes)
    range_sizes = np.repeat(sizes / ranges_per_bucket, ranges_per_bucket)
    num_ranges = len(range_sizes)
    starts = [
        partition * num_ranges // num_partitions + start
        for partition, sizes in enumerate(np.split(range_sizes, num_partitions))
        for start in merge_buckets(sizes)
    ]
    return borders([*starts, num_ranges], num_ranges)


def merge_buckets(sizes: np.ndarray) -> list[int]:
    """Return the first index of each run of neighbours, the runs as equal as they can be.

    The buckets are laid end to end and cut into equal shares; the last byte of a bucket decides to
    which share it goes.
    """
    #   sizes        3      2    4        2          11 bytes for 3 shards: 3.7 bytes for each
    #   bytes        0 1 2  3 4  5 6 7 8  9 10
    #   shares       0 0 0  0 1  1 1 1 2  2 2
    #   shards       0      1    2        2          they begin at the buckets 0, 1 and 2
    num_bytes = sizes.sum()
    # A shard gets less than a bucket more than its share: with this room it stays in bounds.
    room = max(SHARD_TEXT_BYTES - sizes.max(), SHARD_TEXT_BYTES // 2)
    num_shards = int(divide_up(num_bytes, room))
    num_shards = max(1, num_shards)
    share = max(num_bytes / num_shards, 1)
    last_bytes = np.cumsum(sizes) - 1
    # Empty buckets at the start have no last byte: they join the first that is not empty.
    last_bytes = np.maximum(last_bytes, 0)
    # Rounding may put the last byte of all past the last share.
    shard_of_bucket = np.minimum(last_bytes // share, num_shards - 1)
    is_last_of_shard = np.diff(shard_of_bucket) > 0
    later_starts = np.flatnonzero(is_last_of_shard) + 1
    return [0, *later_starts.tolist()]


def cut_validation(num_bytes: int) -> list[int]:
    """Return the borders of the validation shards: equal ranges of hashes."""
    num_shards = 1
    if num_bytes > SHARD_TEXT_BYTES:
        # An eighth of room, as equal ranges of hashes hold only about the same text.
        num_shards = divide_up(num_bytes, SHARD_TEXT_BYTES * 7 // 8)
    return borders(range(num_shards + 1), num_shards)


def borders(starts: Sequence[int], num_ranges: int) -> list[int]:
    """Return where `num_ranges` equal ranges start: the upper 32 bits of the first hash."""
    return [divide_up(start << BORDER_BITS, num_ranges) for start in starts]


def group_by_partition(edges: Sequence[int], num_partitions: int) -> Iterator[list[int]]:
    """Yield the numbers of the shards that begin in one partition; shard i begins at ``edges[i]``.

    >>> list(group_by_partition([0, 1 << 30, 3 << 29, 1 << 32], 4))
    [[0], [1, 2]]
    """
    starts = enumerate(edges[:-1])
    for _, shards in groupby(starts, lambda shard: _partition(shard[1], num_partitions)):
        yield [number for number, _ in shards]


def _partition(edge: int, num_partitions: int) -> int:
    return edge * num_partitions >> BORDER_BITS


def partitions_between(start: int, stop: int, num_partitions: int) -> range:
    """Return the partitions that hashes from border `start` up to border `stop` lie in."""
    return range(_partition(start, num_partitions), _partition(stop - 1, num_partitions) + 1)


# `IngestConfig.validation_share` is enough in a large corpus. In a small one it is two or three
# documents, and one of them may have most of the text: a figure measured on them says nothing. So
# more are held out until they are enough, but at most a tenth. With articles of 3 kB::
#
#     documents      100   200   500   2,000   10,000   40,000
#     held out        10    20    50     167      167      200
#     share          10%   10%   10%      8%     1.7%     0.5%
#
# Documents are held out in the order of their validation hashes, which are random: a corpus that
# grows keeps its order, and what is held out does not depend on texts or sources.
ENOUGH_DOCUMENTS = 20
MIN_DOCUMENTS = 2
"""Next-sentence pairs need two."""

MAX_CANDIDATES = 4096
"""Documents that may be held out beyond `validation_share`: more than are enough if all are
documents of the default `min_characters`.
"""


class Candidate(NamedTuple):
    """A document that may be held out. Versions under one id count as one, as only one is kept."""

    validation_hash: int
    hash: int
    num_bytes: int


def num_held_out(candidates: Sequence[Candidate], num_documents: int, num_asked: int) -> int:
    """Return how many of the `candidates`, ordered by their validation hash, are held out: at least
    `num_asked`, or `MIN_DOCUMENTS`, of `num_documents` in all.

    >>> short = [Candidate(i, i, num_bytes=2_000) for i in range(100)]
    >>> num_held_out(short, num_documents=100, num_asked=1)
    10
    """
    most = max(int(0.1 * num_documents), MIN_DOCUMENTS)
    num_bytes = 0
    longest = 0
    for number, candidate in enumerate(candidates):
        is_enough = (
            number >= ENOUGH_DOCUMENTS
            and num_bytes >= 500_000  # about 1,000 rows of 128 tokens in English
            and longest <= 0.25 * num_bytes
        )
        if number >= max(num_asked, MIN_DOCUMENTS) and (is_enough or number >= most):
            return number
        num_bytes += candidate.num_bytes
        longest = max(longest, candidate.num_bytes)
    return max(len(candidates), num_asked)
