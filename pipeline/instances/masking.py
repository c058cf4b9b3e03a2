"""Choose the positions to predict and mask them, for many rows at once.

The build and dynamic masking in training both use it. Rows are flat: `ids` holds the tokens of all
rows end to end, row ``r`` is ``ids[row_offsets[r]:row_offsets[r + 1]]`` and reads
``[CLS] A [SEP] B [SEP]`` or ``[CLS] A [SEP]``; `segment_b_start` is the index of B's first token in
its row, and the row's length if there is no B:

    ids                [CLS] a a [SEP] b [SEP] [CLS] a a a [SEP]
    row_offsets        0                       6                 11
    segment_b_start    4                       5

Call with about 10,000 rows: arrays are padded to the longest. Suffixes of arrays: R rows, W words.
"""

from typing import NamedTuple

import numpy as np

from ..config import BuildConfig
from ..ragged import indices_of, offsets_of, ranges
from ..vocabulary.vocabulary import Vocabulary


def mask_rows(
    ids: np.ndarray,
    row_offsets: np.ndarray,
    segment_b_start: np.ndarray,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
    mask_rates: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the tokens to predict and mask them in `ids`, as `config` asks.

    Never [CLS], [SEP] or a token that was added to the model's is chosen. Whole-word masking
    chooses at most as many tokens as it should, in whole words, or a row's shortest word if none
    fits. `mask_rates`, float [num_rows], are the rates of the rows if they differ from each other.
    Return the indices in `ids` of the chosen tokens, ascending, and the original tokens there.
    """
    rates = config.mask_rate if mask_rates is None else mask_rates
    wanted = num_to_mask(np.diff(row_offsets), rates, config.max_length)
    is_fixed = _is_special(row_offsets, segment_b_start)
    if vocabulary.is_added.any():
        is_fixed |= vocabulary.is_added[ids]
    if config.masking == "token":
        chosen = _choose_tokens(row_offsets, is_fixed, wanted, rng)
    else:
        words = find_words(ids, row_offsets, segment_b_start, vocabulary.continues, is_fixed)
        chosen = _choose_words(words, wanted, rng)

    # [MASK], a random token or the original: drawn per token, also within a word.
    originals = ids[chosen]
    percent = rng.integers(0, 100, len(originals), dtype=np.uint8)
    to_mask, to_random, _ = config.mask_split
    is_mask = percent < to_mask
    is_random = ~is_mask & (percent < to_mask + to_random)
    ids[chosen[is_mask]] = vocabulary.mask_id
    random = chosen[is_random]
    ordinary_ids = np.flatnonzero(vocabulary.is_ordinary)
    ids[random] = ordinary_ids[rng.integers(0, len(ordinary_ids), len(random))]
    return chosen, originals


def mask_sequences(
    ids: np.ndarray,
    offsets: np.ndarray,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
    mask_rates: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Do as `mask_rows` for rows ``[CLS] A [SEP]`` whose lengths may differ a thousandfold: those
    of similar length together, so that no array is padded to more than twice its content.
    """
    lengths = np.diff(offsets)
    rates = np.full(len(lengths), config.mask_rate) if mask_rates is None else mask_rates
    # 3, 5, 4 and 300 tokens have 2, 3, 3 and 9 bits: three calls.
    num_bits = np.frexp(lengths)[1]
    all_chosen = [np.zeros(0, np.int64)]
    all_originals = [ids[:0]]
    for bits in np.unique(num_bits).tolist():
        rows = np.flatnonzero(num_bits == bits)
        tokens = indices_of(offsets, rows)
        part = ids[tokens]
        part_lengths = lengths[rows]
        chosen, originals = mask_rows(
            part, offsets_of(part_lengths), part_lengths, vocabulary, config, rng, rates[rows]
        )
        ids[tokens] = part
        all_chosen.append(tokens[chosen])
        all_originals.append(originals)
    chosen = np.concatenate(all_chosen)
    originals = np.concatenate(all_originals)
    order = np.argsort(chosen)
    return chosen[order], originals[order]


def positions_in(row_offsets: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `chosen` as indices into their rows, and each row's first index in these."""
    mask_offsets = np.searchsorted(chosen, row_offsets)
    return chosen - np.repeat(row_offsets[:-1], np.diff(mask_offsets)), mask_offsets


def num_to_mask(lengths: np.ndarray, mask_rate: float | np.ndarray, max_length: int) -> np.ndarray:
    """Return how many positions to choose in rows of `lengths` tokens, int64: as google-research
    ``max(1, round(mask_rate * length))``, at most ``ceil(mask_rate * max_length)``.
    """
    wanted = np.maximum(1, np.rint(mask_rate * lengths)).astype(np.int64)
    most = np.ceil(mask_rate * max_length).astype(np.int64)
    return np.minimum(wanted, most)


def _random_order(counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return for each row a permutation of ``0 … counts[r] - 1``, padded: [num_rows, widest]."""
    # Sort random numbers whose low bits are the index, which is several times as fast as an
    # argsort. A row of three:
    #
    #   keys            9f·0  2c·1  71·2  e8·3      random high bits · index
    #   beyond counts   9f·0  2c·1  71·2  ff·f      the highest number: sorted to the end
    #   sorted          2c·1  71·2  9f·0  ff·f
    #   low bits           1     2     0     f      padding
    width = int(counts.max(initial=1))
    index_bits = width.bit_length()
    # 20 random bits or more, so that a tie, which the index would decide, is rare.
    dtype = np.uint32 if index_bits <= 12 else np.uint64
    highest = np.iinfo(dtype).max
    keys = rng.integers(0, highest, (len(counts), width), dtype=dtype, endpoint=True)
    index_mask = dtype((1 << index_bits) - 1)
    keys &= ~index_mask
    index = np.arange(width, dtype=dtype)
    keys |= index
    is_padding = index >= counts.astype(dtype)[:, None]
    keys[is_padding] = highest
    keys.sort(axis=1)
    keys &= index_mask
    return keys


def _is_special(row_offsets: np.ndarray, segment_b_start: np.ndarray) -> np.ndarray:
    """Return where [CLS] and [SEP] stand, bool [num_tokens]."""
    row_starts = row_offsets[:-1]
    is_special = np.zeros(row_offsets[-1], bool)
    is_special[row_starts] = True
    is_special[row_offsets[1:] - 1] = True
    has_b = segment_b_start < np.diff(row_offsets)
    is_special[(row_starts + segment_b_start)[has_b] - 1] = True
    return is_special


def _choose_tokens(
    row_offsets: np.ndarray, is_fixed: np.ndarray, wanted: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Choose single tokens: the first ones of a random order of each row's that are not fixed."""
    # The order numbers the maskable tokens alone:
    #
    #   row          [CLS] a a a [SEP] b b [SEP]
    #   number             0 1 2       3 4
    maskable = np.flatnonzero(~is_fixed)
    offsets = np.searchsorted(maskable, row_offsets)
    num_maskable = np.diff(offsets)
    counts = np.minimum(wanted, num_maskable)
    width = int(counts.max(initial=0))
    # True for the first counts[r] columns of row r.
    is_chosen = np.arange(width) < counts[:, None]
    order = _random_order(num_maskable, rng)
    chosen = order[:, :width].astype(np.int32)
    # The padding must stay after the chosen ones when positions are brought in order.
    chosen[~is_chosen] = num_maskable.max(initial=0)
    chosen.sort(axis=1)
    first_of_row = np.repeat(offsets[:-1], counts)
    return maskable[chosen[is_chosen] + first_of_row]


class Words(NamedTuple):
    """The first token (flat) and the length of each word, int64 [num_words]; and where a row's
    words begin, int64 [num_rows + 1].
    """

    start: np.ndarray
    length: np.ndarray
    offsets: np.ndarray


def find_words(
    ids: np.ndarray,
    row_offsets: np.ndarray,
    segment_b_start: np.ndarray,
    continues: np.ndarray,
    is_fixed: np.ndarray | None = None,
) -> Words:
    """Join each piece that starts a word with those that continue it.

    A segment always starts a word, even if it was cut inside one. Tokens that are `is_fixed` (bool
    [num_tokens]), by default [CLS] and [SEP], are in no word.
    """
    #   row          [CLS] ##ing the play ##er [SEP] did [SEP]
    #   is_start     T     T     T   T    F    T     T   T
    #   length       1     1     1   2         1     1   1
    #   words              1     1   2               1             special tokens left out
    if is_fixed is None:
        is_fixed = _is_special(row_offsets, segment_b_start)
    # Fixed tokens are words of their own until here, so that they end the word before them, and
    # another begins after them.
    is_start = ~continues[ids] | is_fixed
    is_start[1:] |= is_fixed[:-1]
    start = np.flatnonzero(is_start)
    length = np.diff(start, append=len(ids))
    is_text = ~is_fixed[start]
    start = start[is_text]
    return Words(start, length[is_text], offsets=np.searchsorted(start, row_offsets))


def _choose_words(words: Words, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Take words in random order that still fit; a row's shortest word if none fits."""
    # The words of each row in random order, and their lengths; the padding is word 0 with a length
    # that fits nowhere. Two rows of two and three words, of these lengths:
    #
    #   words                  0 1   2 3 4            length   1 2   1 1 3
    #   order in the row       1 0 .                  2 0 1
    #   order_RW               1 0 0                  4 2 3
    #   lengths_RW             2 1 max                3 1 1
    counts = np.diff(words.offsets)
    order_RW = _random_order(counts, rng).astype(np.int32)
    is_padding_RW = np.arange(order_RW.shape[1]) >= counts[:, None]
    order_RW += words.offsets[:-1].astype(np.int32)[:, None]
    order_RW[is_padding_RW] = 0
    lengths_RW = words.length.astype(np.int32)[order_RW]
    lengths_RW[is_padding_RW] = np.iinfo(np.int32).max
    # The loop takes one word of every row at a time, so rows become the inner axis, in memory too.
    order_WR = np.ascontiguousarray(order_RW.T)
    lengths_WR = np.ascontiguousarray(lengths_RW.T)
    remaining = wanted.copy()
    is_taken = np.zeros(len(words.start), bool)
    for word_R, length_R in zip(order_WR, lengths_WR, strict=True):
        fits = length_R <= remaining
        is_taken[word_R[fits]] = True
        remaining[fits] -= length_R[fits]
        if not remaining.any():
            break
    rows_without_words = np.flatnonzero((remaining == wanted) & (counts > 0))
    # `argmin` returns the first of equals, and the order is random.
    shortest = lengths_WR[:, rows_without_words].argmin(axis=0)
    is_taken[order_WR[shortest, rows_without_words]] = True
    return ranges(words.start[is_taken], words.length[is_taken])
