"""Stage 1: raw sources to documents, shuffled, split and sharded.

- **scatter** reads ranges of input, cleans them, splits them into sentences, and writes the
  documents by hash;
- **candidates** and **clusters**, with `near_duplicates`, find which texts are nearly the same;
- **deduplicate** takes a range of the texts' hashes and decides which documents stay;
- **gather** takes a range of the documents' hashes from all scattered files and writes its shards.

Only sizes and counts pass between phases, never text, so that memory is bounded by a part of a
range and by a shard.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from msgspec import to_builtins

from .. import storage
from ..config import IngestConfig, RunOptions
from ..errors import UserError
from ..execution.counters import Counters, count_of, sum_counters
from ..execution.estimates import (
    PART_TEXT_BYTES,
    PHASE_START_S,
    SHARD_TEXT_BYTES,
    STORED_SHARE,
    Estimate,
    OutputState,
    num_workers,
    worker_memory,
)
from ..execution.phases import Phase, Record, Unit, read_records
from ..execution.runner import prepare, run_phases
from ..manifests import DocumentsManifest
from ..sources.compression import is_compressed
from ..sources.formats import Input, find_inputs, plan_units
from ..storage.directory import digest_of
from ..storage.stage import StageDirectory, check_output, manifest_head, open_stage
from .duplicates import DOCUMENTS_PER_UNIT, NEAR_DUPLICATE, Deduplicated, deduplicate
from .gather import Gathered, ShardRun, check_shards, gather_shards, plan_shards
from .layout import KeyRange, Layout, choose_layout, plan_keys
from .minhash import choose_bands
from .near_duplicates import BANDS_PER_UNIT, find_candidates, find_clusters
from .other_languages import check_languages
from .scatter import Ranges, Scattered, scatter_ranges

# What one core reads: bytes of the file per second, and bytes of clean text per byte of the file.
# Measured on English and Latgalian dumps, Gutenberg's books, Korean Wikipedia in Parquet, and
# English JSON Lines, plain and gzipped.
PLAIN_DUMP = 8e6, 0.25
COMPRESSED_DUMP = 2.2e6, 1.0
TABLES = 7e6, 3.2
PLAIN_TEXT = 17e6, 0.95
COMPRESSED_TEXT = 4e6, 2.8
GATHER_BYTES_PER_S = 60e6  # of text

WHOLE_BYTES = 64 << 20  # of a local file, hashed as a whole
NUM_SAMPLES, SAMPLE_BYTES = 16, 1 << 16
NUM_READERS = 16  # files read at a time, because object stores are slow to answer


def ingest(
    sources: Sequence[str], output: str, config: IngestConfig, options: RunOptions
) -> DocumentsManifest:
    """Turn `sources` into a directory of documents and return its manifest.

    A finished directory of the same configuration is left as it is. Raises `UserError` if an input
    or option is wrong.
    """
    prepare(options, output)
    job = _plan(sources, output, config)
    directory, manifest = open_stage(output, job.head, DocumentsManifest, options.overwrite)
    if manifest is not None:
        return manifest
    with directory.unlocked_at_end():
        layout = choose_layout(sum(entry.num_bytes for entry in job.inputs), config)
        run_phases(directory, job.units, ingest_phases(config, layout, options.max_bad), options)
        results = _results(directory, config, options.max_bad, job.left_out)
        return directory.finish({**job.head, **results}, DocumentsManifest)


def ingest_phases(config: IngestConfig, layout: Layout, max_bad: float) -> list[Phase[Any, Any]]:
    """Declare the phases; the first one is planned by `ingest`, the others from the records of
    those before.
    """
    share, num_partitions = config.near_duplicates, layout.num_key_partitions
    plan_range = partial(_plan_keys, layout=layout, max_bad=max_bad, num_shards=config.shards)
    near: list[Phase[Any, Any]] = []
    if share is not None:
        plan_bands = partial(
            plan_range,
            kind="bands",
            rows_per_unit=BANDS_PER_UNIT,
            rows_per_document=choose_bands(share)[0],
        )
        candidates = partial(find_candidates, num_partitions=num_partitions)
        clusters = partial(find_clusters, share=share, num_partitions=num_partitions)
        near = [
            Phase("candidates", plan_bands, candidates, KeyRange, Record),
            Phase("clusters", _plan_clusters, clusters, str, Record),
        ]
    plan_texts = partial(plan_range, kind="texts", rows_per_unit=DOCUMENTS_PER_UNIT)
    decide = partial(deduplicate, layout=layout, near=bool(near))
    plan_gather = partial(_plan_gather, num_shards=config.shards, layout=layout)
    gather = partial(gather_shards, num_shards=config.shards, layout=layout)
    return [
        Phase(
            "scatter",
            None,
            partial(scatter_ranges, config=config, layout=layout),
            Ranges,
            Scattered,
        ),
        *near,
        Phase("deduplicate", plan_texts, decide, KeyRange, Deduplicated),
        Phase("gather", plan_gather, gather, ShardRun, Gathered),
    ]


def _plan_keys(
    directory: StageDirectory,
    kind: str,
    rows_per_unit: int,
    layout: Layout,
    max_bad: float,
    num_shards: int | None,
    rows_per_document: int = 1,
) -> list[Unit[KeyRange]]:
    """Plan units over the small rows of all documents; raises `UserError` if too much of the input
    was bad, or there are too few documents for so many shards.
    """
    scattered = read_records(directory, "scatter", Scattered)
    sum_counters((record.counters for record in scattered), max_bad, seen="documents_read")
    check_shards(scattered, num_shards)
    return plan_keys(
        kind,
        rows_per_document * sum(record.documents for record in scattered),
        rows_per_unit,
        layout,
    )


def _plan_clusters(directory: StageDirectory) -> list[Unit[str]]:
    return [Unit("clusters", 1, "clusters")]


def _plan_gather(
    directory: StageDirectory, num_shards: int | None, layout: Layout
) -> list[Unit[ShardRun]]:
    scattered = read_records(directory, "scatter", Scattered)
    deduplicated = read_records(directory, "deduplicate", Deduplicated)
    return plan_shards(scattered, deduplicated, num_shards, layout)


def _results(
    directory: StageDirectory, config: IngestConfig, max_bad: float, left_out: Counters
) -> dict[str, Any]:
    """Return what the manifest says about the documents; `left_out` counts the files that are not
    read.
    """
    scattered = read_records(directory, "scatter", Scattered)
    gathered = read_records(directory, "gather", Gathered)
    records = (record.counters for record in scattered)
    counters = sum_counters((left_out.to_record(), *records), max_bad, seen="documents_read")
    for record in gathered:
        counters.add(record.counters)
    if config.near_duplicates is not None:
        counters.count(NEAR_DUPLICATE, 0)  # reported even if there are none
    shards = [shard for record in gathered for shard in record.shards]
    languages: Counter[str] = Counter()
    for shard in shards:
        for group in shard.groups:
            languages[group.language] += group.documents
    return {
        **counters.to_record(),
        "languages": dict(sorted(languages.items())),
        "shards": to_builtins(shards),
    }


def estimate(
    sources: Sequence[str], output: str, config: IngestConfig, options: RunOptions
) -> Estimate:
    """Return what `ingest` would do and take, without doing it; raises `UserError` as it would."""
    prepare(options, output)
    job = _plan(sources, output, config)
    state = check_output(output, job.head, options.overwrite)
    return estimate_documents(job.inputs, len(job.units), config, options, state)


def estimate_documents(
    inputs: Sequence[Input],
    num_ranges: int,
    config: IngestConfig,
    options: RunOptions,
    state: OutputState,
) -> Estimate:
    """Return what `ingest` takes for these files, cut into `num_ranges` units."""
    text_bytes = read_s = 0.0
    for source in inputs:
        bytes_per_s, text_share = _rates_of(source)
        text_bytes += source.num_bytes * text_share
        read_s += source.num_bytes / bytes_per_s
    num_shards = config.shards or max(1, ceil(text_bytes / SHARD_TEXT_BYTES))
    workers = num_workers(options, num_ranges)
    gather_s = text_bytes / GATHER_BYTES_PER_S / min(workers, num_shards + 1)
    # `scatter` holds a part of its unit's text at a time, `gather` a whole shard.
    part_bytes = min(text_bytes / max(num_ranges, 1), PART_TEXT_BYTES)
    shard_bytes = text_bytes / num_shards
    stored_bytes = int(text_bytes * STORED_SHARE)
    return Estimate(
        state=state,
        units=f"{count_of(num_ranges, 'range')} of {count_of(len(inputs), 'file')}, "
        f"then {count_of(num_shards, 'shard')} and one for validation",
        workers=workers,
        input_bytes=sum(source.num_bytes for source in inputs),
        output_bytes=stored_bytes,
        temporary_bytes=stored_bytes,  # the scattered documents
        worker_bytes=worker_memory(max(shard_bytes, part_bytes)),
        seconds=2 * PHASE_START_S + read_s / workers + gather_s,
    )


def _rates_of(entry: Input) -> tuple[float, float]:
    name = entry.name.lower()
    if entry.format == "wikipedia":
        return COMPRESSED_DUMP if is_compressed(name) else PLAIN_DUMP
    if entry.format in ("parquet", "hf"):
        return TABLES
    return COMPRESSED_TEXT if is_compressed(name) or name.endswith(".zip") else PLAIN_TEXT


class _Job(NamedTuple):
    inputs: list[Input]
    left_out: Counters
    units: list[Unit[Ranges]]
    head: dict[str, Any]


def _plan(sources: Sequence[str], output: str, config: IngestConfig) -> _Job:
    inputs, left_out = find_inputs(sources, output, config)
    num_bytes = sum(entry.num_bytes for entry in inputs)
    if config.shards and 0 < num_bytes < config.shards:  # 0: the size of a data set may be unknown
        raise UserError(
            f"--shards is {config.shards}, but the sources have {num_bytes} bytes: lower it."
        )
    units: list[Unit[Ranges]] = []
    for planned in plan_units(inputs, config):
        ranges = Ranges(name=f"range-{len(units):05d}", ranges=planned.ranges)
        units.append(Unit(ranges.name, planned.num_bytes, ranges))
    libraries = ["sentencex"]
    if config.near_duplicates is not None:
        libraries.append("rensa")
    if config.keep_language:
        check_languages(config.keep_language)
        libraries.append("py3langid")
    with ThreadPoolExecutor(NUM_READERS) as pool:
        fingerprints = list(pool.map(_fingerprint, inputs))
    return _Job(inputs, left_out, units, manifest_head("ingest", config, fingerprints, *libraries))


def _fingerprint(entry: Input) -> dict[str, Any]:
    """Return name, format, size and digest of an input; of a large file the digest of samples, to
    not read it twice.
    """
    digest = entry.digest
    if not digest:
        with storage.open_input(entry.path) as file:
            if entry.num_bytes <= (
                NUM_SAMPLES * SAMPLE_BYTES if storage.is_remote(entry.path) else WHOLE_BYTES
            ):
                digest = hashlib.file_digest(
                    cast(Any, file), partial(hashlib.blake2b, digest_size=16)
                ).hexdigest()
            else:
                offsets = np.linspace(
                    0, entry.num_bytes - SAMPLE_BYTES, NUM_SAMPLES, dtype=np.int64
                )
                digest = digest_of(b"".join(_sample(file, offset) for offset in offsets.tolist()))
    return {"name": entry.name, "format": entry.format, "bytes": entry.num_bytes, "digest": digest}


def _sample(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    return file.read(SAMPLE_BYTES)
