"""What a data stage will take in disk, memory and time, reckoned from the sizes of its input before it runs.

The rates of reading lie between those of a busy and of a quiet core of an AMD EPYC server with Python 3.11, the latter
up to twice as high: of English and Latgalian dumps (3.6 and 4.8 bytes of XML in a byte), Project Gutenberg's books,
Korean Wikipedia in Parquet. Those of lines and of compressed text are from 31 MB of English JSON Lines, plain and in
gzip (bzip2 takes twice as long). The text in a dump is what ``wikimedia/wikipedia`` has of the English one (20.2 GB of
22, where the longest articles alone give half as much again, and small wikis half). The rates of the other steps were
not taken one by one: they are set so that the sum fits the whole time of each stage on 86 MB of Wikipedia's text.
Expect to be wrong by a factor of two.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from ..config import BuildConfig, RunOptions
from ..sources.compression import is_compressed
from ..sources.formats import Input
from .counters import count_of

State = Literal["new", "begun", "finished"]


class Rate(NamedTuple):
    """How a form of input is read by one core."""

    bytes_per_s: float  # of the file as it lies on the disk
    text_share: float  # bytes of clean text in a byte of the file


PLAIN_DUMP = Rate(8e6, 0.25)
COMPRESSED_DUMP = Rate(2.2e6, 1.0)
BOOKS = Rate(16e6, 0.95)
TABLES = Rate(7e6, 3.2)
LINES = Rate(19e6, 0.95)
COMPRESSED_TEXT = Rate(4e6, 2.8)

PHASE_START_S = 2.5  # to start the workers and load the libraries in them
GATHER_BYTES_PER_S = 60e6  # of text
COUNT_BYTES_PER_S = 40e6  # of text
LEARN_BYTES_PER_S = 10e6  # of text, until the words repeat themselves:
LONGEST_LEARN_S = 10.0  # 30,522 tokens from a million distinct words
TOKENISE_BYTES_PER_S = 40e6  # of text
WRITE_TOKENS_PER_S = 7e6

SHARD_TEXT_BYTES = 64 << 20  # at most, unless --shards says otherwise
PART_TEXT_BYTES = 32 << 20  # that ingest holds of a unit at a time
STORED_SHARE = 0.44  # bytes of documents on the disk for a byte of text
COUNTS_SHARE = 0.08  # bytes of word counts in a unit's file for a byte of text
WORD_COUNTS_BYTES = 4_000_000  # at most, with the vocabulary's files
TEXT_BYTES_PER_TOKEN = 4.7
BYTES_PER_TOKEN = 1.9

WORKER_BYTES = 240_000_000  # the libraries; the rest grows with the text that a unit holds
HELD_PER_TEXT_BYTE = 5


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a run will do and take: sizes in bytes, times in seconds."""

    state: State
    units: str
    workers: int
    input_bytes: int
    output_bytes: int
    temporary_bytes: int
    worker_bytes: int
    seconds: float


def _num_workers(options: RunOptions, num_units: int) -> int:
    return max(1, min(options.workers or os.cpu_count() or 1, num_units))


def expect_documents(
    inputs: Sequence[Input], num_ranges: int, shards: int | None, options: RunOptions, state: State
) -> Expectation:
    """Return what `ingest` takes for these files, cut into `num_ranges` units; `shards` is the option of that name."""
    rates = [_rate_of(entry) for entry in inputs]
    text = sum(entry.num_bytes * rate.text_share for entry, rate in zip(inputs, rates, strict=True))
    read_s = sum(entry.num_bytes / rate.bytes_per_s for entry, rate in zip(inputs, rates, strict=True))
    num_shards = shards or max(1, ceil(text / SHARD_TEXT_BYTES))
    workers = _num_workers(options, num_ranges)
    gather_s = text / GATHER_BYTES_PER_S / min(workers, num_shards + 1)
    return Expectation(
        state=state,
        units=f"{count_of(num_ranges, 'range')} of {count_of(len(inputs), 'file')}, "
        f"then {count_of(num_shards, 'shard')} and one for validation",
        workers=workers,
        input_bytes=sum(entry.num_bytes for entry in inputs),
        output_bytes=int(text * STORED_SHARE),
        temporary_bytes=int(text * STORED_SHARE),
        worker_bytes=_held(max(text / num_shards, min(text / max(num_ranges, 1), PART_TEXT_BYTES))),
        seconds=2 * PHASE_START_S + read_s / workers + gather_s,
    )


def _rate_of(entry: Input) -> Rate:
    if entry.format == "wikipedia":
        return PLAIN_DUMP if entry.name.lower().endswith(".xml") else COMPRESSED_DUMP
    if entry.format in ("parquet", "hf"):
        return TABLES
    if is_compressed(entry.name) or entry.name.lower().endswith((".zip", ".tgz")):
        return COMPRESSED_TEXT
    return LINES if entry.format in ("jsonl", "wikiextractor") else BOOKS


def _held(text: float) -> int:
    return int(WORKER_BYTES + HELD_PER_TEXT_BYTE * text)


def expect_vocabulary(shard_bytes: Sequence[int], options: RunOptions, state: State) -> Expectation:
    """Return what `vocab` takes for shards of documents of these sizes on the disk."""
    text = sum(shard_bytes) / STORED_SHARE
    workers = _num_workers(options, len(shard_bytes))
    return Expectation(
        state=state,
        units=f"{count_of(len(shard_bytes), 'shard')} to count, as many buckets of words to merge, "
        "one vocabulary to learn",
        workers=workers,
        input_bytes=sum(shard_bytes),
        output_bytes=int(min(text * COUNTS_SHARE, WORD_COUNTS_BYTES)),
        temporary_bytes=int(text * COUNTS_SHARE),
        worker_bytes=_held(max(shard_bytes) / STORED_SHARE),
        seconds=2 * PHASE_START_S + text / COUNT_BYTES_PER_S / workers + min(text / LEARN_BYTES_PER_S, LONGEST_LEARN_S),
    )


def expect_instances(shard_bytes: Sequence[int], config: BuildConfig, options: RunOptions, state: State) -> Expectation:
    """Return what `build` takes for shards of documents of these sizes on the disk."""
    text = sum(shard_bytes) / STORED_SHARE
    tokens = config.duplicates * text / TEXT_BYTES_PER_TOKEN
    workers = _num_workers(options, len(shard_bytes))
    work_s = text / TOKENISE_BYTES_PER_S + tokens / WRITE_TOKENS_PER_S
    return Expectation(
        state=state,
        units=f"{count_of(len(shard_bytes), 'shard')}, about {tokens / 1e6:,.1f} million tokens",
        workers=workers,
        input_bytes=sum(shard_bytes),
        output_bytes=int(tokens * BYTES_PER_TOKEN),
        temporary_bytes=0,
        worker_bytes=_held(max(shard_bytes) / STORED_SHARE),
        seconds=PHASE_START_S + work_s / workers,
    )
