"""Units of work, done by one worker or many, here or elsewhere.

A stage hands over units (an input range, a bucket, a shard), each a small pointer, never a payload; a worker reads,
transforms and writes in one fused step and leaves a record. What is done is told by the records alone, so that a killed
run, another runner or another number of workers goes on from there.

On this machine the units are spread over worker processes (`workers`); what stands after ``--`` takes them to Apache
Beam's runners (`beam`), on clusters too. Beam's own runner for one machine would do here as well, and a test holds the
bytes equal, but it imports 0.7 s of Beam into each process, ends each phase a second late, and cuts the units into
equal slices before it knows how long they take.
"""

import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from ..config import RunOptions
from ..errors import UserError
from .directory import StageDirectory
from .progress import bytes_progress, noise_to_file
from .storage import is_remote
from .workers import DeadWorkerError, do_all, started

POLL_S = 0.25
REMOTE_POLL_S = 5.0  # each look lists a folder of an object store
NUM_READERS = 16


class RunError(Exception):
    """The run broke for a reason that is no mistake of the user; the same command again resumes it."""


@dataclass(frozen=True)
class Unit:
    """One piece of work that is done whole or not at all."""

    name: str
    cost: int  # bytes to read, for the order, the balance and the progress
    payload: Any


Work = Callable[[StageDirectory, Any], dict[str, Any]]
Step = Callable[[Unit], None]
Run = Callable[[Sequence[Unit], Step], None]


def run_units(
    directory: StageDirectory, phase: str, units: Sequence[Unit], work: Work, options: RunOptions
) -> list[dict[str, Any]]:
    """Do `work(directory, payload)` for every unit that has no record yet; return the records of all, in order.

    Raise the `UserError` that a worker met, or `RunError` where the run broke.
    """
    records = _read_records(directory, phase, units)
    todo = [unit for unit in units if unit.name not in records]
    if todo:
        todo.sort(key=lambda unit: (-unit.cost, unit.name))  # the largest first: none is begun late and waited for
        _do_units(directory, phase, todo, work, options)
        records |= _read_records(directory, phase, todo)
    for unit in todo:
        if unit.name not in records:
            raise RunError(f"{unit.name} was not finished, though the runner reported success.")
    return [records[unit.name] for unit in units]


def _read_records(directory: StageDirectory, phase: str, units: Sequence[Unit]) -> dict[str, dict[str, Any]]:
    """Return the records of the units that are done, by name; many at a time, for object stores answer slowly."""
    done = directory.done_units(phase)
    names = [unit.name for unit in units if unit.name in done]
    with ThreadPoolExecutor(NUM_READERS) as pool:
        found = pool.map(partial(directory.read_record, phase), names)
        return {name: record for name, record in zip(names, found, strict=True) if record is not None}


def do_unit(unit: Unit, directory: StageDirectory, phase: str, work: Work) -> None:
    """Do one unit of work in a worker and leave its record.

    Raise the `UserError` that it meets, and leave its message, as a class of errors is lost on the way from a worker.
    Where another unit has left one, nothing is done: the run is to end soon.
    """
    if directory.has_errors(phase):
        return
    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what is freed: 80 MB more at the peak
    try:
        directory.write_record(phase, unit.name, work(directory, unit.payload))
    except UserError as error:
        directory.write_error(phase, unit.name, str(error))
        raise


def _do_units(directory: StageDirectory, phase: str, units: list[Unit], work: Work, options: RunOptions) -> None:
    directory.take_errors(phase)  # of a run that was killed before it could tell them
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the workers inherit it; the cores are theirs already
    step = partial(do_unit, directory=directory, phase=phase, work=work)
    poll_s = REMOTE_POLL_S if is_remote(directory.path) else POLL_S
    with noise_to_file(options.verbose) as (terminal, log):
        console = Console(file=terminal)
        with (
            bytes_progress(console, phase, sum(unit.cost for unit in units)) as progress,
            _runner(options, phase, len(units)) as run,
        ):
            failure = _watch(partial(run, units, step), lambda: _advance(progress, directory, phase, units), poll_s)
        errors = directory.take_errors(phase)
        if failure and not errors:
            raise RunError(failure + (f" Log: {log}" if log else ""))
    if errors:
        raise UserError(errors[0])


@contextmanager
def _runner(options: RunOptions, phase: str, num_units: int) -> Iterator[Run]:
    """Yield what does units: this process where one worker is enough, worker processes, or Beam with its options."""
    num_workers = min(options.workers or os.cpu_count() or 1, num_units)
    if options.beam_options:
        from .beam import run_pipeline

        yield partial(run_pipeline, name=phase.capitalize(), options=options)
    elif num_workers == 1:
        yield _do_here
    else:
        with started(num_workers) as workers:
            yield partial(do_all, workers=workers)


def _do_here(units: Sequence[Unit], step: Step) -> None:
    for unit in units:
        step(unit)


def _advance(progress: Progress, directory: StageDirectory, phase: str, units: list[Unit]) -> None:
    if progress.disable:
        return
    done = directory.done_units(phase)
    progress.update(progress.task_ids[0], completed=sum(unit.cost for unit in units if unit.name in done))


def _watch(run: Callable[[], None], tick: Callable[[], None], poll_s: float) -> str | None:
    """Call `run` in a thread, and `tick` now and then; return what went wrong, None if nothing did.

    SIGTERM interrupts it as Ctrl-C does.
    """
    failures: list[str] = []
    over = threading.Event()

    def run_to_the_end() -> None:
        try:
            run()
        except DeadWorkerError as error:
            failures.append(str(error))
        except Exception as error:
            traceback.print_exc()
            failures.append(f"The run failed: {_last_line(error)}.")
        finally:
            over.set()

    with _interrupted_by_sigterm():
        threading.Thread(target=run_to_the_end, daemon=True).start()
        while not over.wait(poll_s):
            tick()
    return failures[0] if failures else None


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # Python sets handlers in the main thread only
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _last_line(error: Exception) -> str:
    """Return the innermost cause of an error that came through Beam, without the names of the exceptions' classes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(("[while running", "File ", "return ", "raise "))]
    cause = causes[-1] if causes else type(error).__name__
    return re.sub(r"^(RuntimeError: )?([\w.]+: )?|(\s*\[while running .*)", "", cause).rstrip(".")


def prepare(options: RunOptions, output: str) -> None:
    """Check the options for Beam, where there are any, before anything is read or written; raise `UserError`."""
    if options.beam_options:
        from . import beam

        beam.prepare(options, output)
