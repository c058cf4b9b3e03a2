"""Stage 1: raw sources to documents, shuffled, split and sharded.

- **scatter** reads ranges of input, cleans them, splits them into sentences, and writes the
  documents by hash;
- **candidates** and **clusters**, on request, find which texts are nearly the same;
- **deduplicate** takes a range of the texts' hashes and decides which documents stay;
- **gather** takes a range of the documents' hashes from all scattered files and writes its shards.

Text passes from phase to phase in temporary tables alone (`phase_tables` draws them), so memory is
bounded by a shard.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from .. import storage
from ..config import IngestConfig, RunOptions
from ..counters import WORDS_LEFT_OUT, sum_counters
from ..encodings import UTF_8
from ..errors import UserError
from ..execution.job import Job, Phase, Plan, Stage, Unit
from ..execution.runner import ShowProgress, run_stage
from ..manifests import DocumentsManifest, StoredHead, manifest_fields
from ..sources import hub
from ..sources.formats import find_inputs, names_of, plan_units
from ..sources.streams import InputRange, digest_of_file
from ..storage import absolute
from ..storage.state import manifest_head
from ..text.sentences import stops_of
from ..text.wikitext.repair import drop_rare_templates
from .duplicates import NEAR_DUPLICATE, Deduplicate
from .gather import Gather
from .layout import IngestSetup, choose_layout
from .near_duplicates import FindCandidates, FindClusters
from .scatter import Scatter, check_languages


@dataclass(frozen=True, kw_only=True)
class IngestStage(Stage):
    """Turn sources into documents."""

    sources: tuple[str, ...]
    output: str
    config: IngestConfig
    max_bad: float

    name = "ingest"
    setup_type = IngestSetup

    @cached_property
    def phases(self) -> Sequence[Phase]:
        share = self.config.near_duplicates
        scatter = Scatter(self.config, self.max_bad)
        phases: list[Phase] = [scatter, Deduplicate(scatter), Gather(self.config.shards)]
        if share is not None:
            phases[1:1] = [FindCandidates(share, scatter), FindClusters(share)]
        return phases

    def plan(self) -> Plan:
        config = self.config
        if config.abbreviations:
            stops_of(config.abbreviations, "")  # raises if the file is wrong
        if config.templates:
            # Late: only wikis need the names of their templates.
            from ..text.wikitext.templates import added_templates

            added_templates(config.templates, "")  # and so does this
        libraries = ["sentencex"]  # that the documents depend on
        if config.near_duplicates is not None:
            libraries.append("rensa")
        if config.keep_language:
            libraries.append("py3langid")
            check_languages(config.keep_language)
        inputs, left_out = find_inputs(self.sources, self.output, config)
        units = [
            Unit(f"range-{number:05d}", sum(part.num_bytes for part in ranges), ranges)
            for number, ranges in enumerate(plan_units(inputs, config))
        ]
        num_bytes = sum(file.num_bytes for file in inputs)
        # The size of a data set may be unknown: 0.
        if config.shards and 0 < num_bytes < config.shards:
            raise UserError(
                f"`shards` is {config.shards}, but the sources have {num_bytes} bytes: lower it."
            )
        head = manifest_head("ingest", config, fingerprints(inputs), *libraries)
        setup = IngestSetup(
            layout=choose_layout(num_bytes, config),
            left_out=left_out.to_record(),
            bad_inputs=left_out.listed,
        )
        return Plan(head=head, setup=setup, units=units)

    def manifest(self, job: Job, head: StoredHead) -> DocumentsManifest:
        gathered = job.records(Gather)
        scattered = (record.counters for record in job.records(Scatter))
        left_out = job.setup.left_out
        counters = sum_counters((left_out, *scattered), self.max_bad)
        for record in gathered:
            counters.add(record.counters)
        for name, count in counters.counts.items():
            if name.startswith(WORDS_LEFT_OUT):
                # Below 0 for the markup of dumps of plain text, as cleaning may separate words.
                counters.counts[name] = max(count, 0)
        drop_rare_templates(counters.counts)
        if self.config.near_duplicates is not None:
            counters.count(NEAR_DUPLICATE, 0)  # reported even if there are none
        shards = [shard for record in gathered for shard in record.shards]
        # These count the documents that stay; the counters above have also seen the others.
        languages = Counter()
        for shard in shards:
            for group in shard.groups:
                languages[group.language] += group.documents
        return DocumentsManifest(
            **manifest_fields(head, self.config),
            **counters.to_record(),
            languages=dict(sorted(languages.items())),
            shards=shards,
        )

    def absolute(self) -> Self:
        sources = []
        for source in self.sources:
            if not source.startswith(hub.PREFIX) and self.config.format != "hf":
                source = absolute(source)
            elif hub.folder_of(source) is not None:  # a name on the Hub stays
                folder, colon, split = source.removeprefix(hub.PREFIX).partition(":")
                source = f"{hub.PREFIX}{absolute(folder)}{colon}{split}"
            sources.append(source)
        return replace(super().absolute(), sources=tuple(sources))


def ingest(
    sources: str | Sequence[str],
    output: str,
    config: IngestConfig,
    options: RunOptions,
    progress: ShowProgress | None = None,
) -> DocumentsManifest:
    """Turn `sources` into a directory of documents and return its manifest.

    A finished directory of the same configuration is left as it is. `progress` is called now and
    then, from any thread. Raises `UserError` if an input or option is wrong.
    """
    stage = IngestStage(
        sources=names_of(sources), output=output, config=config, max_bad=options.max_bad
    )
    return run_stage(stage, options, progress)


def fingerprints(inputs: Sequence[InputRange]) -> list[dict[str, Any]]:
    """Return name, format, size, digest, and an encoding other than UTF-8, of each input."""
    with ThreadPoolExecutor(storage.NUM_READERS) as pool:
        digests = list(
            pool.map(lambda file: file.digest or digest_of_file(file.path, file.num_bytes), inputs)
        )
    found = []
    for file, digest in zip(inputs, digests, strict=True):
        about: dict[str, Any] = {"name": file.name, "format": file.format}
        about |= {"bytes": file.num_bytes, "digest": digest}
        if file.encoding != UTF_8:
            about["encoding"] = file.encoding
        found.append(about)
    return found
