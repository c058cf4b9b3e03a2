"""Units of work: plans and records that only the same work reads back, and written errors."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution import units
from clozeworks.pipeline.execution.units import (
    OpenedStage,
    Record,
    Unit,
    clear_errors,
    errors_written_down,
    finished_units,
    is_planned,
    read_errors,
    read_records,
    read_units,
    stop_units,
    unfinished_units,
    unit_names,
    write_record,
    write_units,
)

from tests.fixtures import number_stage
from tests.fixtures.number_stage import Done, number_units

PHASE = "squares"


@pytest.fixture
def directory(tmp_path: Path) -> OpenedStage[None]:
    directory = OpenedStage(str(tmp_path), "this work", setup=None)
    write_units(directory, PHASE, number_units(3))
    return directory


def test_a_plan_comes_back_as_it_was(directory: OpenedStage[None]):
    assert is_planned(directory, PHASE) and not is_planned(directory, "more")
    assert list(read_units(directory, PHASE, int)) == number_units(3)
    assert unit_names(directory, PHASE) == ["unit-0", "unit-1", "unit-2"]


def test_payloads_may_be_dataclasses(directory: OpenedStage[None]):
    inner = Unit("inner", cost=1, payload=[1, 2])
    write_units(directory, "nested", [Unit("outer", cost=1, payload=inner)])
    [outer] = read_units(directory, "nested", Unit[list[int]])
    assert outer.payload == inner


def test_a_plan_of_other_work_or_of_another_version_is_refused(
    directory: OpenedStage[None], monkeypatch: pytest.MonkeyPatch
):
    message = r"squares/plan\.json is missing or was written by another version\. Rerun with `over"
    with pytest.raises(UserError, match=message):
        read_units(replace(directory, fingerprint="other work"), PHASE, int)
    with pytest.raises(UserError, match=r"more/plan\.json is missing"):
        read_units(directory, "more", int)
    monkeypatch.setattr(units, "WORK_FORMAT", units.WORK_FORMAT + 1)
    with pytest.raises(UserError, match=message):
        read_units(directory, PHASE, int)


def test_a_damaged_plan_is_refused_with_advice(directory: OpenedStage[None]):
    Path(directory.file(".work/squares/plan.json")).write_bytes(b'{"fingerprint": "this')
    with pytest.raises(UserError, match=r"plan\.json is damaged.*Rerun with `overwrite`"):
        read_units(directory, PHASE, int)


def test_records_come_in_the_order_of_the_plan(directory: OpenedStage[None]):
    assert unfinished_units(directory, PHASE, Done) == [0, 1, 2]
    for number in (2, 0, 1):
        write_record(directory, PHASE, number, Done(number * 10))
    assert [record.square for record in read_records(directory, PHASE, Done)] == [0, 10, 20]
    assert unfinished_units(directory, PHASE, Done) == []
    assert finished_units(directory, PHASE) == {0, 1, 2}


def test_a_unit_whose_file_is_missing_is_unfinished(directory: OpenedStage[None]):
    files = ("train.parquet", ".work/keys/unit-1.arrow")
    for file in files:
        directory.write_bytes(file, b"rows")
    for number in range(3):
        write_record(directory, PHASE, number, Record(files=files if number == 1 else ()))
    assert unfinished_units(directory, PHASE, Record) == []
    for file in files:
        directory.remove(file)
        assert unfinished_units(directory, PHASE, Record) == [1]
        with pytest.raises(UserError, match=r"files of squares unit-1 in .* missing; rerun to rec"):
            read_records(directory, PHASE, Record)
        directory.write_bytes(file, b"rows")


def test_records_of_another_version_are_done_again(
    directory: OpenedStage[None], monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as older:
        older.setattr(units, "WORK_FORMAT", units.WORK_FORMAT - 1)
        write_record(directory, PHASE, 1, Done(1))
    write_record(directory, PHASE, 2, Done(4))
    assert unfinished_units(directory, PHASE, Done) == [0, 1]


def test_only_numbered_files_are_records(directory: OpenedStage[None]):
    for name in ("plan.json", "x.json", "00001.json.tmp"):
        directory.write_bytes(f".work/more/{name}", b"{}")
    assert finished_units(directory, "more") == set()


def test_a_mistake_is_written_down_for_the_launching_process(directory: OpenedStage[None]):
    with pytest.raises(UserError, match="no good"), errors_written_down(directory, "squares-3"):
        raise UserError("three is no good – é")
    assert read_errors(directory) == ["three is no good – é"]
    clear_errors(directory)
    assert read_errors(directory) == []
    with pytest.raises(ValueError, match="bug"), errors_written_down(directory, "squares-3"):
        raise ValueError("bug")
    assert read_errors(directory) == []
    stop_units(directory)
    assert read_errors(directory) == ["The run was interrupted."]


def test_a_mistake_that_cannot_be_written_down_ends_the_run(
    directory: OpenedStage[None], monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="no good"), errors_written_down(directory, "squares-3"):
        raise UserError("three is no good")


# In a process of its own: what other tests left free would hide the growth.
HUNGRY_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
import pyarrow as pa
from clozeworks.pipeline.execution.phases import do_unit
from clozeworks.pipeline.execution.stages import open_stage
from tests.fixtures.number_stage import Done, NumberStage, Squares

def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 // 10**6

def work(directory, number):
    words = pa.table({"word": [f"word {number} {i}" for i in range(400_000)]})
    return Done(words.num_rows)

stage = NumberStage(output=sys.argv[1], num_units=48, work=work)
directory, _ = open_stage(stage, stage.plan(), overwrite=False)
threads = [ThreadPoolExecutor(1) for _ in range(8)]
before = megabytes()
for number in range(48):
    threads[number % 8].submit(do_unit, number, directory, Squares(work)).result()
print(megabytes() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_returns_what_its_threads_have_freed(tmp_path: Path):
    root = Path(number_stage.__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", HUNGRY_THREADS, str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(ended.stdout) < 130  # 207 if each thread keeps what it freed
