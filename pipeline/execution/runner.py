"""Run a stage to its end: in this process, in worker processes, or as a Beam pipeline; or say what
it would do.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import storage
from ..config import RunOptions
from ..errors import RunError, UserError
from ..manifests import Manifest
from ..storage.directory import locked
from ..storage.state import State, look
from .job import Plan, Stage, job_of, open_job
from .workers import do_all, started

SMALL_BYTES = 8 << 20
"""Of input, as stored: below, one worker is as fast by the clock as two, which take half a second
of CPU each to start.
"""
POLL_S = 0.25
REMOTE_POLL_S = 5.0
"""Each look at the progress lists a folder of an object store."""


def run_stage(
    stage: Stage, options: RunOptions, show_progress: "ShowProgress | None" = None
) -> Any:
    """Run a stage to its end, or what is left of it, and return its manifest.

    A finished directory of the same configuration is left as it is. `show_progress` is called now
    and then, from another thread. Raises `UserError` if an input or option is wrong, also where a
    worker finds that, and `RunError` if the run broke.
    """
    check_runner(options, stage.output)
    plan = stage.plan()
    with ExitStack() as lock:
        try:
            lock.enter_context(locked(stage.output))
        except UserError:
            # What is finished stays so, whatever the process that holds the lock is going to do.
            _, manifest = look(stage.output, plan.head, overwrite=options.overwrite)
            if manifest is None:
                raise
            return manifest
        return run_planned(stage, plan, options, show_progress)


def run_planned(
    stage: Stage, plan: Plan, options: RunOptions, show_progress: "ShowProgress | None"
) -> Manifest:
    """Do the work of `run_stage` for a caller who holds the lock of the stage's directory."""
    job, manifest = open_job(stage, plan, options.overwrite)
    if manifest is not None:
        return manifest
    if options.beam_options:
        [manifest] = run_on_beam([stage], options, show_progress)
        return manifest
    num_processes = num_workers(stage, plan, options)
    try:
        with progress_shown([stage], show_progress):
            if num_processes == 1:
                for phase in stage.phases:
                    for number in job.start(phase):
                        job.do(number, phase)
            else:
                with started(num_processes) as workers:
                    for phase in stage.phases:
                        do_all(job.start(phase), partial(job.do, phase=phase), workers)
    except (UserError, RunError):
        raise
    except Exception as error:
        cause = str(error) or type(error).__name__
        raise RunError(f"The run failed: {cause.rstrip('.')}.") from error
    return job.finish(stage)


def run_on_beam(
    stages: Sequence[Stage], options: RunOptions, show_progress: "ShowProgress | None"
) -> list[Manifest]:
    """Run stages as one pipeline; the first one has been opened. Return their manifests."""
    # Imported late: Beam takes seconds to import, and what is finished needs none of it.
    from .beam import run_pipeline

    with progress_shown(stages, show_progress):
        return run_pipeline(stages, options)


def num_workers(stage: Stage, plan: Plan, options: RunOptions) -> int:
    """Return how many processes do the work: by default one per core, but a single one, this
    process, where more would gain nothing, as each has to start.
    """
    costs = [unit.cost for unit in plan.units]
    has_one_phase = len(stage.phases) == 1
    num_bytes = sum(costs)
    if has_one_phase and costs:
        num_bytes -= max(costs)  # one worker is busy with these, whatever the others do
    if has_one_phase and len(costs) <= 1:
        return 1
    if options.workers:
        return options.workers
    if num_bytes < SMALL_BYTES:
        return 1
    if hasattr(os, "sched_getaffinity"):  # the cores of a job's allocation, not of the machine
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_runner(options: RunOptions, output: str) -> None:
    """Check the options for Beam, if there are any, before anything is read or written.

    Raises `UserError`.
    """
    if options.beam_options:
        from .beam import pipeline_options

        pipeline_options(options, output)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The part of a phase that is done."""

    stage: str
    phase: str
    done_bytes: int
    total_bytes: int


ShowProgress = Callable[[Progress], None]


@contextmanager
def progress_shown(stages: Sequence[Stage], show: ShowProgress | None) -> Iterator[None]:
    """Call `show` with the progress of `stages`, now and then while the body runs.

    It is read from the output directories, which show it on every runner. `show` is called in a
    thread: the work stays in the caller's, so that an interrupt ends all of it.
    """
    if show is None:
        yield
        return
    body_is_done = threading.Event()

    def poll() -> None:
        poll_s = POLL_S
        if storage.is_remote(stages[0].output):
            poll_s = REMOTE_POLL_S
        while not body_is_done.wait(poll_s):
            # Not opened or planned yet, or the store cannot be reached just now.
            with suppress(UserError, RunError):
                progress = progress_of(stages)
                if progress is not None:
                    show(progress)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    try:
        yield
    finally:
        body_is_done.set()
        poller.join()


def progress_of(stages: Sequence[Stage]) -> Progress | None:
    """Return how far the current phase is; None between phases."""
    for stage in stages:
        job = job_of(stage)
        if job is None:
            continue  # finished, or not begun
        for phase in stage.phases:
            units = job.units(phase.name)
            finished = job.finished_units(phase.name)
            if len(finished) < len(units):
                return Progress(
                    stage=stage.name,
                    phase=phase.name,
                    done_bytes=sum(units[number].cost for number in finished),
                    total_bytes=sum(unit.cost for unit in units),
                )
    return None


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a run would do."""

    state: State
    num_units: int
    """Of the first phase."""
    input_bytes: int
    free_bytes: int | None
    """Of the disk that is written to; None of an object store."""


def dry_run(stage: Stage, options: RunOptions) -> DryRun:
    """Return what `run_stage` would do, without doing it; raises `UserError` as it would."""
    check_runner(options, stage.output)
    plan = stage.plan()
    state, _ = look(stage.output, plan.head, overwrite=options.overwrite)
    free_bytes = None
    if not storage.is_remote(stage.output):
        folder = os.path.abspath(stage.output)
        while not os.path.isdir(folder):  # the output is new
            folder = os.path.dirname(folder)
        free_bytes = shutil.disk_usage(folder).free
    return DryRun(
        state=state,
        num_units=len(plan.units),
        input_bytes=sum(unit.cost for unit in plan.units),
        free_bytes=free_bytes,
    )
