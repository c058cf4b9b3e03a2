"""Beam transforms of the data stages, for pipelines of one's own; see docs/api.md.

A stage runs after all elements of its input, or at the start of a pipeline, and yields one
element, the path of its directory. So stages follow one another::

    with beam.Pipeline() as pipeline:
        (
            pipeline
            | Ingest("corpus/*.txt", "documents")
            | LearnVocabulary("documents", "vocab")
            | BuildInstances("documents", "vocab", "instances")
        )

Directories are resumed, or left alone if finished, as the commands do; they are not locked.
Everything that a stage's manifest counts is counted as Beam metrics in ``clozeworks.ingest``,
``clozeworks.vocab`` and ``clozeworks.build``. A `UserError` fails the pipeline with its message.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from .config import MAX_BAD, BuildConfig, IngestConfig, RunOptions, VocabConfig
from .counters import CounterRecord, Counters
from .documents.pipeline import IngestStage
from .execution.beam import ReadParallel, RunStage
from .instances.pipeline import InstancesStage
from .sources.formats import names_of, plan_reading, read_range
from .sources.streams import InputRange
from .vocabulary.pipeline import VocabularyStage


class ReadDocuments(ReadParallel):
    """Transform a pipeline into the documents of `sources`, a dictionary each.

    Their fields are those of `RawDocument`. The files are listed at once, and read in parallel by
    the workers, which must reach them. What `read_documents` counts in its ``Counters`` are Beam
    metrics in the namespace ``clozeworks``. Raises `UserError` as `read_documents` does.
    """

    def __init__(self, sources: str | Sequence[str], config: IngestConfig | None = None) -> None:
        config = config or IngestConfig()
        left_out = Counters()
        ranges = plan_reading(sources, config, left_out)
        super().__init__([left_out.to_record(), *ranges], partial(_read_as_dicts, config=config))
        self.with_output_types(dict[str, Any])


def _read_as_dicts(
    input_range: InputRange | CounterRecord, counters: Counters, config: IngestConfig
) -> Iterator[dict[str, Any]]:
    if not isinstance(input_range, InputRange):
        counters.add(input_range)  # of files that are not read
        return
    yield from map(asdict, read_range(input_range, config, counters))


class Ingest(RunStage):
    """Turn `sources` into a directory of documents, as `ingest` does."""

    def __init__(
        self,
        sources: str | Sequence[str],
        output: str,
        config: IngestConfig | None = None,
        max_bad: float = MAX_BAD,
    ) -> None:
        config = config or IngestConfig()
        names = names_of(sources)
        max_bad = RunOptions(max_bad=max_bad).max_bad  # refuses what is not a share
        super().__init__(IngestStage(sources=names, output=output, config=config, max_bad=max_bad))


class LearnVocabulary(RunStage):
    """Learn a vocabulary from a directory of documents, as `learn_vocabulary` does."""

    def __init__(self, documents: str, output: str, config: VocabConfig | None = None) -> None:
        config = config or VocabConfig()
        super().__init__(VocabularyStage(documents=documents, output=output, config=config))


class BuildInstances(RunStage):
    """Write the instances of a directory of documents, as `build` does."""

    def __init__(
        self,
        documents: str,
        vocab: str,
        output: str,
        config: BuildConfig | None = None,
    ) -> None:
        config = config or BuildConfig()
        super().__init__(
            InstancesStage(documents=documents, vocab=vocab, output=output, config=config)
        )
