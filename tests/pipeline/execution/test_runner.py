"""Units of work: records, resume, errors of workers, a killed worker; on processes of ours and of
Beam.
"""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clozeworks.cli.main import abandon
from clozeworks.pipeline.config import RunOptions
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution.phases import (
    Phase,
    Unit,
    do_unit,
    finished_units,
    read_errors,
    read_records,
    write_plan,
)
from clozeworks.pipeline.execution.runner import _last_line, run_phases
from clozeworks.pipeline.storage.stage import StageDirectory
from unit_records import Done

ON_BEAM = ("--direct_running_mode=multi_processing",)
UNITS = [Unit(name=f"unit-{i}", cost=i, payload=i) for i in range(5)]


def phase_of(
    work: Callable[[StageDirectory, int], Done], name: str = "squares"
) -> Phase[int, Done]:
    return Phase(name, None, work, int, Done)


def run_one(
    directory: StageDirectory, work: Callable[[StageDirectory, int], Done], options: RunOptions
) -> list[Done]:
    """Run one phase and return its records."""
    run_phases(directory, UNITS, [phase_of(work)], options)
    return read_records(directory, "squares", Done)


@pytest.fixture(autouse=True)
def workers_find_this_module(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


@pytest.fixture(autouse=True)
def logs_of_broken_runs_do_not_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
):
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("logs")))


def square(directory: StageDirectory, number: int) -> Done:
    return Done(number * number, os.getpid())


def fail_on_three(directory: StageDirectory, number: int) -> Done:
    if number == 3:
        raise UserError("three is no good")
    return square(directory, number)


def fail(directory: StageDirectory, number: int) -> Done:
    raise ValueError(f"{number} is no good")


def die(directory: StageDirectory, number: int) -> Done:
    os.kill(os.getpid(), signal.SIGKILL)
    return Done(0)


@pytest.mark.parametrize("beam_options", [(), ON_BEAM], ids=["our processes", "Beam's processes"])
def test_every_unit_is_done_and_records_come_in_order(
    tmp_path: Path, beam_options: tuple[str, ...]
):
    directory = StageDirectory(str(tmp_path), "f")
    options = RunOptions(workers=2, beam_options=beam_options)
    records = run_one(directory, square, options)
    assert [record.square for record in records] == [0, 1, 4, 9, 16]
    assert os.getpid() not in {record.pid for record in records}


def test_finished_units_are_not_done_again(tmp_path: Path):
    directory = StageDirectory(str(tmp_path), "f")
    write_plan(directory, phase_of(square), UNITS)
    do_unit(2, directory, phase_of(lambda directory, number: Done(-1)))
    records = run_one(directory, square, RunOptions(workers=1))
    assert [record.square for record in records] == [0, 1, -1, 9, 16]


def test_a_users_mistake_in_a_worker_ends_the_run_and_what_is_done_is_kept(tmp_path: Path):
    directory = StageDirectory(str(tmp_path), "f")
    with pytest.raises(UserError, match="three is no good"):
        run_one(directory, fail_on_three, RunOptions(workers=1))
    assert finished_units(directory, "squares") == {4}  # the largest come first
    assert len(run_one(directory, square, RunOptions(workers=1))) == 5


def fail_on_four_and_linger(directory: StageDirectory, number: int) -> Done:
    if number == 4:
        raise UserError("four is no good")
    return linger(directory, number)


@pytest.mark.parametrize("beam_options", [(), ON_BEAM], ids=["our processes", "Beam's processes"])
def test_a_users_mistake_is_reported_once(tmp_path: Path, beam_options: tuple[str, ...]):
    directory, options = (
        StageDirectory(str(tmp_path), "f"),
        RunOptions(workers=2, beam_options=beam_options),
    )
    with pytest.raises(UserError, match=r"^three is no good$"):
        run_one(directory, fail_on_three, options)
    assert not read_errors(directory)


def test_a_users_mistake_does_not_wait_for_other_workers(tmp_path: Path):
    begun = time.monotonic()
    with pytest.raises(UserError, match="four is no good"):
        run_one(StageDirectory(str(tmp_path), "f"), fail_on_four_and_linger, RunOptions(workers=2))
    assert time.monotonic() - begun < 60  # the others take 120 s


def test_a_message_that_a_killed_run_left_is_not_reported_again(tmp_path: Path):
    directory = StageDirectory(str(tmp_path), "f")
    directory.write_bytes(".work/errors/squares-3.txt", b"an old story")
    assert len(run_one(directory, square, RunOptions(workers=1))) == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_another_kind_ends_the_run(tmp_path: Path, workers: int):
    with pytest.raises(RunError, match=r"^The run failed: \d is no good\. Log: "):
        run_one(StageDirectory(str(tmp_path), "f"), fail, RunOptions(workers=workers))


@pytest.mark.parametrize("beam_options", [(), ON_BEAM], ids=["our processes", "Beam's processes"])
def test_a_killed_worker_ends_the_run_with_a_message(tmp_path: Path, beam_options: tuple[str, ...]):
    # In a process of its own: the threads of a broken run of Beam live on until it ends.
    script = "import sys, test_runner; test_runner.run_until_a_worker_dies(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(tmp_path), *beam_options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stdout.startswith("A worker process was killed by signal 9 (out of memory?);")


def run_until_a_worker_dies(path: str, *beam_options: str) -> None:
    try:
        options = RunOptions(workers=2, beam_options=beam_options)
        run_one(StageDirectory(path, "f"), die, options)
    except RunError as error:
        print(error)
        abandon(1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_do_not_outlive_the_launching_process(tmp_path: Path, number: signal.Signals):
    script = "import sys, test_runner; test_runner.run_until_interrupted(sys.argv[1])"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    assert (out, process.returncode) == (
        ("interrupted\n", 130) if number == signal.SIGTERM else ("", -9)
    )
    wait_until(lambda: not any(map(is_running, workers)))


@pytest.mark.parametrize(
    "beam_options", [(), ("--direct_num_workers=2",)], ids=["our processes", "Beam"]
)
def test_an_interrupt_from_a_terminal_ends_the_whole_group(
    tmp_path: Path, beam_options: tuple[str, ...]
):
    script = (
        "import signal, sys, test_runner; signal.signal(signal.SIGINT, signal.default_int_handler);"
    )
    script += "test_runner.run_until_interrupted(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(tmp_path), *beam_options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=20)[0] == "interrupted\n"


def run_until_interrupted(path: str, *beam_options: str) -> None:
    try:
        run_one(StageDirectory(path, "f"), linger, RunOptions(workers=2, beam_options=beam_options))
    except KeyboardInterrupt:
        print("interrupted")
        abandon(130)


def linger(directory: StageDirectory, number: int) -> Done:
    Path(directory.path, f"{os.getpid()}.pid").touch()
    time.sleep(120)
    return Done(0)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_error_is_reported_by_its_cause_alone():
    through_beam = "Traceback …\n  File x, line 3\nRuntimeError: OSError: [Errno 5] Broken disk. [while running 'Build']"
    assert _last_line(RuntimeError(through_beam)) == "[Errno 5] Broken disk"
    assert _last_line(ValueError("lengths differ: 3 and 4")) == "lengths differ: 3 and 4"
    assert _last_line(ValueError()) == "ValueError"


def test_beam_is_imported_only_if_its_options_are_given(tmp_path: Path):
    run = "run_one(StageDirectory(sys.argv[1], 'f'), square, RunOptions(workers=1))"
    script = f"import sys; from test_runner import *; {run}; sys.exit('apache_beam' in sys.modules)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)


def test_an_option_that_beam_does_not_know_is_refused():
    from clozeworks.pipeline.execution.beam import pipeline_options

    with pytest.raises(UserError, match="--projekt=x"):
        pipeline_options(RunOptions(beam_options=("--runner=DataflowRunner", "--projekt=x")))
    with pytest.raises(UserError, match="--runner needs the name"):
        pipeline_options(RunOptions(beam_options=("--runner",)))
    options = pipeline_options(
        RunOptions(beam_options=("--direct_running_mode=multi_threading",), workers=3)
    )
    assert options.get_all_options()["direct_running_mode"] == "multi_threading"
    assert options.get_all_options()["direct_num_workers"] == 3


@pytest.mark.parametrize("flags", [("--runner=DirectRunner",), ("--runner", "DirectRunner")])
def test_direct_runner_by_its_name_is_the_default(flags: tuple[str, ...]):
    from clozeworks.pipeline.execution.beam import pipeline_options

    named, default = (
        pipeline_options(
            RunOptions(beam_options=(*given, "--direct_embed_docker_python"), workers=3)
        )
        for given in (flags, ())
    )
    assert named.get_all_options() == default.get_all_options()


def test_a_runner_may_be_named_in_two_words():
    from clozeworks.pipeline.execution.beam import _take_runner, prepare

    for flags in (("--runner", "DaskRunner", "--x=1"), ("--x=1", "--runner=DaskRunner")):
        assert _take_runner(flags) == ("DaskRunner", ["--x=1"])
    with pytest.raises(UserError, match="give a gs:// path"):
        prepare(RunOptions(beam_options=("--runner", "DataflowRunner")), "local")


def nap(directory: StageDirectory, number: int) -> Done:
    Path(directory.path, "begun").touch()
    time.sleep(0.5)
    return Done(number)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, also where a shell has started the tests in the background, with SIGINT
    ignored.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


IN_THIS_PROCESS = ("--direct_running_mode=in_memory",)


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
    directory = StageDirectory(str(tmp_path), "f")

    def interrupt() -> None:
        wait_until((tmp_path / "begun").exists)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_one(directory, nap, options)
    done = finished_units(directory, "squares")
    assert len(done) < len(UNITS)
    time.sleep(1.2)
    assert finished_units(directory, "squares") == done
    assert len(run_one(directory, square, options)) == len(UNITS)


@pytest.mark.parametrize("beam_options", [(), IN_THIS_PROCESS], ids=["here", "Beam"])
def test_a_full_disk_is_reported_though_nothing_can_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beam_options: tuple[str, ...]
):
    sync = os.fsync

    def sync_unless_full(descriptor: int) -> None:
        if (tmp_path / "full").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    def fill_disk(directory: StageDirectory, number: int) -> Done:
        Path(directory.path, "full").touch()
        return Done(number)

    monkeypatch.setattr(os, "fsync", sync_unless_full)
    with pytest.raises(RunError, match=r"Cannot write to .*No space left"):
        run_one(
            StageDirectory(str(tmp_path), "f"),
            fill_disk,
            RunOptions(workers=1, beam_options=beam_options),
        )


def test_a_record_that_cannot_be_written_is_the_users_error(tmp_path: Path):
    def block(directory: StageDirectory, number: int) -> Done:
        Path(directory.path, f".work/squares/{number:05d}.json").mkdir(exist_ok=True)
        return Done(number)

    for beam_options in ((), IN_THIS_PROCESS):
        with pytest.raises(UserError, match="Cannot write to"):
            run_one(
                StageDirectory(str(tmp_path), "f"),
                block,
                RunOptions(workers=1, beam_options=beam_options),
            )


def leave_path(directory: StageDirectory, number: int) -> Done:
    directory.write_bytes("path", directory.path.encode())
    return Done(number)


def test_workers_of_beam_get_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run_one(
        StageDirectory("out", "f"), leave_path, RunOptions(workers=1, beam_options=IN_THIS_PROCESS)
    )
    assert (tmp_path / "out" / "path").read_text() == str(tmp_path / "out")
