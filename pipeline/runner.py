"""Units of work on Beam: the only file that knows runners.

A stage hands over units (an input range, a bucket, a shard), each a small pointer, never a payload; a worker reads,
transforms and writes in one fused step and leaves a record. Beam spreads the units over the workers. What is done is
told by the records alone, so that a killed run, another runner or another number of workers goes on from there.

Locally that is Beam's DirectRunner. Two of its traps are met here: without ``update_compatibility_version`` it tries
to download another runner (Prism), and when a worker process dies it waits for ever.
"""

import logging
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
from importlib.metadata import version
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, _BeamArgumentParser
from rich.console import Console
from rich.progress import Progress

from .config import RunOptions
from .errors import UserError
from .progress import bytes_progress, noise_to_file
from .stage import StageDirectory
from .storage import is_remote

POLL_S = 0.25
REMOTE_POLL_S = 5.0  # each look lists a folder of an object store
NUM_READERS = 16
REMOTE_RUNNER = "DataflowRunner"


class RunError(Exception):
    """The run broke for a reason that is no mistake of the user; the same command again resumes it."""


@dataclass(frozen=True)
class Unit:
    """One piece of work that is done whole or not at all."""

    name: str
    cost: int  # bytes to read, for the order, the balance and the progress
    payload: Any


Work = Callable[[StageDirectory, Any], dict[str, Any]]


def run_units(
    directory: StageDirectory, phase: str, units: Sequence[Unit], work: Work, options: RunOptions
) -> list[dict[str, Any]]:
    """Do `work(directory, payload)` for every unit that has no record yet; return the records of all, in order.

    Raise the `UserError` that a worker met, or `RunError` where the run broke.
    """
    records = _read_records(directory, phase, units)
    todo = [unit for unit in units if unit.name not in records]
    if todo:
        # Workers get equal slices, cut once: the largest first, in turn.
        todo.sort(key=lambda unit: (-unit.cost, unit.name))
        _run_pipeline(directory, phase, todo, work, options)
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
    """Do one unit of work in a worker and leave its record, or the message of the user's mistake.

    Where another unit has met such a mistake, nothing is done: the run is to end soon.
    """
    if directory.has_errors(phase):
        return
    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what is freed: 80 MB more at the peak
    try:
        directory.write_record(phase, unit.name, work(directory, unit.payload))
    except UserError as error:
        directory.write_error(phase, unit.name, str(error))


def _run_pipeline(directory: StageDirectory, phase: str, units: list[Unit], work: Work, options: RunOptions) -> None:
    directory.take_errors(phase)  # of a run that was killed before it could tell them
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the workers inherit it; the cores are theirs already
    pipeline = beam.Pipeline(options=pipeline_options(options, len(units)))
    step = partial(do_unit, directory=directory, phase=phase, work=work)
    _ = pipeline | "Units" >> beam.Create(units, reshuffle=True) | phase.capitalize() >> beam.Map(step)
    _set_log(options.verbose)
    poll_s = REMOTE_POLL_S if is_remote(directory.path) else POLL_S
    with noise_to_file(options.verbose) as (terminal, log):
        console = Console(file=terminal)
        with bytes_progress(console, phase, sum(unit.cost for unit in units)) as progress:
            failure = _watch(pipeline, lambda: _advance(progress, directory, phase, units), poll_s)
        errors = directory.take_errors(phase)
        if failure and not errors:
            raise RunError(failure + (f" Log: {log}" if log else ""))
    if errors:
        raise UserError(errors[0])


def _set_log(verbose: bool) -> None:
    log = logging.getLogger("apache_beam")
    log.setLevel(logging.INFO if verbose else logging.ERROR)
    if verbose and not log.handlers:
        log.addHandler(logging.StreamHandler())


def _advance(progress: Progress, directory: StageDirectory, phase: str, units: list[Unit]) -> None:
    if progress.disable:
        return
    done = directory.done_units(phase)
    progress.update(progress.task_ids[0], completed=sum(unit.cost for unit in units if unit.name in done))


def _watch(pipeline: beam.Pipeline, tick: Callable[[], None], poll_s: float) -> str | None:
    """Run the pipeline in a thread, calling `tick` now and then; return what went wrong, None if nothing did.

    SIGTERM interrupts it as Ctrl-C does.
    """
    failures: list[str] = []
    over = threading.Event()

    def run() -> None:
        try:
            pipeline.run().wait_until_finish()
        except Exception as error:
            traceback.print_exc()
            failures.append(f"The run failed: {_last_line(error)}.")
        over.set()

    def on_thread_death(args: threading.ExceptHookArgs) -> None:
        # Beam's runner starts each worker process from a thread, and waits for ever when that one dies.
        traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)
        if "Worker subprocess exited" in str(args.exc_value):
            failures.append("A worker process was killed (out of memory?); run the same command again to go on.")
            over.set()

    hook_before, threading.excepthook = threading.excepthook, on_thread_death
    try:
        with _interrupted_by_sigterm():
            threading.Thread(target=run, daemon=True).start()
            while not over.wait(poll_s):
                tick()
    finally:
        threading.excepthook = hook_before
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
    """Check Beam's options, and hand them to Beam's filesystems, before anything is read or written.

    Raise `UserError` for an option that Beam does not know, and for an `output` that the runner cannot reach.
    """
    beam_options = pipeline_options(options, 1)
    runner = beam_options.view_as(StandardOptions).runner
    if runner == REMOTE_RUNNER and not is_remote(output):
        raise UserError(
            f"{runner} works on other machines, and {output} is on no file system of theirs; give a gs:// one."
        )
    FileSystems.set_options(beam_options)


def pipeline_options(options: RunOptions, num_units: int) -> PipelineOptions:
    """Return Beam's options: DirectRunner by default, and what the user gave after ``--``.

    Raise `UserError` for an option that Beam does not know.
    """
    _refuse_unknown(options.beam_options)
    flags = list(options.beam_options)
    if not any(flag.startswith("--runner") for flag in flags):
        workers = min(options.workers or os.cpu_count() or 1, num_units)
        mode = "in_memory" if workers == 1 else "multi_processing"
        flags = [
            "--runner=DirectRunner",
            f"--direct_num_workers={workers}",
            f"--direct_running_mode={mode}",
            f"--update_compatibility_version={version('apache-beam')}",
            *flags,
        ]
    return PipelineOptions(flags)


def _refuse_unknown(flags: Sequence[str]) -> None:
    parser = _BeamArgumentParser()
    for group in PipelineOptions.__subclasses__():
        if "_add_argparse_args" in vars(group):
            group._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(list(flags))
    if unknown:
        raise UserError(f"{unknown[0]} is no option of Apache Beam; see the pages of your runner.")
