"""Stage 1: raw sources to documents, shuffled, split and sharded.

The documents go through these phases::

    ranges of input | scatter | deduplicate | gather -> shards

- **scatter** reads ranges of input, cleans them, splits them into sentences, and writes the documents by hash;
- **candidates** and **clusters**, with ``--near-duplicates``, find which texts are nearly the same;
- **deduplicate** takes a range of the texts' hashes and decides which documents stay;
- **gather** takes a range of the documents' hashes from all scattered files and writes its shards.

Only sizes and counts pass between phases, never text, so that memory is bounded by a part of a range and by a shard,
whatever the size of the corpus. See the modules of those names, and `layout`.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from msgspec import to_builtins

from ..config import IngestConfig, RunOptions
from ..execution.counters import Counters, sum_counters
from ..execution.directory import StageDirectory, check_output, library_versions, manifest_head, open_stage
from ..execution.estimates import Estimate
from ..execution.phases import Phase, Unit, read_records
from ..execution.runner import prepare, run_phases
from ..manifests import DocumentsManifest
from ..sources.formats import Input, find_inputs, plan_units
from .duplicates import NEAR_DUPLICATE, Deduplicated, DedupUnit, deduplicate, plan_dedup
from .estimate import estimate_documents
from .fingerprint import fingerprint_inputs
from .gather import Gathered, ShardRun, gather_shards, plan_shards
from .layout import Layout, choose_layout
from .near_duplicates import BandUnit, Candidates, Clusters, find_candidates, find_clusters, plan_candidates
from .scatter import Ranges, Scattered, scatter_ranges

NEAR_DUPLICATES_FILE = ".work/near/near.arrow"


def ingest(sources: Sequence[str], output: str, config: IngestConfig, options: RunOptions) -> DocumentsManifest:
    """Turn `sources` into a directory of documents and return its manifest.

    A finished directory of the same configuration is left as it is. Raises `UserError` for a mistake of the user.
    """
    prepare(options, output)
    job = _plan(sources, output, config)
    directory, manifest = open_stage(output, job.head, DocumentsManifest, options.overwrite)
    if manifest is not None:
        return manifest
    begun = time.monotonic()
    way = WayOfDocuments(config, choose_layout(job.num_bytes, config), options.max_bad)
    run_phases(directory, job.units, way.phases, options)
    found = {**job.head, **way.results(directory, job.left_out)}
    return directory.finish(found, DocumentsManifest, {"seconds": round(time.monotonic() - begun, 3)})


@dataclass(frozen=True)
class WayOfDocuments:
    """The phases of the stage; the first one is planned by `ingest`, the others from the records of those before."""

    config: IngestConfig
    layout: Layout
    max_bad: float

    @property
    def phases(self) -> list[Phase[Any, Any]]:
        """All phases, in the order of the data."""
        near = [] if self.config.near_duplicates is None else [self._candidates, self._clusters]
        return [self._scatter, *near, self._deduplicate, self._gather]

    @property
    def _scatter(self) -> Phase[Ranges, Scattered]:
        work = partial(scatter_ranges, config=self.config, layout=self.layout)
        return Phase("scatter", None, work, Ranges, Scattered)

    @property
    def _candidates(self) -> Phase[BandUnit, Candidates]:
        work = partial(find_candidates, num_partitions=self.layout.num_key_partitions)
        return Phase("candidates", self._plan_candidates, work, BandUnit, Candidates)

    @property
    def _clusters(self) -> Phase[str, Clusters]:
        work = partial(find_clusters, share=self._share, num_partitions=self.layout.num_key_partitions)
        return Phase("clusters", self._plan_clusters, work, str, Clusters)

    @property
    def _deduplicate(self) -> Phase[DedupUnit, Deduplicated]:
        near = None if self.config.near_duplicates is None else NEAR_DUPLICATES_FILE
        work = partial(deduplicate, layout=self.layout, near=near)
        return Phase("deduplicate", self._plan_dedup, work, DedupUnit, Deduplicated)

    @property
    def _gather(self) -> Phase[ShardRun, Gathered]:
        return Phase("gather", self._plan_gather, partial(gather_shards, layout=self.layout), ShardRun, Gathered)

    def _plan_candidates(self, directory: StageDirectory) -> list[Unit[BandUnit]]:
        return plan_candidates(self._num_documents(directory), self._share, self.layout.num_key_partitions)

    @property
    def _share(self) -> float:
        assert self.config.near_duplicates is not None
        return self.config.near_duplicates

    def _plan_clusters(self, directory: StageDirectory) -> list[Unit[str]]:
        return [Unit("clusters", 1, NEAR_DUPLICATES_FILE)]

    def _plan_dedup(self, directory: StageDirectory) -> list[Unit[DedupUnit]]:
        return plan_dedup(self._num_documents(directory), self.layout)

    def _plan_gather(self, directory: StageDirectory) -> list[Unit[ShardRun]]:
        deduplicated = read_records(directory, self._deduplicate)
        return plan_shards(read_records(directory, self._scatter), deduplicated, self.config.shards, self.layout)

    def _num_documents(self, directory: StageDirectory) -> int:
        """Return how many documents were scattered; raises `UserError` if too much of the input was bad."""
        scattered = read_records(directory, self._scatter)
        self._sum(scattered)
        return sum(record.documents for record in scattered)

    def _sum(self, scattered: Sequence[Scattered]) -> Counters:
        return sum_counters((record.counters for record in scattered), self.max_bad, seen="documents_read")

    def results(self, directory: StageDirectory, left_out: Sequence[str]) -> dict[str, Any]:
        """Return what the manifest says about the documents; `left_out` names the files of unknown format."""
        scattered, gathered = read_records(directory, self._scatter), read_records(directory, self._gather)
        counters = self._sum(scattered)
        for name in left_out:
            counters.note("files_of_unknown_format", name)
        for record in gathered:
            counters.add(record.counters)
        if self.config.near_duplicates is not None:  # recorded even if there are none
            counters.count(NEAR_DUPLICATE, 0)
        languages = sum((Counter(record.languages) for record in scattered), Counter())
        shards = [to_builtins(shard) for record in gathered for shard in record.shards]
        return {**counters.to_record(), "languages": dict(sorted(languages.items())), "shards": shards}


def estimate(sources: Sequence[str], output: str, config: IngestConfig, options: RunOptions) -> Estimate:
    """Return what `ingest` would do and take, without doing it; raises `UserError` as it would."""
    prepare(options, output)
    job = _plan(sources, output, config)
    state = check_output(output, job.head, options.overwrite)
    return estimate_documents(job.inputs, len(job.units), config.shards, options, state)


class _Job(NamedTuple):
    inputs: list[Input]
    left_out: list[str]
    units: list[Unit[Ranges]]
    num_bytes: int
    head: dict[str, Any]


def _plan(sources: Sequence[str], output: str, config: IngestConfig) -> _Job:
    inputs, left_out = find_inputs(sources, output, config)
    units = [
        Unit(name, planned.num_bytes, Ranges(name=name, ranges=planned.ranges))
        for index, planned in enumerate(plan_units(inputs, config))
        for name in [f"range-{index:05d}"]
    ]
    libraries = ["sentencex", *(["rensa"] if config.near_duplicates is not None else [])]
    head = manifest_head("ingest", config, fingerprint_inputs(inputs), library_versions(*libraries))
    return _Job(inputs, left_out, units, sum(entry.num_bytes for entry in inputs), head)
