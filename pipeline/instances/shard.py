"""The one phase of build: the instances of a shard of documents.

A unit reads one shard, tokenises its distinct words, and for each pass makes pairs, masks and rows
over the whole shard at once. The shard of instances has the number of the shard of documents; a row
group holds one pass only.
"""

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from msgspec import structs

from ..config import BuildConfig
from ..counters import CounterRecord, Counters
from ..errors import UserError
from ..execution.job import Job, Phase, Record, Unit
from ..manifests import InstancesShard, InstancesTokenizer, MixtureGroup, Split
from ..mixture import weights_of
from ..ragged import offsets_in, offsets_of
from ..schemas import DOCUMENTS, instances_schema
from ..seeding import rng_for
from ..storage.shards import read_columns, write_parquet
from ..vocabulary.files import read_vocabulary
from ..vocabulary.tokenize import DictionaryTokenizer
from ..vocabulary.vocabulary import AnyTokenizer, Vocabulary, unknown_tokens
from .chunks import Corpus
from .origins import assume_languages, copies_in_pass, document_weights, origins_of
from .table import build_instances, parquet_options

_ORIGINS = pa.schema([DOCUMENTS.field(name) for name in ("source", "language")])


@dataclass(frozen=True, kw_only=True)
class InstancesSetup:
    """What the phase, and the manifest, need to know."""

    mixture: list[MixtureGroup]
    languages: dict[str, int]
    tokenizer: InstancesTokenizer


@dataclass(frozen=True, kw_only=True)
class Built(Record):
    """The record of a unit."""

    counters: CounterRecord
    groups: list[MixtureGroup]
    shard: InstancesShard


@dataclass(frozen=True)
class BuildShards(Phase):
    """Write the instances of each shard of documents."""

    config: BuildConfig
    vocab: str

    name = "build"
    payload_type = str
    record_type = Built

    def do(self, job: Job, unit: Unit) -> Built:
        config = self.config
        path: str = unit.payload
        split: Split = "train" if unit.name.startswith("train-") else "validation"
        index = int(unit.name.split("-")[1])  # of train-00012-of-00256.parquet
        vocabulary, tokenizer = _tokenizer_of(job.setup.tokenizer.fingerprint, self.vocab)
        schema = _schema_of(vocabulary, config)
        dtype = np.dtype(str(schema.field("input_ids").type.value_type))
        corpus = tokenize_shard(path, tokenizer, dtype)
        num_documents = len(corpus.document_offsets) - 1
        counters = Counters()
        counters.count("documents", num_documents)
        counters.count("sentences", len(corpus.sentence_offsets) - 1)
        warnings = _warnings_of(corpus, vocabulary)
        times_read = np.zeros(num_documents, np.int64)
        # A shard with a single document is a mistake, which `make_pairs` reports. In a pass over
        # some documents of a larger shard it is chance, and the pass is skipped.
        needs_partner = config.pairing in ("balanced", "bert") and corpus.num_with_text() > 1
        readings = _readings(corpus, split, index, config, job.setup)
        options = parquet_options(schema)
        with write_parquet(job, unit.name, schema, **options) as (writer, written):
            for duplicate, ids, part, is_read in readings:
                if needs_partner and part.num_with_text() < 2:
                    counters.count("documents_without_partner", int(is_read.sum()))
                    continue
                times_read += is_read
                # Two generators, so that a change to the masks leaves the pairs as they are.
                rngs = [rng_for(config.seed, stage, *ids) for stage in ("pairs", "masks")]
                try:
                    built = build_instances(part, vocabulary, config, *rngs, duplicate=duplicate)
                except UserError as error:
                    raise UserError(f"{path}: {error}") from None
                writer.write_table(built.table, row_group_size=_group_rows(config))
                counters.counts.update(built.counts)
                if built.warning:
                    warnings.append(built.warning)
        groups = _groups(corpus, times_read)
        num_rows = counters.counts.pop("rows", 0)
        record = counters.to_record()
        return Built(
            files=(unit.name,),
            counters=record,
            groups=groups if split == "train" else [],
            shard=InstancesShard(
                name=unit.name,
                split=split,
                rows=num_rows,
                bytes=written.num_bytes,
                sha256=written.sha256,
                counts=record["counts"],
                source_tokens=_tokens_by_source(groups),
                warnings=warnings,
            ),
        )


def _schema_of(vocabulary: Vocabulary, config: BuildConfig) -> pa.Schema:
    """Return the schema of a shard, with what the audit compares."""
    footer = {
        "clozeworks.tokenizer": vocabulary.fingerprint,
        "clozeworks.vocab_size": str(len(vocabulary)),
        "clozeworks.max_length": str(config.max_length),
        "clozeworks.seed": str(config.seed),
    }
    return instances_schema(len(vocabulary), packed=config.packs).with_metadata(footer)


def _group_rows(config: BuildConfig) -> int:
    """Return the rows of a row group, which the trainer reads at once."""
    num_rows = 1 << 14
    if config.packs:
        # The tokens of as many rows of the default length.
        return max(1, num_rows * 128 // config.max_length)
    return num_rows


def _warnings_of(corpus: Corpus, vocabulary: Vocabulary) -> list[str]:
    num_tokens = len(corpus.token_ids)
    if not num_tokens:
        # An empty shard is written all the same, so that each shard of documents has its own.
        return ["the document shard contains no text"]
    num_unknown = int(np.count_nonzero(corpus.token_ids == vocabulary.unk_id))
    warning = unknown_tokens(num_unknown, num_tokens)
    return [warning] if warning else []


def vocabulary_of(fingerprint: str, path: str) -> Vocabulary:
    """Read the vocabulary of the instances; raise `UserError` if it is another one by now."""
    vocabulary = read_vocabulary(path)
    if vocabulary.fingerprint != fingerprint:
        raise UserError(f"The vocabulary in {path} has changed meanwhile: give `overwrite`.")
    return vocabulary


# On some runners the threads of a worker share the tokenizer, and it changes as it meets new words.
_tokenizing = threading.Lock()


@lru_cache(maxsize=1)
def _tokenizer_of(
    fingerprint: str, path: str
) -> tuple[Vocabulary, AnyTokenizer | DictionaryTokenizer]:
    """Load the vocabulary once for all the shards that a worker builds."""
    vocabulary = vocabulary_of(fingerprint, path)
    return vocabulary, vocabulary.text_tokenizer()


def _readings(
    corpus: Corpus, split: Split, index: int, config: BuildConfig, setup: InstancesSetup
) -> Iterator[tuple[int, tuple[int | str, ...], Corpus, np.ndarray]]:
    """Yield all readings of a shard: one for each pass, or with weights, which apply to training,
    more of some documents; validation documents are read once, and empty shards never.

    That is the number of the pass, what its random numbers depend on, the documents that are read,
    and which of all documents these are: bool [num_documents].
    """
    num_passes = 1
    weights = {}
    if split == "train":
        num_passes = config.duplicates
        weights = weights_of(setup.mixture)
    if not len(corpus.token_ids):
        num_passes = 0
    origins = corpus.origins
    lengths = corpus.document_lengths()
    weight_of_document = document_weights(origins, weights)
    corpus = replace(corpus, origins=assume_languages(origins, lengths))
    for duplicate in range(num_passes):
        # A new one in each pass: all passes must draw the same phases.
        copies_rng = rng_for(config.seed, "copies", split, index)
        copies = copies_in_pass(weight_of_document, lengths, duplicate, copies_rng)
        # A reading holds each document at most once, so a pass may have several:
        #
        #   copies              2  0  1
        #   is_read, repeat 0   T  F  T
        #   is_read, repeat 1   T  F  F
        for repeat in range(int(copies.max(initial=0))):
            ids: tuple[int | str, ...] = (split, index, duplicate)
            if repeat:  # the first one has the random numbers of a pass without weights
                ids = (*ids, repeat)
            is_read = copies > repeat
            yield duplicate, ids, corpus.select(is_read), is_read


def _groups(corpus: Corpus, times_read: np.ndarray) -> list[MixtureGroup]:
    """Return documents and tokens of each origin, once and as often as they are read."""
    origins = corpus.origins
    lengths = corpus.document_lengths()
    groups = []
    origin_of_document = np.stack([origins.source, origins.language])
    for source, language in np.unique(origin_of_document, axis=1).T.tolist():
        is_in_group = (origins.source == source) & (origins.language == language)
        tokens = lengths[is_in_group]
        groups.append(
            MixtureGroup(
                source=origins.source_names[source],
                language=origins.language_names[language],
                weight=1.0,
                documents=len(tokens),
                tokens=int(tokens.sum()),
                squared_tokens=int((tokens.astype(float) ** 2).sum()),
                tokens_built=int((tokens * times_read[is_in_group]).sum()),
            )
        )
    return groups


def _tokens_by_source(groups: Iterable[MixtureGroup]) -> dict[str, int]:
    tokens = Counter()
    for group in groups:
        tokens[group.source] += group.tokens_built
    return dict(sorted(tokens.items()))


def sum_groups(
    mixture: Sequence[MixtureGroup], groups_of_shards: Iterable[list[MixtureGroup]]
) -> list[MixtureGroup]:
    """Return the groups of `mixture` with the sums of the counts in those of the shards."""
    sums: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for group in itertools.chain.from_iterable(groups_of_shards):
        sums[group.source, group.language].update(
            documents=group.documents,
            tokens=group.tokens,
            squared_tokens=group.squared_tokens,
            tokens_built=group.tokens_built,
        )
    return [structs.replace(group, **sums[group.source, group.language]) for group in mixture]


def tokenize_shard(
    path: str, tokenizer: AnyTokenizer | DictionaryTokenizer, dtype: np.dtype
) -> Corpus:
    """Return a shard's tokens (`dtype`), the offsets of sentences and documents, and origins."""
    # An empty first item each, because a shard may have no rows.
    token_ids = [np.zeros(0, dtype)]
    sentence_lengths = [np.zeros(0, np.int64)]
    document_lengths = [np.zeros(0, np.int64)]
    origins = [_ORIGINS.empty_table()]
    for rows in read_columns(path, *_ORIGINS.names, "sentences"):
        sentences = rows["sentences"]
        document_offsets = offsets_in(sentences)
        starts_document = np.zeros(len(sentences.flatten()), bool)
        has_sentences = np.diff(document_offsets) > 0
        starts_document[document_offsets[:-1][has_sentences]] = True
        with _tokenizing:
            ids, offsets = tokenizer.encode(sentences.flatten(), starts_document)
        token_ids.append(ids.astype(dtype))
        sentence_lengths.append(np.diff(offsets))
        document_lengths.append(np.diff(document_offsets))
        origins.append(pa.Table.from_batches([rows.select(_ORIGINS.names)]))
    # Lengths, because offsets start at 0 in each batch.
    return Corpus(
        token_ids=np.concatenate(token_ids),
        sentence_offsets=offsets_of(np.concatenate(sentence_lengths)),
        document_offsets=offsets_of(np.concatenate(document_lengths)),
        origins=origins_of(pa.concat_tables(origins)),
    )
