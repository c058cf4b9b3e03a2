"""The data stages on a Dask cluster: every worker works, one of them is killed, the bytes are the
same.
"""

import hashlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.execution.phases import Phase, Unit, read_records
from clozeworks.pipeline.execution.runner import run_phases
from clozeworks.pipeline.instances.pipeline import build
from clozeworks.pipeline.storage.stage import StageDirectory
from clozeworks.pipeline.vocabulary.pipeline import learn_vocabulary
from unit_records import Done

distributed = pytest.importorskip("distributed", reason="needs the extra clozeworks[dask]")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Dask

CORPUS = Path(__file__).resolve().parents[2] / "examples" / "quickstart" / "corpus"
NUM_WORKERS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=NUM_WORKERS, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        yield cluster


def options_for(cluster: Any) -> RunOptions:
    return RunOptions(
        beam_options=("--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}")
    )


def all_stages(folder: Path, options: RunOptions) -> dict[str, str]:
    """Run the data stages; return the digest of every file by its path."""
    documents, vocab, instances = (
        str(folder / name) for name in ("documents", "vocab", "instances")
    )
    ingest([str(CORPUS)], documents, IngestConfig(shards=3, validation_share=0.05), options)
    learn_vocabulary(documents, vocab, VocabConfig(size=2000), options)
    build(documents, vocab, instances, BuildConfig(max_length=32, duplicates=1), options)
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "timings.json"]
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def nap(directory: StageDirectory, number: int) -> Done:
    time.sleep(1)
    return Done(number, os.getpid())


def test_units_are_shared_out(cluster: Any, tmp_path: Path):
    directory, phase = StageDirectory(str(tmp_path), "f"), Phase("naps", None, nap, int, Done)
    after = Phase("more", lambda _: [Unit(f"{i}", 1, i) for i in range(12)], nap, int, Done)
    run_phases(
        directory, [Unit(f"{i}", 1, i) for i in range(12)], [phase, after], options_for(cluster)
    )
    shares = [
        Counter(record.pid for record in read_records(directory, each.name, Done))
        for each in (phase, after)
    ]
    assert all(len(share) == NUM_WORKERS for share in shares), shares


def test_a_cluster_that_loses_a_worker_makes_the_same_bytes(cluster: Any, tmp_path: Path):
    victim = next(iter(cluster.workers.values())).pid

    def kill() -> None:
        while not list((tmp_path / "dask").glob("documents/.work/scatter/0*.json")):
            time.sleep(0.02)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    made = all_stages(tmp_path / "dask", options_for(cluster))
    killer.join(timeout=1)
    assert not killer.is_alive()
    assert made == all_stages(tmp_path / "here", RunOptions(workers=1))
