"""Stages as Beam transforms: metrics, failed jobs, stages behind one another, and options."""

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from clozeworks.pipeline import BuildInstances, Ingest, LearnVocabulary, ReadDocuments
from clozeworks.pipeline.config import IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution.beam import (
    RunStage,
    _versions,
    _work,
    in_a_line,
    pipeline_options,
    run_pipeline,
)
from clozeworks.pipeline.execution.job import Job, open_job
from clozeworks.pipeline.manifests import DocumentsManifest
from clozeworks.pipeline.storage.state import read_any_manifest

from tests.fixtures.number_stage import Done, NumberStage, Squares, Work, fail_on_three, square

pytestmark = pytest.mark.slow

IN_THIS_PROCESS = RunOptions(workers=1, beam_options=("--direct_running_mode=in_memory",))
PORTABLE = RunOptions(
    beam_options=("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep the tracebacks of jobs that are meant to fail out of the tests' output."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def run(options: RunOptions, build: Callable[[beam.Pipeline], Any]) -> dict[str, int]:
    """Run a pipeline to its end; return its counters by "namespace/name"."""
    pipeline = beam.Pipeline(options=pipeline_options(options))
    build(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query()["counters"]
    return {
        f"{counter.key.metric.namespace}/{counter.key.metric.name}": counter.committed
        for counter in counters
        if counter.key.metric.namespace.startswith("clozeworks")
    }


# `go install github.com/apache/beam/sdks/v2/go/cmd/prism@latest`, with the version of Beam.
PRISM_BINARY = shutil.which("prism") or shutil.which(Path.home() / "go" / "bin" / "prism")
PRISM = RunOptions(beam_options=("--runner=PrismRunner", f"--prism_location={PRISM_BINARY}"))
NEEDS_PRISM = pytest.mark.skipif(PRISM_BINARY is None, reason="there is no prism to run")
RUNNERS = pytest.mark.parametrize(
    "options",
    [
        pytest.param(IN_THIS_PROCESS, id="DirectRunner"),
        pytest.param(PORTABLE, id="portable job API"),
        pytest.param(PRISM, id="Prism", marks=NEEDS_PRISM),
    ],
)
COUNTED = {
    "clozeworks.ingest/numbers": 10, "clozeworks.ingest/sum": 60, "clozeworks.ingest/odd": 4,
    "clozeworks.ingest/rows": 0, "clozeworks.ingest/bytes": 0,
}  # fmt: skip


@RUNNERS
def test_the_counts_of_the_manifest_are_metrics(tmp_path: Path, options: RunOptions):
    stage = NumberStage(output=str(tmp_path), more_work=square)
    assert run(options, lambda pipeline: pipeline | RunStage(stage)) == COUNTED


def test_a_resumed_and_a_finished_stage_have_the_same_metrics(tmp_path: Path):
    stage = NumberStage(output=str(tmp_path), more_work=square)
    job, _ = open_job(stage, stage.plan(), overwrite=False)
    job.do(4, Squares(square))
    for _ in ("resumed", "finished"):
        assert run(IN_THIS_PROCESS, lambda pipeline: pipeline | RunStage(stage)) == COUNTED


@RUNNERS
def test_a_run_ends_with_the_work_done_or_the_mistake(tmp_path: Path, options: RunOptions):
    stage = NumberStage(output=str(tmp_path / "good"), more_work=square)
    run_pipeline([stage], options)
    assert (tmp_path / "good" / "manifest.json").exists()
    wrong = NumberStage(output=str(tmp_path / "wrong"), work=fail_on_three)
    with pytest.raises(UserError, match=r"^three is no good; take four$"):
        run_pipeline([wrong], options)


def test_a_worker_with_other_versions_is_refused(tmp_path: Path):
    stage = NumberStage(output=str(tmp_path))
    job, _ = open_job(stage, stage.plan(), overwrite=False)
    message = r"and Python .*, but the run was opened by Python 2: install the same"
    with pytest.raises(UserError, match=message):
        _work((0, [job]), stage.phases[0], "Python 2")
    # Written down, so that no other unit begins, on any machine.
    with pytest.raises(UserError, match=message):
        _work((0, [job]), stage.phases[0], _versions())


def work(number: int, job: Job, work: Work) -> None:
    _work((number, [job]), Squares(work), _versions())


def test_a_failed_unit_fails_again_and_nothing_else_begins(tmp_path: Path):
    stage = NumberStage(output=str(tmp_path), work=fail_on_three)
    job, _ = open_job(stage, stage.plan(), overwrite=False)
    for number in (3, 3, 2):
        with pytest.raises(UserError, match=r"^three is no good; take four$"):
            work(number, job, fail_on_three)
    assert job.finished_units("squares") == set()
    open_job(stage, stage.plan(), overwrite=False)  # the next run
    work(2, job, fail_on_three)
    assert job.finished_units("squares") == {2}


def test_a_mistake_that_cannot_be_written_down_ends_the_run(tmp_path: Path, monkeypatch):
    stage = NumberStage(output=str(tmp_path))
    job, _ = open_job(stage, stage.plan(), overwrite=False)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="no good"):
        work(3, job, fail_on_three)


def look_at_manifest(job: Job, number: int) -> Done:
    before = Path(job.path).with_name("one") / "manifest.json"
    return Done(int(before.exists()))


def test_a_stage_waits_for_the_one_before_it(tmp_path: Path):
    one = NumberStage(output=str(tmp_path / "one"))
    other = NumberStage(output=str(tmp_path / "other"), work=look_at_manifest)

    def build(pipeline: beam.Pipeline) -> None:
        done = pipeline | "One" >> RunStage(one) | "Other" >> RunStage(other)
        assert_that(done, equal_to([str(tmp_path / "other")]))

    run(IN_THIS_PROCESS, build)
    manifest = read_any_manifest(str(tmp_path / "other"))
    assert isinstance(manifest, DocumentsManifest) and manifest.counts["sum"] == 5


def test_a_stage_without_units_is_finished_too(tmp_path: Path):
    stage = NumberStage(output=str(tmp_path), num_units=0, more_work=square)
    assert run(IN_THIS_PROCESS, lambda p: p | RunStage(stage))["clozeworks.ingest/numbers"] == 0


def test_options_that_cannot_be_are_refused():
    for flags, message in {
        "--runner=SparkRunner --projekt=x": "--projekt=x",
        "--runner": "--runner: expected one argument",
        "--runner=DirectRuner": "Unexpected pipeline runner: DirectRuner",
        "--runner=no.such.Runner": "No module named 'no'",
        "--runner=json.Runner": "has no attribute 'Runner'",
        "--runner DataflowRunner": "DataflowRunner .* give a gs:// path",
    }.items():
        with pytest.raises(UserError, match=message):
            pipeline_options(RunOptions(beam_options=tuple(flags.split())), "local")
    threads = RunOptions(beam_options=("--direct_running_mode=multi_threading",))
    options = pipeline_options(threads).get_all_options()
    assert options["direct_running_mode"] == "multi_threading"


@pytest.mark.parametrize("flags", [("--runner=DirectRunner",), ("--runner", "DirectRunner")])
def test_direct_runner_by_its_name_is_the_default(flags: tuple[str, ...]):
    embedded = "--direct_embed_docker_python"
    named = pipeline_options(RunOptions(beam_options=(*flags, embedded)))
    default = pipeline_options(RunOptions(beam_options=(embedded,)))
    assert named.get_all_options() == default.get_all_options()


def test_idle_python_processes_are_kept_on_spark_unless_told_otherwise():
    for flags, milliseconds in (((), "60000"), (("--environment_cache_millis=0",), "0")):
        options = pipeline_options(RunOptions(beam_options=("--runner=SparkRunner", *flags)))
        assert options.get_all_options()["environment_cache_millis"] == milliseconds


def test_a_job_that_ends_before_its_work_is_done_has_failed(tmp_path: Path, monkeypatch):
    """Dask's runner takes a job that was lost with its scheduler for done."""

    class Lost:
        def wait_until_finish(self) -> None:
            pass

    monkeypatch.setattr(beam.Pipeline, "run", lambda _: Lost())
    with pytest.raises(RunError, match="ended before its work was done"):
        run_pipeline([NumberStage(output=str(tmp_path))], IN_THIS_PROCESS)


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
    through_flink = RuntimeError(  # Java's traceback around Python's, shortened
        "org.apache.flink.runtime.JobException: Recovery is suppressed by FailureRateRestart…\n"
        "Caused by: java.lang.RuntimeException: Error received from SDK harness for instruction 2: "
        "Traceback (most recent call last):\n"
        "    unpickled = cloudpickle.loads(s)\n"
        "                ^^^^^^^^^^^^^^^^^^^^\n"
        "ModuleNotFoundError: No module named 'clozeworks'\n\n"
        "\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient.onNext(…)\n"
        "\t... 1 more\n"
    )
    assert str(in_a_line(through_flink)) == "The run failed: No module named 'clozeworks'."


def test_mistakes_are_found_when_the_pipeline_is_made(tmp_path: Path):
    wrong: Any = VocabConfig()
    with pytest.raises(UserError, match=r"^ingest takes IngestConfig, not VocabConfig\.$"):
        Ingest("a", "b", wrong)
    with pytest.raises(UserError, match="`max_bad` is 2"):
        Ingest("a", "b", max_bad=2)
    pipeline = beam.Pipeline()
    _ = pipeline | Ingest("a", str(tmp_path / "out"))
    with pytest.raises(UserError, match="Two stages would write to"):
        _ = pipeline | LearnVocabulary("d", str(tmp_path / "out"))


def test_transforms_have_types_and_labels(tmp_path: Path):
    (tmp_path / "a.txt").write_text("A text of one sentence.")
    pipeline = beam.Pipeline(options=pipeline_options(IN_THIS_PROCESS))
    ingest = Ingest(str(tmp_path / "a.txt"), str(tmp_path / "out"), IngestConfig(seed=7))
    directory: Any = pipeline | ingest
    vocab: Any = directory | LearnVocabulary(str(tmp_path / "out"), str(tmp_path / "v"))
    built: Any = vocab | BuildInstances(str(tmp_path / "out"), str(tmp_path / "v"), str(tmp_path))
    assert [each.element_type for each in (directory, vocab, built)] == [str] * 3
    documents: Any = pipeline | ReadDocuments(str(tmp_path / "a.txt"))
    assert str(documents.element_type).startswith("Dict")
    labels = {re.sub("(Start|Ranges|Deal out)/.*", "", label) for label in pipeline.applied_labels}
    assert {"Ingest/Scatter/Work", "Vocab/Count/Units", "ReadDocuments/Read"} < labels
    assert "(" not in "".join(labels)  # as in "Map(<lambda at beam.py:9>)", but for Beam's own
