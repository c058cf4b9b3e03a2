"""Stage 2: documents to a WordPiece vocabulary.

Two phases, each over units of work, and the learning itself in the launching process:

- **count**: one unit counts the words of one shard and writes them by the bucket of the word's hash;
- **merge**: one unit sums up one bucket over all shards;
- the merged counts, the most frequent first, teach the vocabulary (`wordpiece.learn_wordpiece`).

Only the training documents are counted; the report is measured on the validation documents.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ..config import RunOptions, VocabConfig
from ..execution import storage
from ..execution.directory import (
    StageDirectory,
    check_output,
    input_fingerprint,
    library_versions,
    manifest_head,
    open_stage,
    read_manifest,
)
from ..execution.estimates import Estimate
from ..execution.shards import SPLITS, read_documents, shard_paths, write_parquet
from ..execution.units import Unit, prepare, run_units
from ..schemas import WORD_COUNTS
from .estimate import estimate_vocabulary
from .tokenize import Normalization, count_words, merge_counts
from .vocabulary import Vocabulary, default_strip_accents, fertility_report, read_vocabulary, vocabulary_files
from .wordpiece import learn_wordpiece

MAX_BUCKETS = 256
WORD_COUNTS_FILE = "word_counts.parquet"


def learn_vocabulary(documents: str, output: str, config: VocabConfig, options: RunOptions) -> dict[str, Any]:
    """Learn a vocabulary from a directory of documents, write it to `output` and return its manifest.

    A finished directory of the same configuration is left as it is. Raise `UserError` for a mistake of the user.
    """
    prepare(options, output)
    corpus = read_manifest(documents, "ingest")
    head = _head(corpus, config)
    directory, manifest = open_stage(output, head, options.overwrite)
    if manifest is not None:
        return manifest
    begun = time.monotonic()
    normalization = _normalization(config, corpus)
    counted = _count(directory, documents, corpus, normalization, options)
    words = _merge(directory, counted["train"], options)
    tokens, learned = learn_wordpiece(
        words["word"],
        words["count"].to_numpy(),
        size=config.size,
        min_frequency=config.min_frequency,
        limit_alphabet=config.limit_alphabet,
        num_unused=config.num_unused,
    )
    record: dict[str, Any] = {}
    with write_parquet(directory, WORD_COUNTS_FILE, WORD_COUNTS, record) as writer:
        writer.write_table(words)
    vocabulary = Vocabulary(tuple(tokens), normalization)
    for name, content in vocabulary_files(vocabulary).items():
        directory.write_bytes(name, content)
    validation = merge_counts([_read_counts(directory, file["name"], None) for file in counted["validation"]])
    report = {
        "num_tokens": len(tokens),
        "learned_from": asdict(learned),
        "validation": fertility_report(validation, vocabulary),
    }
    described = {**normalization._asdict(), "fingerprint": vocabulary.fingerprint}
    manifest = {**head, "tokenizer": described, "report": report, "word_counts": record["file"]}
    return directory.finish(manifest, {"seconds": round(time.monotonic() - begun, 3)})


def estimate(documents: str, output: str, config: VocabConfig, options: RunOptions) -> Estimate:
    """Return what `learn_vocabulary` would do and take, without doing it; raise `UserError` as it would."""
    prepare(options, output)
    corpus = read_manifest(documents, "ingest")
    state = check_output(output, _head(corpus, config), options.overwrite)
    return estimate_vocabulary([shard["bytes"] for shard in corpus["shards"]], options, state)


def _head(corpus: dict[str, Any], config: VocabConfig) -> dict[str, Any]:
    return manifest_head("vocab", config, [input_fingerprint(corpus)], library_versions("tokenizers"))


def measure_vocabulary(documents: str, vocab: str) -> dict[str, Any]:
    """Return `fertility_report` of any vocabulary on the validation documents, for comparison.

    `vocab` is what `build` takes. Raise `UserError` for a mistake of the user.
    """
    corpus = read_manifest(documents, "ingest")
    vocabulary = read_vocabulary(vocab)
    paths = shard_paths(documents, corpus, "validation")
    counts = [count_words(_sentences_of(path), vocabulary.normalization) for path in paths]
    return fertility_report(merge_counts(counts), vocabulary)


def _normalization(config: VocabConfig, corpus: dict[str, Any]) -> Normalization:
    strip_accents = config.strip_accents
    if strip_accents is None:
        languages = Counter(corpus["languages"]).most_common(1)
        strip_accents = default_strip_accents(cased=config.cased, language=languages[0][0] if languages else "")
    return Normalization(lowercase=not config.cased, strip_accents=strip_accents)


def _count(
    directory: StageDirectory,
    documents: str,
    corpus: dict[str, Any],
    normalization: Normalization,
    options: RunOptions,
) -> dict[str, list[dict[str, Any]]]:
    """Count the words of every shard; return the files with the counts (name, bytes), by split."""
    count = partial(
        count_shard,
        normalization=normalization,
        num_buckets=min(len(shard_paths(documents, corpus, "train")), MAX_BUCKETS),
    )
    units = [
        Unit(name=shard["name"], cost=shard["bytes"], payload=storage.join(documents, shard["name"]))
        for shard in corpus["shards"]
    ]
    counted: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    for shard, record in zip(corpus["shards"], run_units(directory, "count", units, count, options), strict=True):
        counted[shard["split"]].append(record["file"])
    return counted


def count_shard(directory: StageDirectory, path: str, normalization: Normalization, num_buckets: int) -> dict[str, Any]:
    """Count the words of one shard of documents and write them in one record batch a bucket; return the record."""
    table = count_words(_sentences_of(path), normalization)
    buckets = (word_hashes(table["word"].combine_chunks()) % np.uint64(num_buckets)).astype(np.int64)
    name = f".work/counts/{path.rsplit('/', 1)[1]}.arrow"
    with directory.write(name) as file, pa.ipc.new_file(file, WORD_COUNTS) as writer:
        for bucket in range(num_buckets):
            rows = table.take(pa.array(np.flatnonzero(buckets == bucket))).combine_chunks()
            writer.write_batch(
                pa.record_batch([column.combine_chunks() for column in rows.columns], schema=WORD_COUNTS)
            )
    return {"file": {"name": name, "bytes": table.nbytes}}


def _sentences_of(path: str) -> Iterator[pa.Array]:
    return (table["sentences"].combine_chunks().flatten() for table in read_documents(path, "sentences"))


def word_hashes(words: pa.StringArray) -> np.ndarray:
    """Return a stable 64-bit hash (uint64) of each word's UTF-8 bytes, all at once: a polynomial modulo 2**64."""
    _, offsets_buffer, data_buffer = words.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[words.offset : words.offset + len(words) + 1].astype(np.int64)
    if data_buffer is None or offsets[-1] == offsets[0]:
        return np.zeros(len(words), np.uint64)
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    offsets -= offsets[0]
    lengths = np.diff(offsets)
    place_in_word = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
    powers = np.cumprod(np.full(int(lengths.max()), 0x9E3779B97F4A7C15, np.uint64))
    sums = np.add.reduceat(np.append(data * powers[place_in_word], np.uint64(0)), offsets[:-1])
    mixed = np.where(lengths > 0, sums, np.uint64(0))
    return (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(16)


def _merge(directory: StageDirectory, files: Sequence[dict[str, Any]], options: RunOptions) -> pa.Table:
    """Sum up the counts of all shards, bucket by bucket; return them with the most frequent word first."""
    num_buckets = min(len(files), MAX_BUCKETS)
    names = tuple(file["name"] for file in files)
    cost = sum(file["bytes"] for file in files) // num_buckets
    units = [Unit(name=f"bucket-{bucket:05d}", cost=cost, payload=(bucket, names)) for bucket in range(num_buckets)]
    records = run_units(directory, "merge", units, merge_bucket, options)
    merged = pa.concat_tables([_read_counts(directory, record["file"]["name"], None) for record in records])
    return merged.sort_by([("count", "descending"), ("word", "ascending")])


def merge_bucket(directory: StageDirectory, payload: tuple[int, tuple[str, ...]]) -> dict[str, Any]:
    """Sum up one bucket of the counts of all shards; return the record."""
    bucket, names = payload
    table = merge_counts([_read_counts(directory, name, bucket) for name in names])
    merged = f".work/merged/bucket-{bucket:05d}.arrow"
    with directory.write(merged) as file, pa.ipc.new_file(file, WORD_COUNTS) as writer:
        writer.write_table(table)
    return {"file": {"name": merged}}


def _read_counts(directory: StageDirectory, name: str, bucket: int | None) -> pa.Table:
    with storage.open_input(directory.file(name)) as file, pa.ipc.open_file(file) as reader:
        if bucket is None:
            return reader.read_all()
        return pa.Table.from_batches([reader.get_batch(bucket)])
