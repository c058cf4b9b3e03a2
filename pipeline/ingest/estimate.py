"""What `ingest` will take in disk, memory and time.

The reading rates lie between those of a busy and of a quiet core, which differ by up to a factor of two. They come from
English and Latgalian dumps (3.6 and 4.8 bytes of XML per byte compressed), Project Gutenberg's books, Korean Wikipedia
in Parquet, and 31 MB of English JSON Lines, plain and gzipped (bzip2 takes twice as long). The share of text in a dump
is that of English Wikipedia as in ``wikimedia/wikipedia`` (20.2 GB from 22 GB); its longest articles alone give half
as much again, and small wikis half.
"""

from collections.abc import Sequence
from math import ceil

from ..config import RunOptions
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
from ..sources.formats import Input

# What one core reads: bytes of the file per second, and bytes of clean text per byte of the file.
PLAIN_DUMP = 8e6, 0.25
COMPRESSED_DUMP = 2.2e6, 1.0
TABLES = 7e6, 3.2
PLAIN_TEXT = 17e6, 0.95
COMPRESSED_TEXT = 4e6, 2.8
GATHER_BYTES_PER_S = 60e6  # of text


def estimate_documents(
    inputs: Sequence[Input], num_ranges: int, shards: int | None, options: RunOptions, state: OutputState
) -> Estimate:
    """Return what `ingest` takes for these files, cut into `num_ranges` units; `shards` is the option of that name."""
    text = read_s = 0.0
    for entry in inputs:
        bytes_per_s, text_share = _rates_of(entry)
        text += entry.num_bytes * text_share
        read_s += entry.num_bytes / bytes_per_s
    num_shards = shards or max(1, ceil(text / SHARD_TEXT_BYTES))
    workers = num_workers(options, num_ranges)
    gather_s = text / GATHER_BYTES_PER_S / min(workers, num_shards + 1)
    return Estimate(
        state=state,
        units=f"{count_of(num_ranges, 'range')} of {count_of(len(inputs), 'file')}, "
        f"then {count_of(num_shards, 'shard')} and one for validation",
        workers=workers,
        input_bytes=sum(entry.num_bytes for entry in inputs),
        output_bytes=int(text * STORED_SHARE),
        temporary_bytes=int(text * STORED_SHARE),
        worker_bytes=worker_memory(max(text / num_shards, min(text / max(num_ranges, 1), PART_TEXT_BYTES))),
        seconds=2 * PHASE_START_S + read_s / workers + gather_s,
    )


def _rates_of(entry: Input) -> tuple[float, float]:
    name = entry.name.lower()
    if entry.format == "wikipedia":
        return PLAIN_DUMP if name.endswith(".xml") else COMPRESSED_DUMP
    if entry.format in ("parquet", "hf"):
        return TABLES
    return COMPRESSED_TEXT if is_compressed(name) or name.endswith((".zip", ".tgz")) else PLAIN_TEXT
