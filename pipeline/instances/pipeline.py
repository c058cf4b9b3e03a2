"""Stage 3: documents and a vocabulary to masked sentence pairs, in one phase over the document
shards.

A unit reads one shard, tokenises its distinct words, and for each pass makes pairs, masks and rows
over the whole shard at once (`shard`). The shard of instances has the number of the shard of
documents; a row group holds one pass only.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import to_builtins

from .. import storage
from ..config import BuildConfig, RunOptions
from ..execution.counters import count_of, sum_counters
from ..execution.estimates import (
    PHASE_START_S,
    STORED_SHARE,
    Estimate,
    OutputState,
    num_workers,
    worker_memory,
)
from ..execution.phases import Phase, Unit, read_records
from ..execution.runner import prepare, run_phases
from ..manifests import DocumentsManifest, InstancesManifest, MixtureGroup
from ..mixture import plan_mixture, weights_of
from ..storage.shards import SPLITS
from ..storage.stage import check_output, manifest_head, open_stage, read_manifest
from ..vocabulary.vocabulary import Vocabulary, read_vocabulary, vocabulary_files
from .shard import Built, DocumentsUnit, build_shard, sum_groups

# For estimates.
TOKENISE_BYTES_PER_S = 40e6  # of text
WRITE_TOKENS_PER_S = 7e6
TEXT_BYTES_PER_TOKEN = 4.7
BYTES_PER_TOKEN = 1.9


def build(
    documents: str, vocab: str, output: str, config: BuildConfig, options: RunOptions
) -> InstancesManifest:
    """Write the instances of a directory of documents to `output` and return the manifest.

    `vocab` is a directory of `clozeworks vocab`, any directory with a tokenizer's files, or a
    ``vocab.txt`` or ``tokenizer.json``. A finished directory of the same configuration is left as
    it is. Raises `UserError` if an input or option is wrong.
    """
    prepare(options, output)
    corpus = read_manifest(documents, DocumentsManifest)
    vocabulary = read_vocabulary(vocab)
    head = _head(corpus, vocabulary, config)
    mixture = plan_mixture(corpus, config.weight, config.language_exponent)
    directory, manifest = open_stage(output, head, InstancesManifest, options.overwrite)
    if manifest is not None:
        return manifest
    with directory.unlocked_at_end():
        for name, content in vocabulary_files(vocabulary).items():
            directory.write_bytes(name, content)
        build_phase = Phase(
            "build",
            None,
            partial(build_shard, config=config, weights=weights_of(mixture)),
            DocumentsUnit,
            Built,
        )
        run_phases(directory, _units(storage.absolute(documents), corpus), [build_phase], options)
        built = read_records(directory, "build", Built)
        counters = sum_counters(
            (record.counters for record in built), options.max_bad, seen="documents"
        )
        manifest = {
            **head,
            **counters.to_record(),
            "languages": corpus.languages,
            "tokenizer": {"fingerprint": vocabulary.fingerprint, "size": len(vocabulary.tokens)},
            "mixture": [
                to_builtins(group)
                for group in sum_groups(mixture, (record.groups for record in built))
            ],
            "shards": [to_builtins(record.shard) for record in built],
        }
        return directory.finish(manifest, InstancesManifest)


def _units(documents: str, corpus: DocumentsManifest) -> list[Unit[DocumentsUnit]]:
    return [
        Unit(
            shard.name,
            shard.bytes,
            DocumentsUnit(split=split, index=index, path=storage.join(documents, shard.name)),
        )
        for split in SPLITS
        for index, shard in enumerate(shard for shard in corpus.shards if shard.split == split)
    ]


def estimate(
    documents: str, vocab: str, output: str, config: BuildConfig, options: RunOptions
) -> Estimate:
    """Return what `build` would do and take, without doing it; raises `UserError` as it would."""
    prepare(options, output)
    corpus = read_manifest(documents, DocumentsManifest)
    mixture = plan_mixture(corpus, config.weight, config.language_exponent)
    state = check_output(output, _head(corpus, read_vocabulary(vocab), config), options.overwrite)
    shard_bytes = [shard.bytes for shard in corpus.shards]
    return estimate_instances(
        shard_bytes, _times_read(corpus, mixture, config.duplicates), options, state
    )


def _times_read(
    corpus: DocumentsManifest, mixture: Sequence[MixtureGroup], duplicates: int
) -> float:
    """Return how often the passes read a document, averaged over the text; those of validation are
    read once.
    """
    weights = {(group.source, group.language): group.weight for group in mixture}
    characters = read = 0.0
    for shard in corpus.shards:
        for group in shard.groups:
            passes = (
                duplicates * weights[group.source, group.language] if shard.split == "train" else 1
            )
            characters += group.characters
            read += group.characters * passes
    return read / characters if characters else duplicates


def estimate_instances(
    shard_bytes: Sequence[int], times_read: float, options: RunOptions, state: OutputState
) -> Estimate:
    """Return what `build` takes for shards of documents of these sizes on disk, each read so often
    on average.
    """
    text = sum(shard_bytes) / STORED_SHARE
    tokens = times_read * text / TEXT_BYTES_PER_TOKEN
    workers = num_workers(options, len(shard_bytes))
    work_s = text / TOKENISE_BYTES_PER_S + tokens / WRITE_TOKENS_PER_S
    return Estimate(
        state=state,
        units=f"{count_of(len(shard_bytes), 'shard')}, about {tokens / 1e6:,.1f} million tokens",
        workers=workers,
        input_bytes=sum(shard_bytes),
        output_bytes=int(tokens * BYTES_PER_TOKEN),
        temporary_bytes=0,
        worker_bytes=worker_memory(max(shard_bytes) / STORED_SHARE),
        seconds=PHASE_START_S + work_s / workers,
    )


def _head(corpus: DocumentsManifest, vocabulary: Vocabulary, config: BuildConfig) -> dict[str, Any]:
    inputs = [
        {"stage": "ingest", "digest": corpus.digest},
        {"stage": "vocab", "digest": vocabulary.fingerprint},
    ]
    return manifest_head("build", config, inputs, "tokenizers")
