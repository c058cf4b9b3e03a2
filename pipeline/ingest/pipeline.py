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
    way = ingest_phases(config, choose_layout(job.num_bytes, config), options.max_bad)
    run_phases(directory, job.units, way.in_order(), options)
    manifest = {**job.head, **_results(directory, way, job.left_out, config)}
    return directory.finish(manifest, DocumentsManifest, {"seconds": round(time.monotonic() - begun, 3)})


class IngestPhases(NamedTuple):
    """The phases of the stage."""

    scatter: Phase[Ranges, Scattered]
    near_duplicates: list[Phase[Any, Any]]
    deduplicate: Phase[DedupUnit, Deduplicated]
    gather: Phase[ShardRun, Gathered]

    def in_order(self) -> list[Phase[Any, Any]]:
        """Return all phases in the order of the data."""
        return [self.scatter, *self.near_duplicates, self.deduplicate, self.gather]


def ingest_phases(config: IngestConfig, layout: Layout, max_bad: float) -> IngestPhases:
    """Declare the phases; the first one is planned by `ingest`, the others from the records of those before."""
    scatter = Phase("scatter", None, partial(scatter_ranges, config=config, layout=layout), Ranges, Scattered)
    read_scattered = partial(_read_scattered, scatter=scatter, max_bad=max_bad)
    share = config.near_duplicates
    near_duplicates = [] if share is None else _near_duplicate_phases(share, layout, read_scattered)
    deduplicate_ = Phase(
        "deduplicate",
        partial(_plan_dedup, read_scattered=read_scattered, layout=layout),
        partial(deduplicate, layout=layout, near=None if share is None else NEAR_DUPLICATES_FILE),
        DedupUnit,
        Deduplicated,
    )
    gather = Phase(
        "gather",
        partial(_plan_gather, read_scattered=read_scattered, dedup=deduplicate_, shards=config.shards, layout=layout),
        partial(gather_shards, layout=layout),
        ShardRun,
        Gathered,
    )
    return IngestPhases(scatter, near_duplicates, deduplicate_, gather)


def _near_duplicate_phases(share: float, layout: Layout, read_scattered: Any) -> list[Phase[Any, Any]]:
    bands = layout.num_key_partitions
    return [
        Phase(
            "candidates",
            partial(_plan_candidates, read_scattered=read_scattered, share=share, num_partitions=bands),
            partial(find_candidates, num_partitions=bands),
            BandUnit,
            Candidates,
        ),
        Phase(
            "clusters",
            _plan_clusters,
            partial(find_clusters, share=share, num_partitions=layout.num_key_partitions),
            str,
            Clusters,
        ),
    ]


def _read_scattered(directory: StageDirectory, scatter: Phase[Ranges, Scattered], max_bad: float) -> list[Scattered]:
    """Return the records of scatter; raises `UserError` if too much of the input was bad."""
    scattered = read_records(directory, scatter)
    _count(scattered, max_bad)
    return scattered


def _count(scattered: Sequence[Scattered], max_bad: float) -> Counters:
    return sum_counters((record.counters for record in scattered), max_bad, seen="documents_read")


def _plan_candidates(
    directory: StageDirectory, read_scattered: Any, share: float, num_partitions: int
) -> list[Unit[BandUnit]]:
    return plan_candidates(_num_documents(read_scattered(directory)), share, num_partitions)


def _plan_clusters(directory: StageDirectory) -> list[Unit[str]]:
    return [Unit("clusters", 1, NEAR_DUPLICATES_FILE)]


def _plan_dedup(directory: StageDirectory, read_scattered: Any, layout: Layout) -> list[Unit[DedupUnit]]:
    return plan_dedup(_num_documents(read_scattered(directory)), layout)


def _plan_gather(
    directory: StageDirectory,
    read_scattered: Any,
    dedup: Phase[DedupUnit, Deduplicated],
    shards: int | None,
    layout: Layout,
) -> list[Unit[ShardRun]]:
    return plan_shards(read_scattered(directory), read_records(directory, dedup), shards, layout)


def _num_documents(scattered: Sequence[Scattered]) -> int:
    return sum(record.documents for record in scattered)


def _results(
    directory: StageDirectory, way: IngestPhases, left_out: Sequence[str], config: IngestConfig
) -> dict[str, Any]:
    """Return what the manifest says about the documents."""
    scattered, gathered = read_records(directory, way.scatter), read_records(directory, way.gather)
    counters = _count(scattered, max_bad=1.0)
    for name in left_out:
        counters.note("files_of_unknown_format", name)
    for record in gathered:
        counters.add(record.counters)
    if config.near_duplicates is not None:  # recorded even if there are none
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
