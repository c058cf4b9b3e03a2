"""Object stores and remote runners: the same bytes on S3 and Google Cloud Storage as here, and a job for Dataflow.

The stores are emulated (moto, gcp-storage-emulator). What needs Google's client libraries is skipped without them:
``pip install '.[test-gcp]'``.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from clozeworks.pipeline.build.pipeline import build
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution import storage
from clozeworks.pipeline.execution.units import RunError, prepare
from clozeworks.pipeline.ingest.pipeline import ingest
from clozeworks.pipeline.vocab.pipeline import learn_vocabulary

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the stores' libraries
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remote") / "texts"
    folder.mkdir()
    for i in range(5):
        text = " ".join(f"Here is sentence number {j} of the text {i * j}." for j in range(30))
        (folder / f"{i}.txt").write_text(text)
    return folder


def make_documents(source: str, folder: str, options: RunOptions) -> dict[str, bytes]:
    """Make documents; return all files but the timings, by path below `folder`."""
    ingest([source], f"{folder}/documents", IngestConfig(shards=1, validation_share=0.4), options)
    return contents(folder, "documents")


def make_all(source: str, folder: str, options: RunOptions) -> dict[str, bytes]:
    """Make documents, vocabulary and instances; return all files but the timings, by path below `folder`."""
    make_documents(source, folder, options)
    learn_vocabulary(f"{folder}/documents", f"{folder}/vocab", VocabConfig(size=100), options)
    build_config = BuildConfig(duplicates=1, max_length=32)
    build(f"{folder}/documents", f"{folder}/vocab", f"{folder}/instances", build_config, options)
    return contents(folder, "documents", "vocab", "instances")


def contents(folder: str, *names: str) -> dict[str, bytes]:
    paths = [path for name in names for path in storage.find_files(f"{folder}/{name}")]
    return {path.removeprefix(folder): storage.read_bytes(path) for path in paths if not path.endswith("timings.json")}


def upload(texts: Path, folder: str) -> str:
    for path in sorted(texts.iterdir()):
        with storage.write_atomically(f"{folder}/texts/{path.name}", f"{folder}/tmp") as file:
            file.write(path.read_bytes())
    return f"{folder}/texts"


@pytest.fixture
def s3_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Beam's options for an emulated S3 with the bucket ``bucket``."""
    boto3 = pytest.importorskip("boto3", reason="needs Beam's [aws] extra")
    moto = pytest.importorskip("moto", reason="needs moto")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with moto.mock_aws():
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="bucket")
        yield ("--s3_access_key_id=testing", "--s3_secret_access_key=testing", "--s3_region_name=us-east-1")


@pytest.fixture
def gcs_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Beam's options for an emulated Google Cloud Storage with the bucket ``bucket``."""
    pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="needs Beam's [gcp] extra")
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="needs gcp-storage-emulator")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = emulator.create_server("localhost", port, in_memory=True, default_bucket="bucket")
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://localhost:{port}")
    yield ("--no_auth", "--project=test")
    server.stop()


def test_s3_holds_the_same_bytes(texts: Path, tmp_path: Path, s3_options: tuple[str, ...]):
    # One stage: Beam makes a new client for each call to S3, which takes longer than the call.
    options = RunOptions(workers=1, beam_options=s3_options)
    prepare(options, "s3://bucket/work")
    remote = make_documents(upload(texts, "s3://bucket/work"), "s3://bucket/work", options)
    assert remote == make_documents(str(texts), str(tmp_path), RunOptions(workers=1))


def test_google_cloud_storage_holds_the_same_bytes(texts: Path, tmp_path: Path, gcs_options: tuple[str, ...]):
    options = RunOptions(workers=1, beam_options=gcs_options)
    prepare(options, "gs://bucket/work")
    remote = make_all(upload(texts, "gs://bucket/work"), "gs://bucket/work", options)
    assert remote == make_all(str(texts), str(tmp_path), RunOptions(workers=1))
    with pytest.raises(UserError, match="names no file"):
        ingest(["gs://bucket/nothing"], "gs://bucket/documents", IngestConfig(), options)


def test_the_portable_job_api_makes_the_same_bytes(texts: Path, tmp_path: Path):
    portable = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")
    made = make_all(str(texts), str(tmp_path / "portable"), RunOptions(beam_options=portable))
    assert made == make_all(str(texts), str(tmp_path / "direct"), RunOptions(workers=1))


DATAFLOW = (
    *("--runner=DataflowRunner", "--project=test", "--region=europe-west1", "--job_name=test", "--no_auth"),
    *("--temp_location=gs://bucket/temp", "--staging_location=gs://bucket/staging", "--sdk_location=container"),
)


def test_a_remote_runner_needs_remote_folders(texts: Path, tmp_path: Path):
    options = RunOptions(beam_options=DATAFLOW)
    with pytest.raises(UserError, match=r"DataflowRunner works on other machines, .* give a gs:// one"):
        ingest([str(texts)], str(tmp_path / "documents"), IngestConfig(), options)


def test_a_job_for_dataflow_is_translated_and_staged(texts: Path, gcs_options: tuple[str, ...]):
    template = (*DATAFLOW, "--template_location=gs://bucket/template")
    options = RunOptions(beam_options=template)
    prepare(options, "gs://bucket/dataflow")
    source = upload(texts, "gs://bucket/dataflow")
    with pytest.raises(RunError):  # a template is only written, not run
        ingest([source], "gs://bucket/dataflow/documents", IngestConfig(), options)
    job = json.loads(storage.read_bytes("gs://bucket/template"))
    (pipeline,) = {value for value in strings_in(job) if value.endswith("pipeline.pb")}
    assert b"Scatter" in storage.read_bytes(pipeline)


def strings_in(value: object) -> Iterator[str]:
    """Yield all strings in JSON."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings_in(inner)
    elif isinstance(value, str):
        yield value
