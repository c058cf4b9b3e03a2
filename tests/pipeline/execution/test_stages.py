"""Phases and stages: opened, planned and finished once, wherever, and as often as it is tried."""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.documents.pipeline import IngestStage
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution.phases import Phase, do_unit, plan_phase
from clozeworks.pipeline.execution.progress import Progress, progress_of, progress_shown
from clozeworks.pipeline.execution.stages import (
    finish_stage,
    open_stage,
    opened_directory,
    table_writers,
)
from clozeworks.pipeline.execution.tables import TemporaryTable
from clozeworks.pipeline.execution.units import OpenedStage, Unit, read_errors, read_units

from tests.fixtures.number_stage import Done, MoreSquares, NumberStage, Squares, square, squares_of

SQUARES = [0, 1, 4, 9, 16]


def opened(path: Path, **options: Any) -> tuple[NumberStage, OpenedStage[None]]:
    stage = NumberStage(output=str(path), **options)
    directory, manifest = open_stage(stage, stage.plan(), overwrite=False)
    assert manifest is None
    return stage, directory


def do_all(stage: NumberStage, directory: OpenedStage[None]) -> None:
    for phase in stage.phases():
        for number in plan_phase(directory, phase):
            do_unit(number, directory, phase)


def test_steps_may_be_taken_one_by_one_in_other_processes(tmp_path: Path):
    """Each step finds the directory by the stage alone, as on another machine."""
    stage, _ = opened(tmp_path, more_work=square)
    for phase in stage.phases():
        directory = opened_directory(stage)
        assert directory is not None
        for number in plan_phase(directory, phase):
            do_unit(number, directory, phase)
    directory = opened_directory(stage)
    assert directory is not None
    assert squares_of(finish_stage(stage, directory)) == 2 * SQUARES
    assert opened_directory(stage) is None


def test_opening_again_keeps_what_is_done(tmp_path: Path):
    stage, directory = opened(tmp_path)
    do_unit(3, directory, Squares(square))
    _, again = opened(tmp_path)
    assert again.fingerprint == directory.fingerprint
    assert plan_phase(again, Squares(square)) == [4, 2, 1, 0]  # the most expensive first
    do_all(stage, again)
    assert squares_of(finish_stage(stage, again)) == SQUARES


def test_a_process_that_outlives_a_run_reads_the_plan_of_the_next(tmp_path: Path):
    opened(tmp_path)
    for num_units in (5, 3):
        stage, directory = opened(tmp_path, num_units=num_units)
        assert len(read_units(directory, "squares", int)) == num_units
        elsewhere = opened_directory(stage)  # as a cluster's worker finds it
        assert elsewhere == directory
    do_all(stage, directory)
    assert squares_of(finish_stage(stage, directory)) == SQUARES[:3]


def test_opening_a_finished_stage_changes_nothing(tmp_path: Path):
    stage, directory = opened(tmp_path)
    do_all(stage, directory)
    manifest = finish_stage(stage, directory)
    written = (tmp_path / "manifest.json").read_bytes()
    _, found = open_stage(stage, stage.plan(), overwrite=False)
    assert found is not None and found.already_finished
    assert found.fingerprint == manifest.fingerprint
    assert (tmp_path / "manifest.json").read_bytes() == written


def test_a_stage_that_was_not_opened_says_rerun(tmp_path: Path):
    with pytest.raises(RunError, match=r"setup\.json is missing: another process .* rerun to res"):
        opened_directory(NumberStage(output=str(tmp_path)))


def test_workers_take_a_half_opened_stage_for_unopened(tmp_path: Path):
    stage, _ = opened(tmp_path)
    (tmp_path / ".work" / "setup.json").unlink()  # the last file of opening
    with pytest.raises(RunError, match="rerun to resume"):
        opened_directory(stage)
    _, directory = opened(tmp_path)
    do_all(stage, directory)
    assert squares_of(finish_stage(stage, directory)) == SQUARES


def test_a_worker_with_another_version_is_refused(tmp_path: Path):
    stage, _ = opened(tmp_path)
    setup = tmp_path / ".work" / "setup.json"
    content = json.loads(setup.read_text())
    setup.write_text(json.dumps({**content, "version": "9.9"}))
    message = r"has clozeworks .*, but the run was opened by 9\.9: install"
    with pytest.raises(UserError, match=message):
        opened_directory(stage)
    # Written down, so that no other unit begins, on any machine.
    (written,) = (tmp_path / ".work" / "errors").iterdir()
    assert re.search(message, written.read_text())


@pytest.mark.parametrize("content", [b"", b"{}", b'{"fingerprint": 3}', b"[]"])
def test_a_damaged_setup_is_one_line(tmp_path: Path, content: bytes):
    stage, _ = opened(tmp_path)
    (tmp_path / ".work" / "setup.json").write_bytes(content)
    with pytest.raises(UserError, match=r"setup\.json is damaged") as raised:
        opened_directory(stage)
    assert "\n" not in str(raised.value)


def test_a_stage_is_not_finished_before_its_units(tmp_path: Path):
    stage, directory = opened(tmp_path)
    do_unit(4, directory, Squares(square))
    with pytest.raises(UserError, match=r"files of squares unit-0 in .* are missing"):
        finish_stage(stage, directory)
    assert not (tmp_path / "manifest.json").exists()
    assert read_errors(directory)  # for the launching process


def test_a_plan_that_a_killed_run_left_is_used(tmp_path: Path):
    _, directory = opened(tmp_path)
    assert plan_phase(directory, MoreSquares(square, num_units=2)) == [1, 0]
    assert plan_phase(directory, MoreSquares(square, num_units=4)) == [1, 0]


def test_the_first_phase_of_a_stage_has_the_units_of_its_plan(tmp_path: Path):
    directory = OpenedStage(str(tmp_path), "never opened", setup=None)
    with pytest.raises(TypeError, match="squares are planned when its stage is opened"):
        plan_phase(directory, Squares(square))


@dataclass(frozen=True)
class _Reader(Squares):
    """A phase that reads a table, whether it says so or not."""

    def do(self, directory: OpenedStage[None], unit: Unit[int]) -> Done:
        list(TABLE.read(directory))
        return super().do(directory, unit)


TABLE = TemporaryTable("numbers", pa.schema([("number", pa.int64())]))


@dataclass(frozen=True, kw_only=True)
class _ReadingStage(NumberStage):
    of_phases: tuple[Phase[None, Any, Any], ...]

    def phases(self) -> Iterator[Phase[None, Any, Any]]:
        yield from self.of_phases


def test_a_stage_whose_phase_reads_what_nothing_has_written_is_refused(tmp_path: Path):
    writer = Squares(square, writes=(TABLE,))
    reader = MoreSquares(square, reads=(TABLE,))
    stage = _ReadingStage(output=str(tmp_path), of_phases=(writer, reader))
    assert table_writers(stage) == {"numbers": "squares"}
    for phases in ((reader, writer), (reader,)):
        stage = _ReadingStage(output=str(tmp_path), of_phases=phases)
        with pytest.raises(TypeError, match="more reads numbers, but no phase before it writes it"):
            open_stage(stage, stage.plan(), overwrite=False)


def test_a_phase_cannot_read_a_table_that_it_does_not_name(tmp_path: Path):
    stage = _ReadingStage(output=str(tmp_path), of_phases=(_Reader(square, writes=(TABLE,)),))
    directory, _ = open_stage(stage, stage.plan(), overwrite=False)
    [phase] = stage.phases()
    with pytest.raises(TypeError, match="a phase reads numbers, but does not say so"):
        do_unit(0, directory, phase)


@pytest.mark.parametrize("share", [None, 0.8])
def test_the_phases_of_ingest_read_what_earlier_ones_write(share: float | None):
    config = IngestConfig(near_duplicates=share)
    stage = IngestStage(sources=(), output="unused", config=config, max_bad=0.0)
    written = set(table_writers(stage))
    assert written == {table.name for phase in stage.phases() for table in phase.reads}


def fail(directory: OpenedStage[None], number: int) -> Done:
    raise UserError(f"{number} is no good")


def test_nothing_is_planned_or_done_after_a_mistake(tmp_path: Path):
    _, directory = opened(tmp_path)
    with pytest.raises(UserError, match=r"^3 is no good$"):
        do_unit(3, directory, Squares(fail))
    with pytest.raises(UserError, match=r"^3 is no good$"):
        do_unit(1, directory, Squares(square))
    with pytest.raises(UserError, match=r"^3 is no good$"):
        plan_phase(directory, MoreSquares(square))
    assert not (tmp_path / ".work" / "squares" / "00001.json").exists()
    opened(tmp_path)  # the next run
    assert plan_phase(directory, Squares(square)) == [4, 3, 2, 1, 0]


def test_progress_is_that_of_the_first_unfinished_phase(tmp_path: Path):
    stage, directory = opened(tmp_path / "one", more_work=square)
    other = NumberStage(output=str(tmp_path / "other"))
    phase, more = stage.phases()
    do_unit(3, directory, phase)
    expected = Progress(stage="ingest", phase="squares", done_bytes=3, total_bytes=10)
    assert progress_of([stage, other]) == expected
    for number in plan_phase(directory, phase):
        do_unit(number, directory, phase)
    plan_phase(directory, more)
    shown = progress_of([stage, other])
    assert shown is not None
    assert (shown.phase, shown.done_bytes) == ("more", 0)
    do_all(stage, directory)
    assert progress_of([stage]) is None
    finish_stage(stage, directory)
    opened(tmp_path / "other")
    shown = progress_of([stage, other])  # of the stage behind the finished one
    assert shown is not None and shown.phase == "squares"


WAS_READ = threading.Event()


@dataclass(frozen=True, kw_only=True)
class _OutOfReach(NumberStage):
    def phases(self) -> Iterator[Phase[None, Any, Any]]:
        WAS_READ.set()
        raise RunError("the store is out of reach")


def test_progress_that_cannot_be_read_is_not_shown(tmp_path: Path):
    def fail(progress: Progress) -> None:
        pytest.fail(f"showed {progress}")

    opened(tmp_path)
    stage = _OutOfReach(output=str(tmp_path))
    with progress_shown([stage], fail):
        assert WAS_READ.wait(60)
    num_threads = threading.active_count()
    with progress_shown([stage], None):  # nobody looks
        assert threading.active_count() == num_threads


def test_the_time_taken_is_that_since_opening(tmp_path: Path):
    stage, directory = opened(tmp_path)
    do_all(stage, directory)
    finish_stage(stage, directory)
    assert 0 <= json.loads((tmp_path / "timings.json").read_text())["seconds"] < 600
