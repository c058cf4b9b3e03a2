"""Count words: those of each shard, then the sums of all, by buckets of the words' hashes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..config import VocabConfig
from ..execution.job import Job, Phase, Record, Unit
from ..execution.temporary import TemporaryTable
from ..manifests import Accents, MixtureGroup
from ..mixture import weights_of
from ..ragged import flat_text
from ..schemas import WORD_COUNTS
from ..seeding import rng_for
from ..storage.shards import read_columns
from .byte_level import ByteLevelSplitter, byte_level_tokenizer
from .normalization import Normalization
from .tokenize import Speller, Splitter, count_tables, merge_counts

WEIGHT_UNITS = 1000
"""Counts are whole numbers: weighted ones are kept in thousandths until they are summed."""

SentencesByWeight = Iterable[tuple[int, Iterable[pa.Array]]]


@dataclass(frozen=True, kw_only=True)
class VocabularySetup:
    """What all phases of the stage need to know."""

    num_units: int
    """Number of units of `Merge`."""
    num_buckets: int
    accents: Accents
    apostrophes: tuple[str, ...]
    """The rules of `Normalization.apostrophes`."""
    mixture: list[MixtureGroup]

    def normalization(self, config: VocabConfig) -> Normalization:
        """Return how text is normalised."""
        # Byte-level BPE composes always, and has rules of its own for apostrophes.
        is_wordpiece = config.algorithm == "wordpiece"
        return Normalization(
            lowercase=not config.cased,
            strip_accents=self.accents.strip,
            apostrophes=self.apostrophes if is_wordpiece else (),
            composes=is_wordpiece and not self.accents.strip,
        )

    def splitter(self, config: VocabConfig) -> Splitter:
        """Return what splits text into the words that are counted."""
        normalization = self.normalization(config)
        if config.algorithm == "bpe":
            # Only its normalisation matters.
            return ByteLevelSplitter(byte_level_tokenizer([], [], normalization, []))
        return Speller(normalization)


def by_word(setup: VocabularySetup) -> tuple[int, Callable[[pa.Table], np.ndarray]]:
    """Cut by the bucket of the word, so that all counts of a word meet in one unit."""

    def bucket_of(rows: pa.Table) -> np.ndarray:
        text, offsets = flat_text(rows["word"].combine_chunks())
        # A word's hash is the sum of fixed random numbers for its bytes. Anagrams share a bucket,
        # which does no harm; in return NumPy hashes all words at once, and Python's own hash()
        # differs from process to process. No word is empty.
        number_of_byte = rng_for(0, "word buckets").integers(0, 2**63, 256, dtype=np.uint64)
        hashes = np.add.reduceat(number_of_byte[text], offsets[:-1])
        return (hashes % np.uint64(setup.num_buckets)).astype(np.int64)

    return setup.num_buckets, bucket_of


COUNTS = TemporaryTable("counts", "count", WORD_COUNTS, by_word)
"""The words of one shard; with weights, counts are in `WEIGHT_UNITS`."""
MERGED = TemporaryTable("merged", "merge", WORD_COUNTS)
"""The words of some buckets over all training shards."""


@dataclass(frozen=True)
class Count(Phase):
    """Count the words of each shard of documents; a payload is the path of one."""

    config: VocabConfig

    name = "count"
    payload_type = str
    record_type = Record

    def do(self, job: Job, unit: Unit) -> Record:
        """Write the counts of a shard; weighted training text counts as often as it is read."""
        splitter = job.setup.splitter(self.config)
        weights = weights_of(job.setup.mixture)
        sentences_by_weight: SentencesByWeight = [(1, sentences_of(unit.payload))]
        # Validation text is only measured, so weights do not apply to it.
        if weights and unit.name.startswith("train-"):
            sentences_by_weight = _sentences_by_weight(unit.payload, weights)
        with COUNTS.write(job, unit.name) as writer:
            for weight, sentences in sentences_by_weight:
                for table in count_tables(sentences, splitter):
                    counts = table["count"].to_numpy() * weight
                    columns = [table["word"], pa.array(counts)]
                    writer.write(pa.table(columns, schema=WORD_COUNTS))
        return Record()


@dataclass(frozen=True)
class Merge(Phase):
    """Sum up the training counts; a payload is the first bucket of every `num_units`-th one."""

    name = "merge"
    payload_type = int
    record_type = Record

    def plan(self, job: Job) -> Sequence[Unit]:
        """Deal out the buckets."""
        indices = range(job.setup.num_units)
        return [Unit(f"{index:05d}", cost=1, payload=index) for index in indices]

    def do(self, job: Job, unit: Unit) -> Record:
        """Merge buckets one at a time, as all words of one must fit in memory."""
        setup = job.setup
        scale = WEIGHT_UNITS if weights_of(setup.mixture) else 1
        with MERGED.write(job, unit.name) as writer:
            for bucket in range(unit.payload, setup.num_buckets, setup.num_units):
                words = read_counts(job, "train", [bucket])
                rounded = (words["count"].to_numpy() + scale // 2) // scale
                # However small its weight, a word that occurs must not count as absent.
                counts = np.maximum(rounded, 1)
                columns = [words["word"], pa.array(counts)]
                writer.write(pa.table(columns, schema=WORD_COUNTS))
        return Record()


def read_counts(job: Job, split: str, buckets: Iterable[int]) -> pa.Table:
    """Return the sums of a split's counts in some of the buckets, in the order of `count_words`."""
    names = (unit.name for unit in job.units(Count.name))
    shards = [name for name in names if name.startswith(f"{split}-")]
    batches = COUNTS.read(job, buckets, shards)
    return merge_counts([pa.Table.from_batches(batches, WORD_COUNTS)])


def sentences_of(path: str) -> Iterator[pa.Array]:
    """Yield the sentences of a shard of documents, some MB at a time."""
    for rows in read_columns(path, "sentences"):
        yield rows["sentences"].flatten()


def _sentences_by_weight(path: str, weights: Mapping[tuple[str, str], float]) -> SentencesByWeight:
    """Return the sentences of a shard by the weight of their documents, in `WEIGHT_UNITS`."""
    arrays_of_weight: dict[int, list[pa.Array]] = {}
    for rows in read_columns(path, "source", "language", "sentences"):
        origins = zip(rows["source"].to_pylist(), rows["language"].to_pylist(), strict=True)
        weight_of_row = np.array([weights.get(origin, 1.0) for origin in origins])
        weight_of_row = np.rint(weight_of_row * WEIGHT_UNITS).astype(np.int64)
        # Of weight 0, a source would vanish from the vocabulary.
        weight_of_row = np.maximum(weight_of_row, 1)
        for weight in np.unique(weight_of_row).tolist():
            is_of_weight = pa.array(weight_of_row == weight)
            sentences = rows.filter(is_of_weight)["sentences"].flatten()
            arrays_of_weight.setdefault(weight, []).append(sentences)
    return sorted(arrays_of_weight.items())
