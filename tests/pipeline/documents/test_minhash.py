"""Signatures: what a 5-gram is, and that they tell how alike texts are; the oracle are sets."""

import random
import re

import numpy as np
import pytest
from clozeworks.pipeline.documents.minhash import (
    NUM_HASHES,
    choose_bands,
    estimate_similarity,
    hash_bands,
    hash_shingles,
    shorten,
    sign,
)
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(alphabet="abC dé.,'\n日本のكتab 1٣🙂", max_size=60)


def shingles(text: str) -> list[tuple[str, ...]]:
    """Return the 5-grams of a text by regular expressions, as an oracle."""
    words = re.findall(r"[日本の🙂]|[^\W_日本の]+", text.lower())
    length = min(5, len(words))
    return [tuple(words[i : i + length]) for i in range(len(words) - length + 1)] if words else []


@given(TEXTS, TEXTS)
def test_texts_have_the_5_grams_in_common_that_they_should(one: str, other: str):
    expected, found = (
        [shingles(text) for text in (one, other)],
        [hash_shingles(text) for text in (one, other)],
    )
    assert [len(each) for each in expected] == [len(each) for each in found]
    seen: dict = dict(zip(expected[0], found[0].tolist(), strict=True))
    for shingle, value in zip(expected[1], found[1].tolist(), strict=True):
        assert seen.setdefault(shingle, value) == value
    assert len(set(seen.values())) == len(seen)


def test_a_long_text_has_the_5_grams_of_its_words():
    words = [f"w{random.Random(i).randrange(5000)}" for i in range(40_000)]
    text = " ".join(words)
    assert len(text) > 3 << 16
    lost = set(hash_shingles(" ".join(words[100:200])).tolist()) - set(hash_shingles(text).tolist())
    assert not lost
    assert (
        abs(len(hash_shingles(text)) - (len(words) - 4)) <= 3
    )  # a word may be cut at the end of a chunk


def test_the_same_number_on_every_machine():
    # Pinned: these hashes decide which documents stay, so that a change of them is a change of the
    # output.
    assert hash_shingles("One two three four five").tolist() == [4613908656301011756]


@pytest.mark.parametrize("overlap", [0.0, 0.4, 0.8, 0.95])
@pytest.mark.parametrize("size", [40, 2000])
def test_the_similarity_is_estimated_without_bias(overlap: float, size: int):
    rng = np.random.default_rng(7)
    estimates = []
    num_common = round(2 * size * overlap / (1 + overlap))
    for _ in range(120):
        values = rng.integers(0, 2**64, 2 * size - num_common, dtype=np.uint64)
        pair = shorten(np.stack([sign(values[:size]), sign(values[size - num_common :])]))
        estimates.append(estimate_similarity(pair[:1], pair[1:])[0])
    true = num_common / (2 * size - num_common)
    error = max(np.sqrt(true * (1 - true) / NUM_HASHES), 0.006)
    assert np.mean(estimates) == pytest.approx(true, abs=4 * error / np.sqrt(120))
    assert np.std(estimates) < 1.3 * error


def test_a_signature_takes_no_notice_of_order_and_repetition():
    values = np.random.default_rng(0).integers(0, 2**64, 30_000, dtype=np.uint64)
    assert (sign(np.concatenate([values[::-1], values])) == sign(values)).all()


@given(st.floats(0.3, 1))
def test_bands_find_what_is_at_the_threshold(share: float):
    num_bands, length = choose_bands(share)
    assert num_bands * length <= NUM_HASHES
    assert 1 - (1 - share**length) ** num_bands >= 0.95


def test_bands_agree_where_their_hashes_do():
    signatures = np.random.default_rng(0).integers(0, 2**32, (2, NUM_HASHES), dtype=np.uint32)
    signatures[1, 7:14] = signatures[0, 7:14]
    signatures[1, 21:28] = signatures[0, 0:7]  # at another offset this is no match
    bands = hash_bands(signatures, 18, 7)
    assert np.flatnonzero(bands[0] == bands[1]).tolist() == [1]
    assert len(np.unique(bands)) == 35
