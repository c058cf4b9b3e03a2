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
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ..config import BuildConfig
from ..ragged import offsets_of
from ..schemas import instances_schema
from ..vocabulary.vocabulary import Vocabulary
from .chunks import Corpus
from .masking import mask_sequences
from .pairs import SINGLE_SPECIALS, Pairs, make_pairs
from .table import BLOCK_TOKENS, Instances, lay_out_rows, lists_of

SHORTEST_SEQUENCE = SINGLE_SPECIALS + 1


@dataclass(frozen=True)
class PackedSequences:
    """Sequences in the order in which they lie in rows."""

    sequences: Pairs
    """Without a B."""
    row_offsets: np.ndarray
    """int64 [num_rows + 1]: row ``i`` holds the sequences ``row_offsets[i]:row_offsets[i + 1]``."""


def pack(lengths: np.ndarray, capacity: int, rng: np.random.Generator) -> np.ndarray:
    """Return the row of each sequence, int64 [num_sequences], numbered in random order.

    `lengths` are those of the sequences in tokens, special tokens included; no row gets more than
    `capacity`. Equally long sequences are taken in random order.
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
        if room >= SHORTEST_SEQUENCE:
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
    # In their order in the shard within a row.
    sequences = sequences.take(np.argsort(row, kind="stable"))
    packed = PackedSequences(sequences, offsets_of(np.bincount(row)))
    schema = instances_schema(len(vocabulary), packed=True)
    batches = []
    for first, stop in _blocks(packed):
        rows = PackedSequences(
            packed.sequences.take(np.arange(packed.row_offsets[first], packed.row_offsets[stop])),
            packed.row_offsets[first : stop + 1] - packed.row_offsets[first],
        )
        batches.append(_build_block(corpus, rows, vocabulary, config, rng_masks, duplicate, schema))
    table = pa.Table.from_batches(batches, schema)
    num_rows = len(packed.row_offsets) - 1
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


def _blocks(packed: PackedSequences) -> Iterator[tuple[int, int]]:
    """Yield the first row, and the one after the last, of blocks of about `BLOCK_TOKENS`."""
    num_rows = len(packed.row_offsets) - 1
    if not num_rows:
        return
    lengths = offsets_of(packed.sequences.a_length + SINGLE_SPECIALS)
    row_ends = lengths[packed.row_offsets[1:]]
    boundaries = np.flatnonzero(np.diff(row_ends // BLOCK_TOKENS)) + 1
    bounds = [0, *boundaries.tolist(), num_rows]
    yield from pairwise(bounds)


def _build_block(
    corpus: Corpus,
    rows: PackedSequences,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
    duplicate: int,
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Return some rows, masked, as a batch of instances."""
    sequences = rows.sequences
    token_type = str(schema.field("input_ids").type.value_type)
    # Laid out and masked as if each sequence were a row; then several of them are one:
    #
    #     ids                [CLS] a a [SEP] [CLS] b [SEP] [CLS] c c c [SEP]
    #     sequence_offsets   0               4             7                 12
    #     row_offsets        0                             2                  3    in sequences
    #     row_starts         0                             7                 12
    ids, sequence_offsets, _ = lay_out_rows(corpus.token_ids, sequences, vocabulary)
    ids = ids.astype(token_type, copy=False)
    positions, originals, mask_offsets = mask_sequences(
        ids, sequence_offsets, vocabulary, config, rng
    )
    row_starts = sequence_offsets[rows.row_offsets]
    sequences_per_row = np.diff(rows.row_offsets)
    starts_in_row = sequence_offsets[:-1] - np.repeat(row_starts[:-1], sequences_per_row)
    positions_in_row = positions + np.repeat(starts_in_row, np.diff(mask_offsets))
    columns = {
        "input_ids": lists_of(row_starts, ids),
        "sequence_starts": lists_of(rows.row_offsets, starts_in_row.astype(np.uint16)),
        "documents": lists_of(rows.row_offsets, sequences.document_a.astype(np.int32)),
        "masked_lm_positions": lists_of(
            mask_offsets[rows.row_offsets], positions_in_row.astype(np.uint16)
        ),
        "masked_lm_ids": lists_of(mask_offsets[rows.row_offsets], originals),
        "duplicate": np.full(len(sequences_per_row), duplicate, np.uint8),
    }
    return pa.RecordBatch.from_pydict(columns, schema)
