"""Count words: those of each shard, then the sums over all shards, bucket by bucket of the words' hashes."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ..execution import storage
from ..execution.directory import StageDirectory
from ..execution.phases import Record, unit_names
from ..execution.shards import read_documents
from ..schemas import WORD_COUNTS
from ..seeding import rng_for
from .tokenize import Normalization, count_words, merge_counts


def counts_file(shard: str) -> str:
    """Return the name of the file with the counts of a shard of documents."""
    return f".work/counts/{shard}.arrow"


def count_shard(directory: StageDirectory, path: str, normalization: Normalization, num_buckets: int) -> Record:
    """Count the words of the shard of documents at `path`, and write them in one record batch a bucket."""
    table = count_words(sentences_of(path), normalization)
    words = table["word"].combine_chunks()
    batch = pa.record_batch([words, table["count"].combine_chunks()], schema=WORD_COUNTS)
    buckets = buckets_of(words, num_buckets)
    name = counts_file(path.rsplit("/", 1)[1])
    with directory.write(name) as file, pa.ipc.new_file(file, WORD_COUNTS) as writer:
        for bucket in range(num_buckets):
            writer.write_batch(batch.filter(pa.array(buckets == bucket)))
    return Record(files=(name,))


def sentences_of(path: str) -> Iterator[pa.Array]:
    """Yield the sentences of a shard of documents, some MB at a time."""
    return (rows["sentences"].flatten() for rows in read_documents(path, "sentences"))


def buckets_of(words: pa.StringArray, num_buckets: int) -> np.ndarray:
    """Return the bucket of each word, the same for all shards: the sum of random numbers for its bytes, all at once."""
    if not len(words):
        return np.zeros(0, np.uint64)
    _, offsets_buffer, data = words.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[words.offset : words.offset + len(words) + 1]
    random = rng_for(0, "word buckets").integers(0, 2**63, 256, dtype=np.uint64)
    of_bytes = random[np.frombuffer(data, np.uint8)[: offsets[-1]]]
    return np.add.reduceat(of_bytes, offsets[:-1]) % np.uint64(num_buckets)


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
