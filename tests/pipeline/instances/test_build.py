"""Build and vocab on documents as they should not be: one clear error, or counted."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.auditing.checks import audit_instances
from clozeworks.pipeline.config import BuildConfig, RunOptions, VocabConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.job import open_job
from clozeworks.pipeline.instances.pipeline import InstancesStage, build
from clozeworks.pipeline.manifests import VocabularyManifest
from clozeworks.pipeline.seeding import rng_for
from clozeworks.pipeline.storage import shards
from clozeworks.pipeline.storage.state import read_manifest
from clozeworks.pipeline.vocabulary import tokenize
from clozeworks.pipeline.vocabulary.counts import sentences_of
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.pipeline import learn_vocabulary, measure_vocabulary
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS

from tests.fixtures.documents_fixture import TRAIN, VALIDATION, write_documents
from tests.fixtures.manifest_fixture import make_manifest, write_manifest

WORDS = [first + rest for first in "bdfgklmnprst" for rest in ("a", "ale", "ing", "o", "ump", "ut")]
RUN = RunOptions(workers=1)
CONFIG = BuildConfig(duplicates=1)


def text_of(
    num_documents: int, num_sentences: int = 12, length: int = 20, seed: int = 0
) -> list[list[str]]:
    rng = rng_for(seed, "text")
    return [
        [" ".join([*rng.choice(WORDS, length).tolist(), "."]) for _ in range(num_sentences)]
        for _ in range(num_documents)
    ]


def write_two_sources(
    path: Path, train: Sequence[list[str]], validation: Sequence[list[str]]
) -> Path:
    shards = {}
    for name, texts in ((TRAIN, train), (VALIDATION, validation)):
        sources = ("enwiki", "books") * (len(texts) // 2 + 1)
        shards[name] = [(source, "en", text) for source, text in zip(sources, texts, strict=False)]
    return Path(write_documents(path, shards))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("build") / "documents"
    return str(write_two_sources(path, text_of(40), text_of(4, seed=1)))


@pytest.fixture(scope="module")
def vocab(documents: str) -> str:
    path = str(Path(documents).parent / "vocab")
    learn_vocabulary(documents, path, VocabConfig(size=120, num_unused=7), RUN)
    return path


@pytest.mark.slow
def test_a_vocabulary_reserves_unused_tokens_and_rows_hold_none(
    documents: str, vocab: str, tmp_path: Path
):
    vocabulary = read_vocabulary(vocab)
    assert vocabulary.tokens[:8] == ("[PAD]", *(f"[unused{i}]" for i in range(7)))
    build(documents, vocab, str(tmp_path / "out"), replace(CONFIG, mask_split=(0, 100, 0)), RUN)
    ids = pq.read_table(tmp_path / "out" / TRAIN)["input_ids"].combine_chunks().flatten().to_numpy()
    assert set(range(8)).isdisjoint(ids.tolist())


def test_tokens_are_counted_by_source(documents: str, vocab: str, tmp_path: Path):
    manifest = build(documents, vocab, str(tmp_path / "out"), BuildConfig(duplicates=3), RUN)
    for shard in manifest.shards:
        assert set(shard.source_tokens) == {"enwiki", "books"}
        assert sum(shard.source_tokens.values()) == shard.counts["tokens_in"]
    checks = audit_instances(str(tmp_path / "out"), manifest, read_vocabulary(vocab)).checks
    assert {"tokens from enwiki", "tokens from books"} <= {check.name for check in checks}


def test_another_vocabulary_is_measured_on_the_same_words(
    documents: str, vocab: str, capsys, tmp_path: Path
):
    ours = read_manifest(vocab, VocabularyManifest).report.validation
    assert measure_vocabulary(documents, vocab) == ours
    letters = sorted({letter for word in WORDS for letter in word})
    tokens = [*SPECIAL_TOKENS, ".", *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "letters.txt").write_text("\n".join(tokens) + "\n")
    options = ["--size=120", "--num-unused=7", f"--compare={tmp_path}/letters.txt"]
    main(["vocab", documents, f"--output={vocab}", *options])
    shown = capsys.readouterr().out
    held_out = " ".join(" ".join(document) for document in text_of(4, seed=1)).split()
    assert f"{sum(map(len, held_out)) / len(held_out):.3f}" in shown
    assert f"{ours.tokens_per_word:.3f}" in shown


def test_words_are_counted_alike_however_few_fit_in_memory(
    documents: str, vocab: str, monkeypatch, tmp_path: Path
):
    monkeypatch.setattr(tokenize, "MAX_CHUNKS", 10)
    monkeypatch.setattr(shards, "TABLE_BYTES", 1)
    monkeypatch.setattr(shards, "BATCH_ROWS", 4)
    splitter = read_vocabulary(vocab).splitter()
    assert len(list(tokenize.count_tables(sentences_of(f"{documents}/{TRAIN}"), splitter))) > 5
    learn_vocabulary(documents, str(tmp_path), VocabConfig(size=120, num_unused=7), RUN)
    for name in ("manifest.json", "vocab.txt", "word_counts.parquet"):
        assert (tmp_path / name).read_bytes() == (Path(vocab) / name).read_bytes()


def test_one_document_with_text_is_an_error_that_names_the_shard(vocab: str, tmp_path: Path):
    documents = write_two_sources(tmp_path / "one", [*text_of(1), [], []], text_of(4))
    with pytest.raises(UserError, match=rf"one/{TRAIN}: The shard has 1 document with text"):
        build(str(documents), vocab, str(tmp_path / "out"), CONFIG, RUN)
    assert not (tmp_path / "out" / "manifest.json").exists()
    sop, overwrite = replace(CONFIG, pairing="sop"), replace(RUN, overwrite=True)
    build(str(documents), vocab, str(tmp_path / "out"), sop, overwrite)


def test_a_build_without_rows_for_training_is_an_error(documents: str, vocab: str, tmp_path: Path):
    never = replace(CONFIG, weight=("en=0.0001",))
    with pytest.raises(UserError, match="No rows for training: no pass reads any"):
        build(documents, vocab, str(tmp_path / "out"), never, RUN)
    assert not (tmp_path / "out").exists()  # said before work


def test_documents_of_one_sentence_are_warned_of(vocab: str, tmp_path: Path, capsys):
    documents = write_two_sources(tmp_path / "singles", text_of(60, num_sentences=1), text_of(4))
    main(["build", str(documents), f"--vocab={vocab}", f"--output={tmp_path}/out", "--workers=1"])
    assert f"Warning: {TRAIN}: " in capsys.readouterr().err


def test_unknown_tokens_are_warned_of(documents: str, tmp_path: Path, capsys):
    (tmp_path / "vocab.txt").write_text("\n".join((*SPECIAL_TOKENS, WORDS[0])))
    command = ["build", documents, f"--vocab={tmp_path}/vocab.txt", f"--output={tmp_path}/out"]
    main([*command, "--workers=1"])
    assert "% of the tokens are unknown: use a vocabulary of" in capsys.readouterr().err


def test_a_sentence_of_20_000_tokens_is_used_whole(vocab: str, tmp_path: Path):
    long = [" ".join(rng_for(0, "long").choice(WORDS, 20_000).tolist())]
    documents = write_two_sources(tmp_path / "long", [*text_of(300), long], text_of(4))
    manifest = build(str(documents), vocab, str(tmp_path / "out"), CONFIG, RUN)
    counts = manifest.counts
    assert counts["tokens_cut"] <= 0.005 * counts["tokens_in"]
    assert not audit_instances(str(tmp_path / "out"), manifest, read_vocabulary(vocab)).failed


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [[], [[], []]], ids=["no documents", "no sentences"])
def test_an_empty_validation_shard_makes_an_empty_one(
    held_out: list[list[str]], vocab: str, tmp_path: Path
):
    documents = write_two_sources(tmp_path / "documents", text_of(20), held_out)
    manifest = build(str(documents), vocab, str(tmp_path / "out"), CONFIG, RUN)
    assert [shard.rows > 0 for shard in manifest.shards] == [True, False]
    assert manifest.shards[1].warnings == ["the document shard contains no text"]
    assert not audit_instances(str(tmp_path / "out"), manifest, read_vocabulary(vocab)).failed
    learned = learn_vocabulary(str(documents), str(tmp_path / "v"), VocabConfig(size=120), RUN)
    assert learned.report.validation.num_words == 0


def test_documents_without_a_validation_split(vocab: str, tmp_path: Path):
    documents = write_two_sources(tmp_path / "documents", text_of(20), [])
    write_manifest(documents, "ingest", {TRAIN: 0})
    manifest = build(str(documents), vocab, str(tmp_path / "out"), CONFIG, RUN)
    assert [shard.split for shard in manifest.shards] == ["train"]


def test_no_stage_deletes_what_it_reads(documents: str, vocab: str, tmp_path: Path):
    copied = Path(shutil.copytree(documents, tmp_path / "documents"))
    copied_vocab = Path(shutil.copytree(vocab, tmp_path / "vocab"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    overwrite = replace(RUN, overwrite=True)
    with pytest.raises(UserError, match=r"documents would overwrite the input .*/documents: choo"):
        learn_vocabulary(str(copied), str(copied), VocabConfig(), overwrite)
    for output, its_vocab in (
        (copied, copied_vocab),
        (copied_vocab, copied_vocab),
        (copied_vocab, copied_vocab / "vocab.txt"),
    ):
        with pytest.raises(UserError, match=rf"{output} would overwrite the input {output}"):
            build(str(copied), str(its_vocab), str(output), CONFIG, overwrite)
    assert all(path.exists() for path in files)


@pytest.mark.parametrize(
    ("too_small", "corrected"),
    [
        (VocabConfig(size=100, num_unused=90), VocabConfig(size=140, num_unused=90)),
        (VocabConfig(size=260, algorithm="bpe"), VocabConfig(size=270, algorithm="bpe")),
    ],
)
def test_a_size_that_was_too_small_may_be_corrected(
    documents: str, tmp_path: Path, too_small: VocabConfig, corrected: VocabConfig
):
    output = str(tmp_path / "vocab")
    for _ in range(2):  # the same command says the same
        with pytest.raises(UserError, match=f"`size` is {too_small.size}, but special tokens and"):
            learn_vocabulary(documents, output, too_small, RUN)
    assert learn_vocabulary(documents, output, corrected, RUN).report.num_tokens == corrected.size


def test_documents_may_move_between_builds(vocab: str, tmp_path: Path):
    documents = write_two_sources(tmp_path / "p" / "documents", text_of(20), text_of(4))
    output = str(tmp_path / "out")
    built = build(str(documents), vocab, output, CONFIG, RUN)
    documents = documents.rename(tmp_path / "documents")
    again = build(str(documents), vocab, output, CONFIG, replace(RUN, overwrite=True))
    assert again.shards == built.shards and not again.already_finished


def test_a_vocabulary_that_is_not_finished_is_refused(documents: str, vocab: str, tmp_path: Path):
    unfinished = tmp_path / "vocab"
    shutil.copytree(vocab, unfinished)
    (unfinished / "manifest.json").unlink()
    (unfinished / ".work" / "0").mkdir(parents=True)
    content = json.dumps({"head": make_manifest("vocab")})
    (unfinished / ".work" / "0" / "job.json").write_text(content)
    with pytest.raises(UserError, match="vocab is unfinished: rerun the `clozeworks vocab`"):
        build(documents, str(unfinished), str(tmp_path / "out"), CONFIG, RUN)
    assert not (tmp_path / "out").exists()


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def lose_texts(path: Path) -> None:
    table = pq.read_table(path)
    nothing = pa.nulls(len(table), pa.list_(pa.string()))
    pq.write_table(table.set_column(4, "sentences", nothing), path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_off, f"{TRAIN} cannot be read as documents"),
        (lose_texts, f"{TRAIN} cannot be read as documents.*column sentences: a value is missing"),
        (Path.unlink, f"{TRAIN} cannot be read as documents.*No such file"),
    ],
)
def test_a_damaged_shard_is_one_error(damage, message: str, vocab: str, tmp_path: Path):
    """What happens to a shard after the listing is met by the worker that reads it."""
    documents = write_two_sources(tmp_path / "documents", text_of(20), text_of(4))
    output = tmp_path / "out"
    stage = InstancesStage(documents=str(documents), vocab=vocab, output=str(output), config=CONFIG)
    job, _ = open_job(stage, stage.plan(), overwrite=False)
    damage(documents / TRAIN)
    with pytest.raises(UserError, match=message) as raised:
        job.do(0, stage.phases[0])
    assert "\n" not in str(raised.value)
    assert not (output / TRAIN).exists()
    if (documents / TRAIN).exists():
        write_manifest(documents, "ingest", {TRAIN: 0, VALIDATION: 0})
        with pytest.raises(UserError, match=message):
            learn_vocabulary(str(documents), str(tmp_path / "v"), VocabConfig(size=120), RUN)
        assert not (tmp_path / "v" / "manifest.json").exists()
