"""Units of work on Beam: records, resume, errors of workers, a killed worker."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clozeworks.pipeline.config import RunOptions
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.runner import RunError, Unit, abandon, pipeline_options, run_units
from clozeworks.pipeline.stage import StageDirectory

UNITS = [Unit(name=f"unit-{i}", cost=i, payload=i) for i in range(5)]


@pytest.fixture(autouse=True)
def workers_find_this_module(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def square(directory: StageDirectory, number: int) -> dict[str, Any]:
    return {"square": number * number, "pid": os.getpid()}


def fail_on_three(directory: StageDirectory, number: int) -> dict[str, Any]:
    if number == 3:
        raise UserError("three is no good")
    return square(directory, number)


def die(directory: StageDirectory, number: int) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_every_unit_is_done_and_records_come_in_order(tmp_path: Path):
    directory = StageDirectory(str(tmp_path), "f")
    records = run_units(directory, "squares", UNITS, square, RunOptions(workers=2))
    assert [record["square"] for record in records] == [0, 1, 4, 9, 16]
    assert len({record["pid"] for record in records} - {os.getpid()}) == 2


def test_finished_units_are_not_done_again(tmp_path: Path):
    directory = StageDirectory(str(tmp_path), "f")
    directory.write_record("squares", "unit-2", {"square": -1})
    records = run_units(directory, "squares", UNITS, square, RunOptions(workers=1))
    assert [record["square"] for record in records] == [0, 1, -1, 9, 16]


def test_a_users_mistake_in_a_worker_is_raised_and_the_rest_is_kept(tmp_path: Path):
    directory = StageDirectory(str(tmp_path), "f")
    with pytest.raises(UserError, match="three is no good"):
        run_units(directory, "squares", UNITS, fail_on_three, RunOptions(workers=1))
    assert directory.done_units("squares") == {"unit-0", "unit-1", "unit-2", "unit-4"}
    assert len(run_units(directory, "squares", UNITS, square, RunOptions(workers=1))) == 5


def test_a_killed_worker_ends_the_run_with_a_message(tmp_path: Path):
    # In a process of its own: the threads of a broken run live on until it ends.
    script = "import sys, test_runner; test_runner.run_until_a_worker_dies(sys.argv[1])"
    command = [sys.executable, "-c", script, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stdout.startswith("A worker process was killed")


def run_until_a_worker_dies(path: str) -> None:
    try:
        run_units(StageDirectory(path, "f"), "deaths", UNITS, die, RunOptions(workers=2))
    except RunError as error:
        print(error)
        abandon(1)


def test_an_option_that_beam_does_not_know_is_refused():
    with pytest.raises(UserError, match="--projekt=x"):
        pipeline_options(RunOptions(beam_options=("--runner=DataflowRunner", "--projekt=x")), 1)
    options = pipeline_options(RunOptions(beam_options=("--direct_running_mode=multi_threading",), workers=3), 9)
    assert options.get_all_options()["direct_running_mode"] == "multi_threading"
    assert options.get_all_options()["direct_num_workers"] == 3
