"""A stage as one Apache Beam pipeline, on any of Beam's runners: the only module that imports Beam.

An element is the number of a unit. Text never crosses: a unit reads and writes files, and runners
keep what passes a `GroupByKey` in memory or bill for it. A phase ends in a `GroupByKey` on one key,
which waits for all of its units; one element then plans the next phase.

Traps of the runners that this module deals with:

- DirectRunner tries to download another runner (Prism) unless it gets
  ``update_compatibility_version``, and hangs when a worker process dies.
- DaskRunner makes `Reshuffle` the identity, and has as many partitions, to the end, as the first
  elements make. So units are dealt out by a `GroupByKey` on their own number, and the first
  elements are many. Dask's runner and options are unknown to Beam until its module is imported.
"""

import argparse
import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
    _BeamArgumentParser,
)

from ..config import RunOptions
from ..errors import UserError
from ..storage import absolute, is_remote
from ..storage.stage import StageDirectory
from .counters import Counters
from .phases import Phase, do_unit, plan_phase, stop_units
from .workers import LOOK_FOR_INTERRUPT_S, DeadWorkerError, num_workers

DASK_MODULE = "apache_beam.runners.dask.dask_runner"
DASK_PARTITIONS = 64
NO_UNIT = -1
"""The element of a phase that has nothing to do: the next phase still needs one to wait for."""

METRICS = "clozeworks"


def run_pipeline(
    directory: StageDirectory, phases: Sequence[Phase[Any, Any]], options: RunOptions
) -> None:
    """Run all phases as one pipeline, on the runner that the options name; raise what broke the
    run.
    """
    log = logging.getLogger("apache_beam")
    log.setLevel(logging.INFO if options.verbose else logging.ERROR)
    if options.verbose and not log.handlers:
        log.addHandler(logging.StreamHandler())
    directory = replace(
        directory, path=absolute(directory.path)
    )  # workers may run in another folder
    pipeline = beam.Pipeline(options=pipeline_options(options))
    first = _plan(directory, phases[0])
    elements = pipeline | beam.Create([*first, *[NO_UNIT] * (DASK_PARTITIONS - len(first))])
    for phase in phases:
        if phase is not phases[0]:
            plan = partial(_plan, directory, phase)
            elements = (
                elements
                | f"Wait before {phase.name}" >> beam.GroupByKey()
                | f"Plan {phase.name}" >> beam.FlatMap(lambda _, plan=plan: plan())
            )
        work = partial(_work, directory=directory, phase=phase)
        elements = (
            elements
            | f"Deal out {phase.name}" >> beam.GroupBy(lambda number: number)
            | phase.name.capitalize() >> beam.Map(work)
        )
    _run(pipeline, partial(stop_units, directory))


def _plan(directory: StageDirectory, phase: Phase[Any, Any]) -> list[int]:
    """Return the elements of a phase: the numbers of its unfinished units."""
    try:
        return plan_phase(directory, phase) or [NO_UNIT]
    except UserError:
        return []  # it is written down, and the launching process raises it


def _work(
    dealt: tuple[int, Any], directory: StageDirectory, phase: Phase[Any, Any]
) -> tuple[int, None]:
    """Do one unit; all elements leave under one key."""
    number, _ = dealt
    with suppress(UserError):  # it is written down; a runner would only try again
        if number != NO_UNIT:
            do_unit(number, directory, phase)
    return 0, None


def _run(pipeline: beam.Pipeline, stop: Callable[[], None]) -> None:
    """Run a pipeline to its end; raise what broke it, and `DeadWorkerError` if a local worker
    process died.

    An interrupt calls `stop` and waits for the units that have begun: not every runner can cancel
    them.
    """
    ends: SimpleQueue[BaseException | None] = SimpleQueue()

    def run() -> None:
        try:
            pipeline.run().wait_until_finish()
        except Exception as error:
            ends.put(error)
        else:
            ends.put(None)

    def on_thread_death(args: threading.ExceptHookArgs) -> None:
        # DirectRunner starts each worker process from a thread, and waits for ever when that one
        # dies.
        traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)
        if "Worker subprocess exited" in str(args.exc_value):
            ends.put(DeadWorkerError())

    hook_before, threading.excepthook = threading.excepthook, on_thread_death
    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
        if error := _first(ends):
            raise error
    except KeyboardInterrupt:
        stop()
        _first(ends)
        raise
    finally:
        threading.excepthook = hook_before


def _first(ends: "SimpleQueue[BaseException | None]") -> BaseException | None:
    while True:
        with suppress(Empty):
            return ends.get(timeout=LOOK_FOR_INTERRUPT_S)


def prepare(options: RunOptions, output: str) -> None:
    """Check the options; raises `UserError` for one that Beam does not know, and for an `output`
    out of reach.
    """
    runner = pipeline_options(options).view_as(StandardOptions).runner
    if runner == "DataflowRunner" and not is_remote(output):
        raise UserError(
            f"{runner} runs on other machines, which cannot reach {output}; give a gs:// path."
        )


class _OptionParser(_BeamArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report a wrong value in one line, without all of Beam's options."""
        raise UserError(f"Apache Beam's options are wrong: {message}.")


def pipeline_options(options: RunOptions) -> PipelineOptions:
    """Return Beam's options, by default for DirectRunner; raises `UserError` for one that Beam does
    not know.
    """
    runner, flags = _take_runner(options.beam_options)
    if runner in (None, "DirectRunner"):
        workers = num_workers(options)
        mode = "in_memory" if workers == 1 else "multi_processing"
        flags = [
            "--runner=DirectRunner",
            f"--direct_num_workers={workers}",
            f"--direct_running_mode={mode}",
            f"--update_compatibility_version={version('apache-beam')}",
            *flags,
        ]
    elif runner == "DaskRunner":
        import_module(DASK_MODULE)
        flags = [
            f"--runner={DASK_MODULE}.{runner}",
            f"--dask_npartitions={DASK_PARTITIONS}",
            *flags,
        ]
    else:
        flags = [f"--runner={runner}", *flags]
    parser = _OptionParser()
    for group in PipelineOptions.__subclasses__():
        if "_add_argparse_args" in vars(group):
            group._add_argparse_args(parser)
    if unknown := parser.parse_known_args(flags)[1]:
        raise UserError(f"Apache Beam has no option {unknown[0]}; see your runner's documentation.")
    return PipelineOptions(flags)


def _take_runner(flags: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the runner that the options name, as one word or two, and the other options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--runner")
    try:
        found, others = parser.parse_known_args(flags)
    except argparse.ArgumentError:
        raise UserError(
            "--runner needs the name of a runner, for example --runner=DirectRunner."
        ) from None
    return found.runner, others


class ReadParts(beam.PTransform):
    """Transform a pipeline into the elements that `read` yields for each of `parts`, in parallel.

    What `read` counts in its `Counters` becomes Beam metrics in the namespace `METRICS`.
    """

    def __init__(
        self, parts: Sequence[Any], read: Callable[[Any, Counters], Iterable[Any]]
    ) -> None:
        super().__init__()
        self.parts, self.read = parts, read

    def expand(self, input_or_inputs: Any) -> Any:
        """Wire the transform."""
        # A GroupByKey redistributes the parts on every runner; Dask's makes Reshuffle the identity.
        parts = input_or_inputs | "Parts" >> beam.Create(list(enumerate(self.parts)))
        return (
            parts
            | "Redistribute" >> beam.GroupByKey()
            | "Read" >> beam.FlatMap(_read_part, self.read)
        )


def _read_part(
    keyed: tuple[int, Iterable[Any]], read: Callable[[Any, Counters], Iterable[Any]]
) -> Iterator[Any]:
    for part in keyed[1]:
        counters = Counters()
        yield from read(part, counters)
        for name, amount in {**counters.counts, **counters.bad}.items():
            Metrics.counter(METRICS, name).inc(amount)
