"""Run a Beam pipeline as a job, to its end.

Traps of the runners that this module deals with:

- DirectRunner hangs when a worker process dies.
- Flink restarts a failed job, and cannot tell a lost host from a mistake of the user's, which every
  restart meets again. So the launching process looks for mistakes too, and cancels the job.
- DaskRunner takes a job that was lost with its scheduler for done. So the outputs are looked at.
- Spark's REST interface does not say why a job failed. So the error says where to look.
- Beam asks Flink and Spark for a job's state at ever longer intervals, of up to a minute. So the
  launching process asks too.
"""

import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import apache_beam as beam
import requests
from apache_beam.runners.portability.flink_uber_jar_job_server import (
    FlinkBeamJob,
    FlinkUberJarJobServer,
)
from apache_beam.runners.portability.portable_runner import PipelineResult as PortableResult
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.portability.spark_uber_jar_job_server import (
    SparkBeamJob,
    SparkUberJarJobServer,
)
from apache_beam.runners.runner import PipelineState
from grpc import RpcError

from .. import storage
from ..errors import RunError, UserError
from ..storage.directory import OutputDirectory
from ..storage.stage import MANIFEST, unfinished_stage
from .units import read_errors, stop_units
from .workers import LOOK_FOR_INTERRUPT_S, dead_worker

LOOK_S = 5.0
"""Each look at a job asks its engine, and lists a folder, perhaps of an object store."""
LOOKS_BEFORE_CANCEL = 3
"""Until then a job may still end by itself, as failed rather than cancelled."""


def run_job(pipeline: beam.Pipeline, directories: Sequence[OutputDirectory]) -> None:
    """Run a pipeline that finishes the stages of these directories; raise what broke it.

    An interrupt lets no further unit begin, and waits for those that have begun: not every runner
    can cancel them.
    """
    job = _Job()
    if isinstance(pipeline.runner, PortableRunner):
        # In this thread: a runner that starts its own job server, as Prism does, sets a handler of
        # SIGINT. It only submits; DirectRunner would do the work.
        try:
            job.submitted = pipeline.run()
        except Exception as error:
            raise in_a_line(error) from error

    # In a thread, so that the wait for it can end at Ctrl-C, or when DirectRunner never would.
    def run() -> None:
        try:
            job.submitted = job.submitted or pipeline.run()
            job.submitted.wait_until_finish()
        except Exception as error:
            job.ended.put(error)
        else:
            job.ended.put(None)

    def on_thread_death(args: threading.ExceptHookArgs) -> None:
        # DirectRunner starts each worker process from a thread, and waits for ever when that dies.
        if "Worker subprocess exited" in str(args.exc_value):
            job.ended.put(dead_worker())
        hook_before(args)

    hook_before = threading.excepthook
    threading.excepthook = on_thread_death
    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
        error = _wait_for(job, directories)
        if error is not None:
            raise _spark_failure(error, job.submitted) or in_a_line(error) from error
        _check_finished(directories)
    except KeyboardInterrupt:
        _stop(directories)
        _wait_for(job, directories)
        raise
    finally:
        threading.excepthook = hook_before


def _check_finished(directories: Sequence[OutputDirectory]) -> None:
    for directory in directories:
        if not storage.exists(directory.file(MANIFEST)):
            raise RunError(
                "The job ended before its work was done: the cluster may have been stopped. "
                "Rerun the same command to resume."
            )


@dataclass
class _Job:
    """A pipeline that runs in a thread."""

    submitted: Any = None
    """What the runner returned for it; None while it is being submitted, or runs at once."""
    ended: "SimpleQueue[Exception | None]" = field(default_factory=SimpleQueue)
    """Gets an element at its end: what broke it."""


def _wait_for(job: _Job, directories: Sequence[OutputDirectory]) -> Exception | None:
    """Wait for the end of a job; return what broke it.

    Cancel it if its engine tries again what can never succeed.
    """
    next_look = time.monotonic() + LOOK_S
    mistakes_seen = 0
    while True:
        with suppress(Empty):
            return job.ended.get(timeout=LOOK_FOR_INTERRUPT_S)
        # Others need no looks, and Dask's runner would cancel by shutting down the user's cluster.
        is_portable = isinstance(job.submitted, PortableResult)
        if is_portable and time.monotonic() > next_look:
            next_look = time.monotonic() + LOOK_S
            if _is_done(job.submitted):
                return None
            mistakes_seen += _is_stopped(directories)
            if mistakes_seen == LOOKS_BEFORE_CANCEL:
                _cancel(job.submitted)
                return RunError("The job was cancelled.")


def _is_done(submitted: PortableResult) -> bool:
    # The other thread reports an engine that is out of reach.
    with suppress(RuntimeError, requests.RequestException, RpcError):
        return submitted.state == PipelineState.DONE
    return False


def _is_stopped(directories: Sequence[OutputDirectory]) -> bool:
    """Return whether a mistake or an interrupt lets no unit begin."""
    for directory in directories:
        with suppress(UserError, RunError):  # the store may be out of reach
            # Not what a worker that was given up writes into a stage that others have finished.
            if unfinished_stage(directory.path) and read_errors(directory):
                return True
    return False


def _stop(directories: Sequence[OutputDirectory]) -> None:
    """Let no further unit of the stages begin."""
    for directory in directories:
        with suppress(UserError, RunError):  # the store may be out of reach
            # In one that has not begun, the marker would stay, and stop the next run.
            if unfinished_stage(directory.path):
                stop_units(directory)


def _cancel(submitted: PortableResult) -> None:
    service = submitted._job_service
    if isinstance(service, FlinkUberJarJobServer):
        # Beam's own cancel asks for "v1/ID/stop", which Flink does not have.
        job = service._jobs[submitted._job_id]
        assert isinstance(job, FlinkBeamJob)
        job.request(requests.patch, f"v1/jobs/{job._flink_job_id}", expected_status=202)
    else:
        submitted.cancel()


def _spark_failure(error: Exception, submitted: Any) -> RunError | None:
    """Return the error of a job that failed on Spark; None if it is another error."""
    service = getattr(submitted, "_job_service", None)
    if not isinstance(service, SparkUberJarJobServer) or "unknown error" not in str(error):
        return None
    job = service._jobs[submitted._job_id]
    assert isinstance(job, SparkBeamJob)
    return RunError(
        "The run failed on Spark, which does not say why: look into the stderr of "
        f"{job._spark_submission_id}, which the master's page links."
    )


_PARTS_OF_TRACEBACKS = ("[while running", "File ", "return ", "raise ", "at ", "... ")


def in_a_line(error: Exception) -> Exception:
    """Return the innermost cause of an error that came through Beam, as an error of ours.

    Beam wraps the traceback of a worker into its message, and marks each step it passed; Flink
    wraps Java's around that::

        Caused by: java.lang.RuntimeException: Error received from SDK harness for instruction 3:
        Traceback (most recent call last):
          File "…", line 3, in …
        clozeworks.pipeline.errors.UserError: … [while running 'Ingest/Scatter/Work']
            at org.apache.beam…
            ... 7 more
    """
    if isinstance(error, UserError | RunError):
        return type(error)(_without_steps(str(error)))
    if isinstance(error, requests.ConnectionError) and error.request is not None:
        address = urlsplit(str(error.request.url)).netloc
        return RunError(
            f"The cluster does not answer at {address}. Check that it is up, then rerun the same "
            "command; it resumes."
        )
    # The last line that is not part of a traceback.
    cause = type(error).__name__
    for line in str(error).splitlines():
        line = line.strip()
        if line and not line.startswith(_PARTS_OF_TRACEBACKS):
            cause = line
    cause = _without_steps(cause)
    users_mistake = re.search(r"UserError: (.*)", cause)
    if users_mistake:
        return UserError(users_mistake[1])
    message = re.sub(r"^(RuntimeError: )?([\w.]+: )?", "", cause)
    return RunError(f"The run failed: {message.rstrip('.')}.")


def _without_steps(message: str) -> str:
    return re.sub(r"\s*\[while running .*", "", message)
