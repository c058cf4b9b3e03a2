"""Run the phases of a stage: in this process, in worker processes, or as one Apache Beam pipeline."""

import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ..config import RunOptions
from ..errors import RunError, UserError
from ..storage import is_remote
from ..storage.stage import StageDirectory
from .phases import (
    ERRORS,
    Phase,
    Unit,
    do_unit,
    finished_units,
    plan_phase,
    read_errors,
    read_plan,
    write_plan,
)
from .workers import DeadWorkerError, do_all, num_workers, started

POLL_S = 0.25
REMOTE_POLL_S = 5.0  # each poll lists a folder of an object store

Phases = Sequence[Phase[Any, Any]]


def run_phases(
    directory: StageDirectory, units: Sequence[Unit[Any]], phases: Phases, options: RunOptions
) -> None:
    """Do all units of all phases that have no record yet; `units` are those of the first phase.

    Raises the `UserError` that a worker met, or `RunError` if the run broke.
    """
    directory.remove(ERRORS)
    write_plan(directory, phases[0], units)
    os.environ["TOKENIZERS_PARALLELISM"] = (
        "false"  # inherited by the workers, which share out the cores already
    )
    if options.beam_options:
        from .beam import run_pipeline as launch
    elif num_workers(options) == 1 or (len(phases) == 1 and len(units) <= 1):
        launch = _run_here
    else:
        launch = _run_in_workers
    with _noise_to_file(options.verbose) as (terminal, log):
        console = Console(file=terminal)
        columns = (
            "{task.description}",
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(
            *columns, console=console, disable=not console.is_terminal, transient=True
        ) as progress:
            progress.add_task("", total=None)
            show = partial(_show, progress, directory, phases)
            with _repeated(show, REMOTE_POLL_S if is_remote(directory.path) else POLL_S):
                failure = _attempt(partial(launch, directory, phases, options))
        errors = read_errors(directory)
        if failure and not errors:
            raise RunError(failure + (f" Log: {log}" if log else ""))
    if errors:
        directory.remove(ERRORS)
        raise UserError(errors[0])


def _run_here(directory: StageDirectory, phases: Phases, options: RunOptions) -> None:
    for phase in phases:
        for number in plan_phase(directory, phase):
            do_unit(number, directory, phase)


def _run_in_workers(directory: StageDirectory, phases: Phases, options: RunOptions) -> None:
    with started(num_workers(options)) as workers:
        for phase in phases:
            numbers = plan_phase(directory, phase)
            do_all(numbers, partial(do_unit, directory=directory, phase=phase), workers)


def _show(progress: Progress, directory: StageDirectory, phases: Phases) -> None:
    """Show how much of the current phase is done, in bytes."""
    for phase in phases if not progress.disable else ():
        try:
            units, done = read_plan(directory, phase), finished_units(directory, phase.name)
        except (UserError, RunError):  # not planned yet, or the store cannot be reached just now
            return
        if len(done) < len(units):
            total, completed = (
                sum(unit.cost for unit in units),
                sum(units[number].cost for number in done),
            )
            progress.update(
                progress.task_ids[0], description=phase.name, total=total, completed=completed
            )
            return


def _attempt(run: Callable[[], None]) -> str | None:
    """Call `run`, which SIGTERM interrupts as Ctrl-C does; return what went wrong, if any."""
    is_main = (
        threading.current_thread() is threading.main_thread()
    )  # only there Python sets signal handlers
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if is_main else None
    try:
        run()
    except (UserError, RunError, DeadWorkerError) as error:
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"The run failed: {_last_line(error)}."
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)
    return None


@contextmanager
def _repeated(tick: Callable[[], None], poll_s: float) -> Iterator[None]:
    """Call `tick` now and then, in a thread.

    The work itself runs in the caller's thread, so that an interrupt ends all of it.
    """
    over = threading.Event()

    def tick_until_over() -> None:
        while not over.wait(poll_s):
            tick()

    ticker = threading.Thread(target=tick_until_over, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()


def _last_line(error: Exception) -> str:
    """Return the innermost cause of an error that came through Beam, without the names of the
    exceptions' classes.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [
        line
        for line in lines
        if not line.startswith(("[while running", "File ", "return ", "raise "))
    ]
    cause = causes[-1] if causes else type(error).__name__
    return re.sub(r"^(RuntimeError: )?([\w.]+: )?|(\s*\[while running .*)", "", cause).rstrip(".")


@contextmanager
def _noise_to_file(verbose: bool) -> Iterator[tuple[TextIO, str | None]]:
    """Redirect standard error of this process and its children to a file, unless `verbose`; keep it
    if the body fails.

    Libraries in the workers print there. Yield the terminal's own stream, for progress and errors,
    and the file's path.
    """
    if verbose:
        yield sys.stderr, None
        return
    sys.stderr.flush()
    terminal = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    handle, path = tempfile.mkstemp(prefix="clozeworks-", suffix=".log")
    os.dup2(handle, 2)
    os.close(handle)
    keep = False
    try:
        yield terminal, path
    except Exception:
        keep = True
        raise
    finally:
        if not keep:
            Path(path).unlink(missing_ok=True)
        os.dup2(terminal.fileno(), 2)
        terminal.close()


def prepare(options: RunOptions, output: str) -> None:
    """Check the options for Beam, if there are any, before anything is read or written; raises
    `UserError`.
    """
    if options.beam_options:
        from . import beam

        beam.prepare(options, output)
