"""Object stores and remote runners: the same bytes on S3 and Google Cloud Storage as here, and a
job for Dataflow.

The stores are emulated. What needs Google's client libraries is skipped without them: ``pip install
'.[test-gcp]'``.
"""

import re
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from clozeworks.cli.main import commands
from clozeworks.pipeline import storage
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution.runner import check_runner

from tests.fixtures.checkpoint_fixture import fill
from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.object_stores import object_store, write
from tests.fixtures.process_fixture import CLI, stop, wait_until
from tests.fixtures.stages_fixture import Configs, make_stages

pytestmark = pytest.mark.slow

PRETRAIN = (
    "--model tiny --num-layers 1 --hidden-size 32 --num-heads 2 "
    "--batch-size 8 --steps 24 --checkpoint-every 10"
)
FINETUNE = "--learning-rates 1e-3 --epochs 1 --batch-size 4 --max-length 16 --device cpu"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remote") / "texts"
    folder.mkdir()
    (folder / "bad.txt").write_text("")
    for i in range(24):
        text = " ".join(f"Here is sentence number {j} of the text {i * j}." for j in range(30))
        (folder / f"{i}.txt").write_text(text)
    return folder


def make_all(source: str, folder: str, options: RunOptions) -> dict[str, bytes]:
    """Make all stages; return all files but the timings, by path below `folder`."""
    configs = Configs(
        IngestConfig(shards=1, validation_share=0.4),
        VocabConfig(size=100),
        BuildConfig(duplicates=1, max_length=32),
    )
    make_stages(source, folder, configs, options)
    return contents(folder, "documents", "vocab", "instances")


def contents(folder: str, *names: str) -> dict[str, bytes]:
    paths = [path for name in names for path in storage.find_files(f"{folder}/{name}")]
    return {
        path.removeprefix(folder): storage.read_bytes(path)
        for path in paths
        if not path.endswith("timings.json")
    }


def upload(folder: Path, target: str) -> str:
    for path in folder.rglob("*"):
        if path.is_file():
            write(f"{target}/{path.relative_to(folder)}", path.read_bytes())
    return target


@pytest.fixture(scope="module")
def local(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the stages make of the texts on this machine."""
    return make_all(str(texts), str(tmp_path_factory.mktemp("local")), RunOptions(workers=1))


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_object_stores_hold_the_same_bytes(scheme: str, texts: Path, local: dict[str, bytes]):
    with object_store(scheme) as bucket:
        source = upload(texts, f"{bucket}/texts")
        assert make_all(source, f"{bucket}/built", RunOptions(workers=1)) == local
        assert not storage.find_files(f"{bucket}/built/*/.work")
        overwrite = RunOptions(workers=1, overwrite=True)
        storage.remove(f"{source}/bad.txt")
        ingest([source], f"{bucket}/built/documents", IngestConfig(shards=2), overwrite)
        names = storage.file_names(f"{bucket}/built/documents")
        assert "train-00001-of-00002.parquet" in names
        assert "train-00000-of-00001.parquet" not in names
        assert "/documents/bad/range-00000.jsonl" in local
        assert not storage.find_files(f"{bucket}/built/documents/bad")
        with pytest.raises(UserError, match="nothing"):
            ingest([f"{bucket}/nothing"], f"{bucket}/documents", IngestConfig(), RunOptions())


def test_stages_killed_on_s3_resume_to_the_same_bytes(texts: Path, local: dict[str, bytes]):
    with object_store("s3") as bucket:
        source = upload(texts, f"{bucket}/texts")
        output = f"{bucket}/built/documents"
        options = f"--output {output} --shards 1 --validation-share 0.4 --workers 2".split()
        process = subprocess.Popen([*CLI, "ingest", source, *options], stderr=subprocess.DEVNULL)
        wait_until(
            lambda: bool(storage.find_files(f"{output}/.work/*/*/*.json")), process, pause_s=0.1
        )
        stop(process, signal.SIGKILL)
        assert not storage.exists(f"{output}/manifest.json")
        (lock,) = storage.file_names(f"{output}/.lock")  # as the next command says
        storage.remove(f"{output}/.lock/{lock}")
        assert make_all(source, f"{bucket}/built", RunOptions(workers=1)) == local


DATAFLOW = (
    "--runner=DataflowRunner --project=test --region=europe-west1 --job_name=test --no_auth "
    "--temp_location=gs://bucket/temp --staging_location=gs://bucket/staging "
    "--sdk_location=container"
)


def test_a_remote_runner_needs_remote_folders(texts: Path, tmp_path: Path):
    options = RunOptions(beam_options=tuple(DATAFLOW.split()))
    with pytest.raises(UserError, match=r"DataflowRunner runs on other machines, .* give a gs://"):
        ingest([str(texts)], str(tmp_path / "documents"), IngestConfig(), options)


def test_a_job_for_dataflow_is_translated_and_staged(texts: Path):
    pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="needs Beam's [gcp] extra")
    options = RunOptions(
        beam_options=(*DATAFLOW.split(), "--template_location=gs://bucket/template")
    )
    with object_store("gs") as bucket:
        check_runner(options, f"{bucket}/dataflow")
        with pytest.raises(RunError):  # a template is only written, not run
            ingest(
                [upload(texts, f"{bucket}/dataflow/texts")],
                f"{bucket}/dataflow/documents",
                IngestConfig(),
                options,
            )
        job = storage.read_bytes(f"{bucket}/template").decode()
        (pipeline,) = set(re.findall(r'"(gs://[^"]*pipeline\.pb)"', job))
        assert b"Scatter" in storage.read_bytes(pipeline)


def run(*command: str) -> str:
    """Run a command and return what it prints."""
    ended = CliRunner().invoke(commands, command)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def figures(table: str) -> list[str]:
    return [word for word in table.split() if word[0].isdigit()]


def test_models_are_trained_and_used_from_s3(tmp_path: Path):
    local = tmp_path / "run"
    options = (*PRETRAIN.split(), "--evaluate-every", "20", "--device", "cpu")
    with object_store("s3") as bucket:
        instances = upload(write_instances(tmp_path / "instances"), f"{bucket}/instances")
        run("pretrain", str(tmp_path / "instances"), "--output", str(local), *options)
        run("pretrain", instances, "--output", str(tmp_path / "from-s3"), *options)
        for name in ("model.safetensors", "metrics.csv", "summary.json"):
            assert (tmp_path / "from-s3" / name).read_bytes() == (local / name).read_bytes(), name
        remote = upload(local, f"{bucket}/run")
        evaluated = run("evaluate", str(local), instances)
        assert figures(run("evaluate", remote, instances)) == figures(evaluated)
        assert fill(remote, "w7 [MASK]") == fill(str(local), "w7 [MASK]")

        rows = "text\tlabel\n" + "".join(f"w{7 + i % 9} w8\t{'ab'[i % 2]}\n" for i in range(20))
        for name in ("train.tsv", "dev.tsv"):
            (tmp_path / name).write_text(rows)
            write(f"{bucket}/task/{name}", rows.encode())
        output = tmp_path / "tuned"
        tune = ["finetune", "classify", f"{bucket}/task", "--checkpoint", remote, *FINETUNE.split()]
        for _ in range(2):  # the second time it is finished
            ended = CliRunner().invoke(commands, [*tune, "--output", str(output)])
            assert ended.exit_code in (0, 1), ended.output  # a constant answer may be as good
        tuned = upload(output, f"{bucket}/tuned")
        run("predict", tuned, f"{bucket}/task/dev.tsv", "--output", f"{bucket}/predictions.tsv")
        assert storage.read_bytes(f"{bucket}/predictions.tsv").count(b"\n") == 21
        assert "examples" in run("evaluate", tuned, f"{bucket}/task/dev.tsv")
        assert remote in run("results", bucket, "--json")
        vectors = str(tmp_path / "vectors.parquet")
        run("features", remote, f"{bucket}/task/dev.tsv", "--output", vectors, "--per", "text")
        assert pq.read_table(vectors).num_rows == 20
