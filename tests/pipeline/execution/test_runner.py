"""Units of work: records, resume, errors of workers, a killed worker."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clozeworks.cli.process import abandon, terminate
from clozeworks.pipeline.config import RunOptions, num_cores
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution import runner
from clozeworks.pipeline.execution.job import Job, Unit, job_of, open_job
from clozeworks.pipeline.execution.runner import Progress, run_stage
from clozeworks.pipeline.execution.workers import Worker, started

from tests.fixtures.number_stage import (
    Done,
    NumberStage,
    Squares,
    Work,
    pids_of,
    square,
    squares_of,
)

pytestmark = pytest.mark.slow

IN_THIS_PROCESS = ("--direct_running_mode=in_memory",)
SQUARES = [0, 1, 4, 9, 16]
GIVE_UP_S = 120
"""Beside other busy processes Beam takes half a minute to start."""


def run(output: Path, work: Work, options: RunOptions) -> list[int]:
    """Run a stage of one phase and return the squares."""
    return squares_of(run_stage(NumberStage(output=str(output), work=work), options))


def opened(output: Path, **options: Any) -> Job:
    stage = NumberStage(output=str(output), **options)
    job, _ = open_job(stage, stage.plan(), overwrite=False)
    return job


def finished_units(output: Path) -> set[int]:
    job = job_of(NumberStage(output=str(output)))
    assert job is not None
    return job.finished_units("squares")


@pytest.fixture(autouse=True)
def workers_find_this_module(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


def fail_on_three(job: Job, number: int) -> Done:
    if number == 3:
        raise UserError("three is no good")
    return square(job, number)


def fail(job: Job, number: int) -> Done:
    raise ValueError(f"{number} is no good")


def die(job: Job, number: int) -> Done:
    os.kill(os.getpid(), signal.SIGKILL)
    return Done(0)


def test_every_unit_is_done_and_records_come_in_order(tmp_path: Path):
    manifest = run_stage(NumberStage(output=str(tmp_path)), RunOptions(workers=2))
    assert squares_of(manifest) == SQUARES
    assert os.getpid() not in pids_of(manifest)


def test_a_phase_gets_no_more_workers_than_it_has_units(tmp_path: Path, monkeypatch):
    num_started: list[int] = []

    @contextmanager
    def counted(num_workers: int) -> Iterator[list[Worker]]:
        num_started.append(num_workers)
        with started(num_workers) as workers:
            yield workers

    monkeypatch.setattr(runner, "started", counted)
    opened(tmp_path, more_work=square, num_units=3).do(2, Squares(square))
    stage = NumberStage(output=str(tmp_path), more_work=square, num_units=3)
    run_stage(stage, RunOptions(workers=4))
    assert num_started == [2, 1]  # two units were left, then there are three
    most_workers = 4 * num_cores()
    with pytest.raises(UserError, match=f"^`workers` is .*, but must be at most {most_workers}, "):
        RunOptions(workers=most_workers + 1)


def test_finished_units_are_not_done_again(tmp_path: Path):
    opened(tmp_path).do(2, Squares(lambda job, number: Done(-1)))
    assert run(tmp_path, square, RunOptions(workers=1)) == [0, 1, -1, 9, 16]


def test_a_users_mistake_in_a_worker_ends_the_run_and_what_is_done_is_kept(tmp_path: Path):
    with pytest.raises(UserError, match="three is no good"):
        run(tmp_path, fail_on_three, RunOptions(workers=1))
    assert finished_units(tmp_path) == {4}  # the largest come first
    assert run(tmp_path, square, RunOptions(workers=1)) == SQUARES


def fail_on_four_and_linger(job: Job, number: int) -> Done:
    if number == 4:
        raise UserError("four is no good")
    return linger(job, number)


def test_a_users_mistake_does_not_wait_for_other_workers(tmp_path: Path):
    begun = time.monotonic()
    with pytest.raises(UserError, match="four is no good"):
        run(tmp_path, fail_on_four_and_linger, RunOptions(workers=2))
    assert time.monotonic() - begun < GIVE_UP_S  # the others take three times as long


@pytest.mark.parametrize("beam_options", [(), IN_THIS_PROCESS], ids=["here", "Beam"])
def test_a_message_that_a_killed_run_left_is_not_reported_again(
    tmp_path: Path, beam_options: tuple[str, ...]
):
    job = opened(tmp_path)
    job.write_bytes(job.temporary("errors/squares-3.txt"), b"an old story")
    options = RunOptions(workers=1, beam_options=beam_options)
    assert run(tmp_path, square, options) == SQUARES


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_another_kind_ends_the_run(tmp_path: Path, workers: int):
    with pytest.raises(RunError, match=r"^The run failed: \d is no good\.$"):
        run(tmp_path, fail, RunOptions(workers=workers))


def test_a_killed_worker_ends_the_run_with_a_message(tmp_path: Path):
    with pytest.raises(RunError, match=r"^A worker process was killed by signal 9 \(out of memo"):
        run(tmp_path, die, RunOptions(workers=2))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_workers_do_not_outlive_the_launching_process(tmp_path: Path, number: signal.Signals):
    script = "import sys, test_runner; test_runner.run_until_interrupted(sys.argv[1])"
    command = [sys.executable, "-c", script, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    if number == signal.SIGINT:  # a terminal sends it to the whole group
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, _ = process.communicate(timeout=GIVE_UP_S)
    ended = ("", -9) if number == signal.SIGKILL else ("interrupted\n", 130)
    assert (out, process.returncode) == ended
    wait_until(lambda: not any(map(is_running, workers)))


def run_until_interrupted(path: str) -> None:
    signal.signal(signal.SIGTERM, terminate)  # as the command line does
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run(Path(path), linger, RunOptions(workers=2))
    except KeyboardInterrupt:
        print("interrupted")
        abandon(130)


def linger(job: Job, number: int) -> Done:
    Path(job.path, f"{os.getpid()}.pid").touch()
    time.sleep(3 * GIVE_UP_S)
    return Done(0)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def nap(job: Job, number: int) -> Done:
    Path(job.path, "begun").touch()
    time.sleep(0.5)
    return Done(number)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, also where a shell started the tests in the background, ignoring it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(workers=1),
        RunOptions(workers=2),
        RunOptions(workers=1, beam_options=IN_THIS_PROCESS),
    ],
    ids=["here", "our processes", "Beam"],
)
@pytest.mark.usefixtures("interruptible")
def test_nothing_of_an_interrupted_run_goes_on(tmp_path: Path, options: RunOptions):
    def interrupt() -> None:
        wait_until((tmp_path / "begun").exists)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, nap, options)
    finished = finished_units(tmp_path)
    assert len(finished) < len(SQUARES)
    time.sleep(1.2)
    assert finished_units(tmp_path) == finished
    assert len(run(tmp_path, square, options)) == len(SQUARES)


@pytest.mark.parametrize("beam_options", [(), IN_THIS_PROCESS], ids=["here", "Beam"])
def test_a_full_disk_is_reported_though_nothing_can_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beam_options: tuple[str, ...]
):
    sync = os.fsync

    def sync_unless_full(descriptor: int) -> None:
        if (tmp_path / "full").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    def fill_disk(job: Job, number: int) -> Done:
        Path(job.path, "full").touch()
        return Done(number)

    monkeypatch.setattr(os, "fsync", sync_unless_full)
    with pytest.raises(RunError, match=r"Cannot write to .*No space left"):
        run(tmp_path, fill_disk, RunOptions(workers=1, beam_options=beam_options))


def test_a_record_that_cannot_be_written_is_the_users_error(tmp_path: Path):
    def block(job: Job, number: int) -> Done:
        Path(job.file(job.temporary(f"squares/{number:05d}.json"))).mkdir(exist_ok=True)
        return Done(number)

    for beam_options in ((), IN_THIS_PROCESS):
        with pytest.raises(UserError, match="Cannot write to"):
            run(tmp_path, block, RunOptions(workers=1, beam_options=beam_options))


def leave_path(job: Job, number: int) -> Done:
    job.write_bytes("path", job.path.encode())
    return Done(number)


def test_workers_of_beam_get_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run(Path("out"), leave_path, RunOptions(workers=1, beam_options=IN_THIS_PROCESS))
    assert (tmp_path / "out" / "path").read_text() == str(tmp_path / "out")


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_shown_by_phase_until_all_is_done(tmp_path: Path, workers: int):
    opened(tmp_path, more_work=square).do(3, Squares(square))
    seen: list[Progress] = []
    stage = NumberStage(output=str(tmp_path), more_work=square)
    run_stage(stage, RunOptions(workers=workers), seen.append)
    done = {"squares": [3, 7, 9, 10, 10], "more": [0, 4, 7, 9, 10, 10]}
    for phase in done:
        shown = [each for each in seen if each.phase == phase]
        assert all(each.total_bytes == 10 for each in shown)
        if workers == 1:  # else units end in any order
            assert [each.done_bytes for each in shown] == done[phase]
        assert (shown[0].done_bytes, shown[-1].done_bytes) == (done[phase][0], 10)


def test_a_finished_stage_is_left_as_it_is_and_beside_another_process_only_read(tmp_path: Path):
    run(tmp_path, square, RunOptions(workers=1))
    left = tmp_path / ".work" / "tmp" / "half"  # of the other process
    left.parent.mkdir(parents=True)
    left.touch()
    stage = NumberStage(output=str(tmp_path), work=fail)
    other_process = lock_by_another_process(tmp_path)
    assert run_stage(stage, RunOptions(workers=1)).already_finished
    with pytest.raises(UserError, match="Another process is writing"):
        run_stage(stage, RunOptions(workers=1, overwrite=True))
    assert left.exists()
    os.close(other_process)
    assert run_stage(stage, RunOptions(workers=1)).already_finished
    assert not (tmp_path / ".work").exists()


@pytest.mark.parametrize("work", [square, fail], ids=["finished", "failed"])
def test_a_stage_that_ended_is_unlocked(tmp_path: Path, work: Work):
    stage = NumberStage(output=str(tmp_path), work=work)
    with suppress(RunError):
        run_stage(stage, RunOptions(workers=1))
    os.close(lock_by_another_process(tmp_path))


def lock_by_another_process(path: Path) -> int:
    """Lock as another process does, by a descriptor of its own."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


SMALL_BYTES = 8 << 20


@pytest.mark.parametrize(
    ("workers", "costs", "more_work", "expected"),
    [
        (0, [SMALL_BYTES - 2, 1], square, 1),
        (0, [SMALL_BYTES - 1, 1], square, 8),
        (2, [9, 1], square, 2),
        (1, [1 << 40, 1], square, 1),
        # In a single phase one worker is busy with the largest unit.
        (0, [1 << 40, SMALL_BYTES // 2], None, 1),
        (0, [1 << 40, SMALL_BYTES // 2, SMALL_BYTES // 2], None, 8),
        (2, [1 << 40], None, 1),
    ],
)
def test_little_input_is_read_by_one_worker_unless_told_otherwise(
    workers: int,
    costs: list[int],
    more_work: Work | None,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    stage = NumberStage(output=str(tmp_path), more_work=more_work)
    plan = replace(stage.plan(), units=[Unit("unit", cost, 0) for cost in costs])
    assert runner.num_workers(stage, plan, RunOptions(workers=workers)) == expected
