"""What `build` will take in disk, memory and time."""

from collections.abc import Sequence

from ..config import BuildConfig, RunOptions
from ..execution.counters import count_of
from ..execution.estimates import PHASE_START_S, STORED_SHARE, Estimate, OutputState, num_workers, worker_memory

TOKENISE_BYTES_PER_S = 40e6  # of text
WRITE_TOKENS_PER_S = 7e6
TEXT_BYTES_PER_TOKEN = 4.7
BYTES_PER_TOKEN = 1.9


def estimate_instances(
    shard_bytes: Sequence[int], config: BuildConfig, options: RunOptions, state: OutputState
) -> Estimate:
    """Return what `build` takes for shards of documents of these sizes on disk."""
    text = sum(shard_bytes) / STORED_SHARE
    tokens = config.duplicates * text / TEXT_BYTES_PER_TOKEN
    workers = num_workers(options, len(shard_bytes))
    work_s = text / TOKENISE_BYTES_PER_S + tokens / WRITE_TOKENS_PER_S
    return Estimate(
        state=state,
        units=f"{count_of(len(shard_bytes), 'shard')}, about {tokens / 1e6:,.1f} million tokens",
        workers=workers,
        input_bytes=sum(shard_bytes),
        output_bytes=int(tokens * BYTES_PER_TOKEN),
        temporary_bytes=0,
        worker_bytes=worker_memory(max(shard_bytes) / STORED_SHARE),
        seconds=PHASE_START_S + work_s / workers,
    )
