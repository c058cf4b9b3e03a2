"""Worker processes: what they do, and how their errors and their deaths are reported."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from clozeworks.pipeline.errors import RunError
from clozeworks.pipeline.execution.workers import do_all, started

from tests.fixtures.process_fixture import TIME_LIMIT_S


@pytest.fixture(autouse=True)
def workers_find_this_module(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


def leave_pid(item: tuple[str, str]) -> None:
    folder, name = item
    print("what a library prints")
    Path(folder, name).write_text(str(os.getpid()))


def make_arrays(item: str) -> None:
    import pyarrow as pa

    rows = pa.table({"a": pa.array([1, 2])})
    before = "pandas" in sys.modules
    Path(item).write_text(f"{before}, {rows.to_pandas()['a'].sum()}")


@pytest.mark.slow
def test_a_worker_imports_pandas_only_for_those_who_ask_for_it(tmp_path: Path):
    pytest.importorskip("pandas")
    with started(1) as processes:
        do_all([str(tmp_path / "seen")], make_arrays, processes)
    assert (tmp_path / "seen").read_text() == "False, 3"


@pytest.mark.slow
def test_every_item_is_done_in_as_many_processes_as_asked(tmp_path: Path):
    names = [f"{i:02}" for i in range(40)]
    with started(2) as processes:
        do_all([(str(tmp_path), name) for name in names], leave_pid, processes)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert {int(path.read_text()) for path in tmp_path.iterdir()} <= {
        process.pid for process in processes
    }
    assert all(process.returncode is not None for process in processes)


def wait_for(item: tuple[str, str | None, str]) -> None:
    folder, awaited, name = item
    deadline = time.monotonic() + TIME_LIMIT_S
    while awaited and not Path(folder, awaited).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    Path(folder, name).touch()


def test_a_worker_that_is_done_takes_the_next(tmp_path: Path):
    # The first item ends after all others: equal shares, cut beforehand, would never end.
    items = [("last", "first"), (None, "second"), (None, "third"), (None, "last")]
    with started(2) as processes:
        do_all([(str(tmp_path), *item) for item in items], wait_for, processes)
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second", "third", "last"}


def fail_on_one(item: tuple[str, int]) -> None:
    folder, number = item
    if number == 1:
        Path(folder, "failing").touch()
        raise ValueError("one is no good")
    wait_for((folder, "failing", "waited"))
    time.sleep(30)
    Path(folder, "late").touch()


def test_an_error_ends_the_work_of_all_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    items = [(str(tmp_path), number) for number in range(3)]
    with started(2) as processes, pytest.raises(RuntimeError, match=r"^one is no good$"):
        do_all(items, fail_on_one, processes)
    assert not (tmp_path / "late").exists()
    assert "in fail_on_one" in capfd.readouterr().err  # the traceback, for the log


def end_by(item: int) -> None:
    if item < 0:
        os.kill(os.getpid(), -item)
    os._exit(item)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (-signal.SIGKILL, r"was killed by signal 9 \(out of memory\?\)"),
        (-signal.SIGSEGV, "was killed by signal 11"),
        (3, "ended with exit status 3"),
    ],
)
def test_a_death_is_reported_by_its_cause(item: int, message: str):
    with started(2) as processes, pytest.raises(RunError, match=f"^A worker process {message};"):
        do_all([item], end_by, processes)


def test_a_worker_that_cannot_start_is_reported():
    with (
        started(2, "import sys; sys.exit(7)") as processes,
        pytest.raises(RunError, match="exit status 7"),
    ):
        do_all([1, 2, 3], end_by, processes)


def test_workers_are_gone_when_the_work_is_interrupted():
    with pytest.raises(KeyboardInterrupt), started(2) as processes:
        raise KeyboardInterrupt
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def test_what_lies_in_the_working_folder_is_not_imported(tmp_path: Path, monkeypatch):
    (tmp_path / "pickle.py").write_text("raise ImportError('of another pickle')")
    monkeypatch.chdir(tmp_path)
    with started(1) as processes:
        do_all([(str(tmp_path), "done")], leave_pid, processes)
    assert (tmp_path / "done").exists()
