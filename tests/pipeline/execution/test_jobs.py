"""Beam jobs that are watched, cancelled, and fail with one line."""

import threading
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import requests
from apache_beam.runners.portability.flink_uber_jar_job_server import (
    FlinkBeamJob,
    FlinkUberJarJobServer,
)
from apache_beam.runners.portability.portable_runner import PipelineResult
from apache_beam.runners.portability.spark_uber_jar_job_server import (
    SparkBeamJob,
    SparkUberJarJobServer,
)
from apache_beam.runners.runner import PipelineState
from clozeworks.pipeline.config import RunOptions
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution import jobs
from clozeworks.pipeline.execution.beam import run_pipeline
from clozeworks.pipeline.execution.jobs import in_a_line
from clozeworks.pipeline.execution.phases import do_unit
from clozeworks.pipeline.execution.runner import run_stage
from clozeworks.pipeline.execution.stages import open_stage

from tests.fixtures.number_stage import NumberStage, Squares, fail_on_three, square

pytestmark = pytest.mark.slow

IN_THIS_PROCESS = RunOptions(workers=1, beam_options=("--direct_running_mode=in_memory",))


class RestartedJob(PipelineResult):
    """A job on a runner that tries again whatever fails, until it is cancelled."""

    def __init__(self, service: Any = None, state: str = PipelineState.RUNNING) -> None:
        self._state_now = state
        self._job_service = service
        self._job_id = "job"
        self.cancelled = threading.Event()

    @property
    def state(self) -> str:
        return self._state_now

    def wait_until_finish(self, duration: Any = None) -> None:
        self.cancelled.wait(timeout=60)

    def cancel(self) -> None:
        self.cancelled.set()


def every_pipeline_is(job: RestartedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run no pipeline, but watch this job, often."""
    monkeypatch.setattr(beam.Pipeline, "run", lambda _: job)
    monkeypatch.setattr(jobs, "LOOK_S", 0.01)


def run_with_a_mistake(job: RestartedJob, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = NumberStage(output=str(output), more_work=fail_on_three)
    directory, _ = open_stage(stage, stage.plan(), overwrite=False)
    with pytest.raises(UserError):
        do_unit(3, directory, Squares(fail_on_three))
    every_pipeline_is(job, monkeypatch)
    with pytest.raises(RunError, match="cancelled"):
        run_pipeline([stage], IN_THIS_PROCESS)


def test_a_job_that_tries_a_users_mistake_again_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = RestartedJob()
    run_with_a_mistake(job, tmp_path, monkeypatch)
    assert job.cancelled.is_set()


def test_a_job_of_flink_is_cancelled_at_an_address_that_flink_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flink_job = object.__new__(FlinkBeamJob)
    flink_job._master_url = "http://head:8081"
    flink_job._flink_job_id = "f00d"
    service = object.__new__(FlinkUberJarJobServer)
    service._jobs = {"job": flink_job}
    asked: list[str] = []

    class Accepted:
        status_code = 202
        text = ""

    def patch(url: str) -> Accepted:
        asked.append(url)
        return Accepted()

    monkeypatch.setattr("requests.patch", patch)
    job = RestartedJob(service)
    run_with_a_mistake(job, tmp_path, monkeypatch)
    job.cancelled.set()
    # https://nightlies.apache.org/flink/flink-docs-release-1.19/docs/ops/rest_api/#jobs-jobid-1
    assert asked == ["http://head:8081/v1/jobs/f00d"]


def test_a_job_that_failed_on_spark_says_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    spark_job = object.__new__(SparkBeamJob)
    spark_job._spark_submission_id = "driver-7"
    service = object.__new__(SparkUberJarJobServer)
    service._jobs = {"job": spark_job}

    class FailedJob(RestartedJob):
        def wait_until_finish(self, duration: Any = None) -> None:
            raise RuntimeError("Pipeline job failed in state FAILED: unknown error")

    stage = NumberStage(output=str(tmp_path), more_work=square)
    every_pipeline_is(FailedJob(service), monkeypatch)
    with pytest.raises(RunError, match=r"on Spark, .* look into the stderr of driver-7, which"):
        run_pipeline([stage], IN_THIS_PROCESS)


def test_a_job_without_mistakes_is_not_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stage = NumberStage(output=str(tmp_path), more_work=square)
    open_stage(stage, stage.plan(), overwrite=False)
    job = RestartedJob()
    every_pipeline_is(job, monkeypatch)

    def end() -> None:
        run_stage(stage, RunOptions(workers=1))
        job.cancelled.set()

    threading.Timer(1.0, end).start()
    run_pipeline([stage], IN_THIS_PROCESS)


def test_a_job_that_is_done_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stage = NumberStage(output=str(tmp_path), more_work=square)
    run_stage(stage, RunOptions(workers=1))
    job = RestartedJob(state=PipelineState.DONE)
    every_pipeline_is(job, monkeypatch)
    begun = time.monotonic()
    run_pipeline([stage], IN_THIS_PROCESS)
    assert time.monotonic() - begun < 30 and not job.cancelled.is_set()


def test_a_job_that_ends_before_its_work_is_done_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stage = NumberStage(output=str(tmp_path), more_work=square)
    open_stage(stage, stage.plan(), overwrite=False)
    every_pipeline_is(RestartedJob(state=PipelineState.DONE), monkeypatch)
    with pytest.raises(RunError, match="ended before its work was done"):
        run_pipeline([stage], IN_THIS_PROCESS)


def test_an_error_is_reported_by_its_cause_alone():
    lines = ["Traceback …", "  File x, line 3", "{} [while running 'Build']"]
    through_beam = "\n".join(lines)
    broken = RuntimeError(through_beam.format("RuntimeError: OSError: [Errno 5] Broken disk."))
    assert str(in_a_line(broken)) == "The run failed: [Errno 5] Broken disk."
    assert isinstance(in_a_line(broken), RunError)
    name = f"{UserError.__module__}.{UserError.__qualname__}"
    mistake = RuntimeError(through_beam.format(f"{name}: Say more."))
    assert str(in_a_line(mistake)) == "Say more."
    assert isinstance(in_a_line(mistake), UserError)
    assert str(in_a_line(ValueError("lengths differ"))) == "The run failed: lengths differ."
    assert str(in_a_line(ValueError())) == "The run failed: ValueError."


def test_an_error_is_reported_by_its_cause_within_javas_traceback():
    # From Flink 1.19, shortened.
    through_flink = RuntimeError(
        "org.apache.flink.runtime.JobException: Recovery is suppressed by FailureRateRestart…\n"
        "\tat org.apache.flink.runtime.executiongraph.failover.ExecutionFailureHandler.handle(…)\n"
        "Caused by: java.lang.RuntimeException: Error received from SDK harness for instruction 2: "
        "Traceback (most recent call last):\n"
        '  File "cloudpickle_pickler.py", line 229, in _loads\n'
        "    unpickled = cloudpickle.loads(s)\n"
        "                ^^^^^^^^^^^^^^^^^^^^\n"
        "ModuleNotFoundError: No module named 'clozeworks'\n\n"
        "\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient.onNext(…)\n"
        "\t... 1 more\n"
    )
    assert str(in_a_line(through_flink)) == "The run failed: No module named 'clozeworks'."


def test_a_cluster_that_is_gone_is_named():
    with pytest.raises(requests.ConnectionError) as raised:
        requests.get("http://localhost:1/v1/jobs", timeout=9)
    assert str(in_a_line(raised.value)) == (
        "The cluster does not answer at localhost:1. Check that it is up, then rerun the same "
        "command; it resumes."
    )
