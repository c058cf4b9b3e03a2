"""Rows by hash: every one is found again, in its partition, whatever the parts."""

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.pipeline.execution.partitions import (
    cut_evenly,
    range_of,
    read_partitions,
    write_partitions,
)
from clozeworks.pipeline.storage.stage import StageDirectory
from hypothesis import given
from hypothesis import strategies as st

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=40)
SCHEMA = pa.schema([("hash", pa.uint64()), ("words", pa.list_(pa.string()))])


@given(HASHES, st.integers(1, 5000))
def test_ranges_are_equal_parts_of_all_hashes(hashes: list[int], number: int):
    expected = [(value >> 32) * number >> 32 for value in hashes]
    assert range_of(np.array(hashes, np.uint64), number).tolist() == expected
    assert all(0 <= each < number for each in expected)


@given(st.integers(0, 50), st.integers(1, 60))
def test_a_length_is_cut_evenly(length: int, number: int):
    pieces = cut_evenly(length, number)
    assert [i for piece in pieces for i in piece] == list(range(length))
    assert len(pieces) == min(length, number)
    assert max(map(len, pieces), default=0) - min(map(len, pieces), default=0) <= 1


@pytest.mark.parametrize("part_rows", [1, 7, 100])
def test_rows_come_back_from_their_partitions_in_order(tmp_path, part_rows: int):
    rng = np.random.default_rng(part_rows)
    hashes = rng.integers(0, 2**64, 100, dtype=np.uint64)
    rows = [{"hash": int(value), "words": [str(i)] * (i % 3)} for i, value in enumerate(hashes)]
    with write_partitions(StageDirectory(str(tmp_path), "f"), "file", SCHEMA, 8) as writer:
        for start in range(0, 100, part_rows):
            part = pa.Table.from_pylist(rows[start : start + part_rows], SCHEMA)
            writer.write(part, range_of(part["hash"].to_numpy(), 8))
        writer.write(SCHEMA.empty_table(), np.empty(0, np.int64))
    found = [
        row
        for batch in read_partitions(str(tmp_path / "file"), [2, 5], 8)
        for row in batch.to_pylist()
    ]
    expected = [row for row in rows if range_of(np.array([row["hash"]], np.uint64), 8)[0] in (2, 5)]
    assert sorted(found, key=str) == sorted(expected, key=str)
    in_partition = [row for row in found if range_of(np.array([row["hash"]], np.uint64), 8)[0] == 2]
    assert in_partition == [row for row in expected if row in in_partition]
