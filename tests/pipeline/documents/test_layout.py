"""Which hashes make which shard: every hash one, shards of equal size, partitions read once."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.documents.layout import (
    ENOUGH_DOCUMENTS,
    SHARD_TEXT_BYTES,
    Candidate,
    HashLayout,
    borders,
    choose_layout,
    cut_shards,
    cut_validation,
    group_by_partition,
    num_held_out,
    partitions_between,
)
from clozeworks.pipeline.execution.temporary import range_of
from hypothesis import given
from hypothesis import strategies as st

TOP = 1 << 32


def test_validation_documents_have_partitions_of_their_own():
    layout = HashLayout(
        num_buckets=10, num_partitions=4, num_validation_partitions=1, validation_below=100
    )
    rows = pa.table(
        {
            "hash": np.array([0, 2**63, 2**63], np.uint64),
            "validation_hash": np.array([100, 99, 2**64 - 1], np.uint64),
        }
    )
    assert layout.partition_of(rows).tolist() == [1, 0, 3]
    assert layout.bucket_of(rows).tolist() == [1, 0, 6]


@given(st.integers(0, 2**64 - 1), st.integers(1, 5000))
def test_borders_are_those_of_the_ranges(value: int, number: int):
    edges = borders(range(number + 1), number)
    assert (edges[0], edges[-1]) == (0, TOP)
    [index] = range_of(np.array([value], np.uint64), number).tolist()
    assert edges[index] <= value >> 32 < edges[index + 1]


@given(st.lists(st.integers(0, SHARD_TEXT_BYTES // 8), min_size=1, max_size=200))
def test_shards_hold_at_most_64_mb_and_are_alike(bucket_bytes: list[int]):
    edges = cut_shards(bucket_bytes, [2] * len(bucket_bytes), 1024)
    starts = [edge * len(bucket_bytes) >> 32 for edge in edges]
    sizes = [sum(bucket_bytes[start:stop]) for start, stop in pairwise(starts)]
    assert sum(sizes) == sum(bucket_bytes) and max(sizes) <= SHARD_TEXT_BYTES
    assert max(sizes) - min(sizes) <= 2 * max(bucket_bytes)
    assert len(sizes) <= max(1, -(-sum(bucket_bytes) // (SHARD_TEXT_BYTES - max(bucket_bytes))))


@given(st.lists(st.sampled_from([0, 1, 3]), min_size=1, max_size=100), st.integers(0, 2**32))
def test_a_huge_document_shares_its_shard_with_another(bucket_documents: list[int], seed: int):
    sizes = (
        np.random.default_rng(seed).lognormal(15, 3, len(bucket_documents)).astype(int)
        * bucket_documents
    )
    edges = cut_shards(sizes.tolist(), bucket_documents, 1024)
    starts = [edge * len(sizes) >> 32 for edge in edges]
    assert (starts[0], starts[-1]) == (0, len(sizes))
    if sum(bucket_documents) >= 2:
        assert min(sum(bucket_documents[start:stop]) for start, stop in pairwise(starts)) >= 2


@pytest.mark.parametrize("bucket_mb", [20, 100, 2500])  # 80 GB, 400 GB, 10 TB
def test_shards_of_a_huge_corpus_stay_small_and_within_a_partition(bucket_mb: int):
    rng = np.random.default_rng(bucket_mb)
    bucket_bytes = rng.normal(bucket_mb * 1e6, bucket_mb * 1e4, 4096).astype(int).tolist()
    edges = cut_shards(bucket_bytes, [2] * 4096, 1024)
    assert edges == sorted(set(edges)) and (edges[0], edges[-1]) == (0, TOP)
    shares = np.diff(edges) / TOP * sum(bucket_bytes)
    assert shares.max() <= SHARD_TEXT_BYTES * 1.06 and shares.mean() >= SHARD_TEXT_BYTES * 0.55
    runs = list(group_by_partition(edges, 1024))
    assert [index for run in runs for index in run] == list(range(len(edges) - 1))
    assert len(runs) == 1024
    for run in runs:
        assert len(partitions_between(edges[run[0]], edges[run[-1] + 1], 1024)) == 1


def test_few_shards_are_units_of_their_own():
    edges = borders([0, 10, 20, 4096], 4096)
    assert [list(run) for run in group_by_partition(edges, 4096)] == [[0], [1], [2]]
    assert [list(run) for run in group_by_partition([0, TOP], 4)] == [[0]]


@given(st.integers(0, 10**12))
def test_validation_shards_stay_below_the_limit(num_bytes: int):
    edges = cut_validation(num_bytes)
    assert (edges[0], edges[-1]) == (0, TOP)
    assert num_bytes / (len(edges) - 1) <= SHARD_TEXT_BYTES


@given(st.integers(0, 10**14), st.integers(1, 3000) | st.none())
def test_a_layout_fits_any_size(input_bytes: int, shards: int | None):
    layout = choose_layout(input_bytes, IngestConfig(shards=shards))
    assert 4 <= layout.num_partitions <= 512 and 4096 % layout.num_partitions == 0
    assert layout.num_partitions >= min(shards or 1, 256)
    assert 1 <= layout.num_validation_partitions <= 6


# How many documents are held out: enough to judge by, at most a tenth of a small corpus.


def held_out(sizes: list[int], num_documents: int, num_asked: int) -> int:
    candidates = [Candidate(number, number, size) for number, size in enumerate(sizes)]
    return num_held_out(candidates, num_documents, num_asked)


@pytest.mark.parametrize(
    ("num_documents", "expected"),
    [(4, 2), (30, 3), (100, 10), (200, 20), (500, 50), (2000, 167), (10_000, 167), (40_000, 200)],
)
def test_the_share_falls_as_the_corpus_grows(num_documents: int, expected: int):
    articles = [3000] * min(num_documents, 4096)
    assert held_out(articles, num_documents, num_documents // 200) == expected


@pytest.mark.parametrize(
    ("sizes", "num_documents", "asked", "expected"),
    [
        ([3000] * 4096, 1_000_000, 5000, 5000),  # what a large corpus was asked for
        ([100_000] * 100, 100, 30, 30),  # a larger share than the rule needs
        ([100_000] * 100, 100, 60, 60),
        ([10_000_000, *[3000] * 999], 1000, 5, 100),  # a tenth, however long one is
        ([500_000] * 1000, 1000, 5, ENOUGH_DOCUMENTS),  # enough text, too few documents
    ],
)
def test_what_was_asked_for_and_a_tenth_are_bounds(sizes, num_documents, asked, expected):
    assert held_out(sizes, num_documents, asked) == expected


def test_one_long_document_calls_for_more_beside_it():
    # With the long one, a quarter is reached when the others have three times its text.
    sizes = [1_000_000, *[50_000] * 500]
    number = held_out(sizes, 5000, 25)
    assert sizes[0] <= sum(sizes[:number]) / 4
    assert sizes[0] > sum(sizes[: number - 1]) / 4
