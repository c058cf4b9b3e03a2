"""Reading instances: what is wrong with a directory or a shard is named."""

import os
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.model.pretraining import data
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.manifests import InstancesTokenizer
from msgspec import structs

from tests.fixtures.instances_fixture import replace_shard, write_instances


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match=r"is empty: give a directory written by `clozeworks"):
        data.open_instances(str(tmp_path))
    path = write_instances(tmp_path / "cut")
    with pytest.raises(UserError, match="has no split test, only train and validation"):
        data.open_instances(str(path), "test")
    shard = path / "train-00001-of-00002.parquet"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"train-00001-of-00002.parquet does not have the size"):
        data.open_instances(str(path))
    shard.write_bytes(bytes(len(content)))
    with pytest.raises(UserError, match=r"train-00001-of-00002.parquet is damaged .*; rebuild the"):
        data.open_instances(str(path))
    shard.unlink()
    with pytest.raises(UserError, match="is missing"):
        data.open_instances(str(path))
    path = write_instances(tmp_path / "narrow")
    directory = data.open_instances(str(path))
    manifest = structs.replace(
        directory.manifest, tokenizer=InstancesTokenizer(fingerprint="t", size=20)
    )
    wrong = replace(directory, manifest=manifest)
    with pytest.raises(UserError, match=r"contains token \d+, but its vocabulary has 20 tokens"):
        data.read_group(wrong, directory.row_groups[0])


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("next_sentence_label", lambda label: 2, "contains a next-sentence label other than 0 and"),
        ("next_sentence_label", lambda label: None, "next_sentence_label: a value is missing"),
        ("next_sentence_label", lambda label: -1, "next_sentence_label: .* -1 not in range"),
        ("next_sentence_label", lambda label: label / 2, "next_sentence_label: .* 0.5.* was trunc"),
        ("next_sentence_label", lambda label: "no", "next_sentence_label: .*'no'"),
        ("input_ids", lambda ids: [-5, *ids[1:]], "input_ids: .* -5 not in range"),
        ("input_ids", lambda ids: [None, *ids[1:]], "input_ids: a value is missing"),
        ("input_ids", lambda ids: ids[:2], "shorter than .CLS. and .SEP. around a token"),
        ("segment_b_start", lambda start: 900, "segment_b_start: a value lies outside of its row"),
        ("segment_b_start", lambda start: 0, "segment_b_start: a value lies outside of its row"),
        ("masked_lm_positions", lambda places: [900, *places[1:]], "beyond the end of its row"),
        ("masked_lm_positions", lambda places: [places[0]] * len(places), "do not ascend"),
        ("masked_lm_ids", lambda ids: ids[:-1], "masked_lm_ids have different lengths; rebuild"),
    ],
)
def test_values_that_cannot_be_are_named(tmp_path, name, change, message):
    path = write_instances(tmp_path, shards=1)
    shard = path / "train-00000-of-00001.parquet"
    table = pq.read_table(shard)
    values = pa.array([change(value) for value in table[name].to_pylist()])
    replace_shard(shard, table.set_column(table.schema.get_field_index(name), name, values))
    directory = data.open_instances(str(path))
    with pytest.raises(UserError, match=message) as raised:
        data.read_group(directory, directory.row_groups[0])
    assert "\n" not in str(raised.value)


def test_a_shard_that_is_written_anew_during_a_run_is_named(tmp_path):
    # Of the same size and rows: only the file is another one.
    path = write_instances(tmp_path)
    directory = data.open_instances(str(path))
    group = directory.row_groups[0]
    shard = path / group.shard
    data.read_group(directory, group)
    content = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(content)
    with pytest.raises(RunError, match=f"{group.shard} has been written anew since the run began"):
        data.read_group(directory, group)


def test_a_shard_damaged_or_deleted_during_a_run_is_named(tmp_path):
    path = write_instances(tmp_path, rows_per_group=400)
    directory = data.open_instances(str(path))
    shard = path / directory.row_groups[-1].shard
    content = bytearray(shard.read_bytes())
    quarter = len(content) // 4
    content[quarter : 3 * quarter] = bytes(2 * quarter)
    status = shard.stat()
    shard.write_bytes(content)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))  # a disk's error changes no time
    with pytest.raises(UserError, match=r"train-00001-of-00002.parquet cannot be read at row 401 "):
        data.read_group(directory, directory.row_groups[-1])
    shard.unlink()
    with pytest.raises(UserError, match=r"train-00001-of-00002.parquet has disappeared"):
        data.read_group(directory, directory.row_groups[-1])
