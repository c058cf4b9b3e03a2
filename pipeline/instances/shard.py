"""Build the instances of one shard of documents: tokens, then pairs, masks and rows for each pass."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
import pyarrow as pa
from msgspec import structs

from ..config import BuildConfig
from ..errors import UserError
from ..execution.counters import CounterRecord, Counters
from ..execution.phases import Record
from ..manifests import InstancesShard, MixtureGroup, Split
from ..schemas import DOCUMENTS, instances_schema
from ..seeding import rng_for
from ..storage.shards import read_columns, write_parquet
from ..storage.stage import StageDirectory
from ..vocabulary.tokenize import DictionaryTokenizer
from ..vocabulary.vocabulary import Vocabulary, read_vocabulary
from .chunks import Corpus
from .origins import (
    Origins,
    assume_languages,
    copies_in_pass,
    document_weights,
    origins_of,
)
from .table import build_instances, parquet_options

_ORIGINS = pa.schema([DOCUMENTS.field(name) for name in ("source", "language")])
ROW_GROUP_ROWS = 1 << 14


@dataclass(frozen=True, kw_only=True)
class DocumentsUnit:
    """The shard of documents to read: number `index` of its split."""

    split: Split
    index: int
    path: str


@dataclass(frozen=True, kw_only=True)
class Built(Record):
    """What a unit leaves."""

    counters: CounterRecord
    groups: list[MixtureGroup]
    shard: InstancesShard


# On some runners the threads of a worker share the tokenizer, and it changes as it meets new words.
_tokenizing = threading.Lock()


@lru_cache(maxsize=1)
def _tokenizer_of(directory: StageDirectory) -> tuple[Vocabulary, DictionaryTokenizer]:
    """Load the vocabulary once for all the shards that a worker builds."""
    vocabulary = read_vocabulary(directory.path)
    return vocabulary, DictionaryTokenizer(vocabulary.tokens, vocabulary.normalization)


def build_shard(
    directory: StageDirectory,
    unit: DocumentsUnit,
    config: BuildConfig,
    weights: Mapping[tuple[str, str], float],
) -> Built:
    """Write the instances of one shard of documents; `weights` say how often a pass reads those of
    an origin.
    """
    split, index, path = unit.split, unit.index, unit.path
    name = path.rsplit("/", 1)[1]
    vocabulary, tokenizer = _tokenizer_of(directory)
    schema = instances_schema(len(vocabulary.tokens)).with_metadata(_footer(vocabulary, config))
    corpus = tokenize_shard(
        path, tokenizer, np.dtype(str(schema.field("input_ids").type.value_type))
    )
    # Nothing to make of a shard without text: an empty one is written, so that each has its own.
    num_passes = 0 if not len(corpus.token_ids) else config.duplicates if split == "train" else 1
    counts: Counter[str] = Counter()
    warnings = [] if num_passes else ["the document shard contains no text"]
    times_read = np.zeros(len(corpus.document_offsets) - 1, np.int64)
    # A shard with a single document is a mistake, which `build_instances` reports; a part of a
    # larger one is chance.
    needs_partner = (
        config.pairing in ("balanced", "bert") and np.count_nonzero(corpus.document_lengths()) > 1
    )
    with write_parquet(directory, name, schema, **parquet_options(schema)) as (writer, written):
        for duplicate, repeat, part, chosen in _parts(corpus, unit, config, weights, num_passes):
            # The first repeat has the random numbers of a pass without weights.
            ids = (split, index, duplicate, *([repeat] if repeat else []))
            rngs = [rng_for(config.seed, step, *ids) for step in ("pairs", "masks")]
            if needs_partner and np.count_nonzero(part.document_lengths()) < 2:
                counts["documents_without_partner"] += int(
                    chosen.sum()
                )  # none to exchange segments with
                continue
            times_read += chosen
            try:
                built = build_instances(part, vocabulary, config, rngs[0], rngs[1], duplicate)
            except UserError as error:
                raise UserError(f"{path}: {error}") from None
            writer.write_table(built.table.cast(schema), row_group_size=ROW_GROUP_ROWS)
            counts.update(built.counts)
            warnings.extend([built.warning] if built.warning else [])
    counts.update(
        documents=len(corpus.document_offsets) - 1, sentences=len(corpus.sentence_offsets) - 1
    )
    shard = InstancesShard(
        name=name,
        split=split,
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
        groups=_groups(corpus, times_read) if split == "train" else [],
        shard=shard,
    )


def _parts(
    corpus: Corpus,
    unit: DocumentsUnit,
    config: BuildConfig,
    weights: Mapping[tuple[str, str], float],
    num_passes: int,
) -> Iterator[tuple[int, int, Corpus, np.ndarray]]:
    """Yield for each pass, and each repeat within it, the documents to read: as a corpus and as
    bool [num_documents].

    Weights are those of training; validation documents are read once.
    """
    origins, lengths = cast(Origins, corpus.origins), corpus.document_lengths()
    of_document = document_weights(origins, weights if unit.split == "train" else {})
    corpus = replace(corpus, origins=assume_languages(origins, lengths))
    for duplicate in range(num_passes):
        copies = copies_in_pass(
            of_document, lengths, duplicate, rng_for(config.seed, "copies", unit.split, unit.index)
        )
        for repeat in range(int(copies.max(initial=0))):
            yield duplicate, repeat, corpus.select(copies > repeat), copies > repeat


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
