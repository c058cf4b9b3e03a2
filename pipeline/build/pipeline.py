"""Stage 3: documents and a vocabulary to masked sentence pairs.

One phase over the document shards: a unit reads one shard, tokenises its distinct words, and for each
duplicate makes pairs, masks and rows over the whole shard at once (`pairs`, `masking`, `instances`). The instance
shard has the number of the document shard, a row group holds one duplicate only.
"""

import threading
import time
from collections import Counter
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from ..config import BuildConfig, RunOptions
from ..errors import UserError
from ..execution import storage
from ..execution.counters import Counters
from ..execution.directory import (
    StageDirectory,
    check_output,
    input_fingerprint,
    library_versions,
    manifest_head,
    open_stage,
    read_manifest,
    sum_counters,
)
from ..execution.estimates import Estimate
from ..execution.shards import SPLITS, read_documents, write_parquet
from ..execution.units import Unit, prepare, run_units
from ..schemas import instances_schema
from ..seeding import rng_for
from ..vocab.tokenize import DictionaryTokenizer
from ..vocab.vocabulary import Vocabulary, read_vocabulary, vocabulary_files
from .chunks import Corpus
from .estimate import estimate_instances
from .instances import build_instances, parquet_options

ROW_GROUP_ROWS = 1 << 14


def build(documents: str, vocab: str, output: str, config: BuildConfig, options: RunOptions) -> dict[str, Any]:
    """Write the instances of a directory of documents to `output` and return the manifest.

    `vocab` is a directory of `clozeworks vocab`, any directory with a tokenizer's files, or a ``vocab.txt`` or
    ``tokenizer.json``. A finished directory of the same configuration is left as it is. Raise `UserError` for a mistake
    of the user.
    """
    prepare(options, output)
    corpus = read_manifest(documents, "ingest")
    vocabulary = read_vocabulary(vocab)
    head = _head(corpus, vocabulary, config)
    directory, manifest = open_stage(output, head, options.overwrite)
    if manifest is not None:
        return manifest
    begun = time.monotonic()
    for name, content in vocabulary_files(vocabulary).items():
        directory.write_bytes(name, content)
    units = [
        Unit(name=shard["name"], cost=shard["bytes"], payload=(split, index, storage.join(documents, shard["name"])))
        for split in SPLITS
        for index, shard in enumerate(shard for shard in corpus["shards"] if shard["split"] == split)
    ]
    records = run_units(directory, "build", units, partial(build_shard, config=config), options)
    counters = sum_counters(records, options.max_bad, seen="documents")
    shards = [record["shard"] for record in records]
    described = {"fingerprint": vocabulary.fingerprint, "size": len(vocabulary.tokens)}
    languages = {"languages": corpus["languages"]}
    manifest = {**head, **counters.to_record(), **languages, "tokenizer": described, "shards": shards}
    return directory.finish(manifest, {"seconds": round(time.monotonic() - begun, 3)})


def estimate(documents: str, vocab: str, output: str, config: BuildConfig, options: RunOptions) -> Estimate:
    """Return what `build` would do and take, without doing it; raise `UserError` as it would."""
    prepare(options, output)
    corpus = read_manifest(documents, "ingest")
    state = check_output(output, _head(corpus, read_vocabulary(vocab), config), options.overwrite)
    return estimate_instances([shard["bytes"] for shard in corpus["shards"]], config, options, state)


def _head(corpus: dict[str, Any], vocabulary: Vocabulary, config: BuildConfig) -> dict[str, Any]:
    inputs = [input_fingerprint(corpus), {"stage": "vocab", "digest": vocabulary.fingerprint}]
    return manifest_head("build", config, inputs, library_versions("tokenizers"))


# On some runners the threads of a worker share the tokenizer, and it changes as it meets new words.
_tokenizing = threading.Lock()


@lru_cache(maxsize=1)
def _tokenizer_of(directory: StageDirectory) -> tuple[Vocabulary, DictionaryTokenizer]:
    """Load the vocabulary once for all the shards that a worker builds."""
    vocabulary = read_vocabulary(directory.path)
    return vocabulary, DictionaryTokenizer(vocabulary.tokens, vocabulary.normalization)


def build_shard(directory: StageDirectory, payload: tuple[str, int, str], config: BuildConfig) -> dict[str, Any]:
    """Write the instances of one shard of documents; return the record."""
    split, index, path = payload
    name = path.rsplit("/", 1)[1]
    vocabulary, tokenizer = _tokenizer_of(directory)
    schema = instances_schema(len(vocabulary.tokens)).with_metadata(_footer(vocabulary, config))
    corpus, sources = tokenize_shard(path, tokenizer, schema.field("input_ids").type.value_type.to_pandas_dtype())
    # Nothing to make of a shard without text: an empty one is written, so that each has its own.
    num_passes = 0 if not len(corpus.token_ids) else config.duplicates if split == "train" else 1
    counts: Counter[str] = Counter()
    warnings = [] if num_passes else ["the document shard holds no text"]
    record: dict[str, Any] = {}
    with write_parquet(directory, name, schema, record, **parquet_options(schema)) as writer:
        for duplicate in range(num_passes):
            rngs = [rng_for(config.seed, step, split, index, duplicate) for step in ("pairs", "masks")]
            try:
                built = build_instances(corpus, vocabulary, config, rngs[0], rngs[1], duplicate)
            except UserError as error:
                raise UserError(f"{path}: {error}") from None
            writer.write_table(built.table.cast(schema), row_group_size=ROW_GROUP_ROWS)
            counts.update(built.counts)
            warnings.extend([built.warning] if built.warning else [])
    counts.update(documents=len(corpus.document_offsets) - 1, sentences=len(corpus.sentence_offsets) - 1)
    shard = {**record["file"], "split": split, "rows": counts.pop("rows", 0), "counts": dict(sorted(counts.items()))}
    shard["source_tokens"] = {
        source: num_passes * num_tokens for source, num_tokens in source_tokens(corpus, sources).items()
    }
    counters = Counters()
    counters.counts = counts
    return {**record, "shard": {**shard, "warnings": warnings}, "counters": counters.to_record()}


def tokenize_shard(path: str, tokenizer: DictionaryTokenizer, dtype: type) -> tuple[Corpus, pa.ChunkedArray]:
    """Return the tokens (as `dtype`) of a shard, the offsets of its sentences and documents, and their sources."""
    token_ids, sources = [np.zeros(0, dtype)], []
    sentence_lengths, document_lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for table in read_documents(path, "source", "sentences"):
        sentences = table["sentences"].combine_chunks()
        with _tokenizing:
            ids, offsets = tokenizer.encode(sentences.flatten())
        token_ids.append(ids.astype(dtype))
        sentence_lengths.append(np.diff(offsets))
        document_lengths.append(np.diff(sentences.offsets.to_numpy()))
        sources.extend(table["source"].chunks)
    offsets = (np.append(0, np.cumsum(np.concatenate(parts))) for parts in (sentence_lengths, document_lengths))
    return Corpus(np.concatenate(token_ids), *offsets), pa.chunked_array(sources, pa.string())


def source_tokens(corpus: Corpus, sources: pa.ChunkedArray) -> dict[str, int]:
    """Return how many tokens come from each source; `sources` names that of each document."""
    documents = pa.table({"source": sources, "tokens": corpus.document_lengths()})
    summed = documents.group_by("source").aggregate([("tokens", "sum")]).sort_by("source")
    return dict(zip(summed["source"].to_pylist(), summed["tokens_sum"].to_pylist(), strict=True))


def _footer(vocabulary: Vocabulary, config: BuildConfig) -> dict[str, str]:
    """Return what the Parquet footer carries for the trainer to check."""
    return {
        "clozeworks.tokenizer": vocabulary.fingerprint,
        "clozeworks.vocab_size": str(len(vocabulary.tokens)),
        "clozeworks.max_length": str(config.max_length),
        "clozeworks.seed": str(config.seed),
    }
