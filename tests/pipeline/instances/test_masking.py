"""Masks: the exact count, never a special token, whole words, 80/10/10."""

from typing import Any, cast

import numpy as np
import pytest
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.instances.masking import mask_rows, num_to_mask, positions_in
from clozeworks.pipeline.seeding import rng_for
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

VOCAB_SIZE, CLS, SEP, MASK = 1000, 2, 3, 4
WORDS = [f"w{i}" if i < 700 else f"##p{i}" for i in range(10, VOCAB_SIZE)]
VOCABULARY = Vocabulary(
    (*SPECIAL_TOKENS, *(f"[unused{i}]" for i in range(5)), *WORDS), Normalization(True, True)
)
ORDINARY = np.arange(10, VOCAB_SIZE)


class Rows:
    """Random rows with segments of the given lengths (B of 0 tokens: none), in the flat layout."""

    def __init__(self, segment_lengths: list[tuple[int, int]], seed: int = 0) -> None:
        rng = rng_for(seed, "rows")
        rows = []
        for a, b in segment_lengths:
            text = rng.integers(10, VOCAB_SIZE, a + b).astype(np.uint16)
            second = [*text[a:], SEP] if b else []
            rows.append(np.array([CLS, *text[:a], SEP, *second], np.uint16))
        self.ids = np.concatenate(rows)
        self.offsets = np.append(0, np.cumsum([len(row) for row in rows]))
        self.segment_b_start = np.array([a + 2 for a, _ in segment_lengths])
        self.lengths = np.diff(self.offsets)
        self.special = np.isin(self.ids, [CLS, SEP])

    def mask(
        self,
        masking: str = "token",
        split: tuple[int, int, int] = (80, 10, 10),
        mask_rate: float = 0.15,
        max_length: int = 128,
        seed: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids with masks, and where tokens were chosen."""
        config = BuildConfig(
            masking=cast(Any, masking), mask_split=split, mask_rate=mask_rate, max_length=max_length
        )
        ids = self.ids.copy()
        rng = rng_for(seed, "masks")
        chosen, originals = mask_rows(
            ids, self.offsets, self.segment_b_start, VOCABULARY, config, rng
        )
        np.testing.assert_array_equal(originals, self.ids[chosen])
        rest = np.setdiff1d(np.arange(len(ids)), chosen)
        np.testing.assert_array_equal(ids[rest], self.ids[rest])
        return ids, chosen

    def choose(self, masking: str, **options: Any) -> np.ndarray:
        return self.mask(masking, **options)[1]

    def counts(self, chosen: np.ndarray) -> np.ndarray:
        """Return how many tokens of each row were chosen."""
        return np.diff(positions_in(self.offsets, chosen)[1])

    def words(self) -> np.ndarray:
        """Number the words of all rows token by token; special tokens end a word."""
        after_special = np.append(True, self.special[:-1])
        return np.cumsum(~VOCABULARY.continues[self.ids] | after_special | self.special)


def many_rows(num_rows: int, seed: int = 0) -> Rows:
    rng = rng_for(seed, "lengths")
    return Rows(
        [(int(rng.integers(1, 63)), int(rng.integers(0, 63))) for _ in range(num_rows)], seed
    )


MASKINGS = ["token", "whole-word"]
SEGMENTS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=20)


@pytest.mark.slow
@settings(max_examples=100)
@given(SEGMENTS, st.sampled_from(MASKINGS), st.sampled_from([0.01, 0.15, 0.4]), st.integers(0, 9))
def test_positions_keep_the_rules_on_any_rows(segments, masking, mask_rate, seed):
    rows = Rows(segments, seed)
    chosen = rows.choose(masking, mask_rate=mask_rate, seed=seed)
    wanted = [max(1, round(mask_rate * length)) for length in rows.lengths]
    assert not rows.special[chosen].any()
    assert (np.diff(chosen) > 0).all()
    counts = rows.counts(chosen)
    row = np.searchsorted(rows.offsets, chosen, side="right") - 1
    np.testing.assert_array_equal(np.bincount(row, minlength=len(segments)), counts)
    assert (counts >= 1).all()
    if masking == "token":
        np.testing.assert_array_equal(counts, wanted)
        return
    words = rows.words()
    is_chosen = np.zeros(len(rows.ids), bool)
    is_chosen[chosen] = True
    for word in np.unique(words[chosen]):
        assert is_chosen[words == word].all()
    # More than asked for only where not even the shortest word fits, and then that word alone.
    for index in np.flatnonzero(counts > wanted):
        tokens = slice(*rows.offsets[index : index + 2])
        own = words[tokens][~rows.special[tokens]]
        assert counts[index] == np.unique(own, return_counts=True)[1].min()


def test_no_cap_but_the_rate():
    lengths = np.array([3, 10, 30, 128, 512])
    np.testing.assert_array_equal(num_to_mask(lengths, 0.15, 512), [1, 2, 4, 19, 77])
    np.testing.assert_array_equal(num_to_mask(lengths, 0.4, 512), [1, 4, 12, 51, 205])


@pytest.mark.slow
@pytest.mark.parametrize("masking", MASKINGS)
def test_positions_are_uniform_over_the_row(masking):
    rows = Rows([(30, 31)] * 20_000)
    positions, _ = positions_in(rows.offsets, rows.choose(masking))
    times = np.bincount(positions, minlength=64)
    assert times[[0, 31, 63]].tolist() == [0, 0, 0]
    text = np.delete(times, [0, 31, 63])
    assert np.abs(text / text.mean() - 1).max() < (0.1 if masking == "token" else 0.15)


def test_whole_words_use_almost_all_of_the_budget():
    rows = many_rows(2000)
    chosen = rows.choose("whole-word")
    assert len(chosen) >= 0.97 * num_to_mask(rows.lengths, 0.15, 128).sum()


@pytest.mark.parametrize(
    ("split", "masks", "kept"),
    [((80, 10, 10), 0.8, 0.1), ((100, 0, 0), 1, 0), ((0, 100, 0), 0, 0), ((0, 0, 100), 0, 1)],
)
def test_mask_split(split: tuple[int, int, int], masks: float, kept: float):
    rows = many_rows(5000)
    ids, chosen = rows.mask(split=split)
    is_mask = ids[chosen] == MASK
    is_kept = ids[chosen] == rows.ids[chosen]
    assert np.mean(is_mask) == pytest.approx(masks, abs=0.01)
    assert np.mean(is_kept) == pytest.approx(kept, abs=0.01)
    assert np.isin(ids[chosen][~is_mask & ~is_kept], ORDINARY).all()


@pytest.mark.slow
def test_random_replacements_are_uniform_over_ordinary_tokens():
    rows = many_rows(20_000)
    ids, chosen = rows.mask(split=(0, 100, 0))
    times = np.bincount(ids[chosen], minlength=VOCAB_SIZE)
    assert (times[:10] == 0).all()
    expected = len(chosen) / len(ORDINARY)
    chi_square = ((times[10:] - expected) ** 2 / expected).sum()
    assert abs(chi_square - len(ORDINARY)) < 5 * np.sqrt(2 * len(ORDINARY))


@pytest.mark.parametrize("masking", MASKINGS)
def test_another_generator_chooses_others(masking):
    rows = many_rows(200)
    one, other = rows.choose(masking, seed=0), rows.choose(masking, seed=1)
    assert np.isin(one, other).mean() < 0.4
    np.testing.assert_array_equal(one, rows.choose(masking, seed=0))


def test_rows_longer_than_a_low_bit_count_of_32_bit_keys():
    rows = Rows([(10_000, 5_000)] * 2)
    chosen = rows.choose("token", max_length=20_000)
    assert rows.counts(chosen).tolist() == [2250, 2250]
    assert positions_in(rows.offsets, chosen)[0].max() > 14_000
