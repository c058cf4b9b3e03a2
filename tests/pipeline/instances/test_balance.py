"""Balanced labels and the exchange, against brute force and on awkward mixtures of documents."""

import numpy as np
import pytest
from clozeworks.pipeline.instances.balance import (
    balanced_labels,
    exchange,
    match_across_documents,
    match_neighbours,
    match_to_fit,
    nearest_distinct,
)
from clozeworks.pipeline.seeding import rng_for
from hypothesis import given, settings
from hypothesis import strategies as st

DOCUMENTS = st.lists(st.integers(0, 4), min_size=0, max_size=60).map(
    lambda items: np.array(items, np.int64)
)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=80), st.integers(0, 3))
def test_labels_are_balanced_as_far_as_free_pairs_allow(pairs, seed):
    lengths = np.array([length for length, _ in pairs], np.int64)
    free = np.array([is_free for _, is_free in pairs], bool)
    not_next = balanced_labels(lengths, free, rng_for(seed, "labels"))
    assert not_next[~free].all()
    num_is_next = np.count_nonzero(~not_next)
    half = {len(pairs) // 2, (len(pairs) + 1) // 2}
    assert num_is_next in half or (num_is_next == free.sum() and num_is_next < min(half))


def test_labels_balance_at_every_length():
    rng = rng_for(0, "lengths")
    lengths = rng.integers(5, 126, 20_000)
    free = rng.random(20_000) > 0.3 * (lengths < 60)
    not_next = balanced_labels(lengths, free, rng)
    share = np.bincount(lengths, not_next)[5:] / np.bincount(lengths)[5:]
    assert np.abs(share - 0.5).max() < 0.02


def test_labels_of_equal_lengths_are_random():
    first = np.mean(
        [balanced_labels(np.full(4, 9), np.ones(4, bool), rng_for(s, "x"))[0] for s in range(400)]
    )
    assert abs(first - 0.5) < 0.1


@given(DOCUMENTS)
def test_neighbours_are_matched_across_documents_only(document):
    left, right, rest = match_neighbours(np.arange(len(document)), document)
    assert (document[left] != document[right]).all()
    assert sorted([*left, *right, *rest]) == list(range(len(document)))


@given(DOCUMENTS, st.integers(0, 3), st.integers(0, 20))
def test_what_is_matched_to_fit_fits_and_is_not_more_than_asked(document, seed, most):
    lengths = rng_for(seed, "lengths").integers(1, 41, len(document))
    long, short = np.flatnonzero(lengths > 20), np.flatnonzero(lengths <= 20)
    left, right, rest = match_to_fit(long, short, document, lengths, 40, most)
    assert (document[left] != document[right]).all()
    assert (lengths[left] + lengths[right] <= 40).all()
    assert len(set(left)) == len(left) <= most
    assert set(left) <= set(long)
    assert sorted([*right, *rest]) == list(short)


def test_most_of_what_can_be_matched_to_fit_is():
    lengths, document = np.array([30] * 50 + [8] * 50), np.arange(100) % 5
    left, _, rest = match_to_fit(np.arange(50), np.arange(50, 100), document, lengths, 40, 50)
    assert len(left) >= 45
    assert len(rest) == 50 - len(left)


@given(DOCUMENTS, st.integers(0, 3))
def test_matching_across_documents_is_maximal(document, seed):
    left, right, rest = match_across_documents(
        np.arange(len(document)), document, np.ones(len(document)), rng_for(seed, "match")
    )
    assert (document[left] != document[right]).all()
    assert sorted([*left, *right, *rest]) == list(range(len(document)))
    most = int(np.bincount(document).max(initial=0))
    assert len(left) == min(len(document) // 2, len(document) - most)


@pytest.mark.slow
@given(st.lists(st.integers(0, 30), max_size=20), st.lists(st.integers(0, 30), max_size=20))
def test_nearest_distinct_gives_each_its_own(wanted, more):
    wanted, offered = (
        np.sort(np.array(wanted, np.int64)),
        np.sort(np.array(wanted + more, np.int64)),
    )
    index = nearest_distinct(wanted, offered)
    assert len(set(index.tolist())) == len(wanted)
    assert ((index >= 0) & (index < max(len(offered), 1))).all()


@pytest.mark.slow
@settings(max_examples=200)
@given(DOCUMENTS, st.integers(0, 5))
def test_exchange_only_permutes_and_only_across_documents(document, seed):
    rng = rng_for(seed, "exchange")
    lengths, not_next = rng.integers(1, 60, len(document)), rng.random(len(document)) < 0.5
    source, realised, unexchanged = exchange(lengths, document, not_next, rng)
    assert sorted(source.tolist()) == list(range(len(document)))
    np.testing.assert_array_equal(document[source] != document, realised)
    np.testing.assert_array_equal(source == np.arange(len(document)), ~realised)
    assert realised.sum() >= not_next.sum() - 2 * unexchanged
    # An odd one out may make a pair more.
    assert realised.sum() <= not_next.sum() + 1


@pytest.mark.parametrize("share", [0.02, 0.4, 0.6])
def test_exchanged_bs_are_of_nearly_equal_length(share):
    rng = rng_for(1, "exchange")
    document = np.where(rng.random(20_000) < share, 0, rng.integers(1, 500, 20_000))
    lengths = rng.integers(5, 120, 20_000)
    source, realised, unexchanged = exchange(lengths, document, rng.random(20_000) < 0.5, rng)
    assert unexchanged == 0
    assert abs(realised.mean() - 0.5) < 0.01
    assert np.abs(lengths[source] - lengths).mean() < (0.1 if share < 0.5 else 1.5)
