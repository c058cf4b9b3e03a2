"""Ingest, vocab and build: the same bytes whatever the workers, the runner, or the kills."""

import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.manifests import DocumentsManifest
from clozeworks.pipeline.storage.state import read_manifest
from clozeworks.pipeline.text.wikitext.repair import GAP

from tests.fixtures.process_fixture import CLI, kill_group, wait_until
from tests.fixtures.stages_fixture import Configs, digests, make_stages

CORPUS = Path(__file__).resolve().parents[2] / "examples" / "quickstart" / "corpus"
CONFIGS = Configs(
    IngestConfig(shards=3, validation_share=0.05), VocabConfig(size=4000), BuildConfig(duplicates=2)
)
NUM_RANGES = 8  # into which ingest cuts the corpus
IN_THREADS = ("--direct_running_mode=multi_threading", "--direct_num_workers=3")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one-worker")
    make_stages(CORPUS, folder, CONFIGS)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [RunOptions(workers=2), RunOptions(beam_options=IN_THREADS)],
    ids=["two processes", "three of Beam's threads"],
)
def test_workers_and_runners_make_the_same_bytes(made: Path, tmp_path: Path, options: RunOptions):
    make_stages(CORPUS, tmp_path, CONFIGS, options)
    assert digests(tmp_path) == digests(made)


STAGES = {
    "documents": (
        "ingest",
        [str(CORPUS), "--shards=3", "--validation-share=0.05"],
        ["scatter", "deduplicate", "gather"],
    ),
    "vocab": ("vocab", ["{made}/documents", "--size=4000"], ["count", "merge", "learn"]),
    "instances": (
        "build",
        ["{made}/documents", "--vocab={made}/vocab", "--duplicates=2"],
        ["build"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_stage_resumes_to_the_same_bytes(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what a killed run cannot clear away
    output = tmp_path / stage
    typed = typed_command(stage, made, output, workers=2)
    # After the one record of a last phase a run may end before it is killed.
    killed = [
        kill(typed, output, f"*/{phase}/[0-9]*.json", num_records=1) for phase in STAGES[stage][2]
    ]
    assert killed[0]
    subprocess.run(typed, check=True, capture_output=True)
    assert digests(output) == digests(made / stage)


def typed_command(stage: str, made: Path, output: Path, workers: int) -> list[str]:
    command, arguments, _ = STAGES[stage]
    arguments = [argument.replace("{made}", str(made)) for argument in arguments]
    return [*CLI, command, *arguments, f"--output={output}", f"--workers={workers}"]


def kill(
    typed: list[str], output: Path, pattern: str, num_records: int, delay_s: float = 0
) -> bool:
    """Run a command until so many records lie in its output; return whether it was killed early."""
    process = subprocess.Popen(
        typed, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    work = output / ".work"
    wait_until(
        lambda: any(work.glob("*/job.json")) and len(list(work.glob(pattern))) >= num_records,
        process,
        delay_s,
    )
    kill_group(process)
    return not (output / "manifest.json").exists()


def test_documents_are_as_the_schema_says(made: Path):
    manifest = read_manifest(str(made / "documents"), DocumentsManifest)
    seen: set[str] = set()
    for shard in manifest.shards:
        table = pq.read_table(made / "documents" / shard.name)
        ids = table["doc_id"].to_pylist()
        assert table.num_rows == shard.rows >= 2
        assert seen.isdisjoint(ids)
        seen.update(ids)
        for sentences in table["sentences"].to_pylist():
            assert all(
                sentence == " ".join(sentence.split()) and sentence and GAP not in sentence
                for sentence in sentences
            )
    assert manifest.counts["sentences_with_gaps"] > 0
    assert {doc_id.split(":")[0] for doc_id in seen} >= {"enwiki", "gutenberg"}
    assert not (made / "documents" / ".work").exists()


def write_texts(folder: Path, number: int) -> str:
    folder.mkdir(parents=True)
    for i in range(number):
        (folder / f"{i}.txt").write_text(f"Text number {i} is short. " * 20)
    return str(folder)


def test_too_few_documents_for_the_shards_are_reported(tmp_path: Path):
    texts, documents = write_texts(tmp_path / "texts", 6), str(tmp_path / "documents")
    with pytest.raises(UserError, match="lower `shards`"):
        ingest([texts], documents, IngestConfig(shards=40), RunOptions(workers=1))
    assert not list(tmp_path.glob("documents/.work/*/deduplicate"))  # before more is done
    with pytest.raises(UserError, match=r"^`shards` is 9999999, but the sources have \d+ bytes"):
        ingest(
            [texts], str(tmp_path / "many"), IngestConfig(shards=9_999_999), RunOptions(workers=1)
        )
    assert not (tmp_path / "many").exists()
    with pytest.raises(UserError, match="hold 2 documents"):
        ingest(
            [f"{texts}/[01].txt"], documents, IngestConfig(), RunOptions(workers=1, overwrite=True)
        )


def test_the_validation_split_holds_at_least_two_documents(tmp_path: Path):
    texts = write_texts(tmp_path / "texts", 12)
    manifest = ingest(
        [texts], str(tmp_path / "out"), IngestConfig(validation_share=1e-9), RunOptions(workers=1)
    )
    assert [(shard.split, shard.rows) for shard in manifest.shards] == [
        ("train", 10),
        ("validation", 2),
    ]


def test_the_place_of_the_sources_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for i, folder in enumerate(["here", "there/deeper"]):
        texts = write_texts(tmp_path / folder / "texts", 8)
        (tmp_path / folder / "texts" / "cover.jpg").write_bytes(b"no text")
        monkeypatch.chdir(tmp_path / folder)
        for j, source in enumerate([texts, "texts", "./texts/"][: 3 - i]):
            ingest([source], f"{tmp_path}/{i}-{j}", IngestConfig(shards=1), RunOptions(workers=1))
    assert (
        len(
            {
                tuple(digests(tmp_path / name).items())
                for name in ("0-0", "0-1", "0-2", "1-0", "1-1")
            }
        )
        == 1
    )
    manifest = read_manifest(str(tmp_path / "0-0"), DocumentsManifest)
    assert manifest.examples == {"files_of_unknown_format": ["texts/cover.jpg"]}
