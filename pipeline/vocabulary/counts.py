"""Count words: those of each shard, then the sums over all shards, bucket by bucket of the words'
hashes.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import numpy as np
import pyarrow as pa

from ..execution.partitions import partitioned_file, read_partitions, write_partitions
from ..execution.phases import Record, unit_names
from ..schemas import WORD_COUNTS
from ..seeding import rng_for
from ..storage.shards import read_columns
from ..storage.stage import StageDirectory
from .tokenize import Normalization, count_tables, merge_counts

WEIGHT_UNITS = (
    1000  # counts are whole numbers: weighted ones are kept in thousandths until they are summed
)


def count_shard(
    directory: StageDirectory,
    path: str,
    normalization: Normalization,
    num_buckets: int,
    weights: Mapping[tuple[str, str], float],
) -> Record:
    """Count the words of the shard of documents at `path`, and write the counts by bucket.

    With `weights` by source and language, a word of the training text counts as often as its
    document is read.
    """
    shard = path.rsplit("/", 1)[1]
    name = partitioned_file("counts", shard)
    parts = (
        _by_weight(path, weights)
        if weights and shard.startswith("train-")
        else [(1, sentences_of(path))]
    )
    with write_partitions(directory, name, WORD_COUNTS, num_buckets) as writer:
        for times, sentences in parts:
            for table in count_tables(sentences, normalization):
                counts = pa.array(table["count"].to_numpy() * times)
                weighted = pa.table([table["word"], counts], schema=WORD_COUNTS)
                writer.write(weighted, buckets_of(weighted["word"].combine_chunks(), num_buckets))
    return Record(files=(name,))


def _by_weight(
    path: str, weights: Mapping[tuple[str, str], float]
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Yield the sentences of a shard by weight, in units."""
    sentences: dict[int, list[pa.Array]] = {}
    for rows in read_columns(path, "source", "language", "sentences"):
        keys = zip(rows["source"].to_pylist(), rows["language"].to_pylist(), strict=True)
        times = np.array([max(1, round(weights.get(key, 1.0) * WEIGHT_UNITS)) for key in keys])
        for number in np.unique(times).tolist():
            sentences.setdefault(number, []).append(
                rows.filter(pa.array(times == number))["sentences"].flatten()
            )
    yield from sorted(sentences.items())


def sentences_of(path: str) -> Iterator[pa.Array]:
    """Yield the sentences of a shard of documents, some MB at a time."""
    return (rows["sentences"].flatten() for rows in read_columns(path, "sentences"))


def buckets_of(words: pa.StringArray, num_buckets: int) -> np.ndarray:
    """Return the bucket of each word, the same for all shards: the sum of random numbers for its
    bytes, all at once.
    """
    if not len(words):
        return np.zeros(0, np.uint64)
    _, offsets_buffer, data = words.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[words.offset : words.offset + len(words) + 1]
    random = rng_for(0, "word buckets").integers(0, 2**63, 256, dtype=np.uint64)
    of_bytes = random[np.frombuffer(data, np.uint8)[: offsets[-1]]]
    return np.add.reduceat(of_bytes, offsets[:-1]) % np.uint64(num_buckets)


def merge_buckets(
    directory: StageDirectory, unit: int, num_units: int, num_buckets: int, units: int
) -> Record:
    """Sum up the training counts, in `units` parts of 1, in every `num_units`-th bucket, one at a
    time.
    """
    name = partitioned_file("merged", f"{unit:05d}")
    with directory.write(name) as file, pa.ipc.new_file(file, WORD_COUNTS) as writer:
        for bucket in range(unit, num_buckets, num_units):
            words = read_counts(directory, "train", [bucket], num_buckets)
            whole = np.maximum((words["count"].to_numpy() + units // 2) // units, 1)
            writer.write_table(pa.table([words["word"], pa.array(whole)], schema=WORD_COUNTS))
    return Record(files=(name,))


def read_counts(
    directory: StageDirectory, split: str, buckets: Iterable[int], num_buckets: int
) -> pa.Table:
    """Return the sums of the counts of a split in some of the buckets, in the order of
    `count_words`.
    """
    shards = [shard for shard in unit_names(directory, "count") if shard.startswith(f"{split}-")]
    files = [directory.file(partitioned_file("counts", shard)) for shard in shards]
    batches = chain.from_iterable(read_partitions(file, buckets, num_buckets) for file in files)
    return merge_counts([pa.Table.from_batches(batches, WORD_COUNTS)])
