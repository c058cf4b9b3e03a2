"""Count words: those of each shard, then the sums over all shards, bucket by bucket of the words' hashes."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ..execution import storage
from ..execution.directory import StageDirectory
from ..execution.phases import Record, unit_names
from ..execution.shards import read_documents
from ..schemas import WORD_COUNTS
from .tokenize import Normalization, count_words, merge_counts


def counts_file(shard: str) -> str:
    """Return the name of the file with the counts of a shard of documents."""
    return f".work/counts/{shard}.arrow"


def count_shard(directory: StageDirectory, path: str, normalization: Normalization, num_buckets: int) -> Record:
    """Count the words of the shard of documents at `path`, and write them in one record batch a bucket."""
    table = count_words(sentences_of(path), normalization)
    buckets = (word_hashes(table["word"].combine_chunks()) % np.uint64(num_buckets)).astype(np.int64)
    name = counts_file(path.rsplit("/", 1)[1])
    with directory.write(name) as file, pa.ipc.new_file(file, WORD_COUNTS) as writer:
        for bucket in range(num_buckets):
            rows = table.take(pa.array(np.flatnonzero(buckets == bucket))).combine_chunks()
            columns = [column.combine_chunks() for column in rows.columns]
            writer.write_batch(pa.record_batch(columns, schema=WORD_COUNTS))
    return Record(files=(name,))


def sentences_of(path: str) -> Iterator[pa.Array]:
    """Yield the sentences of a shard of documents, some MB at a time."""
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
    offset_in_word = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
    powers = np.cumprod(np.full(int(lengths.max()), 0x9E3779B97F4A7C15, np.uint64))
    sums = np.add.reduceat(np.append(data * powers[offset_in_word], np.uint64(0)), offsets[:-1])
    mixed = np.where(lengths > 0, sums, np.uint64(0))
    return (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(16)


def merge_bucket(directory: StageDirectory, bucket: int) -> Record:
    """Sum up one bucket of the counts of all training shards."""
    table = merge_counts([read_counts(directory, name, bucket) for name in counted_files(directory, "train")])
    name = f".work/merged/{bucket:05d}.arrow"
    with directory.write(name) as file, pa.ipc.new_file(file, WORD_COUNTS) as writer:
        writer.write_table(table)
    return Record(files=(name,))


def counted_files(directory: StageDirectory, split: str) -> Sequence[str]:
    """Return the names of the files with the counts of a split."""
    return [counts_file(shard) for shard in unit_names(directory, "count") if shard.startswith(f"{split}-")]


def read_counts(directory: StageDirectory, name: str, bucket: int | None) -> pa.Table:
    """Return the `WORD_COUNTS` in a file: those of one bucket, or all."""
    with storage.open_input(directory.file(name)) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all() if bucket is None else pa.Table.from_batches([reader.get_batch(bucket)])
