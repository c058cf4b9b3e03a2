"""Name the inputs of a run by their content, so that a run resumes on the same files only."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

import numpy as np

from ..execution import storage
from ..execution.directory import digest_of
from ..sources.formats import Input

NUM_SAMPLES, SAMPLE_BYTES = 16, 1 << 16
NUM_READERS = 16  # files read at a time, because object stores are slow to answer


def fingerprint_inputs(inputs: Sequence[Input]) -> list[dict[str, Any]]:
    """Return name, format, size and digest of each input, as the manifest lists them."""
    with ThreadPoolExecutor(NUM_READERS) as pool:
        return list(pool.map(_fingerprint, inputs))


def _fingerprint(entry: Input) -> dict[str, Any]:
    """Take samples of a large file: reading a whole dump twice would be slow."""
    digest = entry.digest or digest_of(_sampled(entry))
    return {"name": entry.name, "format": entry.format, "bytes": entry.num_bytes, "digest": digest}


def _sampled(entry: Input) -> bytes:
    with storage.open_input(entry.path) as file:
        return (
            file.read() if entry.num_bytes <= NUM_SAMPLES * SAMPLE_BYTES else b"".join(_samples(file, entry.num_bytes))
        )


def _samples(file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    for offset in np.linspace(0, num_bytes - SAMPLE_BYTES, NUM_SAMPLES, dtype=np.int64).tolist():
        file.seek(offset)
        yield file.read(SAMPLE_BYTES)
