"""The example of a single job: on every runner the bytes of the three stages, run one by one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clozeworks.pipeline import BuildConfig, IngestConfig, VocabConfig

from tests.fixtures.stages_fixture import Configs, digests, make_stages

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = pytest.mark.slow
PORTABLE = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")
DASK = ("--runner=apache_beam.runners.dask.dask_runner.DaskRunner", "--dask_npartitions=64")

RUNNERS = pytest.mark.parametrize(
    "runner", [("--runner=DirectRunner",), PORTABLE], ids=["DirectRunner", "portable job API"]
)


def run_job(source: Path, output: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    script = EXAMPLES / "beam" / "one_job.py"
    command = [sys.executable, str(script), f"--source={source}", f"--output={output}", *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one-job") / "books"
    folder.mkdir()
    for book in sorted((EXAMPLES / "quickstart" / "corpus" / "books").glob("*.txt"))[:4]:
        shutil.copy(book, folder)
    return folder


@pytest.fixture(scope="module")
def one_by_one(books: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of three stages with the options of the example."""
    folder = tmp_path_factory.mktemp("one-by-one")
    configs = Configs(
        IngestConfig(language="en", validation_share=0.08),
        VocabConfig(size=2000),
        BuildConfig(max_length=32),
    )
    make_stages(books, folder, configs)
    return digests(folder)


@RUNNERS
def test_one_job_makes_the_bytes_of_three_stages(
    runner: tuple[str, ...], books: Path, one_by_one: dict[str, str], tmp_path: Path
):
    ended = run_job(books, tmp_path, *runner)
    assert ended.returncode == 0, ended.stderr
    assert digests(tmp_path) == one_by_one


@pytest.mark.filterwarnings("ignore")  # those of Dask
def test_one_job_on_dask(books: Path, one_by_one: dict[str, str], tmp_path: Path):
    distributed = pytest.importorskip("distributed", reason="needs the extra clozeworks[dask]")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        address = f"--dask_client_address={cluster.scheduler_address}"
        # Few partitions, which a small corpus does not need and which cost most of the time.
        ended = run_job(books, tmp_path, *DASK, address, "--dask_npartitions=4")
    assert ended.returncode == 0, ended.stderr
    assert digests(tmp_path) == one_by_one
