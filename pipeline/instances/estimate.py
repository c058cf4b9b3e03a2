"""Estimate disk, memory and time of the instances from the sizes of the documents."""

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
from ..manifests import DocumentsManifest, MixtureGroup

TOKENISE_BYTES_PER_S = 40e6  # of text
WRITE_TOKENS_PER_S = 7e6
TEXT_BYTES_PER_TOKEN = 4.7
BYTES_PER_TOKEN = 1.9


def times_read(
    corpus: DocumentsManifest, mixture: Sequence[MixtureGroup], duplicates: int
) -> float:
    """Return how often the passes read a document, averaged over the text; those of validation are
    read once.
    """
    weights = {(group.source, group.language): group.weight for group in mixture}
    characters = 0.0
    characters_read = 0.0
    for shard in corpus.shards:
        for group in shard.groups:
            passes = 1
            if shard.split == "train":
                passes = duplicates * weights[group.source, group.language]
            characters += group.characters
            characters_read += group.characters * passes
    if not characters:
        return duplicates
    return characters_read / characters


def estimate_instances(
    shard_bytes: Sequence[int], times_read: float, options: RunOptions, state: OutputState
) -> Estimate:
    """Return what `build` takes for shards of documents of these sizes on disk.

    Each document is read `times_read` times on average.
    """
    text_bytes = sum(shard_bytes) / STORED_SHARE
    tokens = times_read * text_bytes / TEXT_BYTES_PER_TOKEN
    workers = num_workers(options, len(shard_bytes))
    # Text is tokenised once for all passes, so only writing takes longer with each.
    tokenise_s = text_bytes / TOKENISE_BYTES_PER_S
    write_s = tokens / WRITE_TOKENS_PER_S
    work_s = tokenise_s + write_s
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
