"""All data stages by one command, in workers or one pipeline: the bytes of three commands."""

import random
import signal
import subprocess
from pathlib import Path

import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.corpus import CorpusManifests, make_corpus
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.errors import UserError

from tests.fixtures.process_fixture import CLI, kill_group, wait_until
from tests.fixtures.stages_fixture import Configs, digests, make_stages

pytestmark = pytest.mark.slow

ONE = RunOptions(workers=1)
DIRECT_RUNNER = ("--runner=DirectRunner",)
WAYS = pytest.mark.parametrize("beam_options", [(), DIRECT_RUNNER], ids=["workers", "one pipeline"])
INGEST = IngestConfig(shards=2, validation_share=0.1)
VOCAB = VocabConfig(size=200)
BUILD = BuildConfig(duplicates=2, max_length=32)
OPTIONS = [
    "--shards=2", "--validation-share=0.1", "--size=200", "--duplicates=2", "--max-length=32",
    "--workers=1",
]  # fmt: skip
FOLDERS = ("documents", "vocab", "instances")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("corpus") / "texts"
    folder.mkdir()
    for number in range(30):
        sentences = [f"Book {number} has {i} pages about {number * i} bears." for i in range(30)]
        (folder / f"{number}.txt").write_text(" ".join(sentences))
    (folder / "copy.txt").write_text((folder / "3.txt").read_text())
    (folder / "cover.jpg").write_bytes(b"no text")
    return str(folder)


@pytest.fixture(scope="module")
def stages(texts: str) -> Path:
    """What the three stages make, run one by one."""
    folder = Path(texts).with_name("stages")
    make_stages(texts, folder, Configs(INGEST, VOCAB, BUILD))
    return folder


def make(
    texts: str, output: Path, vocab: VocabConfig = VOCAB, options: RunOptions = ONE
) -> CorpusManifests:
    return make_corpus([texts], str(output), INGEST, vocab, BUILD, options)


def run(*arguments: str) -> int:
    """Run `clozeworks corpus` in this process; return the exit code."""
    try:
        main(["corpus", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@WAYS
def test_one_command_makes_the_bytes_of_the_three_stages(
    texts: str,
    stages: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    beam_options: tuple[str, ...],
):
    monkeypatch.chdir(tmp_path)
    options = RunOptions(workers=2, beam_options=beam_options)
    manifests = make(texts, Path("corpus"), options=options)
    corpus = tmp_path / "corpus"
    assert digests(corpus) == digests(stages)
    assert [manifest.stage for manifest in manifests] == ["ingest", "vocab", "build"]

    finished_at = {path: path.stat().st_mtime_ns for path in corpus.rglob("*")}
    again = make(texts, corpus, options=options)
    assert {path: path.stat().st_mtime_ns for path in corpus.rglob("*")} == finished_at
    assert all(manifest.already_finished for manifest in again)
    # The stages' own functions take the directories for theirs.
    assert ingest([texts], str(corpus / "documents"), INGEST, ONE).already_finished
    with pytest.raises(UserError, match="size was 200, now 150"):
        make(texts, corpus, VocabConfig(size=150), options)
    assert {path: path.stat().st_mtime_ns for path in corpus.rglob("*")} == finished_at


def test_what_stages_of_their_own_have_begun_is_finished(texts: str, stages: Path, tmp_path: Path):
    documents = str(tmp_path / "documents")
    ingest([texts], documents, INGEST, ONE)
    manifests = make(texts, tmp_path)
    assert [manifest.already_finished for manifest in manifests] == [True, False, False]
    assert digests(tmp_path) == digests(stages)


def test_overwrite_starts_all_stages_over(texts: str, stages: Path, tmp_path: Path):
    make(texts, tmp_path, VocabConfig(size=150))
    manifests = make(texts, tmp_path, options=RunOptions(workers=1, overwrite=True))
    assert not any(manifest.already_finished for manifest in manifests)
    assert digests(tmp_path) == digests(stages)


def test_files_of_others_are_found_before_the_pipeline_starts(texts: str, tmp_path: Path):
    (tmp_path / "instances").mkdir()
    (tmp_path / "instances" / "thesis.tex").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"instances already contains other files \(thesis"):
            make(texts, tmp_path, options=RunOptions(workers=1, overwrite=overwrite))
    assert not (tmp_path / "documents" / "manifest.json").exists()
    assert (tmp_path / "instances" / "thesis.tex").read_text() == "mine"


def typed_command(texts: str, output: Path, beam_options: tuple[str, ...] = ()) -> list[str]:
    command = [*CLI, "corpus", texts, f"--output={output}", *OPTIONS]
    if beam_options:
        command += ["--", *beam_options]
    return command


def start(typed: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        typed, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def has_begun(directory: Path) -> bool:
    return bool(list(directory.glob(".work/*/job.json")))


@WAYS
def test_a_corpus_killed_in_any_stage_is_resumed_the_other_way_to_the_same_bytes(
    texts: str,
    stages: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    beam_options: tuple[str, ...],
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what a killed run cannot clear away
    output = tmp_path / "corpus"
    typed = typed_command(texts, output, beam_options)
    moments = random.Random(5)
    first_of_stage = moments.choice(FOLDERS[:2])
    process = start(typed)
    wait_until(lambda: has_begun(output / first_of_stage), process, moments.random() / 20)
    kill_group(process)
    assert process.returncode == -signal.SIGKILL
    other_way = () if beam_options else DIRECT_RUNNER
    make(texts, output, options=RunOptions(workers=1, beam_options=other_way))
    assert digests(output) == digests(stages)


def test_warnings_and_what_was_made_are_shown(
    texts: str,
    stages: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("COLUMNS", "400")  # so that the table cuts no path
    assert run(texts, f"--output={tmp_path}", *OPTIONS) == 0
    shown = capfd.readouterr()
    assert "Warning: removed 1 exact duplicate; for example text:" in shown.err
    assert "Warning: skipped 1 file of unknown format, for example texts/cover.jpg" in shown.err
    for name in FOLDERS:
        assert f"{tmp_path}/{name}" in shown.out
    assert digests(tmp_path) == digests(stages)

    # Errors name the flags.
    assert run(texts, f"--output={tmp_path}", *OPTIONS, "--size=150") == 2
    reported = capfd.readouterr().err
    assert "size was 200, now 150" in reported
    assert "--overwrite" in reported
    assert reported.count("\n") == 1


def test_a_mistake_found_in_a_later_stage_is_one_line(texts: str, tmp_path: Path, capfd):
    assert run(texts, f"--output={tmp_path}/corpus", *OPTIONS, "--weight=fr=2") == 2
    reported = capfd.readouterr().err
    assert reported.startswith("Error: --weight fr: no source or language has this name")
    assert reported.count("\n") == 1
    assert (tmp_path / "corpus" / "documents" / "manifest.json").exists()
    assert not (tmp_path / "corpus" / "instances" / "manifest.json").exists()
