"""Instances: the rows hold exactly the text of the documents, and come back from Parquet."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.instances import table as instances
from clozeworks.pipeline.instances.chunks import Corpus
from clozeworks.pipeline.instances.masking import mask_rows
from clozeworks.pipeline.instances.table import (
    BLOCK_TOKENS,
    Instances,
    build_instances,
    parquet_options,
)
from clozeworks.pipeline.schemas import instances_schema
from clozeworks.pipeline.seeding import rng_for
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary

from tests.fixtures.corpus_fixture import one_source


def vocabulary_of(num_words: int = 400, num_pieces: int = 100) -> Vocabulary:
    words = [f"w{i}" for i in range(num_words)]
    pieces = [f"##p{i}" for i in range(num_pieces)]
    return Vocabulary((*SPECIAL_TOKENS, "[unused0]", *words, *pieces), Normalization(True, True))


VOCABULARY = vocabulary_of()


def corpus_of(num_documents: int, vocabulary: Vocabulary = VOCABULARY, seed: int = 0) -> Corpus:
    rng = rng_for(seed, "corpus")
    lengths = rng.integers(3, 40, (num_documents, 12))
    offsets = np.append(0, np.cumsum(lengths.ravel()))
    token_ids = rng.integers(6, len(vocabulary), offsets[-1]).astype(np.int32)
    return one_source(token_ids, offsets, np.arange(num_documents + 1) * 12)


def build(
    corpus: Corpus, vocabulary: Vocabulary = VOCABULARY, seed: int = 0, **options
) -> Instances:
    config = BuildConfig(**options)
    return build_instances(
        corpus, vocabulary, config, rng_for(seed, "pairs"), rng_for(seed, "masks"), duplicate=3
    )


def restored(row: dict) -> list[int]:
    ids = list(row["input_ids"])
    for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
        ids[position] = original
    return ids


@pytest.mark.parametrize("pairing", ["balanced", "bert", "sop", "none"])
@pytest.mark.parametrize("masking", ["token", "whole-word"])
def test_rows_hold_the_text_of_the_documents_they_name(pairing, masking):
    corpus = corpus_of(30)
    table = build(corpus, pairing=pairing, masking=masking).table
    assert table.schema == instances_schema(len(VOCABULARY))
    bounds = corpus.sentence_offsets[corpus.document_offsets]
    texts = [" ".join(map(str, corpus.token_ids[a:b])) + " " for a, b in pairwise(bounds)]
    for row in table.to_pylist():
        ids, b_start = restored(row), row["segment_b_start"]
        a, b = ids[1 : b_start - 1], ids[b_start:-1]
        assert ids[0] == VOCABULARY.cls_id
        assert ids[b_start - 1] == ids[-1] == VOCABULARY.sep_id
        assert len(ids) <= 128
        assert " ".join(map(str, a)) + " " in texts[row["document_a"]]
        assert " ".join(map(str, b)) in texts[row["document_b"]]
        assert row["duplicate"] == 3
        assert bool(b) == (pairing != "none")


def test_all_tokens_are_there_once():
    corpus = corpus_of(60)
    built = build(corpus)
    written = np.concatenate([restored(row) for row in built.table.to_pylist()])
    text = np.sort(written[(written != VOCABULARY.cls_id) & (written != VOCABULARY.sep_id)])
    assert built.counts["tokens_used"] == len(text)
    assert built.counts["tokens_used"] + built.counts["tokens_cut"] == len(corpus.token_ids)
    assert built.counts["rows"] == built.table.num_rows
    times_written = np.bincount(text, minlength=len(VOCABULARY))
    times_in_documents = np.bincount(corpus.token_ids, minlength=len(VOCABULARY))
    assert (times_in_documents - times_written).min() >= 0
    assert (times_in_documents - times_written).sum() == built.counts["tokens_cut"]


def test_same_generators_same_table_and_others_another():
    corpus = corpus_of(20)
    assert build(corpus).table.equals(build(corpus).table)
    assert not build(corpus, seed=1).table.equals(build(corpus).table)


def test_masks_have_a_generator_of_their_own():
    corpus = corpus_of(20)
    config = BuildConfig()
    one, other = (
        build_instances(
            corpus, VOCABULARY, config, rng_for(0, "pairs"), rng_for(seed, "masks"), 0
        ).table
        for seed in (0, 1)
    )
    assert one["document_a"].equals(other["document_a"])
    assert not one["masked_lm_positions"].equals(other["masked_lm_positions"])


def test_rows_are_shuffled():
    documents = build(corpus_of(200)).table["document_a"].to_numpy()
    assert np.mean(np.diff(documents) == 0) < 0.05
    assert abs(np.corrcoef(documents, np.arange(len(documents)))[0, 1]) < 0.1


def test_more_than_one_block_of_rows():
    corpus = corpus_of(BLOCK_TOKENS // (12 * 20) + 200)
    built = build(corpus)
    assert built.table["input_ids"].num_chunks > 1
    num_tokens = len(built.table["input_ids"].combine_chunks().flatten())
    assert num_tokens == built.counts["tokens_used"] + 3 * len(built.table)


@pytest.mark.slow
def test_short_rows_are_not_padded_to_a_long_one_in_gigabytes(monkeypatch: pytest.MonkeyPatch):
    cells: list[int] = []

    def mask(ids: np.ndarray, row_offsets: np.ndarray, *rest: Any) -> Any:
        cells.append((len(row_offsets) - 1) * int(np.diff(row_offsets).max()))
        return mask_rows(ids, row_offsets, *rest)

    monkeypatch.setattr(instances, "mask_rows", mask)
    offsets = np.append(0, np.cumsum([30_000, *[5] * 40_000]))
    token_ids = np.arange(offsets[-1], dtype=np.int32) % 300 + 6
    corpus = one_source(token_ids, offsets, np.arange(len(offsets)))
    table = build(corpus, pairing="bert", max_length=32_768).table
    assert len(table) > 20_000
    assert max(cells) <= 1.01 * (1 << 26)


def test_large_vocabularies_take_wider_ids():
    vocabulary = vocabulary_of(num_words=70_000)
    table = build(corpus_of(20, vocabulary), vocabulary).table
    assert table.schema.field("input_ids").type == pa.list_(pa.uint32())
    assert max(max(restored(row)) for row in table.to_pylist()) > 65_535


@pytest.mark.parametrize("num_words", [20_000, 70_000])
def test_parquet_options_keep_the_rows_and_are_small(tmp_path, num_words):
    vocabulary = vocabulary_of(num_words)
    table = build(corpus_of(500, vocabulary), vocabulary).table
    options = parquet_options(table.schema)
    with pq.ParquetWriter(tmp_path / "tuned.parquet", table.schema, **options) as writer:
        writer.write_table(table)
    pq.write_table(table, tmp_path / "plain.parquet", compression="zstd")
    assert pq.read_table(tmp_path / "tuned.parquet").equals(table)
    assert (tmp_path / "tuned.parquet").stat().st_size < 0.95 * (
        tmp_path / "plain.parquet"
    ).stat().st_size


@pytest.fixture
def parquet_file(tmp_path: Path) -> Path:
    table = build(corpus_of(60)).table
    with pq.ParquetWriter(
        tmp_path / "train.parquet", table.schema, **parquet_options(table.schema)
    ) as writer:
        writer.write_table(table, row_group_size=50)
    return tmp_path / "train.parquet"


@pytest.mark.slow
@pytest.mark.parametrize("library", ["datasets", "duckdb", "polars"])
def test_other_libraries_read_the_rows(parquet_file: Path, tmp_path: Path, library: str):
    peer = pytest.importorskip(library)
    path = str(parquet_file)
    rows = pq.read_table(parquet_file).to_pylist()
    if library == "datasets":
        cache = str(tmp_path / "c")
        read = peer.load_dataset("parquet", data_files=path, split="train", cache_dir=cache)
        assert read.to_list() == rows
    elif library == "duckdb":
        read = peer.sql(f"SELECT * FROM '{path}'").fetchall()
        assert read == [tuple(row.values()) for row in rows]
    else:
        assert peer.read_parquet(path).to_dicts() == rows


@pytest.mark.parametrize("max_length", [512, 4096, 65_535])
def test_long_rows_are_filled_and_masked_at_any_rate(max_length):
    corpus = corpus_of(5000)
    merged = one_source(corpus.token_ids, corpus.sentence_offsets, corpus.document_offsets[::500])
    table = build(merged, max_length=max_length, mask_rate=0.4).table
    lengths = np.array([len(ids) for ids in table["input_ids"].to_pylist()])
    counts = np.array([len(positions) for positions in table["masked_lm_positions"].to_pylist()])
    assert lengths.max() == pytest.approx(max_length, rel=0.05)
    assert (counts == np.rint(0.4 * lengths)).all()
    for row in table.slice(0, 20).to_pylist():
        ids, b_start = restored(row), row["segment_b_start"]
        assert ids[b_start - 1] == ids[-1] == VOCABULARY.sep_id
        assert VOCABULARY.mask_id not in ids
