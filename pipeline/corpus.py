"""Run all data stages, one after the other in worker processes, or as one Beam pipeline."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from . import storage
from .config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from .documents.pipeline import IngestStage
from .execution.job import Stage, open_job
from .execution.runner import ShowProgress, check_runner, run_planned
from .instances.pipeline import InstancesStage
from .manifests import DocumentsManifest, InstancesManifest, VocabularyManifest
from .sources.formats import names_of
from .storage.directory import locked
from .storage.state import MANIFEST, begun_in, clear_stage, refuse_foreign
from .vocabulary.pipeline import VocabularyStage


class CorpusManifests(NamedTuple):
    """The manifests of the three directories."""

    documents: DocumentsManifest
    vocabulary: VocabularyManifest
    instances: InstancesManifest


def make_corpus(
    sources: str | Sequence[str],
    output: str,
    ingest_config: IngestConfig,
    vocab_config: VocabConfig,
    build_config: BuildConfig,
    options: RunOptions,
    progress: ShowProgress | None = None,
) -> CorpusManifests:
    """Run the data stages into ``documents``, ``vocab`` and ``instances`` below `output`.

    The directories are those of `ingest`, `learn_vocabulary` and `build`, which resume them too,
    and the other way round. The stages run in the workers of `options`; with its Beam options as
    one pipeline. Raises as these functions do.
    """
    documents = storage.join(output, "documents")
    vocab = storage.join(output, "vocab")
    ingest = IngestStage(
        sources=names_of(sources), output=documents, config=ingest_config, max_bad=options.max_bad
    )
    learn = VocabularyStage(documents=documents, output=vocab, config=vocab_config)
    build = InstancesStage(
        documents=documents,
        vocab=vocab,
        output=storage.join(output, "instances"),
        config=build_config,
    )
    stages: list[Stage] = [ingest, learn, build]

    check_runner(options, output)
    first_plan = ingest.plan()  # a mistake in the sources is found before anything is deleted
    with ExitStack() as locks:
        # All three from the start: another command must not write to a later one in the meantime.
        for stage in stages:
            locks.enter_context(locked(stage.output))
            is_ours = storage.exists(storage.join(stage.output, MANIFEST))
            if not is_ours and not begun_in(stage.output):
                refuse_foreign(stage.output)
        if options.overwrite:
            # Not by the pipeline: a runner that lost a worker may open a stage again.
            for stage in stages:
                clear_stage(stage.output)
        manifests = []
        on_workers = replace(options, overwrite=False)
        for index, stage in enumerate(stages):
            # Those before it are finished, so it can be planned here and now.
            plan = first_plan if stage is ingest else stage.plan()
            if not options.beam_options:
                manifests.append(run_planned(stage, plan, on_workers, progress))
                continue
            # It begins here, so that most mistakes are found before the pipeline starts.
            _, manifest = open_job(stage, plan, overwrite=False)
            if manifest is None:
                from .execution.beam import run_pipeline  # late, as in `run_planned`

                manifests += run_pipeline(stages[index:], options)
                break
            manifests.append(manifest)
        return CorpusManifests(*manifests)
