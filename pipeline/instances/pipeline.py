"""Stage 3: documents and a vocabulary to instances, in one phase over the shards (`shard`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..config import BuildConfig, RunOptions
from ..counters import Counters
from ..errors import UserError
from ..execution.job import Job, Phase, Plan, Stage, Unit
from ..execution.runner import ShowProgress, run_stage
from ..manifests import (
    DocumentsManifest,
    DocumentsShard,
    InstancesManifest,
    InstancesTokenizer,
    StoredHead,
    manifest_fields,
)
from ..mixture import plan_mixture, weights_of
from ..seeding import rng_for
from ..storage import absolute, join
from ..storage.state import manifest_head, read_manifest, refuse_input
from ..vocabulary.files import check_model_beside, read_vocabulary, vocabulary_files
from .origins import copies_in_pass
from .shard import BuildShards, InstancesSetup, sum_groups, vocabulary_of


@dataclass(frozen=True, kw_only=True)
class InstancesStage(Stage):
    """Build the instances of documents."""

    documents: str
    vocab: str
    output: str
    config: BuildConfig

    name = "build"
    setup_type = InstancesSetup

    @cached_property
    def phases(self) -> Sequence[Phase]:
        return [BuildShards(self.config, self.vocab)]

    def plan(self) -> Plan:
        config = self.config
        corpus = read_manifest(self.documents, DocumentsManifest)
        refuse_input(self.output, self.documents, self.vocab)
        check_model_beside(self.vocab)
        vocabulary = read_vocabulary(self.vocab)
        specials = vocabulary.specials
        if config.pairing != "none" and specials.between != (specials.sep,):
            raise UserError(
                f"The tokenizer in {self.vocab} puts {' '.join(specials.between)} between two "
                "texts; rows of pairs have one separator there: build with `pairing` none."
            )
        mixture = plan_mixture(corpus, config.weight, config.language_exponent)
        training = [shard for shard in corpus.shards if shard.split == "train"]
        weights = weights_of(mixture)
        are_read = (_is_read(index, shard, weights, config) for index, shard in enumerate(training))
        if not any(are_read):
            raise UserError(
                "No rows for training: no pass reads any of the documents, or they have no text. "
                "Raise `weight` or `duplicates`, or ingest them into fewer `shards`."
            )
        inputs = [
            {"stage": "ingest", "digest": corpus.digest},
            {"stage": "vocab", "digest": vocabulary.fingerprint},
        ]
        folder = absolute(self.documents)
        return Plan(
            head=manifest_head("build", config, inputs, "tokenizers"),
            setup=InstancesSetup(
                mixture=mixture,
                languages=dict(corpus.languages),
                tokenizer=InstancesTokenizer(
                    fingerprint=vocabulary.fingerprint, size=len(vocabulary.tokens)
                ),
            ),
            units=[
                Unit(shard.name, shard.bytes, join(folder, shard.name)) for shard in corpus.shards
            ],
        )

    def manifest(self, job: Job, head: StoredHead) -> InstancesManifest:
        setup: InstancesSetup = job.setup
        built = job.records(BuildShards)
        shards = [record.shard for record in built]
        if not any(shard.rows for shard in shards if shard.split == "train"):
            raise UserError("No rows for training: the documents' text has no tokens.")
        vocabulary = vocabulary_of(setup.tokenizer.fingerprint, self.vocab)
        for name, content in vocabulary_files(vocabulary).items():
            job.write_bytes(name, content)
        counters = Counters()
        for record in built:
            counters.add(record.counters)
        groups_of_shards = (record.groups for record in built)
        return InstancesManifest(
            **manifest_fields(head, self.config),
            **counters.to_record(),
            languages=setup.languages,
            tokenizer=setup.tokenizer,
            mixture=sum_groups(setup.mixture, groups_of_shards),
            shards=shards,
        )


def _is_read(
    index: int,
    shard: DocumentsShard,
    weights: Mapping[tuple[str, str], float],
    config: BuildConfig,
) -> bool:
    """Return whether a pass reads a document with text of the training shard with this index."""
    if not shard.groups:  # from before documents had a language
        return True
    num_documents = [group.documents for group in shard.groups]
    weight_of_group = [weights.get((group.source, group.language), 1.0) for group in shard.groups]
    has_text = np.repeat([group.characters > 0 for group in shard.groups], num_documents)
    # All passes are like one with all their weight; lengths only decide which documents are read.
    weight_of_document = config.duplicates * np.repeat(weight_of_group, num_documents)
    copies_rng = rng_for(config.seed, "copies", "train", index)
    copies = copies_in_pass(weight_of_document, has_text, 0, copies_rng)
    return bool(copies[has_text].any())


def build(
    documents: str,
    vocab: str,
    output: str,
    config: BuildConfig,
    options: RunOptions,
    progress: ShowProgress | None = None,
) -> InstancesManifest:
    """Write the instances of a directory of documents to `output` and return the manifest.

    `vocab` is a directory of `learn_vocabulary`, any directory with a tokenizer's files, or a
    ``vocab.txt`` or ``tokenizer.json``. A finished directory of the same configuration is left as
    it is. `progress` is called now and then, from any thread. Raises `UserError` if an input or
    option is wrong.
    """
    stage = InstancesStage(documents=documents, vocab=vocab, output=output, config=config)
    return run_stage(stage, options, progress)
