"""Arithmetic on ragged arrays gives what a loop over lists gives."""

from itertools import chain

import numpy as np
import pyarrow as pa
from clozeworks.pipeline import ragged
from hypothesis import given
from hypothesis import strategies as st

LISTS = st.lists(st.lists(st.integers(0, 1000), max_size=5), max_size=8)


def lengths_of(lists: list[list[int]]) -> np.ndarray:
    return np.array([len(items) for items in lists], np.int64)


def flat(lists: list[list[int]]) -> np.ndarray:
    return np.array(list(chain.from_iterable(lists)), np.int64)


@given(LISTS)
def test_values_know_their_list_and_their_place_in_it(lists: list[list[int]]):
    lengths = lengths_of(lists)
    expected = [(i, j) for i, items in enumerate(lists) for j in range(len(items))]
    owners = ragged.owners(lengths).tolist()
    places = ragged.places(lengths).tolist()
    assert list(zip(owners, places, strict=True)) == expected


@given(LISTS, st.randoms())
def test_lists_are_chosen_in_any_order(lists: list[list[int]], random):
    chosen = [random.randrange(len(lists)) for _ in lists]
    offsets = ragged.offsets_of(lengths_of(lists))
    indices = ragged.indices_of(offsets, np.array(chosen, np.int64))
    assert flat(lists)[indices].tolist() == flat([lists[i] for i in chosen]).tolist()


@given(LISTS)
def test_empty_lists_sum_to_nothing(lists: list[list[int]]):
    offsets = ragged.offsets_of(lengths_of(lists))
    assert ragged.sums(flat(lists), offsets).tolist() == [sum(items) for items in lists]


@given(LISTS, st.integers(0, 8), st.integers(0, 8))
def test_a_slice_of_a_column_has_its_own_offsets(lists: list[list[int]], start: int, length: int):
    column = pa.array(lists, pa.list_(pa.int64())).slice(min(start, len(lists)), length)
    values = column.flatten().to_numpy()
    offsets = ragged.offsets_in(column)
    cut = np.split(values, offsets[1:-1])[: len(column)]
    assert [items.tolist() for items in cut] == column.to_pylist()


def test_rounding_up_is_exact_for_large_integers():
    assert ragged.divide_up(2**60 + 1, 2**30) == 2**30 + 1
    assert ragged.divide_up(np.array([9, 10, 0]), 5).tolist() == [2, 2, 0]
