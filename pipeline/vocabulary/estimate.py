"""Estimate disk, memory and time of the vocabulary from the sizes of the documents."""

from collections.abc import Sequence

from ..config import RunOptions
from ..execution.counters import count_of
from ..execution.estimates import (
    PHASE_START_S,
    STORED_SHARE,
    Estimate,
    OutputState,
    num_workers,
    worker_memory,
)

COUNT_BYTES_PER_S = 40e6  # of text
LEARN_BYTES_PER_S = 10e6  # of text, as long as most words are new
LONGEST_LEARN_S = 10.0  # 30,522 tokens from a million distinct words
COUNTS_SHARE = 0.08  # bytes of word counts in a unit's file per byte of text
WORD_COUNTS_BYTES = 4_000_000  # at most, including the vocabulary's files


def estimate_vocabulary(
    shard_bytes: Sequence[int], options: RunOptions, state: OutputState
) -> Estimate:
    """Return what `learn_vocabulary` takes for shards of documents of these sizes on disk."""
    text_bytes = sum(shard_bytes) / STORED_SHARE
    workers = num_workers(options, len(shard_bytes))
    count_s = text_bytes / COUNT_BYTES_PER_S / workers
    # One process learns, whatever the workers; a large corpus takes no longer, because its rarest
    # words are left out.
    learn_s = min(text_bytes / LEARN_BYTES_PER_S, LONGEST_LEARN_S)
    return Estimate(
        state=state,
        units=f"{count_of(len(shard_bytes), 'shard')} to count, as many buckets of words to merge, "
        "one vocabulary to learn",
        workers=workers,
        input_bytes=sum(shard_bytes),
        output_bytes=int(min(text_bytes * COUNTS_SHARE, WORD_COUNTS_BYTES)),
        temporary_bytes=int(text_bytes * COUNTS_SHARE),
        worker_bytes=worker_memory(max(shard_bytes) / STORED_SHARE),
        seconds=2 * PHASE_START_S + count_s + learn_s,
    )
