"""Run a stage to its end: in this process, in worker processes, or as a Beam pipeline."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from ..config import RunOptions
from ..errors import RunError, UserError
from ..manifests import Manifest
from ..storage.directory import OutputDirectory, locked
from ..storage.stage import look_at_stage
from .phases import do_unit, plan_phase
from .progress import ShowProgress, progress_shown
from .stages import Stage, StagePlan, finish_stage, open_stage
from .units import OpenedStage, clear_errors, read_errors
from .workers import do_all, num_workers, started

SMALL_BYTES = 8 << 20
"""Of input, as stored: below, one worker is as fast by the clock as two, which take half a second
of CPU each to start.
"""
S = TypeVar("S")
M = TypeVar("M", bound=Manifest)


def run_stage(
    stage: Stage[Any, M], options: RunOptions, show_progress: ShowProgress | None = None
) -> M:
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
            manifest = look_at_stage(stage.output, plan.head, options.overwrite).manifest
            if manifest is None:
                raise
            return cast(M, manifest)
        return run_planned(stage, plan, options, show_progress)


def run_planned(
    stage: Stage[Any, M],
    plan: StagePlan[Any],
    options: RunOptions,
    show_progress: ShowProgress | None,
) -> M:
    """Do the work of `run_stage` for a caller who holds the lock of the stage's directory."""
    directory, manifest = open_stage(stage, plan, options.overwrite)
    if manifest is not None:
        return manifest
    options = fitting(stage, plan, options)
    if options.beam_options:
        [manifest] = run_on_beam([stage], options, show_progress)
        return cast(M, manifest)
    with progress_shown([stage], show_progress), _errors_of_workers([stage]):
        _run_phases(stage, directory, num_workers(options))
    return finish_stage(stage, directory)


def run_on_beam(
    stages: Sequence[Stage[Any, Any]], options: RunOptions, show_progress: ShowProgress | None
) -> list[Manifest]:
    """Run stages as one pipeline; the first one has been opened. Return their manifests."""
    # Imported late: Beam takes seconds to import, and what is finished needs none of it.
    from .beam import run_pipeline

    with progress_shown(stages, show_progress), _errors_of_workers(stages):
        return run_pipeline(stages, options)


def fitting(stage: Stage[Any, Any], plan: StagePlan[Any], options: RunOptions) -> RunOptions:
    """Return the options with a single worker if more would gain nothing, as each has to start."""
    costs = [unit.cost for unit in plan.units]
    has_one_phase = len(list(stage.phases())) == 1
    only_one_unit = has_one_phase and len(costs) <= 1
    num_bytes = sum(costs)
    if has_one_phase and costs:
        num_bytes -= max(costs)  # one worker is busy with these, whatever the others do
    is_small = not options.workers and num_bytes < SMALL_BYTES
    if only_one_unit or is_small:
        return replace(options, workers=1)
    return options


def _run_phases(stage: Stage[S, Any], directory: OpenedStage[S], num_processes: int) -> None:
    """Run the phases in worker processes, or in this process instead of a single one."""
    with started(num_processes if num_processes > 1 else 0) as workers:
        for phase in stage.phases():
            numbers = plan_phase(directory, phase)
            do_all(numbers, partial(do_unit, directory=directory, phase=phase), workers)


@contextmanager
def _errors_of_workers(stages: Sequence[Stage[Any, Any]]) -> Iterator[None]:
    """Raise the `UserError` that a worker of `stages` wrote down, whatever the body raises itself.

    Other errors of the body become a `RunError` of one line.
    """
    try:
        yield
    except Exception as error:
        message = _take_written_error(stages)
        if message is not None:
            raise UserError(message) from error
        if isinstance(error, UserError | RunError):
            raise
        cause = str(error) or type(error).__name__
        raise RunError(f"The run failed: {cause.rstrip('.')}.") from error


def _take_written_error(stages: Sequence[Stage[Any, Any]]) -> str | None:
    """Return the first message that a worker wrote down, and delete all of them."""
    for stage in stages:
        directory = OutputDirectory(stage.output)
        messages: list[str] = []
        with suppress(UserError, RunError):  # the store may be out of reach
            messages = read_errors(directory)
        if messages:
            clear_errors(directory)
            return messages[0]
    return None


def check_runner(options: RunOptions, output: str) -> None:
    """Check the options for Beam, if there are any, before anything is read or written.

    Raises `UserError`.
    """
    if options.beam_options:
        from .beam import check_options

        check_options(options, output)
