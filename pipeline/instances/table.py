"""Turn the tokens of a document shard into a table of instances: pairs, special tokens, masks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ..config import BuildConfig
from ..ragged import offsets_of, ranges
from ..schemas import instances_schema
from ..vocabulary.vocabulary import Vocabulary
from .chunks import Corpus
from .masking import mask_rows, mask_sequences, positions_in
from .packed import packed
from .pairs import SINGLE_SPECIALS, Pairs, make_pairs

# Tokens per block: keeps the arrays small that are padded to the longest row or gathered by 64-bit
# indices.
BLOCK_TOKENS = 1 << 20


@dataclass(frozen=True)
class Instances:
    """The rows of one pass over a shard, shuffled, with counts for the manifest."""

    table: pa.Table
    counts: Counter[str]
    warning: str | None
    """If the labels could not be balanced."""


def build_instances(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng_pairs: np.random.Generator,
    rng_masks: np.random.Generator,
    duplicate: int,
) -> Instances:
    """Return the instances of pass `duplicate` over `corpus`; raise `UserError` if a pair needs a
    second document and there is none.
    """
    pairs = make_pairs(corpus, vocabulary.continues, config, rng_pairs)
    if config.packs:
        pairs, row_offsets = packed(pairs, config.max_length, rng_pairs)
        num_rows = len(row_offsets) - 1
        blocks = _packed_blocks(pairs, row_offsets)
    else:
        pairs = pairs.take(rng_pairs.permutation(len(pairs)))
        num_rows = len(pairs)
        blocks = _blocks(pairs)
    batches = []
    for rows, offsets in blocks:
        block = pairs.take(rows)
        batch = build_block(corpus, block, vocabulary, config, rng_masks, duplicate, offsets)
        batches.append(batch)
    table = pa.Table.from_batches(batches, instances_schema(len(vocabulary), packed=config.packs))
    return Instances(table, _counts(corpus, pairs, num_rows, config), pairs.warning())


def _counts(corpus: Corpus, pairs: Pairs, num_rows: int, config: BuildConfig) -> Counter[str]:
    num_tokens = int(pairs.a_length.sum() + pairs.b_length.sum())
    counts = Counter(
        rows=num_rows,
        tokens_in=len(corpus.token_ids),
        tokens_used=num_tokens,
        tokens_cut=pairs.tokens_cut,
    )
    if config.packs:
        num_special = SINGLE_SPECIALS * len(pairs)
        counts.update(
            sequences=len(pairs),
            documents_cut=int(np.count_nonzero(np.bincount(pairs.document_a) > 1)),
            padding_tokens=num_rows * config.max_length - num_tokens - num_special,
        )
        return counts
    counts.update(
        not_next_rows=int(pairs.label.sum()),
        forced_pairs=pairs.forced,
        unexchanged_pairs=pairs.unexchanged,
    )
    if config.pairing != "none":
        for name, origin in (
            ("sources", corpus.origins.source),
            ("languages", corpus.origins.language),
        ):
            is_across = origin[pairs.document_a] != origin[pairs.document_b]
            counts[f"pairs_across_{name}"] = int(is_across.sum())
    return counts


Blocks = Iterator[tuple[np.ndarray, np.ndarray | None]]
"""The pairs of each block, and of packed rows where among these each row begins."""


def _blocks(pairs: Pairs) -> Blocks:
    """Yield blocks of rows that are a pair each, smaller ones if one of the rows is long."""
    if not len(pairs):
        return
    # Rows times the longest row: short rows beside one of 65,535 tokens would take gigabytes. So
    # large that usual lengths never reach it, because masks depend on where a block ends.
    max_cells = 1 << 26
    lengths = pairs.a_length + pairs.b_length
    # The block of each row, if only tokens are counted: 0 0 0 1 1 2 …
    block = np.cumsum(lengths) // BLOCK_TOKENS
    boundaries = np.flatnonzero(np.diff(block)) + 1
    all_rows = np.arange(len(pairs))
    for rows in np.split(all_rows, boundaries):
        longest = int(lengths[rows].max())
        max_rows = max(1, max_cells // longest)
        for start in range(0, len(rows), max_rows):
            yield rows[start : start + max_rows], None


def _packed_blocks(sequences: Pairs, row_offsets: np.ndarray) -> Blocks:
    tokens_before = offsets_of(sequences.a_length + SINGLE_SPECIALS)
    row_ends = tokens_before[row_offsets[1:]]
    block = row_ends // BLOCK_TOKENS
    boundaries = np.flatnonzero(np.diff(block)) + 1
    bounds = [0, *boundaries.tolist(), len(row_ends)]
    for first, stop in pairwise(bounds):
        offsets = row_offsets[first : stop + 1]
        sequences_of_block = np.arange(offsets[0], offsets[-1])
        yield sequences_of_block, offsets - offsets[0]


def build_block(
    corpus: Corpus,
    pairs: Pairs,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
    duplicate: int,
    row_offsets: np.ndarray | None = None,
) -> pa.RecordBatch:
    """Return pairs, masked, as a batch of instances: each is a row or, with `row_offsets` (int64
    [num_rows + 1]), a sequence of a packed row, which holds those from one offset to the next.
    """
    schema = instances_schema(len(vocabulary), packed=row_offsets is not None)
    ids, offsets, segment_b_start = lay_out_rows(corpus.token_ids, pairs, vocabulary)
    ids = ids.astype(str(schema.field("input_ids").type.value_type), copy=False)
    if row_offsets is None:
        chosen, originals = mask_rows(ids, offsets, segment_b_start, vocabulary, config, rng)
        columns = {
            "segment_b_start": segment_b_start.astype(np.uint16),
            "next_sentence_label": pairs.label,
            "document_a": pairs.document_a,
            "document_b": pairs.document_b,
        }
    else:
        chosen, originals = mask_sequences(ids, offsets, vocabulary, config, rng)
        # Laid out and masked as if each sequence were a row; now several of them are one:
        #
        #     ids            [CLS] a a [SEP] [CLS] b [SEP] [CLS] c c c [SEP]
        #     sequences      0               4             7                 12
        #     row_offsets    0                             2                  3    in sequences
        #     offsets        0                             7                 12    in tokens
        sequence_starts = offsets[:-1]
        offsets = offsets[row_offsets]
        starts_in_row = sequence_starts - np.repeat(offsets[:-1], np.diff(row_offsets))
        columns = {
            "sequence_starts": lists_of(row_offsets, starts_in_row.astype(np.uint16)),
            "documents": lists_of(row_offsets, pairs.document_a.astype(np.int32)),
        }
    positions, mask_offsets = positions_in(offsets, chosen)
    columns |= {
        "input_ids": lists_of(offsets, ids),
        "masked_lm_positions": lists_of(mask_offsets, positions.astype(np.uint16)),
        "masked_lm_ids": lists_of(mask_offsets, originals),
        "duplicate": np.full(len(offsets) - 1, duplicate, np.uint8),
    }
    return pa.RecordBatch.from_pydict(columns, schema)


def lay_out_rows(
    token_ids: np.ndarray, pairs: Pairs, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lay out each pair as ``[CLS] A [SEP] B [SEP]``, or ``[CLS] A [SEP]`` if B is empty, in a row;
    return ids, row offsets and the start of B as `masking` has them.
    """
    # One gather copies all segments, each with its neighbours in `token_ids` as placeholders, which
    # the special tokens then overwrite. For A = 5:8 and B = 20:22:
    #
    #   ranges taken    4 … 8             20 … 22
    #   index           4   5 6 7   8     20 21   22
    #   row           [CLS] A A A [SEP]   B  B  [SEP]
    has_b = pairs.b_length > 0
    # A token more before and after A, and one after B.
    starts_of_a = pairs.a_start - 1
    lengths_of_a = pairs.a_length + 2
    lengths_of_b = pairs.b_length + has_b
    # The ranges alternate: A0, B0, A1, B1, …
    starts = np.stack([starts_of_a, pairs.b_start], axis=1).ravel()
    lengths = np.stack([lengths_of_a, lengths_of_b], axis=1).ravel()
    # 32 bits halve the bytes through the cache.
    index_type = np.int32 if len(token_ids) < 2**31 else np.int64
    index = ranges(starts, lengths, index_type)
    # Clipped, because placeholders may lie before the first token or after the last one.
    ids = token_ids.take(index, mode="clip")

    row_offsets = offsets_of(lengths_of_a + lengths_of_b)
    row_starts = row_offsets[:-1]
    segment_b_start = lengths_of_a
    ids[row_starts] = vocabulary.cls_id
    ids[row_starts + segment_b_start - 1] = vocabulary.sep_id
    ids[row_offsets[1:] - 1] = vocabulary.sep_id
    return ids, row_offsets, segment_b_start


def lists_of(offsets: np.ndarray, values: np.ndarray) -> pa.ListArray:
    """Return `values` as an array of lists, each from one of the `offsets` to the next."""
    short_offsets = pa.array(offsets, pa.int32())
    return pa.ListArray.from_arrays(short_offsets, pa.array(values))


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Return the arguments of `pyarrow.parquet.ParquetWriter` for small files, fast to write.

    Token ids are close to random: splitting their bytes lets zstd compress the high ones. Positions
    ascend, so their differences fit in a few bits. Dictionaries would only cost time.
    """
    encodings = {
        "input_ids.list.element": "BYTE_STREAM_SPLIT",
        "masked_lm_ids.list.element": "BYTE_STREAM_SPLIT",
        "masked_lm_positions.list.element": "DELTA_BINARY_PACKED",
    }
    for field in schema:
        if pa.types.is_integer(field.type):
            encodings[field.name] = "DELTA_BINARY_PACKED"
        elif field.name in ("sequence_starts", "documents"):
            encodings[f"{field.name}.list.element"] = "DELTA_BINARY_PACKED"
    return {
        "column_encoding": encodings,
        "use_dictionary": False,
        "compression": "zstd",
        "compression_level": 1,  # bytes that are close to random gain little from higher ones
        # A reader that wants one pass alone finds its row groups by them.
        "write_statistics": ["duplicate"],
        "store_schema": True,
    }
