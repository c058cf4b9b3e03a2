"""Packed rows: whole documents, full rows, masks by document, one result for any workers."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.auditing.checks import audit
from clozeworks.pipeline.auditing.decode import read_instances
from clozeworks.pipeline.auditing.verdict import Check
from clozeworks.pipeline.config import BuildConfig, RunOptions
from clozeworks.pipeline.instances.chunks import Corpus
from clozeworks.pipeline.instances.masking import mask_sequences, num_to_mask, positions_in
from clozeworks.pipeline.instances.packed import pack
from clozeworks.pipeline.instances.pipeline import build
from clozeworks.pipeline.instances.table import build_instances
from clozeworks.pipeline.manifests import InstancesManifest
from clozeworks.pipeline.schemas import instances_schema
from clozeworks.pipeline.storage.shards import shard_paths
from clozeworks.pipeline.storage.state import read_manifest
from clozeworks.pipeline.vocabulary.files import read_vocabulary, vocabulary_files
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import Vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.corpus_fixture import one_source
from tests.fixtures.documents_fixture import write_documents

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = tuple(f"w{number}" for number in range(95))
VOCABULARY = Vocabulary((*SPECIALS, *WORDS), Normalization(True, True))
CONFIG = BuildConfig(pairing="none", max_length=600, duplicates=1)


def make_corpus(documents: list[list[int]], seed: int = 0) -> Corpus:
    """Return documents of sentences of these lengths, of random words."""
    lengths = [length for sentences in documents for length in sentences]
    rng = np.random.default_rng(seed)
    return one_source(
        token_ids=rng.integers(len(SPECIALS), len(VOCABULARY), sum(lengths)).astype(np.uint16),
        sentence_offsets=np.cumsum([0, *lengths]),
        document_offsets=np.cumsum([0, *(len(sentences) for sentences in documents)]),
    )


def built(corpus: Corpus, seed: int = 0, config: BuildConfig = CONFIG):
    rngs = (np.random.default_rng((seed, part)) for part in range(2))
    return build_instances(corpus, VOCABULARY, config, *rngs, duplicate=3)


def sequences_in(row: dict) -> list[list[int]]:
    """Return the original tokens of each sequence of a row."""
    ids = list(row["input_ids"])
    for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
        ids[position] = original
    bounds = [*row["sequence_starts"], len(ids)]
    return [ids[start:stop] for start, stop in pairwise(bounds)]


@given(st.lists(st.integers(3, 40), max_size=60), st.integers(0, 5))
def test_no_row_is_too_long_and_no_two_could_be_one(lengths: list[int], seed: int):
    row = pack(np.array(lengths, np.int64), 40, np.random.default_rng(seed))
    filled = np.bincount(row, lengths)
    assert len(filled) == 0 or (filled.min() > 0 and filled.max() <= 40)
    if len(filled) > 1:
        first, second = np.sort(filled)[:2]
        assert first + second > 40


documents = st.lists(st.lists(st.integers(0, 200), max_size=12), min_size=1, max_size=12)


@settings(max_examples=40)
@given(documents, st.integers(0, 3))
def test_every_document_is_whole_or_cut_between_sentences(lengths: list[list[int]], seed: int):
    corpus = make_corpus(lengths, seed)
    if not len(corpus.token_ids):
        return
    instances = built(corpus, seed)
    table = instances.table
    assert table.schema.equals(instances_schema(len(VOCABULARY), packed=True))
    pieces: dict[int, list[list[int]]] = {}
    num_sequences = 0
    for row in table.to_pylist():
        assert len(row["input_ids"]) <= 600 and row["duplicate"] == 3
        for document, ids in zip(row["documents"], sequences_in(row), strict=True):
            assert ids[0] == VOCABULARY.cls_id and ids[-1] == VOCABULARY.sep_id
            pieces.setdefault(document, []).append(ids[1:-1])
            num_sequences += 1
    for document, sentences in enumerate(lengths):
        first = corpus.document_offsets[document]
        start = corpus.sentence_offsets[first]
        text = corpus.token_ids[start : start + sum(sentences)].tolist()
        own = pieces.get(document, [])
        if sum(sentences) + 2 <= 600:
            assert own == ([text] if text else [])
            continue
        # The pieces, in whatever rows they are, make up the document, cut where sentences end.
        ends = set(np.cumsum(sentences).tolist())
        position = 0
        remaining = list(own)
        while remaining:
            piece = next(p for p in remaining if text[position : position + len(p)] == p)
            remaining.remove(piece)
            position += len(piece)
            assert position in ends
        assert position == len(text)
    counts = instances.counts
    assert counts["tokens_used"] == counts["tokens_in"] == len(corpus.token_ids)
    assert counts["sequences"] == num_sequences
    stored = sum(len(row) for row in table["input_ids"].to_pylist())
    assert counts["padding_tokens"] == 600 * len(table) - stored


@pytest.mark.parametrize("masking", ["token", "whole-word"])
def test_masks_are_as_many_as_each_document_asks_for(masking: str):
    lengths = np.array([3, 598, 4, 17, 120, 3, 300])
    offsets = np.append(0, np.cumsum(lengths))
    ids = np.random.default_rng(0).integers(5, 100, offsets[-1]).astype(np.uint16)
    before = ids.copy()
    config = replace(CONFIG, masking=masking, mask_split=(100, 0, 0))
    flat, originals = mask_sequences(ids, offsets, VOCABULARY, config, np.random.default_rng(1))
    positions, bounds = positions_in(offsets, flat)
    assert np.diff(bounds).tolist() == num_to_mask(lengths, 0.15, 600).tolist()
    row = np.repeat(np.arange(len(lengths)), np.diff(bounds))
    assert ((positions > 0) & (positions < lengths[row] - 1)).all()
    assert flat.tolist() == (offsets[row] + positions).tolist()
    assert (np.diff(flat) > 0).all()
    assert originals.tolist() == before[flat].tolist()
    assert (ids[flat] == VOCABULARY.mask_id).all()
    rest = np.setdiff1d(np.arange(len(ids)), flat)
    assert ids[rest].tolist() == before[rest].tolist()


def write_texts(path: Path, num_documents: int, num_words: int = 0) -> str:
    """Write three shards of documents of very different lengths, or of `num_words`."""
    rng = np.random.default_rng(4)
    shards = {}
    for shard in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"):
        sentences = []
        for _ in range(num_documents):
            if num_words:
                words = rng.choice(WORDS, num_words)
                sentences.append([" ".join(words[i : i + 10]) for i in range(0, num_words, 10)])
                continue
            num_sentences = int(rng.geometric(0.03))
            sentences.append(
                [" ".join(rng.choice(WORDS, rng.integers(3, 30))) for _ in range(num_sentences)]
            )
        shards[f"{shard}.parquet"] = [("enwiki", "en", texts) for texts in sentences]
    return write_documents(path, shards)


def build_with(path: Path, output: str, config: BuildConfig, workers: int) -> None:
    documents, vocab = str(path / "documents"), str(path / "vocab")
    build(documents, vocab, str(path / output), config, RunOptions(workers=workers))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of documents, a vocabulary, and packed instances of 1,024 tokens."""
    path = tmp_path_factory.mktemp("packed")
    write_texts(path / "documents", 150)
    (path / "vocab").mkdir()
    for name, content in vocabulary_files(VOCABULARY).items():
        (path / "vocab" / name).write_bytes(content)
    config = replace(CONFIG, max_length=1024, duplicates=2)
    build_with(path, "one", config, workers=1)
    return path


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_workers(packed: Path):
    config = replace(CONFIG, max_length=1024, duplicates=2)
    two = packed / "two"
    build_with(packed, "two", config, workers=2)
    names = sorted(path.name for path in two.glob("*.parquet"))
    assert names == sorted(path.name for path in (packed / "one").glob("*.parquet"))
    for name in (*names, "manifest.json"):
        assert (two / name).read_bytes() == (packed / "one" / name).read_bytes(), name


def test_a_pass_of_few_rows_is_one_row_group(packed: Path):
    for path in (packed / "one").glob("train-*.parquet"):
        assert pq.read_metadata(path).num_row_groups == 2


def test_the_audit_holds_and_shows_how_full_rows_are(packed: Path):
    checks = {check.name: check for check in audit(str(packed / "one")).checks}
    assert [check for check in checks.values() if check.verdict == "bad"] == []
    manifest = read_manifest(str(packed / "one"), InstancesManifest)
    rows = sum(shard.rows for shard in manifest.shards)
    assert checks["rows"].value == rows
    padding = manifest.counts["padding_tokens"] / (1024 * rows)
    assert checks["padding at fixed length"].value == pytest.approx(padding)
    assert padding < 0.05
    documents_in_a_row = manifest.counts["sequences"] / rows
    assert checks["documents in a row"].value == pytest.approx(documents_in_a_row)
    assert documents_in_a_row > 1.5


def audited_padding(
    packed: Path, tmp_path: Path, num_documents: int, num_words: int, config: BuildConfig
) -> Check:
    """Return the check of the padding of documents of `num_words`; no check may fail."""
    documents = write_texts(tmp_path / "documents", num_documents, num_words)
    output = str(tmp_path / "instances")
    build(documents, str(packed / "vocab"), output, config, RunOptions(workers=1))
    measured = audit(output)
    assert measured.failed == []
    return next(check for check in measured.checks if check.name == "padding at fixed length")


def test_documents_that_cannot_fill_rows_are_a_warning(packed: Path, tmp_path: Path):
    check = audited_padding(packed, tmp_path, 150, 360, CONFIG)
    assert check.value == pytest.approx(1 - 362 / 600)  # no two of them fit in a row of 600
    assert check.verdict == "warn" and check.advice == "choose another `max_length`"


def test_each_reading_of_a_pass_may_end_with_a_row_that_is_not_full(packed: Path, tmp_path: Path):
    config = replace(CONFIG, weight=("enwiki=20",), duplicates=2)
    check = audited_padding(packed, tmp_path, 13, 297, config)
    # 13 readings of 598 tokens in pairs, and one document left: 7 rows, 20 times in each pass.
    assert check.value == pytest.approx(1 - 13 * 299 / (7 * 600), abs=1e-3)
    assert check.verdict == "ok"


def test_show_prints_one_document_of_a_row_at_a_time(packed: Path):
    path = str(packed / "one")
    manifest = read_manifest(path, InstancesManifest)
    stored = pq.read_table(packed / "one" / "train-00000-of-00002.parquet").to_pylist()
    expected = [ids for row in stored[:4] for ids in sequences_in(row)]
    vocabulary = read_vocabulary(path)
    shown = read_instances(dict.fromkeys(shard_paths(path, manifest, "train")), vocabulary)
    for ids, instance in zip(expected, shown, strict=False):
        originals = [token.original for token in instance.tokens]
        assert originals == [vocabulary.readable[token_id] for token_id in ids]
        assert {token.segment for token in instance.tokens} == {"a"}
