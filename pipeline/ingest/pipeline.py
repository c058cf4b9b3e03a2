"""Stage 1: raw sources to documents, shuffled, split and sharded.

A few phases, each over units of work:

- **scatter**: one unit reads its input ranges, cleans them, splits them into sentences and writes the documents by
  hash into a file of its own;
- **candidates** and **clusters**, with ``--near-duplicates``: units find which texts are nearly the same;
- **duplicates**: one unit takes a range of the texts' hashes and settles which documents stay;
- **gather**: one unit reads a range of the documents' hashes from all those files and writes one shard.

Between them the launching process sees sizes and counts alone. No text passes between workers, so that memory is
bounded by a part of a range and by a shard, whatever the size of the corpus. See the modules of those names.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..config import IngestConfig, RunOptions
from ..execution import storage
from ..execution.counters import Counters
from ..execution.directory import (
    StageDirectory,
    check_output,
    digest_of,
    library_versions,
    manifest_head,
    open_stage,
    sum_counters,
)
from ..execution.estimates import Estimate
from ..execution.partitions import ALL_HASHES, Layout, num_places
from ..execution.units import Unit, prepare, run_units
from ..sources.formats import Input, find_inputs, plan_units
from .duplicates import NEAR_DUPLICATE, deduplicate, plan_dedup
from .estimate import estimate_documents
from .gather import gather_shard, plan_shards
from .near_duplicates import find_candidates, find_clusters, plan_candidates, plan_clusters
from .scatter import scatter_ranges

NUM_BUCKETS = 4096
NUM_SAMPLES, SAMPLE_BYTES = 16, 1 << 16
NUM_READERS = 16  # of small files at a time, for object stores answer slowly


def ingest(sources: Sequence[str], output: str, config: IngestConfig, options: RunOptions) -> dict[str, Any]:
    """Turn `sources` into a directory of documents and return its manifest.

    A finished directory of the same configuration is left as it is. Raise `UserError` for a mistake of the user.
    """
    prepare(options, output)
    work = _plan(sources, output, config)
    directory, manifest = open_stage(output, work.head, options.overwrite)
    if manifest is not None:
        return manifest
    begun = time.monotonic()
    layout = _layout(work.num_bytes, config)
    scatter = partial(scatter_ranges, config=config, layout=layout)
    scattered = run_units(directory, "scatter", work.units, scatter, options)
    counters = sum_counters(scattered, options.max_bad, seen="documents_read")
    for name in work.left_out:
        counters.note("files_of_unknown_format", name)
    near = _find_near_duplicates(directory, scattered, config, layout, options)
    settling = plan_dedup(scattered, layout, near)
    settled = run_units(directory, "duplicates", settling, deduplicate, options)
    shards = plan_shards(scattered, settled, config, layout)
    gathered = run_units(directory, "gather", shards, gather_shard, options)
    for record in gathered:
        counters.add(record["counters"])
    manifest = {
        **work.head,
        **_found(counters, scattered, config),
        "shards": [record["shard"] for record in gathered],
    }
    return directory.finish(manifest, {"seconds": round(time.monotonic() - begun, 3)})


def _layout(input_bytes: int, config: IngestConfig) -> Layout:
    return Layout(
        num_buckets=config.shards or NUM_BUCKETS,
        num_places=num_places(input_bytes),
        validation_below=int(config.validation_share * ALL_HASHES),
    )


def _find_near_duplicates(
    directory: StageDirectory,
    scattered: Sequence[dict[str, Any]],
    config: IngestConfig,
    layout: Layout,
    options: RunOptions,
) -> str | None:
    """Return the file of near-duplicates, None if they are not asked for."""
    if config.near_duplicates is None:
        return None
    units = plan_candidates(scattered, config.near_duplicates, layout.num_band_places)
    candidates = run_units(directory, "candidates", units, find_candidates, options)
    unit = plan_clusters(candidates, scattered, config.near_duplicates, layout.num_places)
    [clusters] = run_units(directory, "clusters", [unit], find_clusters, options)
    return clusters["file"]["name"]


def _found(counters: Counters, scattered: Sequence[dict[str, Any]], config: IngestConfig) -> dict[str, Any]:
    """Return what the manifest says about the documents beside the shards."""
    languages = sum((Counter(record["languages"]) for record in scattered), Counter())
    if config.near_duplicates is not None:  # recorded even if there are none
        counters.count(NEAR_DUPLICATE, 0)
    return {**counters.to_record(), "languages": dict(sorted(languages.items()))}


def estimate(sources: Sequence[str], output: str, config: IngestConfig, options: RunOptions) -> Estimate:
    """Return what `ingest` would do and take, without doing it; raise `UserError` as it would."""
    prepare(options, output)
    work = _plan(sources, output, config)
    state = check_output(output, work.head, options.overwrite)
    return estimate_documents(work.inputs, len(work.units), config.shards, options, state)


class _Work(NamedTuple):
    inputs: list[Input]
    left_out: list[str]
    units: list[Unit]
    num_bytes: int
    head: dict[str, Any]


def _plan(sources: Sequence[str], output: str, config: IngestConfig) -> _Work:
    inputs, left_out = find_inputs(sources, output, config)
    units = [
        Unit(name=name, cost=planned.num_bytes, payload=(name, planned.ranges))
        for index, planned in enumerate(plan_units(inputs, config))
        for name in [f"range-{index:05d}"]
    ]
    with ThreadPoolExecutor(NUM_READERS) as pool:
        fingerprints = list(pool.map(_fingerprint, inputs))
    libraries = ["sentencex", *(["rensa"] if config.near_duplicates is not None else [])]
    head = manifest_head("ingest", config, fingerprints, library_versions(*libraries))
    return _Work(inputs, left_out, units, sum(entry.num_bytes for entry in inputs), head)


def _fingerprint(entry: Input) -> dict[str, Any]:
    """Name an input by its size and by samples of its content: reading a whole dump twice would be slow."""
    digest = entry.digest or digest_of(_sampled(entry))
    return {"name": entry.name, "format": entry.format, "bytes": entry.num_bytes, "digest": digest}


def _sampled(entry: Input) -> bytes:
    with storage.open_input(entry.path) as file:
        return (
            file.read() if entry.num_bytes <= NUM_SAMPLES * SAMPLE_BYTES else b"".join(_samples(file, entry.num_bytes))
        )


def _samples(file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    for place in np.linspace(0, num_bytes - SAMPLE_BYTES, NUM_SAMPLES, dtype=np.int64).tolist():
        file.seek(place)
        yield file.read(SAMPLE_BYTES)
