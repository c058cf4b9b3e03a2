"""Jobs: opened, planned and finished once, wherever, and as often as it is tried."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pytest
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution.job import (
    Job,
    Phase,
    Unit,
    _read_checked,
    _read_once,
    job_of,
    open_job,
)
from clozeworks.pipeline.storage import state
from clozeworks.pipeline.storage.state import read_any_manifest
from msgspec import structs

from tests.fixtures import number_stage
from tests.fixtures.number_stage import Done, MoreSquares, NumberStage, Squares, square, squares_of

SQUARES = [0, 1, 4, 9, 16]


def opened(path: Path, **options: Any) -> tuple[NumberStage, Job]:
    stage = NumberStage(output=str(path), **options)
    job, manifest = open_job(stage, stage.plan(), overwrite=False)
    assert manifest is None
    return stage, job


def do_all(stage: NumberStage, job: Job) -> None:
    for phase in stage.phases:
        for number in job.start(phase):
            job.do(number, phase)


def test_steps_may_be_taken_one_by_one_in_other_processes(tmp_path: Path):
    """Each step finds the job by the stage alone, as on another machine."""
    stage, opener = opened(tmp_path, more_work=square)
    for phase in stage.phases:
        job = job_of(stage)
        assert job is not None and job == opener
        for number in job.start(phase):
            job.do(number, phase)
    job = job_of(stage)
    assert job is not None
    assert squares_of(job.finish(stage)) == 2 * SQUARES
    assert job_of(stage) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md",
        "manifest.json",
        "timings.json",
    ]
    assert 0 <= json.loads((tmp_path / "timings.json").read_text())["seconds"] < 600


def test_opening_again_keeps_what_is_done(tmp_path: Path):
    stage, job = opened(tmp_path)
    job.do(3, Squares(square))
    _, again = opened(tmp_path)
    assert again == job
    assert again.start(Squares(square)) == [4, 2, 1, 0]  # the most expensive first
    do_all(stage, again)
    assert squares_of(again.finish(stage)) == SQUARES


def test_a_process_that_outlives_its_run_writes_where_nobody_reads(tmp_path: Path):
    _, first = opened(tmp_path, seed=1)
    stage, job = opened(tmp_path, seed=2)  # nothing was done: the first gives way
    assert job.work != first.work and job_of(stage) == job
    with pytest.raises(RunError, match=r"job\.json is missing: another process .* rerun to resume"):
        _ = first.setup
    first.write_bytes(first.temporary("squares/00004.json"), b"{}")  # by a last breath
    assert job.start(Squares(square)) == [4, 3, 2, 1, 0]
    do_all(stage, job)
    assert squares_of(job.finish(stage)) == SQUARES
    assert not (tmp_path / ".work").exists()


def test_work_of_another_format_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, job = opened(tmp_path)
    job.do(3, Squares(square))
    monkeypatch.setattr(state, "FORMAT", state.FORMAT + 1)
    with pytest.raises(UserError, match=r"other settings \(by another version of clozeworks\)"):
        opened(tmp_path)


def test_a_half_opened_stage_has_not_begun(tmp_path: Path):
    stage, job = opened(tmp_path)
    Path(job.file(job.temporary("job.json"))).unlink()  # the last file of opening
    assert job_of(stage) is None
    _, job = opened(tmp_path)
    do_all(stage, job)
    assert squares_of(job.finish(stage)) == SQUARES


def test_one_bit_that_flips_in_a_job_or_a_manifest_is_refused_or_changes_nothing(tmp_path: Path):
    stage, job = opened(tmp_path)
    random = Random(0)
    begun = Path(job.file(job.temporary("job.json")))
    for damaged in flipped(begun, random, 100):
        _read_once.cache_clear()
        with pytest.raises(UserError, match=r"job\.json"):
            _ = job.setup, damaged
    _read_once.cache_clear()
    do_all(stage, job)
    written = job.finish(stage)
    num_read = 0
    for damaged in flipped(tmp_path / "manifest.json", random, 300):
        with suppress(UserError):
            manifest = read_any_manifest(str(tmp_path))
            # In the name of the digest itself, or a space: the fields are those that were written.
            assert structs.replace(manifest, digest=written.digest) == written, damaged
            num_read += 1
    assert num_read < 30


def flipped(path: Path, random: Random, num_flips: int) -> Iterator[bytes]:
    """Write a file with one bit flipped, again and again, and as it was in the end."""
    content = path.read_bytes()
    for _ in range(num_flips):
        damaged = bytearray(content)
        damaged[random.randrange(len(content))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        yield bytes(damaged)
    path.write_bytes(content)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"head": 3}', b"[]"])
def test_a_damaged_job_is_one_line(tmp_path: Path, content: bytes):
    stage, job = opened(tmp_path)
    job.write_bytes(job.temporary("job.json"), content)
    with pytest.raises(UserError, match=r"job\.json is damaged") as raised:
        job_of(stage)
    assert "\n" not in str(raised.value)


def test_a_flipped_bit_in_a_plan_or_a_record_is_found(tmp_path: Path):
    stage, job = opened(tmp_path, more_work=square)
    do_all(stage, job)
    plans_and_records = sorted(tmp_path.glob(".work/*/*/*.json"))
    assert len(plans_and_records) == 12
    for path in plans_and_records:
        content = path.read_bytes()
        for index in range(len(content)):
            path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
            with pytest.raises(UserError, match=rf"{path.name} is damaged \(its digest differs\)"):
                _read_checked(str(path))
        path.write_bytes(content)
    assert squares_of(job.finish(stage)) == 2 * SQUARES


def test_a_plan_that_a_killed_run_left_is_used(tmp_path: Path):
    _, job = opened(tmp_path)
    assert job.start(MoreSquares(square, num_units=2)) == [1, 0]
    assert job.start(MoreSquares(square, num_units=4)) == [1, 0]


@dataclass(frozen=True)
class _Writer(Squares):
    def do(self, job: Job, unit: Unit) -> Done:
        job.write_bytes("train.parquet", b"rows")
        return Done(1, files=("train.parquet",))


@dataclass(frozen=True, kw_only=True)
class _WritingStage(NumberStage):
    @cached_property
    def phases(self) -> Sequence[Phase]:
        return [_Writer(square)]


def test_a_unit_whose_file_is_missing_is_unfinished(tmp_path: Path):
    stage = _WritingStage(output=str(tmp_path), num_units=2)
    [writer] = stage.phases
    job, _ = open_job(stage, stage.plan(), overwrite=False)
    do_all(stage, job)
    assert job.start(writer) == []
    (tmp_path / "train.parquet").unlink()
    assert job.start(writer)[0] == 1
    with pytest.raises(UserError, match=r"files of squares unit-\d in .* missing; rerun to rec"):
        job.records(writer)


# In a process of its own: what other tests left free would hide the growth.
HUNGRY_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
import pyarrow as pa
from clozeworks.pipeline.execution.job import open_job
from tests.fixtures.number_stage import Done, NumberStage, Squares

def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 // 10**6

def work(job, number):
    words = pa.table({"word": [f"word {number} {i}" for i in range(400_000)]})
    return Done(words.num_rows)

stage = NumberStage(output=sys.argv[1], num_units=48, work=work)
job, _ = open_job(stage, stage.plan(), overwrite=False)
threads = [ThreadPoolExecutor(1) for _ in range(8)]
before = megabytes()
for number in range(48):
    threads[number % 8].submit(job.do, number, Squares(work)).result()
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
