"""Run a stage: in this process, in workers, or as a Beam pipeline; or say what it would do."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..config import RunOptions, num_cores
from ..errors import RunError, UserError
from ..manifests import Manifest
from ..storage.directory import kept, locked
from ..storage.state import State, look
from .job import Plan, Stage, Unit, open_job
from .workers import do_all, started


def run_stage(
    stage: Stage, options: RunOptions, show_progress: "ShowProgress | None" = None
) -> Any:
    """Run a stage to its end, or what is left of it, and return its manifest.

    A finished directory of the same configuration is left as it is. Raises `UserError` if an input
    or option is wrong, also where a worker finds that, and `RunError` if the run broke.
    """
    check_runner(options, stage.output)
    inputs = [path for name, path in stage.paths().items() if name != "output"]
    with ExitStack() as locks:
        locks.enter_context(kept(*inputs))
        plan = stage.plan()
        try:
            locks.enter_context(locked(stage.output))
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
        # Imported late: Beam takes seconds to import, and what is finished needs none of it.
        from .beam import run_pipeline

        [manifest] = run_pipeline([stage], options)
        return manifest
    num_processes = num_workers(stage, plan, options)
    try:
        with ExitStack() as processes:
            workers = []
            for phase in stage.phases:
                numbers = job.start(phase)
                do = partial(job.do, phase=phase)
                units = job.units(phase.name)
                done = _progress(stage.name, phase.name, units, numbers, show_progress)
                # More processes than units would do nothing.
                num_needed = min(num_processes, len(numbers))
                if num_needed > max(len(workers), 1):
                    more_workers = started(num_needed - len(workers))
                    workers += processes.enter_context(more_workers)
                if workers and numbers:
                    do_all(numbers, do, workers[:num_needed], done)
                    continue
                for number in numbers:
                    do(number)
                    done(number)
    except (UserError, RunError):
        raise
    except Exception as error:
        cause = str(error) or type(error).__name__
        raise RunError(f"The run failed: {cause.rstrip('.')}.") from error
    return job.finish(stage)


def num_workers(stage: Stage, plan: Plan, options: RunOptions) -> int:
    """Return how many processes do the work: one a core, or this one if more would gain nothing."""
    costs = sorted(unit.cost for unit in plan.units)
    if len(stage.phases) == 1:
        costs = costs[:-1]  # one worker is busy with the largest, whatever the others do
        if not costs:
            return 1
    if options.workers:
        return options.workers
    # With so little, one worker is as fast by the clock as two on a machine that is not idle, as
    # each takes half a second of CPU to start.
    if sum(costs) < 8 << 20:
        return 1
    return num_cores()


def check_runner(options: RunOptions, output: str) -> None:
    """Check the options for Beam, if there are any, before anything is read or written."""
    if options.beam_options:
        from .beam import pipeline_options

        pipeline_options(options, output)


@dataclass(frozen=True)
class Progress:
    """The part of a phase that is done."""

    stage: str
    phase: str
    done_bytes: int
    total_bytes: int


ShowProgress = Callable[[Progress], None]


def _progress(
    stage: str,
    phase: str,
    units: Sequence[Unit],
    unfinished: Sequence[int],
    show: ShowProgress | None,
) -> Callable[[int], None]:
    """Show how far a phase is; return what shows it again when a unit is done."""
    total_bytes = sum(unit.cost for unit in units)
    left_bytes = sum(units[number].cost for number in unfinished)
    lock = threading.Lock()

    def show_done(num_bytes: int) -> None:
        nonlocal left_bytes
        with lock:
            left_bytes -= num_bytes
            if show is not None:
                show(Progress(stage, phase, total_bytes - left_bytes, total_bytes))

    show_done(0)
    return lambda number: show_done(units[number].cost)


def dry_run(stage: Stage, options: RunOptions) -> tuple[State, Plan]:
    """Return state and plan of what `run_stage` would do; raises `UserError` as it would."""
    check_runner(options, stage.output)
    plan = stage.plan()
    state, _ = look(stage.output, plan.head, overwrite=options.overwrite)
    return state, plan
