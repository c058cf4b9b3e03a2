"""Each string must have a number of its own, whatever the fingerprints are."""

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.pipeline.vocabulary import numbering
from clozeworks.pipeline.vocabulary.numbering import Numbering, fingerprints_of
from hypothesis import given
from hypothesis import strategies as st

strings = st.text("a\0é中\U0001f600", max_size=4)


def assert_numbered(batches: list[list[str]]) -> Numbering:
    seen = Numbering()
    for batch in batches:
        num_before = len(seen.strings)
        known = set(seen.strings.to_pylist())
        numbers = seen.number(pa.array(batch, pa.string()))
        assert numbers.dtype == np.int32
        assert seen.strings.take(pa.array(numbers)).to_pylist() == batch
        for string, number in zip(batch, numbers.tolist(), strict=True):
            assert string not in known or number < num_before
    return seen


@given(batches=st.lists(st.lists(strings, max_size=8), max_size=4))
def test_a_string_keeps_its_number(batches):
    assert_numbered(batches)


def test_numbers_start_after_the_empty_string():
    seen = assert_numbered([["b"], ["", "a", "b"]])
    assert seen.strings.to_pylist() == ["", "b", "a"]


def test_equal_fingerprints_only_cost_time(monkeypatch):
    monkeypatch.setattr(numbering, "fingerprints_of", lambda strings: np.zeros(len(strings), int))
    seen = Numbering()
    for batch in (["a", "b"], ["b", "a", ""]):
        numbers = seen.number(pa.array(batch))
        assert seen.strings.take(pa.array(numbers)).to_pylist() == batch


@pytest.mark.parametrize("texts", [["ab", "", "ba", "ab"], ["", ""], []])
def test_a_fingerprint_depends_on_the_string_alone(texts):
    alone = [fingerprints_of(pa.array([text])).item() for text in texts]
    assert fingerprints_of(pa.array(texts, pa.string())).tolist() == alone
    assert len(set(alone)) == len(set(texts))
