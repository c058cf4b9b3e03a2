"""Estimate disk, memory and time of ingest from the sizes of its input."""

from collections.abc import Sequence
from math import ceil

from ..config import IngestConfig, RunOptions
from ..execution.counters import count_of
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
from ..sources.compression import is_compressed
from ..sources.records import Input

# What one core reads: bytes of the file per second, and bytes of clean text per byte of the file.
# Measured on English and Latgalian dumps, Gutenberg's books, Korean Wikipedia in Parquet, and
# English JSON Lines, plain and gzipped.
PLAIN_DUMP = 8e6, 0.25
COMPRESSED_DUMP = 2.2e6, 1.0
TABLES = 7e6, 3.2
PLAIN_TEXT = 17e6, 0.95
COMPRESSED_TEXT = 4e6, 2.8
GATHER_BYTES_PER_S = 60e6  # of text


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


def _rates_of(source: Input) -> tuple[float, float]:
    """Return the speed of reading a file, and its share of text, as measured above."""
    name = source.name.lower()
    if source.format == "wikipedia":
        if is_compressed(name):
            return COMPRESSED_DUMP
        return PLAIN_DUMP
    if source.format in ("parquet", "hf"):
        return TABLES
    if is_compressed(name) or name.endswith(".zip"):
        return COMPRESSED_TEXT
    return PLAIN_TEXT
