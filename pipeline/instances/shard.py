"""The one phase of build: the instances of a shard of documents.

A unit reads one shard, tokenises its distinct words, and for each pass makes pairs, masks and rows
over the whole shard at once. The shard of instances has the number of the shard of documents; a row
group holds one pass only.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
from msgspec import structs

from ..config import BuildConfig
from ..errors import UserError
from ..execution.counters import CounterRecord, Counters
from ..execution.phases import Phase
from ..execution.units import Record, Unit
from ..manifests import InstancesShard, InstancesTokenizer, MixtureGroup, Split
from ..mixture import weights_of
from ..schemas import DOCUMENTS, instances_schema
from ..seeding import rng_for
from ..storage.shards import read_columns, write_parquet
from ..storage.stage import StageDirectory
from ..vocabulary.tokenize import DictionaryTokenizer
from ..vocabulary.vocabulary import Vocabulary, read_vocabulary
from .chunks import Corpus
from .origins import Origins, assume_languages, copies_in_pass, document_weights, origins_of
from .table import build_instances, parquet_options

_ORIGINS = pa.schema([DOCUMENTS.field(name) for name in ("source", "language")])
ROW_GROUP_ROWS = 1 << 14


@dataclass(frozen=True, kw_only=True)
class InstancesSetup:
    """What the phase, and the manifest, need to know."""

    mixture: list[MixtureGroup]
    languages: dict[str, int]
    """Documents in each language."""
    tokenizer: InstancesTokenizer


@dataclass(frozen=True, kw_only=True)
class DocumentsToRead:
    """The shard of documents of a unit: number `index` of its split."""

    split: Split
    index: int
    path: str


@dataclass(frozen=True, kw_only=True)
class Built(Record):
    """The record of a unit."""

    counters: CounterRecord
    groups: list[MixtureGroup]
    shard: InstancesShard


@dataclass(frozen=True)
class BuildShards(Phase[DocumentsToRead, Built]):
    """Write the instances of each shard of documents."""

    config: BuildConfig

    name = "build"
    payload_type = DocumentsToRead
    record_type = Built

    def do(self, directory: StageDirectory, unit: Unit[DocumentsToRead]) -> Built:
        """Build the instances of one shard."""
        config = self.config
        documents = unit.payload
        name = unit.name
        vocabulary, tokenizer = _tokenizer_of(directory)
        schema = instances_schema(len(vocabulary.tokens))
        schema = schema.with_metadata(_footer(vocabulary, config))
        dtype = np.dtype(str(schema.field("input_ids").type.value_type))
        corpus = tokenize_shard(documents.path, tokenizer, dtype)

        num_documents = len(corpus.document_offsets) - 1
        times_read = np.zeros(num_documents, np.int64)
        counts: Counter[str] = Counter()
        warnings: list[str] = []
        if not len(corpus.token_ids):
            # An empty shard is written all the same, so that each shard of documents has its own.
            warnings.append("the document shard contains no text")
        # A shard with a single document is a mistake, which `build_instances` reports; of a pass
        # over some documents of a larger shard it is chance.
        pairs_documents = config.pairing in ("balanced", "bert")
        needs_partner = pairs_documents and _num_with_text(corpus) > 1
        with write_parquet(directory, name, schema, **parquet_options(schema)) as (writer, written):
            for reading in _readings(corpus, documents, config, directory.setup):
                if needs_partner and _num_with_text(reading.corpus) < 2:
                    # None to exchange segments with.
                    counts["documents_without_partner"] += int(reading.is_read.sum())
                    continue
                times_read += reading.is_read
                pairs_rng = rng_for(config.seed, "pairs", *reading.ids)
                masks_rng = rng_for(config.seed, "masks", *reading.ids)
                try:
                    built = build_instances(
                        reading.corpus, vocabulary, config, pairs_rng, masks_rng, reading.duplicate
                    )
                except UserError as error:
                    raise UserError(f"{documents.path}: {error}") from None
                writer.write_table(built.table.cast(schema), row_group_size=ROW_GROUP_ROWS)
                counts.update(built.counts)
                if built.warning:
                    warnings.append(built.warning)
        counts.update(documents=num_documents, sentences=len(corpus.sentence_offsets) - 1)
        shard = InstancesShard(
            name=name,
            split=documents.split,
            rows=counts.pop("rows", 0),
            bytes=written.num_bytes,
            sha256=written.sha256,
            counts=dict(sorted(counts.items())),
            source_tokens=source_tokens(corpus, times_read),
            warnings=warnings,
        )
        counters = Counters()
        counters.counts = counts
        return Built(
            files=(name,),
            counters=counters.to_record(),
            groups=_groups(corpus, times_read) if documents.split == "train" else [],
            shard=shard,
        )


# On some runners the threads of a worker share the tokenizer, and it changes as it meets new words.
_tokenizing = threading.Lock()


@lru_cache(maxsize=1)
def _tokenizer_of(directory: StageDirectory) -> tuple[Vocabulary, DictionaryTokenizer]:
    """Load the vocabulary once for all the shards that a worker builds."""
    vocabulary = read_vocabulary(directory.path)
    return vocabulary, DictionaryTokenizer(vocabulary.tokens, vocabulary.normalization)


def _num_with_text(corpus: Corpus) -> int:
    return int(np.count_nonzero(corpus.document_lengths()))


class _Reading(NamedTuple):
    """One reading of some documents of a shard, within a pass."""

    duplicate: int
    """Number of the pass."""
    ids: tuple[int | str, ...]
    """Of its random numbers."""
    corpus: Corpus
    """Of the documents that are read."""
    is_read: np.ndarray
    """Which of all documents these are: bool [num_documents]."""


def _readings(
    corpus: Corpus, documents: DocumentsToRead, config: BuildConfig, setup: InstancesSetup
) -> Iterator[_Reading]:
    """Yield all readings of a shard: one for each pass, or with weights more of some documents.

    Weights are those of training; validation documents are read once, and empty shards never.
    """
    split, index = documents.split, documents.index
    num_passes = config.duplicates if split == "train" else 1
    if not len(corpus.token_ids):
        num_passes = 0
    origins = cast(Origins, corpus.origins)
    lengths = corpus.document_lengths()
    weights = weights_of(setup.mixture) if split == "train" else {}
    weight_of_document = document_weights(origins, weights)
    corpus = replace(corpus, origins=assume_languages(origins, lengths))
    for duplicate in range(num_passes):
        copies_rng = rng_for(config.seed, "copies", split, index)
        copies = copies_in_pass(weight_of_document, lengths, duplicate, copies_rng)
        for repeat in range(int(copies.max(initial=0))):
            ids: tuple[int | str, ...] = (split, index, duplicate)
            if repeat:  # the first one has the random numbers of a pass without weights
                ids = (*ids, repeat)
            is_read = copies > repeat
            yield _Reading(duplicate, ids, corpus.select(is_read), is_read)


def _groups(corpus: Corpus, times_read: np.ndarray) -> list[MixtureGroup]:
    """Return documents and tokens of each origin, once and as often as they are read."""
    origins, lengths = cast(Origins, corpus.origins), corpus.document_lengths()
    key = origins.source * len(origins.language_names) + origins.language
    counted = (np.ones(len(key)), lengths, lengths.astype(float) ** 2, lengths * times_read)
    sums = [np.bincount(key, values) for values in counted]
    return [
        MixtureGroup(
            source=origins.source_names[group // len(origins.language_names)],
            language=origins.language_names[group % len(origins.language_names)],
            weight=1.0,
            documents=int(sums[0][group]),
            tokens=int(sums[1][group]),
            squared_tokens=int(sums[2][group]),
            tokens_built=int(sums[3][group]),
        )
        for group in np.flatnonzero(sums[0]).tolist()
    ]


def sum_groups(
    mixture: Iterable[MixtureGroup], parts: Iterable[list[MixtureGroup]]
) -> list[MixtureGroup]:
    """Return the groups of `mixture` with the sums of the counts in `parts`."""
    sums = {(group.source, group.language): Counter[str]() for group in mixture}
    for group in (group for part in parts for group in part):
        own = {
            name: getattr(group, name)
            for name in ("documents", "tokens", "squared_tokens", "tokens_built")
        }
        sums.setdefault((group.source, group.language), Counter()).update(own)
    return [structs.replace(group, **sums[group.source, group.language]) for group in mixture]


def tokenize_shard(path: str, tokenizer: DictionaryTokenizer, dtype: np.dtype) -> Corpus:
    """Return the tokens (as `dtype`) of a shard, the offsets of its sentences and documents, and
    their origins.
    """
    token_ids, documents = [np.zeros(0, dtype)], [_ORIGINS.empty_table()]
    sentence_lengths, document_lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows in read_columns(path, *_ORIGINS.names, "sentences"):
        sentences = rows["sentences"]
        with _tokenizing:
            ids, offsets = tokenizer.encode(sentences.flatten())
        token_ids.append(ids.astype(dtype))
        sentence_lengths.append(np.diff(offsets))
        document_lengths.append(np.diff(sentences.offsets.to_numpy()))
        documents.append(pa.Table.from_batches([rows.select(_ORIGINS.names)]))
    sentences, ends = (
        np.append(0, np.cumsum(np.concatenate(parts)))
        for parts in (sentence_lengths, document_lengths)
    )
    return Corpus(
        np.concatenate(token_ids), sentences, ends, origins_of(pa.concat_tables(documents))
    )


def source_tokens(corpus: Corpus, times_read: np.ndarray) -> dict[str, int]:
    """Return how many tokens come from each source; `times_read`, int64 [num_documents], counts all
    passes.
    """
    origins = cast(Origins, corpus.origins)
    tokens = np.zeros(len(origins.source_names), np.int64)
    np.add.at(tokens, origins.source, corpus.document_lengths() * times_read)
    return dict(sorted(zip(origins.source_names, tokens.tolist(), strict=True)))


def _footer(vocabulary: Vocabulary, config: BuildConfig) -> dict[str, str]:
    """Return what the Parquet footer carries for the audit to check."""
    return {
        "clozeworks.tokenizer": vocabulary.fingerprint,
        "clozeworks.vocab_size": str(len(vocabulary.tokens)),
        "clozeworks.max_length": str(config.max_length),
        "clozeworks.seed": str(config.seed),
    }
