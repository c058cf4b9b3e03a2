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

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ..config import BuildConfig
from ..ragged import offsets_of
from ..schemas import instances_schema
from ..vocabulary.vocabulary import Vocabulary
from .chunks import Corpus
from .pairs import SINGLE_SPECIALS, make_pairs
from .table import BLOCK_TOKENS, Instances, build_block


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


def build_packed_instances(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng_pairs: np.random.Generator,
    rng_masks: np.random.Generator,
    duplicate: int,
) -> Instances:
    """Return the packed instances of pass `duplicate` over `corpus`."""
    sequences = make_pairs(corpus, vocabulary.continues, config, rng_pairs)
    row = pack(sequences.a_length + SINGLE_SPECIALS, config.max_length, rng_pairs)
    # Within a row they lie in their order in the shard. Row ``i`` holds the sequences
    # ``row_offsets[i]:row_offsets[i + 1]``.
    sequences = sequences.take(np.argsort(row, kind="stable"))
    row_offsets = offsets_of(np.bincount(row))
    num_rows = len(row_offsets) - 1
    # Blocks of rows of about `BLOCK_TOKENS`.
    tokens_before = offsets_of(sequences.a_length + SINGLE_SPECIALS)
    row_ends = tokens_before[row_offsets[1:]]
    boundaries = np.flatnonzero(np.diff(row_ends // BLOCK_TOKENS)) + 1
    batches = []
    for first, stop in pairwise([0, *boundaries.tolist(), num_rows]):
        offsets = row_offsets[first : stop + 1]
        block = sequences.take(np.arange(offsets[0], offsets[-1]))
        offsets = offsets - offsets[0]
        batch = build_block(corpus, block, vocabulary, config, rng_masks, duplicate, offsets)
        batches.append(batch)
    table = pa.Table.from_batches(batches, instances_schema(len(vocabulary), packed=True))
    text_tokens = int(sequences.a_length.sum())
    tokens_with_specials = text_tokens + SINGLE_SPECIALS * len(sequences)
    sequences_per_document = np.bincount(sequences.document_a)
    counts = Counter(
        rows=num_rows,
        sequences=len(sequences),
        documents_cut=int(np.count_nonzero(sequences_per_document > 1)),
        padding_tokens=num_rows * config.max_length - tokens_with_specials,
        tokens_in=len(corpus.token_ids),
        tokens_used=text_tokens,
        tokens_cut=sequences.tokens_cut,
    )
    return Instances(table, counts, warning=None)
