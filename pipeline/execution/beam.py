"""Units of work on Apache Beam: the only file that knows its runners.

What stands after ``--`` on the command line comes here. Where it names no runner it is Beam's DirectRunner on this
machine. Two of its traps are met here: without ``update_compatibility_version`` it tries to download another runner
(Prism), and when a worker process dies it waits for ever.
"""

import logging
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, _BeamArgumentParser

from ..config import RunOptions
from ..errors import UserError
from .storage import is_remote
from .workers import DeadWorkerError

REMOTE_RUNNER = "DataflowRunner"


def run_pipeline(units: Sequence[Any], step: Callable[[Any], None], name: str, options: RunOptions) -> None:
    """Call `step` on every unit, on the runner that the options name; raise what broke the run."""
    pipeline = beam.Pipeline(options=pipeline_options(options, len(units)))
    do = partial(_do_unless_mistaken, step=step)
    _ = pipeline | "Units" >> beam.Create(units, reshuffle=True) | name >> beam.Map(do)
    _set_log(options.verbose)
    ends: SimpleQueue[BaseException | None] = SimpleQueue()

    def run() -> None:
        try:
            pipeline.run().wait_until_finish()
        except Exception as error:
            ends.put(error)
        else:
            ends.put(None)

    def on_thread_death(args: threading.ExceptHookArgs) -> None:
        # Beam's runner starts each worker process from a thread, and waits for ever when that one dies.
        traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)
        if "Worker subprocess exited" in str(args.exc_value):
            ends.put(DeadWorkerError())

    hook_before, threading.excepthook = threading.excepthook, on_thread_death
    try:
        threading.Thread(target=run, daemon=True).start()
        if error := ends.get():
            raise error
    finally:
        threading.excepthook = hook_before


def _do_unless_mistaken(unit: Any, step: Callable[[Any], None]) -> None:
    with suppress(UserError):  # a cluster would try again; `step` has left the message, and passes over the others
        step(unit)


def _set_log(verbose: bool) -> None:
    log = logging.getLogger("apache_beam")
    log.setLevel(logging.INFO if verbose else logging.ERROR)
    if verbose and not log.handlers:
        log.addHandler(logging.StreamHandler())


def prepare(options: RunOptions, output: str) -> None:
    """Check the options, and hand them to Beam's filesystems.

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
