"""Fingerprint the input files of ingest."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import numpy as np

from .. import storage
from ..encodings import UTF_8
from ..sources.records import Input
from ..storage.directory import digest_of

WHOLE_BYTES = 64 << 20
"""A local file up to this size is hashed as a whole; of a larger one, or a remote one, samples."""
NUM_SAMPLES = 16
SAMPLE_BYTES = 1 << 16
NUM_READERS = 16
"""Files read at a time, because object stores are slow to answer."""


def fingerprints(inputs: Sequence[Input]) -> list[dict[str, Any]]:
    """Return name, format, size and digest of each input, for the manifest; the encoding too if it
    is not UTF-8.
    """
    with ThreadPoolExecutor(NUM_READERS) as pool:
        digests = list(pool.map(_digest, inputs))
    found: list[dict[str, Any]] = []
    for file, digest in zip(inputs, digests, strict=True):
        found.append(
            {"name": file.name, "format": file.format, "bytes": file.num_bytes, "digest": digest}
        )
        if file.encoding != UTF_8:
            found[-1]["encoding"] = file.encoding
    return found


def _digest(file: Input) -> str:
    """Return the digest of an input; a large one is sampled, to avoid reading it twice."""
    if file.digest:
        return file.digest
    most_bytes = WHOLE_BYTES
    if storage.is_remote(file.path):
        most_bytes = NUM_SAMPLES * SAMPLE_BYTES
    with storage.open_input(file.path) as content:
        if file.num_bytes <= most_bytes:
            blake2b = partial(hashlib.blake2b, digest_size=16)
            return hashlib.file_digest(cast(Any, content), blake2b).hexdigest()
        # The first and the last bytes, where formats have their headers and footers, and 14 samples
        # in between.
        offsets = np.linspace(0, file.num_bytes - SAMPLE_BYTES, NUM_SAMPLES, dtype=np.int64)
        samples = []
        for offset in offsets.tolist():
            content.seek(offset)
            samples.append(content.read(SAMPLE_BYTES))
        return digest_of(b"".join(samples))
