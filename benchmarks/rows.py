"""Rows of instances in a file that needs no Parquet: `rows.npz`, the rows that `benchmarks.gpu`
carries.

    python -m benchmarks.rows INSTANCES...

writes it, from directories of different lengths with one vocabulary. Those in the repository are
from the books of the quickstart, which are in the public domain, with the vocabulary of
bert-base-uncased, built with ``--duplicates 1`` and ``--max-length 128`` and ``512``.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from clozeworks.pipeline.instances.rows import Rows

FILE = Path(__file__).with_name("rows.npz")
NUM_TOKENS = 32_768
"""Of the rows of each length, with padding."""


class SomeRows(NamedTuple):
    """Rows of one vocabulary."""

    vocab_size: int
    by_length: dict[int, Rows]
    """Keyed by the most tokens that a row may have."""


def rows_of(instances: Sequence[str]) -> SomeRows:
    """Return the first rows that pre-training reads from each of the directories."""
    from clozeworks.model.pretraining.data import open_instances
    from clozeworks.model.pretraining.sequence import RowSequence

    directories = [open_instances(path) for path in instances]
    by_length = {
        part.max_length: RowSequence(part, 0).rows(0, NUM_TOKENS // part.max_length)
        for part in directories
    }
    return SomeRows(directories[0].manifest.tokenizer.size, by_length)


def carried_rows() -> SomeRows:
    with np.load(FILE) as archive:
        columns: dict[int, dict[str, np.ndarray]] = {}
        for length, name in (key.split(".") for key in archive if "." in key):
            columns.setdefault(int(length), {})[name] = archive[f"{length}.{name}"]
        return SomeRows(
            int(archive["vocab_size"]), {n: Rows(**found) for n, found in columns.items()}
        )


def main() -> None:
    rows = rows_of(sys.argv[1:])
    columns = {
        f"{n}.{name}": values
        for n, part in rows.by_length.items()
        for name, values in asdict(part).items()
    }
    np.savez_compressed(FILE, vocab_size=rows.vocab_size, **columns)  # pyright: ignore


if __name__ == "__main__":
    main()
