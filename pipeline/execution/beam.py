"""Run data stages as Apache Beam transforms; only this module imports Beam.

An element is the number of a unit, and the path of its job. Text never crosses: a unit reads and
writes files, and runners keep what passes a `GroupByKey` in memory or bill for it. One stage, with
two phases::

    Open -> [ Plan -> Deal out -> Work ] -> [ Plan -> Deal out -> Work ] -> Finish

Open, every Plan, and Finish are done once, by one element that waits for all before it: after a
`GroupByKey` on one key, as Dask's runner does not wait at `beam.WaitOn`.

DirectRunner is for small inputs, tests and notebooks; on one machine `workers` are faster.

Traps of the runners that this module deals with:

- DirectRunner tries to download another runner (Prism) unless it gets
  ``update_compatibility_version``.
- DaskRunner makes `Reshuffle` the identity, and has as many partitions, to the end, as the first
  elements make. So units are dealt out by a `GroupByKey` on their own number, and the first
  elements are many. Dask's runner and options are unknown to Beam until its module is imported.
- DaskRunner takes a job that was lost with its scheduler for done. So the outputs are looked at.
- SparkRunner ends a host's Python process whenever no task is at work there, unless it may keep it.
"""

import platform
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser
from apache_beam.pvalue import PCollection
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import create_runner

from .. import storage
from ..config import RunOptions
from ..counters import Counters
from ..errors import RunError, UserError
from ..manifests import Manifest, VocabularyManifest
from ..storage.state import MANIFEST, read_any_manifest
from .job import ERRORS, Job, Phase, Stage, job_of, open_job
from .workers import LOOK_FOR_INTERRUPT_S

DASK_MODULE = "apache_beam.runners.dask.dask_runner"
DASK_PARTITIONS = 64
NO_UNIT = -1
"""The element of a phase that has nothing to do: the next phase still needs one to wait for."""

_STAGES: WeakKeyDictionary[beam.Pipeline, dict[str, Stage]] = WeakKeyDictionary()
METRICS = "clozeworks"
"""Namespace of the metrics; a stage adds its name, as in ``clozeworks.ingest``."""


class RunStage(beam.PTransform):
    """Run a stage after all elements of the input, or at the start of a pipeline; the output is one
    element, the path of the stage's directory.

    A `UserError` of any step fails the job with its message. What the manifest counts is counted as
    metrics, in resumed runs too. The directory is not locked: nothing else may write it meanwhile.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.name.capitalize())
        self.stage = stage.absolute()
        self.with_output_types(str)

    def expand(self, input_or_inputs: Any) -> Any:
        """Wire the transform."""
        done = input_or_inputs
        stages = _STAGES.setdefault(done.pipeline, {})
        if stages.setdefault(self.stage.output, self.stage) is not self.stage:
            raise UserError(f"Two stages would write to {self.stage.output}: give each its own.")
        if not isinstance(done, PCollection):
            done = done | "Start" >> beam.Create(range(DASK_PARTITIONS))
        versions = _versions()
        done = done | "Open" >> _once(partial(_open, stage=self.stage, versions=versions))
        for phase in self.stage.phases:
            done = done | phase.name.capitalize() >> _run_phase(phase, versions)
        return done | "Finish" >> _once(partial(_finish, stage=self.stage))


@beam.ptransform_fn
def _run_phase(jobs: Any, phase: Phase, versions: str) -> Any:
    """Run a phase after all elements of the input; these and those of the output are the job."""
    # Not arguments of `beam.Map`, which would hold them against its type hints.
    return (
        jobs
        | "Plan" >> _once(partial(_plan, phase=phase))
        | "Units" >> beam.FlatMap(lambda numbered: numbered)
        | "Deal out" >> beam.GroupByKey()
        | "Work" >> beam.Map(partial(_work, phase=phase, versions=versions))
    )


@beam.ptransform_fn
def _once(elements: Any, function: Callable[[Any], Any]) -> Any:
    """Call a function once, with one of the elements, after all of them."""
    return (
        elements
        | "One key" >> beam.Map(lambda element: (0, element))
        | "Wait" >> beam.GroupByKey()
        | "Call" >> beam.Map(lambda grouped: function(next(iter(grouped[1]))))
    )


@cache
def _versions() -> str:
    """Return what must be the same on all hosts: another Beam may lose a job's options silently."""
    python = ".".join(platform.python_version_tuple()[:2])
    beams = f"apache-beam {version('apache-beam')}"
    return f"clozeworks {version('clozeworks')}, {beams} and Python {python}"


def _check_versions(of_launcher: str) -> None:
    if _versions() != of_launcher:
        raise UserError(
            f"{socket.gethostname()} has {_versions()}, but the run was opened by {of_launcher}: "
            "install the same on all machines."
        )


def _open(_: Any, stage: Stage, versions: str) -> Job:
    _check_versions(versions)
    # Never with `overwrite`: a runner may open again when it has lost the result with a worker.
    job, _ = open_job(stage, stage.plan(), overwrite=False)
    return job


def _plan(job: Job, phase: Phase) -> list[tuple[int, Job]]:
    """Return the elements of a phase: the numbers of its unfinished units, with the job."""
    numbers = []
    if not job.is_finished():  # before this pipeline began
        with _written_down(job, f"{phase.name}-plan"):
            numbers = job.start(phase)
    return [(number, job) for number in numbers or [NO_UNIT]]


def _work(dealt: tuple[int, Iterable[Job]], phase: Phase, versions: str) -> Job:
    # A group: the number, and the single copy of what came with it.
    number, [job] = dealt
    # In a finished job a runner does again what was done long before.
    if number != NO_UNIT and not job.is_finished():
        _raise_written(job)
        with _written_down(job, f"{phase.name}-{number}"):
            _check_versions(versions)
            job.do(number, phase)
    return job


def _finish(job: Job, stage: Stage) -> str:
    if job.is_finished():  # before this pipeline began
        manifest = read_any_manifest(stage.output)
    else:
        with _written_down(job, "finish"):
            manifest = job.finish(stage)
    for name, value in metrics_of(manifest).items():
        Metrics.counter(f"{METRICS}.{stage.name}", name).inc(value)
    return stage.output


@contextmanager
def _written_down(job: Job, place: str) -> Iterator[None]:
    """Write down the message of a `UserError` of the body, so that no further unit begins on any
    host, one that an engine tries again fails again, and the launching process can raise it.

    Raise it as a `RunError` if it cannot be written down.
    """
    try:
        yield
    except UserError as error:
        try:
            job.write_bytes(job.temporary(f"{ERRORS}/{place}.txt"), str(error).encode())
        except (UserError, RunError):
            raise RunError(str(error)) from None
        raise


def _raise_written(job: Job) -> None:
    folder = job.file(job.temporary(ERRORS))
    for file in storage.file_names(folder):
        raise UserError(storage.read_bytes(f"{folder}/{file}").decode())


def metrics_of(manifest: Manifest) -> dict[str, int]:
    """Return the counts of a manifest, bad input by reason, and the rows and bytes written."""
    if isinstance(manifest, VocabularyManifest):
        return {
            "words": manifest.report.learned_from.num_words,
            "tokens": manifest.report.num_tokens,
            "bytes": manifest.word_counts.bytes,
        }
    return {
        **manifest.counts,
        **manifest.bad,
        "rows": sum(shard.rows for shard in manifest.shards),
        "bytes": sum(shard.bytes for shard in manifest.shards),
    }


def run_pipeline(stages: Sequence[Stage], options: RunOptions) -> list[Manifest]:
    """Run stages, one after the other, as one pipeline on the runner of the options; return their
    manifests.

    An interrupt lets no further unit begin, and waits for those that have begun: not every runner
    can cancel them.
    """
    pipeline = beam.Pipeline(options=pipeline_options(options))
    done: Any = pipeline
    for stage in stages:
        done = done | RunStage(stage)
    try:
        submitted: Any = None
        if isinstance(pipeline.runner, PortableRunner):
            # In this thread: a runner that starts its own job server, as Prism does, sets a handler
            # of SIGINT. It only submits; DirectRunner would do the work.
            submitted = pipeline.run()
        with ThreadPoolExecutor(1) as thread:
            run = thread.submit(lambda: (submitted or pipeline.run()).wait_until_finish())
            try:
                while not wait([run], LOOK_FOR_INTERRUPT_S).done:
                    pass
            except KeyboardInterrupt:
                message = b"The run was interrupted."
                with suppress(UserError, RunError):  # the store may be out of reach
                    for job in filter(None, map(job_of, stages)):
                        job.write_bytes(job.temporary(f"{ERRORS}/stopped.txt"), message)
                raise
            run.result()
    except Exception as error:
        with suppress(RunError):
            for job in filter(None, map(job_of, stages)):
                _raise_written(job)
        raise in_a_line(error) from error
    if not all(storage.exists(storage.join(stage.output, MANIFEST)) for stage in stages):
        raise RunError(
            "The job ended before its work was done: the cluster may have been stopped. "
            "Rerun the same command to resume."
        )
    return [read_any_manifest(stage.output) for stage in stages]


def in_a_line(error: Exception) -> Exception:
    """Return the innermost cause of an error that came through Beam, as an error of ours: the last
    line of its message that is not part of a traceback.

    Beam wraps the traceback of a worker into its message, and marks each step it passed, as in
    ``[while running 'Ingest/Scatter/Work']``; Flink wraps Java's around that.
    """
    cause = type(error).__name__
    parts_of_tracebacks = ("[while running", "File ", "return ", "raise ", "at ", "... ")
    for line in str(error).splitlines():
        line = line.strip()
        if line and not line.startswith(parts_of_tracebacks):
            cause = line
    cause = re.sub(r"\s*\[while running .*", "", cause)
    if isinstance(error, UserError | RunError):
        return type(error)(cause)
    users_mistake = re.search(r"UserError: (.*)", cause)
    if users_mistake:
        return UserError(users_mistake[1])
    message = re.sub(r"^(RuntimeError: )?([\w.]+: )?", "", cause)
    return RunError(f"The run failed: {message.rstrip('.')}.")


class _OptionParser(_BeamArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report a wrong value in one line, without all of Beam's options."""
        raise UserError(f"Apache Beam's options are wrong: {message}.")


def _parse(flags: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the options that Beam knows, and the others, which it would only log."""
    parser = _OptionParser()
    for group in PipelineOptions.__subclasses__():
        if "_add_argparse_args" in vars(group):
            group._add_argparse_args(parser)
    return parser.parse_known_args(list(flags))


def pipeline_options(options: RunOptions, output: str = "gs://…") -> PipelineOptions:
    """Return Beam's options, by default for DirectRunner.

    Raises `UserError` for an option or a runner that Beam does not know, and for an `output` out
    of reach.
    """
    flags = options.beam_options
    parsed, _ = _parse(flags)
    if parsed.runner in (None, "DirectRunner"):
        compatible = f"--update_compatibility_version={version('apache-beam')}"
        flags = ("--runner=DirectRunner", compatible, *flags)
    elif parsed.runner == "DaskRunner":
        import_module(DASK_MODULE)
        partitions = f"--dask_npartitions={DASK_PARTITIONS}"
        flags = (partitions, *flags, f"--runner={DASK_MODULE}.DaskRunner")
    elif parsed.runner == "SparkRunner":
        # It may keep it for a minute (in milliseconds).
        flags = ("--environment_cache_millis=60000", *flags)
    elif parsed.runner == "DataflowRunner" and not storage.is_remote(output):
        raise UserError(
            f"{parsed.runner} runs on other machines, which cannot reach {output}; give a "
            "gs:// path."
        )
    _, unknown = _parse(flags)
    if unknown:
        raise UserError(f"Apache Beam has no option {unknown[0]}; see your runner's documentation.")
    if parsed.runner not in (None, "DaskRunner"):
        try:
            create_runner(parsed.runner)
        except (ValueError, ImportError, AttributeError) as error:
            reason = str(error).rstrip(".")
            raise UserError(f"Apache Beam's runner cannot be used: {reason}.") from None
    return PipelineOptions(list(flags))


class ReadParallel(beam.PTransform):
    """Transform a pipeline into the elements that `read` yields for each range, in parallel.

    What `read` counts in its `Counters` becomes Beam metrics in the namespace `METRICS`.
    """

    def __init__(
        self, ranges: Sequence[Any], read: Callable[[Any, Counters], Iterable[Any]]
    ) -> None:
        super().__init__()
        self.ranges = ranges
        self.read = read

    def expand(self, input_or_inputs: Any) -> Any:
        """Wire the transform."""
        return (
            input_or_inputs
            | "Ranges" >> beam.Create(self.ranges)
            | "Deal out" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(_read_range, self.read)
        )


def _read_range(input_range: Any, read: Callable[[Any, Counters], Iterable[Any]]) -> Iterator[Any]:
    counters = Counters()
    yield from read(input_range, counters)
    for name, amount in {**counters.counts, **counters.bad}.items():
        Metrics.counter(METRICS, name).inc(amount)
