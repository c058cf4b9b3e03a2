"""Pack whole documents into rows of nearly equal length.

Few documents fill a row of thousands of tokens, and few rows of one document each are equally long.
So a row holds several documents, each a sequence ``[CLS] document [SEP]`` of its own: the trainer
lets no token see another document, as ModernBERT's does (arXiv 2412.13663, section 2.1.3, "sequence
packing"). A document longer than a row is cut between sentences (chunks.py), and its last part is
packed with others::

    documents     d0 ……………………………………      d1 ………      d2 …
    sequences     d0 ……………………… | d0 …      d1 ………      d2 …
    rows          [CLS] d0 ……………………… [SEP]
                  [CLS] d1 ……… [SEP] [CLS] d0 … [SEP] [CLS] d2 … [SEP]

A sequence goes into the row that it fills best, the longest first (best-fit decreasing). What
remains empty is padding for whoever pads; it is counted, not stored.
"""

import numpy as np

from ..ragged import offsets_of
from .pairs import SINGLE_SPECIALS, Pairs


def pack(lengths: np.ndarray, capacity: int, rng: np.random.Generator) -> np.ndarray:
    """Return the row of each sequence, int64 [num_sequences], numbered in random order: at most
    `capacity` tokens, special ones included, as they are in `lengths`.
    """
    shuffled = rng.permutation(len(lengths))
    longest_first = shuffled[np.argsort(-lengths[shuffled], kind="stable")]
    row_of_sequence = np.zeros(len(lengths), np.int64)
    num_rows = 0
    # Rows with room, by the number of tokens that still fit. Bit `n` of `rooms` says that there are
    # rows with room for n, so that the smallest sufficient room is the lowest bit from the length
    # on; Python's integers have as many bits as it takes.
    rows_with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0
    for sequence, length in zip(
        longest_first.tolist(), lengths[longest_first].tolist(), strict=True
    ):
        sufficient = rooms >> length
        if sufficient:
            lowest_bit = (sufficient & -sufficient).bit_length() - 1
            room = length + lowest_bit
            row = rows_with_room[room].pop()
            if not rows_with_room[room]:
                rooms &= ~(1 << room)
        else:
            room = capacity
            row = num_rows
            num_rows += 1
        row_of_sequence[sequence] = row
        room -= length
        if room > SINGLE_SPECIALS:  # or no sequence fits
            rows_with_room[room].append(row)
            rooms |= 1 << room
    # Rows were opened with the longest sequences first.
    return rng.permutation(num_rows)[row_of_sequence]


def packed(sequences: Pairs, capacity: int, rng: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Return sequences in the order of their rows, int64 [num_rows + 1] the first of each row."""
    row = pack(sequences.a_length + SINGLE_SPECIALS, capacity, rng)
    # Within a row they lie in their order in the shard.
    return sequences.take(np.argsort(row, kind="stable")), offsets_of(np.bincount(row))
