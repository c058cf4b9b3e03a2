"""A stage on a Dask cluster: every worker works, one of them is killed, the bytes are the same."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.beam import RunStage, pipeline_options
from clozeworks.pipeline.execution.job import Job
from clozeworks.pipeline.execution.runner import run_stage

from tests.fixtures.number_stage import Done, NumberStage, fail_on_three, pids_of
from tests.fixtures.stages_fixture import digests

distributed = pytest.importorskip("distributed", reason="needs the extra clozeworks[dask]")
# Warnings of Dask are ignored.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CORPUS = Path(__file__).resolve().parents[2] / "examples" / "quickstart" / "corpus"
NUM_WORKERS = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=NUM_WORKERS, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        yield cluster


def options_for(cluster: Any) -> RunOptions:
    address = f"--dask_client_address={cluster.scheduler_address}"
    # As docs/runners.md advises; Dask's own number of partitions costs most of the time.
    partitions = f"--dask_npartitions={4 * NUM_WORKERS}"
    return RunOptions(beam_options=("--runner=DaskRunner", address, partitions))


def nap(job: Job, number: int) -> Done:
    time.sleep(0.5)
    return Done(number, os.getpid())


def test_units_are_shared_out(cluster: Any, tmp_path: Path):
    stage = NumberStage(output=str(tmp_path), work=nap, more_work=nap, num_units=6)
    pids = pids_of(run_stage(stage, options_for(cluster)))
    for phase in (pids[:6], pids[6:]):
        assert len(set(phase)) == NUM_WORKERS, Counter(phase)


def test_a_users_mistake_fails_the_job_with_its_message(cluster: Any, tmp_path: Path):
    # Metrics are not compared: Dask's runner collects none.
    pipeline = beam.Pipeline(options=pipeline_options(options_for(cluster)))
    _ = pipeline | RunStage(NumberStage(output=str(tmp_path), work=fail_on_three))
    with pytest.raises(Exception, match="three is no good; take four"):
        pipeline.run().wait_until_finish()
    with pytest.raises(UserError, match=r"^three is no good; take four$"):
        run_stage(NumberStage(output=str(tmp_path), work=fail_on_three), options_for(cluster))


def test_a_cluster_that_loses_a_worker_makes_the_same_bytes(cluster: Any, tmp_path: Path):
    victim = next(iter(cluster.workers.values())).pid

    def kill() -> None:
        # On a busy machine the stage may have ended before anybody looks.
        folder = tmp_path / "dask"
        while not [*folder.glob(".work/*/scatter/0*.json"), *folder.glob("manifest.json")]:
            time.sleep(0.02)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    config = IngestConfig(shards=3, validation_share=0.05)
    ingest([str(CORPUS)], str(tmp_path / "dask"), config, options_for(cluster))
    killer.join()
    ingest([str(CORPUS)], str(tmp_path / "here"), config, RunOptions(workers=1))
    assert digests(tmp_path / "dask") == digests(tmp_path / "here")
