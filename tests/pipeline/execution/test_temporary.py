"""Rows by hash: every one is found again, in its partition, whatever the parts."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution import temporary
from clozeworks.pipeline.execution.job import Job, open_job
from clozeworks.pipeline.execution.temporary import TemporaryTable, range_of
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.number_stage import NumberStage

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=40)
SCHEMA = pa.schema([("hash", pa.uint64()), ("words", pa.list_(pa.string()))])


@given(HASHES, st.integers(1, 5000))
def test_ranges_are_equal_parts_of_all_hashes(hashes: list[int], number: int):
    expected = [(value >> 32) * number >> 32 for value in hashes]
    assert range_of(np.array(hashes, np.uint64), number).tolist() == expected
    assert all(0 <= each < number for each in expected)


TABLE = TemporaryTable(
    "words", "", SCHEMA, lambda setup: (8, lambda rows: range_of(rows["hash"].to_numpy(), 8))
)


def opened(path: Path) -> Job:
    stage = NumberStage(output=str(path))
    job, _ = open_job(stage, stage.plan(), overwrite=False)
    return job


@pytest.mark.parametrize("rows_at_once", [1, 7, 100])
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_rows_come_back_from_their_partitions_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int, chunk_bytes: int
):
    monkeypatch.setattr(temporary, "CHUNK_BYTES", chunk_bytes)
    job = opened(tmp_path)
    hashes = np.random.default_rng(rows_at_once).integers(0, 2**64, 100, dtype=np.uint64)
    rows = [{"hash": int(value), "words": [str(i)] * (i % 3)} for i, value in enumerate(hashes)]
    with TABLE.write(job, "unit") as writer:
        for start in range(0, 100, rows_at_once):
            writer.write(pa.Table.from_pylist(rows[start : start + rows_at_once], SCHEMA))
        writer.write(SCHEMA.empty_table())
    read: list[dict[str, Any]] = []
    for batch in TABLE.read(job, [2, 5], ["unit"]):
        read.extend(batch.to_pylist())

    def rows_in(partition: int) -> list[dict[str, Any]]:
        return [row for row in rows if (row["hash"] >> 32) * 8 >> 32 == partition]

    assert sorted(read, key=str) == sorted(rows_in(2) + rows_in(5), key=str)
    assert [row for row in read if row in rows_in(2)] == rows_in(2)


def test_a_table_without_rows_is_read_as_such(tmp_path: Path):
    job = opened(tmp_path)
    with TABLE.write(job, "unit"):
        pass
    assert list(TABLE.read(job, range(8), ["unit"])) == []


def test_no_flipped_bit_passes_in_silence(tmp_path: Path):
    job = opened(tmp_path)
    hashes = np.random.default_rng(0).integers(0, 2**64, 200, dtype=np.uint64)
    rows = [{"hash": int(value), "words": [f"word {value}"] * (value % 3)} for value in hashes]
    with TABLE.write(job, "unit") as writer:
        writer.write(pa.Table.from_pylist(rows, SCHEMA))

    def read() -> list[dict[str, Any]]:
        batches = TABLE.read(job, range(8), ["unit"])
        return [row for batch in batches for row in batch.to_pylist()]

    expected = read()
    path = Path(job.file(job.temporary("words/unit.arrow")))
    written = path.read_bytes()
    random = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        damaged = bytearray(written)
        damaged[random.integers(len(written))] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        try:
            assert read() == expected  # a byte that nobody reads, such as padding
        except UserError as error:
            assert f"{path} is damaged" in str(error)
            refused += 1
        except (OSError, MemoryError):  # of zstd, and of a length
            refused += 1
    assert refused > 250


def test_a_store_that_is_away_is_not_taken_for_damage(tmp_path: Path, monkeypatch):
    job = opened(tmp_path)
    with TABLE.write(job, "unit") as writer:
        writer.write(pa.Table.from_pylist([{"hash": 1, "words": ["a"]}], SCHEMA))

    def away(path: str) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(temporary.storage, "open_input", away)
    with pytest.raises(OSError, match="the store is away"):
        list(TABLE.read(job, range(8), ["unit"]))
