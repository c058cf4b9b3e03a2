"""The loader: batches hold what the files hold, and what is wrong with the files is named."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from clozeworks.model.pretraining import data
from clozeworks.model.pretraining.sequence import Sequence
from clozeworks.pipeline.errors import UserError
from instances_fixture import CLS, as_lists, write_instances
from manifest_fixture import write_manifest


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    return write_instances(tmp_path_factory.mktemp("instances"), shards=3, duplicates=2, rows_per_group=10)


@pytest.fixture
def sequence(instances):
    return Sequence(data.open_instances(str(instances)), seed=7)


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


def test_directories_of_other_stages_and_damaged_manifests_are_named(tmp_path):
    manifest = tmp_path / "manifest.json"
    write_manifest(tmp_path, "ingest")
    with pytest.raises(UserError, match="was written by `clozeworks ingest`, not by `clozeworks build`"):
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


def test_parquet_of_others_under_our_manifest_is_named(tmp_path):
    path = write_instances(tmp_path)
    shard = path / "train-00000-of-00002.parquet"
    table = pq.read_table(shard)
    foreign = [table.drop_columns("masked_lm_ids"), table.replace_schema_metadata(), pa.table({"text": ["a b c"]})]
    for other in foreign:
        pq.write_table(other, shard)
        with pytest.raises(UserError, match=r"train-00000-of-00002.parquet is no shard that `clozeworks build` wrote"):
            data.open_instances(str(path))


def test_labels_that_are_none_are_named(tmp_path):
    path = write_instances(tmp_path, shards=1)
    shard = path / "train-00000-of-00001.parquet"
    table = pq.read_table(shard)
    place = table.schema.get_field_index("next_sentence_label")
    labels = pa.array([2] * len(table), pa.uint8())
    pq.write_table(table.set_column(place, table.schema.field(place), labels), shard)
    directory = data.open_instances(str(path))
    with pytest.raises(UserError, match="holds a next-sentence label other than 0 and 1"):
        data.read_group(directory, directory.row_groups[0])


def test_a_shard_that_is_cut_off_or_gone_in_mid_run_is_named(tmp_path):
    path = write_instances(tmp_path, rows_per_group=400)
    directory = data.open_instances(str(path))
    shard = path / directory.row_groups[-1].shard
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"train-00001-of-00002.parquet cannot be read at row 401; delete it"):
        data.read_group(directory, directory.row_groups[-1])
    shard.unlink()
    with pytest.raises(UserError, match=r"train-00001-of-00002.parquet has gone"):
        data.read_group(directory, directory.row_groups[-1])
