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

from dataclasses import dataclass

import numpy as np

from ..config import BuildConfig
from ..ragged import indices_of, offsets_of, owners, ranges
from ..vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True)
class Positions:
    """The chosen positions of each row, ascending.

    `flat` int64 [num_chosen] indexes the flat `ids`; `counts` int64 [num_rows] are the chosen
    positions per row.
    """

    flat: np.ndarray
    counts: np.ndarray

    def in_row(self, row_offsets: np.ndarray) -> np.ndarray:
        """Return the positions as indices into their rows, int64 [num_chosen]."""
        return self.flat - np.repeat(row_offsets[:-1], self.counts)


def mask_rows(
    ids: np.ndarray,
    row_offsets: np.ndarray,
    segment_b_start: np.ndarray,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
    mask_rates: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Choose the positions to predict and mask them in `ids`, as `config` asks.

    `mask_rates`, float [num_rows], are the rates of the rows if they differ from each other.
    Return the chosen positions as indices into their rows, the original tokens there, and each
    row's first index in these two: int64 [num_rows + 1].
    """
    wanted = _num_wanted(row_offsets, config, mask_rates)
    positions = choose_positions(ids, row_offsets, segment_b_start, wanted, vocabulary, config, rng)
    originals = apply_masks(ids, positions, vocabulary, config, rng)
    mask_offsets = offsets_of(positions.counts)
    return positions.in_row(row_offsets), originals, mask_offsets


def mask_sequences(
    ids: np.ndarray,
    offsets: np.ndarray,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
    mask_rates: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Do as `mask_rows` for rows ``[CLS] A [SEP]`` whose lengths may differ a thousandfold.

    Rows of similar length are masked together, so that no array is padded to more than twice its
    content.
    """
    lengths = np.diff(offsets)
    wanted = _num_wanted(offsets, config, mask_rates)
    # 3, 5, 4 and 300 tokens have 2, 3, 3 and 9 bits: three calls.
    num_bits = np.frexp(lengths)[1]
    counts = np.zeros(len(lengths), np.int64)
    flat_by_length: list[np.ndarray] = []
    originals_by_length: list[np.ndarray] = []
    for bits in np.unique(num_bits).tolist():
        rows = np.flatnonzero(num_bits == bits)
        tokens = indices_of(offsets, rows)
        chosen_ids = ids[tokens]
        chosen_offsets = offsets_of(lengths[rows])
        positions = choose_positions(
            chosen_ids, chosen_offsets, lengths[rows], wanted[rows], vocabulary, config, rng
        )
        originals_by_length.append(apply_masks(chosen_ids, positions, vocabulary, config, rng))
        ids[tokens] = chosen_ids
        flat_by_length.append(tokens[positions.flat])
        counts[rows] = positions.counts
    flat = np.concatenate([np.zeros(0, np.int64), *flat_by_length])
    originals = np.concatenate([ids[:0], *originals_by_length])
    # Back into the order of the rows.
    order = np.argsort(flat)
    positions = Positions(flat[order], counts)
    return positions.in_row(offsets), originals[order], offsets_of(counts)


def num_to_mask(lengths: np.ndarray, mask_rate: float | np.ndarray, max_length: int) -> np.ndarray:
    """Return how many positions to choose in rows of `lengths` tokens, int64; `mask_rate` is one
    for all rows, or one for each.

    That is ``max(1, round(mask_rate * length))``, at most ``ceil(mask_rate * max_length)``; lengths
    include special tokens, as in google-research's ``create_masked_lm_predictions``.
    """
    wanted = np.maximum(1, np.rint(mask_rate * lengths)).astype(np.int64)
    most = np.ceil(mask_rate * max_length).astype(np.int64)
    return np.minimum(wanted, most)


def _num_wanted(
    row_offsets: np.ndarray, config: BuildConfig, mask_rates: np.ndarray | None
) -> np.ndarray:
    rates = config.mask_rate if mask_rates is None else mask_rates
    return num_to_mask(np.diff(row_offsets), rates, config.max_length)


def choose_positions(
    ids: np.ndarray,
    row_offsets: np.ndarray,
    segment_b_start: np.ndarray,
    wanted: np.ndarray,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
) -> Positions:
    """Choose the positions to predict: `wanted` tokens of each row, never [CLS], [SEP] or a token
    that was added to the model's.

    Whole-word masking chooses at most that many tokens, in whole words, or a row's shortest word if
    none fits.
    """
    is_fixed = _is_special(row_offsets, segment_b_start)
    if vocabulary.is_added.any():
        is_fixed |= vocabulary.is_added[ids]
    if config.masking == "token":
        return _choose_tokens(row_offsets, is_fixed, wanted, rng)
    words = find_words(ids, row_offsets, segment_b_start, vocabulary.continues, is_fixed)
    return _choose_words(words, wanted, rng)


def apply_masks(
    ids: np.ndarray,
    positions: Positions,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
) -> np.ndarray:
    """Overwrite the chosen positions of `ids` in place; return the original tokens there.

    The choice of ``config.mask_split`` is made per token, also within a word; random tokens are
    ordinary ones, drawn one by one.
    """
    originals = ids[positions.flat]
    percent = rng.integers(0, 100, len(originals), dtype=np.uint8)
    to_mask, to_random, _ = config.mask_split
    is_mask = percent < to_mask
    is_random = ~is_mask & (percent < to_mask + to_random)
    ids[positions.flat[is_mask]] = vocabulary.mask_id
    random = positions.flat[is_random]
    ordinary_ids = np.flatnonzero(vocabulary.is_ordinary)
    ids[random] = ordinary_ids[rng.integers(0, len(ordinary_ids), len(random))]
    return originals


def _random_order(counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return for each row a random permutation of ``0 … counts[r] - 1``, padded.

    The result is unsigned, [num_rows, counts.max()].
    """
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
) -> Positions:
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
    return Positions(maskable[chosen[is_chosen] + first_of_row], counts)


@dataclass(frozen=True)
class Words:
    """The first token (flat), length and row of each word, int64 [num_words].

    `offsets`, int64 [num_rows + 1], give where a row's words begin.
    """

    start: np.ndarray
    length: np.ndarray
    row: np.ndarray
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
    length = length[is_text]
    offsets = np.searchsorted(start, row_offsets)
    row = owners(np.diff(offsets))
    return Words(start, length, row, offsets)


def _word_order(words: Words, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of each row in random order, and their lengths.

    Both are int32 [widest row in words, num_rows]. The padding is word 0 with a length that fits
    nowhere.
    """
    # Two rows of two and three words, of these lengths:
    #
    #   words                  0 1   2 3 4            length   1 2   1 1 3
    #   order in the row       1 0 .                  2 0 1
    #   order_RW               1 0 0                  4 2 3
    #   lengths_RW             2 1 max                3 1 1
    counts = np.diff(words.offsets)
    order_RW = _random_order(counts, rng).astype(np.int32)
    num_columns = order_RW.shape[1]
    is_padding_RW = np.arange(num_columns) >= counts[:, None]
    first_word_R = words.offsets[:-1].astype(np.int32)
    order_RW += first_word_R[:, None]
    order_RW[is_padding_RW] = 0
    lengths = words.length.astype(np.int32)
    lengths_RW = lengths[order_RW]
    lengths_RW[is_padding_RW] = np.iinfo(np.int32).max
    # The loop takes one word of every row at a time, so rows become the inner axis, in memory too.
    order_WR = np.ascontiguousarray(order_RW.T)
    lengths_WR = np.ascontiguousarray(lengths_RW.T)
    return order_WR, lengths_WR


def _choose_words(words: Words, wanted: np.ndarray, rng: np.random.Generator) -> Positions:
    """Take words in random order, skipping those that no longer fit; the shortest word of a row if
    none fits.
    """
    order_WR, lengths_WR = _word_order(words, rng)
    remaining = wanted.copy()
    is_taken = np.zeros(len(words.start), bool)
    # A step for each place in the order, of all rows at once.
    for word_R, length_R in zip(order_WR, lengths_WR, strict=True):
        fits = length_R <= remaining
        is_taken[word_R[fits]] = True
        remaining[fits] -= length_R[fits]
        if not remaining.any():
            break
    has_words = np.diff(words.offsets) > 0
    rows_without_words = np.flatnonzero((remaining == wanted) & has_words)
    # `argmin` returns the first of equals, and the order is random.
    shortest = lengths_WR[:, rows_without_words].argmin(axis=0)
    is_taken[order_WR[shortest, rows_without_words]] = True

    lengths = words.length[is_taken]
    flat = ranges(words.start[is_taken], lengths)
    counts = np.bincount(words.row[is_taken], lengths, minlength=len(wanted)).astype(np.int64)
    return Positions(flat, counts)
