"""Find repeated rows and sentences by their 64-bit hashes."""

import numpy as np

MAX_HASHES = 20_000_000
"""Of more hashes only a share is kept, so that memory is bounded."""


class HashSample:
    """Hashes, of which about `max_hashes` are kept if `num_expected` are added.

    All copies have one hash, so they are kept or left out together: the kept hashes are a sample of
    the distinct ones, each with all its repeats.
    """

    def __init__(self, num_expected: int, max_hashes: int = MAX_HASHES) -> None:
        self.share = min(1.0, max_hashes / max(num_expected, 1))
        """Of the distinct hashes, the share that is kept."""
        # Hashes up to this one are kept. As a float 2**64 - 1 would become 2**64, which uint64
        # cannot hold.
        self._highest_hash = np.uint64(self.share * (2**64 - 2**12))
        self._hashes: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> None:
        """Add some hashes, uint64."""
        self._hashes.append(hashes[hashes <= self._highest_hash])

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct hashes that were kept, and how often each was added."""
        no_hashes = np.zeros(0, np.uint64)  # `concatenate` refuses an empty list
        return np.unique(np.concatenate([no_hashes, *self._hashes]), return_counts=True)
