"""The loader: every row once an epoch, the same order on any number of ranks, and exact batches."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from clozeworks.model import data
from clozeworks.pipeline.errors import UserError
from hypothesis import given, settings
from hypothesis import strategies as st
from instances_fixture import CLS, write_instances


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    return write_instances(tmp_path_factory.mktemp("instances"), shards=3, duplicates=2, rows_per_group=10)


@pytest.fixture
def sequence(instances, monkeypatch):
    monkeypatch.setattr(data, "BLOCK_ROWS", 25)
    return data.Sequence(data.open_instances(str(instances)), seed=7)


def as_lists(rows: data.Rows) -> list[tuple]:
    ids = np.split(rows.unmasked_ids(), rows.offsets[1:-1])
    masked = np.split(rows.masked_positions, rows.masked_offsets[1:-1])
    labels = rows.next_sentence_label.tolist()
    starts = rows.segment_b_start.tolist()
    return [(*i.tolist(), -1, *m.tolist(), -1, n, s) for i, m, n, s in zip(ids, masked, labels, starts, strict=True)]


def stored_rows(instances) -> list[tuple]:
    rows = []
    for path in sorted(instances.glob("train-*.parquet")):
        for row in pq.read_table(path).to_pylist():
            ids = row["input_ids"]
            for position, token in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
                ids[position] = token
            scalars = (row["next_sentence_label"], row["segment_b_start"])
            rows.append((*ids, -1, *row["masked_lm_positions"], -1, *scalars))
    return rows


def test_each_row_comes_once_an_epoch_in_an_order_of_its_own(instances, sequence):
    expected, num_rows = sorted(stored_rows(instances)), sequence.directory.num_rows
    assert num_rows == len(expected) == 66
    epochs = [as_lists(sequence.rows(epoch * num_rows, (epoch + 1) * num_rows)) for epoch in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == expected
    assert epochs[0] != epochs[1] != epochs[2]
    other = data.Sequence(sequence.directory, seed=8)
    assert as_lists(other.rows(0, num_rows)) != epochs[0]


@settings(max_examples=30, deadline=None)
@given(start=st.integers(0, 500), length=st.integers(1, 90), seed=st.integers(0, 3))
def test_any_stretch_is_a_slice_of_the_one_sequence(tmp_path_factory, start, length, seed):
    path = tmp_path_factory.getbasetemp() / "stretch"
    if not path.exists():
        write_instances(path, shards=2, rows_per_group=9)
    directory = data.open_instances(str(path))
    one_by_one, at_once = (data.Sequence(directory, seed) for _ in range(2))
    singles = [as_lists(one_by_one.rows(p, p + 1))[0] for p in range(start, start + length)]
    assert as_lists(at_once.rows(start, start + length)) == singles


def test_a_row_group_is_read_once_for_all_batches_of_its_block(sequence, monkeypatch):
    read = []
    original = data.read_group
    monkeypatch.setattr(data, "read_group", lambda directory, group: read.append(group) or original(directory, group))
    for start in range(0, 66, 5):
        sequence.rows(start, min(start + 5, 66))
    assert len(read) == len(set(read)) == 6


def test_locate_names_the_shard_and_row_of_a_position(instances, sequence):
    for position in (0, 30, 65, 66, 200):
        shard, _, row = sequence.locate(position).partition(" row ")
        table = pq.read_table(instances / shard).slice(int(row), 1).to_pylist()[0]
        found = sequence.rows(position, position + 1)
        assert table["input_ids"] == found.input_ids.tolist()


def test_batches_hold_what_the_rows_hold(sequence):
    rows = sequence.rows(0, 50)
    batches = data.make_batches(rows, 16)
    assert [len(batch.input_ids_BL) for batch in batches] == [16, 16, 16, 2]
    seen = []
    for batch in batches:
        ids, mask, nsp = batch.input_ids_BL.clone(), batch.attention_mask_BL, batch.next_sentence_label_B
        assert mask is not None and nsp is not None
        torch.testing.assert_close(batch.token_index_T, mask.reshape(-1).nonzero().squeeze(1))
        assert (ids[:, 0] == CLS).all()
        assert not ids[~mask].any()
        assert not batch.token_type_ids_BL[~mask].any()
        width, places = ids.shape[1], batch.masked_index_M
        ids.view(-1)[places] = batch.masked_ids_M
        for row in range(len(ids)):
            mine = places // width == row
            positions = (places[mine] % width).tolist()
            start = int((batch.token_type_ids_BL[row] == 0)[mask[row]].sum())
            label = int(nsp[row])
            seen.append((*ids[row][mask[row]].tolist(), -1, *positions, -1, label, start))
    assert sorted(seen) == sorted(as_lists(rows))


def test_left_to_right_predicts_each_token_from_those_before(sequence):
    rows = sequence.rows(0, 6)
    (batch,) = data.make_batches(rows, 6, "ltr")
    flat = batch.input_ids_BL.reshape(-1)
    torch.testing.assert_close(flat[batch.masked_index_M + 1], batch.masked_ids_M)
    assert len(batch.masked_ids_M) == rows.lengths.sum() - 6
    assert sorted(flat[batch.token_index_T].tolist()) == sorted(rows.unmasked_ids().tolist())


def test_padding_to_a_multiple(sequence):
    for batch in data.make_batches(sequence.rows(0, 40), 10, multiple=8):
        assert batch.input_ids_BL.shape[1] % 8 == 0


def test_prefetch_keeps_the_order_and_passes_errors_on():
    assert list(data.prefetch(lambda item: item * item, range(20))) == [item * item for item in range(20)]
    stream = data.prefetch(lambda item: 1 // (3 - item), range(9))
    assert [next(stream) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(stream)


def test_directories_of_other_stages_and_damaged_manifests_are_named(tmp_path):
    manifest = tmp_path / "manifest.json"
    manifest.write_text('{"stage": "ingest", "shards": [{"name": "train-00000-of-00001.parquet"}]}')
    with pytest.raises(UserError, match="holds what `clozeworks ingest` made, not instances"):
        data.open_instances(str(tmp_path))
    manifest.write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        data.open_instances(str(tmp_path))


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no manifest.json"):
        data.open_instances(str(tmp_path))
    path = write_instances(tmp_path / "cut")
    shard = path / "train-00001-of-00002.parquet"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"train-00001-of-00002.parquet is cut off"):
        data.open_instances(str(path))
    shard.unlink()
    with pytest.raises(UserError, match="is missing"):
        data.open_instances(str(path))
    with pytest.raises(UserError, match="no test rows"):
        data.open_instances(str(path), "test")
    path = write_instances(tmp_path / "narrow")
    directory = data.open_instances(str(path))
    wrong = replace(directory, vocab_size=20)
    with pytest.raises(UserError, match=r"holds token \d+, but its vocabulary has 20 tokens"):
        data.read_group(wrong, directory.row_groups[0])


def test_reads_any_fsspec_url(instances):
    local = data.Sequence(data.open_instances(str(instances)), seed=1)
    remote = data.Sequence(data.open_instances(f"file://{instances}"), seed=1)
    assert as_lists(local.rows(3, 30)) == as_lists(remote.rows(3, 30))
