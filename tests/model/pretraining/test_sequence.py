"""The order of rows: each once an epoch, on any number of ranks, from any position; masks anew."""

import pickle
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from clozeworks.model.pretraining import data
from clozeworks.model.pretraining.sequence import Masks, RowSequence
from clozeworks.model.training.ranks import Ranks
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.instances.masking import num_to_mask
from clozeworks.pipeline.instances.rows import Rows, between, concatenate, select
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.instances_fixture import CLS, MASK, SEP, as_lists, write_instances


@pytest.fixture(scope="module")
def instances(tmp_path_factory) -> Path:
    return write_instances(
        tmp_path_factory.mktemp("instances"), shards=3, duplicates=2, rows_per_group=10
    )


small = partial(RowSequence, block_rows=25, masked_together=8)


@pytest.fixture
def sequence(instances) -> RowSequence:
    return small(data.open_instances(str(instances)), seed=7)


def stored_rows(instances: Path) -> list[tuple]:
    rows = []
    for path in sorted(instances.glob("train-*.parquet")):
        for row in pq.read_table(path).to_pylist():
            ids = row["input_ids"]
            for position, token in zip(
                row["masked_lm_positions"], row["masked_lm_ids"], strict=True
            ):
                ids[position] = token
            scalars = (row["next_sentence_label"], row["segment_b_start"])
            rows.append((*ids, -1, *row["masked_lm_positions"], -1, *scalars))
    return rows


def test_each_row_comes_once_an_epoch_in_an_order_of_its_own(instances, sequence):
    expected, num_rows = sorted(stored_rows(instances)), sequence.directory.num_rows
    assert num_rows == len(expected) == 66
    epochs = [
        as_lists(sequence.rows(epoch * num_rows, (epoch + 1) * num_rows)) for epoch in range(3)
    ]
    for epoch in epochs:
        assert sorted(epoch) == expected
    assert epochs[0] != epochs[1] != epochs[2]
    other = small(sequence.directory, seed=8)
    assert as_lists(other.rows(0, num_rows)) != epochs[0]


@pytest.mark.slow
@settings(max_examples=30)
@given(start=st.integers(0, 500), length=st.integers(1, 90), seed=st.integers(0, 3))
def test_any_stretch_is_a_slice_of_the_one_sequence(tmp_path_factory, start, length, seed):
    path = tmp_path_factory.getbasetemp() / "stretch"
    if not path.exists():
        write_instances(path, shards=2, rows_per_group=9)
    directory = data.open_instances(str(path))
    one_by_one, at_once = (small(directory, seed) for _ in range(2))
    singles = [as_lists(one_by_one.rows(p, p + 1))[0] for p in range(start, start + length)]
    assert as_lists(at_once.rows(start, start + length)) == singles


@pytest.fixture
def read(monkeypatch):
    """The row groups that are read."""
    groups = []
    original = data.read_group
    monkeypatch.setattr(
        "clozeworks.model.pretraining.sequence.read_group",
        lambda directory, group: groups.append(group) or original(directory, group),
    )
    return groups


def test_a_row_group_is_read_once_for_all_batches_of_its_block(sequence, read):
    for start in range(0, 66, 5):
        sequence.rows(start, min(start + 5, 66))
    assert len(set(read[:6])) == 6
    assert len(read) <= 12  # the next epoch's block is read ahead


def test_a_sequence_in_use_is_pickled_and_forked(sequence):
    first, wanted = as_lists(sequence.rows(0, 5)), as_lists(sequence.rows(5, 300))
    copied = pickle.loads(pickle.dumps(sequence))
    assert as_lists(copied.rows(0, 5)) == first
    copied._process_id = 0  # as in a fork
    assert as_lists(copied.rows(5, 300)) == wanted


def test_locate_names_the_shard_and_row_of_a_position(instances, sequence):
    for position in (0, 30, 65, 66, 200):
        shard, _, row = sequence.locate(position).partition(" row ")
        table = pq.read_table(instances / shard).slice(int(row), 1).to_pylist()[0]
        found = sequence.rows(position, position + 1)
        assert table["input_ids"] == found.input_ids.tolist()


@pytest.mark.slow
@given(
    first=st.integers(0, 300), batch_size=st.integers(1, 40), num_ranks=st.sampled_from([1, 2, 3])
)
@settings(max_examples=20)
def test_resume_on_other_ranks_keeps_the_order(tmp_path_factory, first, batch_size, num_ranks):
    path = tmp_path_factory.getbasetemp() / "ranks"
    if not path.exists():
        write_instances(path, shards=2, rows_per_group=9)
    sequence = small(data.open_instances(str(path)), 5, masks=make_masks(path))
    whole = sequence.rows(first, first + batch_size)
    on_ranks: list[Rows] = []
    for rank in range(num_ranks):
        part = Ranks(rank, num_ranks, torch.device("cpu")).rows(batch_size)
        its_sequence = small(sequence.directory, 5, masks=sequence.masks)
        rows = its_sequence.rows(first, first + batch_size)
        on_ranks.append(between(rows, part.start, part.stop))
    joined = concatenate(on_ranks)
    assert as_lists(joined) == as_lists(whole)
    assert joined.input_ids.tolist() == whole.input_ids.tolist()


@pytest.mark.parametrize("position", [0, 40, 66_000_017])
def test_any_position_is_reached_by_reading_its_own_block(instances, read, position):
    sequence = small(data.open_instances(str(instances)), seed=7)
    sequence.rows(position, position + 1)
    assert len(read) <= 2 * sequence.groups_per_block  # its own block, and the next one ahead


def make_masks(path: Path, **changes: Any) -> Masks:
    config = BuildConfig(**{"mask_rate": 0.3, "max_length": 24} | changes)
    return Masks(read_vocabulary(str(path)), config)


def test_a_rate_that_falls_is_that_of_the_position(instances):
    directory = data.open_instances(str(instances))
    steady = make_masks(instances)
    # The run has 132 rows, of which the first half lies before this sequence.
    masks = replace(steady, rates=(0.3, 0.2), share_per_row=1 / 66)
    rows = small(directory, 7, masks=masks).rows(0, 66)
    # Each row has its own rate, although several are masked together.
    shares = 0.5 + np.arange(66) / 132
    wanted = num_to_mask(rows.lengths, 0.4 - 0.2 * shares, 24)
    assert rows.num_masked.tolist() == np.minimum(wanted, rows.lengths - 3).tolist()
    rates = masks.rates_at(np.array([0, 66, 1000]))
    assert rates == pytest.approx([0.3, 0.2, 0.2])
    # Wherever reading begins, as after a kill.
    tail = small(directory, 7, masks=masks).rows(30, 66)
    assert tail.input_ids.tolist() == select(rows, np.arange(30, 66)).input_ids.tolist()


@pytest.mark.parametrize("masking", ["token", "whole-word"])
def test_masks_are_drawn_anew_in_each_epoch_and_as_exactly_as_in_a_build(instances, masking):
    directory = data.open_instances(str(instances))
    masks = make_masks(instances, masking=masking)
    fresh, stored = small(directory, 7, masks=masks), small(directory, 7)
    for epoch in range(3):
        rows = fresh.rows(66 * epoch, 66 * (epoch + 1))
        same = stored.rows(66 * epoch, 66 * (epoch + 1))
        assert rows.unmasked_ids().tolist() == same.unmasked_ids().tolist()
        assert rows.next_sentence_label.tolist() == same.next_sentence_label.tolist()
        assert not np.isin(rows.masked_ids, [CLS, SEP]).any()
        wanted = num_to_mask(rows.lengths, 0.3, 24)
        # No piece of this vocabulary continues a word, so that whole words fill the number to the
        # last.
        maskable = rows.lengths - 3
        assert rows.num_masked.tolist() == np.minimum(wanted, maskable).tolist()
        changed = rows.input_ids != rows.unmasked_ids()
        assert (rows.input_ids[changed] >= MASK).all()
        again = small(directory, 7, masks=masks).rows(66 * epoch + 13, 66 * epoch + 50)
        assert again.input_ids.tolist() == select(rows, np.arange(13, 50)).input_ids.tolist()
    assert as_lists(fresh.rows(0, 66)) != as_lists(small(directory, 8, masks=masks).rows(0, 66))
    epochs = [sorted(as_lists(fresh.rows(66 * epoch, 66 * (epoch + 1)))) for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_split_of_new_masks_is_the_one_asked_for(instances):
    masks = make_masks(instances, mask_split=(0, 100, 0), mask_rate=0.4)
    rows = small(data.open_instances(str(instances)), 7, masks=masks).rows(0, 3000)
    at_masks = rows.input_ids[np.repeat(rows.offsets[:-1], rows.num_masked) + rows.masked_positions]
    times = Counter(at_masks.tolist())
    # Random tokens are ordinary ones, each as likely: no special token, and none that dominates.
    assert min(times) == MASK + 1 and max(times) == 59 and len(times) == 55
    mean = len(at_masks) / 55
    assert all(abs(number - mean) < 6 * mean**0.5 for number in times.values())
