"""Stage 3: documents and a vocabulary to masked sentence pairs, in one phase over the document
shards (see `shard`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from msgspec import to_builtins

from ..config import BuildConfig, RunOptions
from ..execution.counters import Counters
from ..execution.estimates import Estimate
from ..execution.phases import Phase
from ..execution.progress import ShowProgress
from ..execution.runner import check_runner, run_stage
from ..execution.stages import Stage, StagePlan
from ..execution.units import Unit
from ..manifests import DocumentsManifest, InstancesManifest, InstancesTokenizer
from ..mixture import plan_mixture
from ..storage import absolute, join
from ..storage.shards import SPLITS
from ..storage.stage import (
    StageDirectory,
    check_output,
    manifest_head,
    read_manifest,
    refuse_input,
)
from ..vocabulary.vocabulary import read_vocabulary, vocabulary_files
from .estimate import estimate_instances, times_read
from .shard import BuildShards, DocumentsToRead, InstancesSetup, sum_groups


@dataclass(frozen=True, kw_only=True)
class InstancesStage(Stage[InstancesSetup, InstancesManifest]):
    """Build the instances of documents."""

    documents: str
    vocab: str
    output: str
    config: BuildConfig

    name = "build"
    setup_type = InstancesSetup

    def phases(self) -> Iterator[Phase[Any, Any]]:
        """Yield the only phase."""
        yield BuildShards(self.config)

    def plan(self) -> StagePlan[InstancesSetup]:
        """Read the documents' manifest and the vocabulary."""
        config = self.config
        corpus = read_manifest(self.documents, DocumentsManifest)
        vocabulary = read_vocabulary(self.vocab)
        refuse_input(self.output, self.documents, self.vocab)
        inputs = [
            {"stage": "ingest", "digest": corpus.digest},
            {"stage": "vocab", "digest": vocabulary.fingerprint},
        ]
        return StagePlan(
            head=manifest_head("build", config, inputs, "tokenizers"),
            setup=InstancesSetup(
                mixture=plan_mixture(corpus, config.weight, config.language_exponent),
                languages=dict(corpus.languages),
                tokenizer=InstancesTokenizer(
                    fingerprint=vocabulary.fingerprint, size=len(vocabulary.tokens)
                ),
            ),
            units=self._units(corpus),
            files=vocabulary_files(vocabulary),
        )

    def _units(self, corpus: DocumentsManifest) -> list[Unit[DocumentsToRead]]:
        folder = absolute(self.documents)
        units: list[Unit[DocumentsToRead]] = []
        for split in SPLITS:
            shards = [shard for shard in corpus.shards if shard.split == split]
            for index, shard in enumerate(shards):
                documents = DocumentsToRead(split=split, index=index, path=join(folder, shard.name))
                units.append(Unit(shard.name, shard.bytes, documents))
        return units

    def results(self, directory: StageDirectory) -> dict[str, Any]:
        """Return counts, mixture and shards."""
        setup: InstancesSetup = directory.setup
        built = BuildShards.records(directory)
        counters = Counters()
        for record in built:
            counters.add(record.counters)
        groups_of_shards = (record.groups for record in built)
        return {
            **counters.to_record(),
            "languages": setup.languages,
            "tokenizer": to_builtins(setup.tokenizer),
            "mixture": to_builtins(sum_groups(setup.mixture, groups_of_shards)),
            "shards": to_builtins([record.shard for record in built]),
        }

    def absolute(self) -> Self:
        """Return the stage with absolute paths."""
        return replace(
            self,
            documents=absolute(self.documents),
            vocab=absolute(self.vocab),
            output=absolute(self.output),
        )


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
    it is. `progress` is called now and then, from another thread. Raises `UserError` if an input or
    option is wrong.
    """
    stage = InstancesStage(documents=documents, vocab=vocab, output=output, config=config)
    return run_stage(stage, options, progress)


def estimate_build(
    documents: str, vocab: str, output: str, config: BuildConfig, options: RunOptions
) -> Estimate:
    """Return what `build` would do and take, without doing it; raises `UserError` as it would."""
    check_runner(options, output)
    stage = InstancesStage(documents=documents, vocab=vocab, output=output, config=config)
    plan = stage.plan()
    state = check_output(output, plan.head, options.overwrite)
    corpus = read_manifest(documents, DocumentsManifest)
    readings = times_read(corpus, plan.setup.mixture, config.duplicates)
    shard_bytes = [unit.cost for unit in plan.units]
    return estimate_instances(shard_bytes, readings, options, state)
