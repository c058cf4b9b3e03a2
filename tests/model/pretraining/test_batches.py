"""Batches contain what the rows contain, with little padding."""

import pytest
import torch
from clozeworks.model.pretraining.batches import make_batches
from clozeworks.model.pretraining.data import open_instances
from clozeworks.model.pretraining.sequence import RowSequence

from tests.fixtures.instances_fixture import CLS, as_lists, write_instances


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    return write_instances(
        tmp_path_factory.mktemp("instances"), shards=3, duplicates=2, rows_per_group=10
    )


@pytest.fixture
def sequence(instances):
    return RowSequence(open_instances(str(instances)), seed=7)


def test_batches_hold_what_the_rows_hold(sequence):
    rows = sequence.rows(0, 50)
    batches = make_batches(rows, 16)
    assert [len(batch.input_ids) for batch in batches] == [16, 16, 16, 2]
    seen = []
    for batch in batches:
        ids, mask, nsp = (
            batch.input_ids.clone(),
            batch.attention_mask_BL,
            batch.next_sentence_label_B,
        )
        assert mask is not None and nsp is not None
        torch.testing.assert_close(batch.token_index_T, mask.reshape(-1).nonzero().squeeze(1))
        assert (ids[:, 0] == CLS).all()
        assert not ids[~mask].any()
        assert not batch.token_type_ids[~mask].any()
        width, flat = ids.shape[1], batch.masked_index
        ids.view(-1)[flat] = batch.masked_ids
        for row in range(len(ids)):
            mine = flat // width == row
            positions = (flat[mine] % width).tolist()
            start = int((batch.token_type_ids[row] == 0)[mask[row]].sum())
            label = int(nsp[row])
            seen.append((*ids[row][mask[row]].tolist(), -1, *positions, -1, label, start))
    assert sorted(seen) == sorted(as_lists(rows))


def test_left_to_right_predicts_each_token_from_those_before(sequence):
    rows = sequence.rows(0, 6)
    (batch,) = make_batches(rows, 6, "ltr")
    flat = batch.input_ids.reshape(-1)
    torch.testing.assert_close(flat[batch.masked_index + 1], batch.masked_ids)
    assert len(batch.masked_ids) == rows.lengths.sum() - 6
    assert sorted(flat[batch.token_index_T].tolist()) == sorted(rows.unmasked_ids().tolist())


def test_rows_are_padded_to_a_multiple_of_8_on_a_gpu(sequence):
    for batch in make_batches(sequence.rows(0, 40), 10, for_gpu=True):
        assert batch.input_ids.shape[1] % 8 == 0
