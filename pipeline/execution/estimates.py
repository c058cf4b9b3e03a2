"""Estimate disk, memory and time of a data stage before it runs, from the sizes of its input.

Each stage has a formula of its own, built from the constants here. The rates were measured on an
AMD EPYC server with Python 3.11 and set so that their sum matches the total time of each stage on
86 MB of Wikipedia text. Expect errors of up to a factor of two.
"""

from dataclasses import dataclass
from typing import Literal

from ..config import RunOptions
from . import workers

OutputState = Literal["new", "begun", "finished"]

PHASE_START_S = 2.5  # start the workers and load their libraries

SHARD_TEXT_BYTES = 64 << 20  # at most, unless `shards` is given
PART_TEXT_BYTES = 32 << 20  # how much of a unit ingest holds at a time
STORED_SHARE = 0.44  # bytes of documents on disk per byte of text

WORKER_BYTES = 240_000_000  # the libraries; the rest grows with the text that a unit holds
HELD_PER_TEXT_BYTE = 5


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The work and needs of a run: sizes in bytes, times in seconds."""

    state: OutputState
    units: str
    workers: int
    input_bytes: int
    output_bytes: int
    temporary_bytes: int
    worker_bytes: int
    seconds: float


def num_workers(options: RunOptions, num_units: int) -> int:
    """Return how many workers this many units keep busy."""
    return max(1, min(workers.num_workers(options), num_units))


def worker_memory(text_bytes: float) -> int:
    """Return the memory in bytes of a worker that holds `text_bytes` of text at a time."""
    return int(WORKER_BYTES + HELD_PER_TEXT_BYTE * text_bytes)
