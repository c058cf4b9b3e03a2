"""Stable hashes and random generators: the same ids give the same numbers on every machine.

All randomness in the package comes from here. Python's ``hash``, the state of workers and bundles,
the clock and the order of events play no part, so shards are byte-identical on every runner.
"""

from hashlib import blake2b

import numpy as np

Id = int | str


def _digest(ids: tuple[Id, ...], num_bytes: int) -> bytes:
    # The type is part of the text so that 1 and "1" differ; the separator keeps ("ab", "c") and
    # ("a", "bc") apart.
    text = "\x1f".join(f"{type(value).__name__}:{value}" for value in ids)
    # File names that are not valid UTF-8 come with surrogates; they need a hash as well.
    content = text.encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=num_bytes).digest()


def stable_hash(*ids: Id) -> int:
    """Return 64 uniform bits (0 <= hash < 2**64) that depend on `ids` alone."""
    return int.from_bytes(_digest(ids, 8), "big")


# In quotes, because NumPy imports `np.random` when it is named, and not all stages draw numbers.
def rng_for(seed: int, stage: str, *ids: Id) -> "np.random.Generator":
    """Return the generator of one unit of work.

    For example ``rng_for(0, "masks", "train", 12, duplicate)``. PCG64 is named, because NumPy may
    change its default generator.
    """
    digest = _digest((seed, stage, *ids), 16)
    bit_generator = np.random.PCG64(int.from_bytes(digest, "big"))
    return np.random.Generator(bit_generator)
