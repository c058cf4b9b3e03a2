"""Long texts that hold another."""

import numpy as np
import pytest
from clozeworks.pipeline.ingest.containment import find_contained, sample_shingles
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.sets(st.integers(0, 12), min_size=1), max_size=8), st.sampled_from([0.3, 0.5, 0.8, 1.0]))
def test_all_contained_samples_are_found(samples: list[set[int]], share: float):
    arrays = [np.array(sorted(sample), np.uint64) for sample in samples]
    expected = {}
    for i, one in enumerate(samples):
        for j, other in enumerate(samples[:i]):
            # The smaller is the one contained, the later one of two equal ones.
            contained, container = (i, j) if len(one) <= len(other) else (j, i)
            part = len(one & other) / min(len(one), len(other))
            if part >= share:
                expected[container, contained] = part
    found = {(container, contained): part for container, contained, part in find_contained(arrays, share)}
    assert found == pytest.approx(expected)


def test_what_everyone_has_tells_nothing():
    phrases, own = np.arange(50, dtype=np.uint64), np.arange(100, 150, dtype=np.uint64)
    samples = [np.concatenate([phrases, own + np.uint64(1000 * i)]) for i in range(20)]
    assert find_contained(samples, 0.3) == []
    assert len(find_contained(samples[:2], 0.3)) == 1


def test_a_sample_is_of_the_same_shingles_in_every_text():
    shingles = np.random.default_rng(0).integers(0, 2**64, 100_000, dtype=np.uint64)
    whole, half = sample_shingles(shingles), sample_shingles(shingles[:50_000])
    assert np.isin(half, whole).all()
    assert len(whole) == pytest.approx(100_000 / 128, rel=0.15)
