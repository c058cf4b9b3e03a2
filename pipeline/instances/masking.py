"""Choose the positions to predict and mask them, for many rows at once, at build time and in
training.

Rows are flat: `ids` holds the tokens of all rows end to end, row ``r`` is
``ids[row_offsets[r]:row_offsets[r + 1]]`` and reads ``[CLS] A [SEP] B [SEP]`` or ``[CLS] A [SEP]``;
`segment_b_start` is the index of B's first token in its row, and the row's length if there is no B.
Call with about 10,000 rows: arrays are padded to the longest.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..config import BuildConfig
from ..vocabulary.vocabulary import Vocabulary

# SpanBERT (arXiv 1907.10529), section 3.1: span lengths in words are geometric, cut off at 10.
SPAN_P = 0.2
MAX_SPAN_WORDS = 10


@dataclass(frozen=True)
class Positions:
    """The chosen positions of each row, ascending.

    `flat` int64 [num_chosen] indexes the flat `ids`; `counts` int64 [num_rows]; `span` int64
    [num_chosen] numbers the span that each position belongs to, or is None if tokens are masked one
    by one.
    """

    flat: np.ndarray
    counts: np.ndarray
    span: np.ndarray | None = None

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
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Choose the positions to predict and mask them in `ids`, as `config` asks.

    Return the chosen positions as indices into their rows, the original tokens there, and each
    row's first index in these two: int64 [num_rows + 1].
    """
    positions = choose_positions(ids, row_offsets, segment_b_start, vocabulary, config, rng)
    originals = apply_masks(ids, positions, vocabulary, config, rng)
    return positions.in_row(row_offsets), originals, np.append(0, np.cumsum(positions.counts))


def num_to_mask(lengths: np.ndarray, mask_rate: float, max_length: int) -> np.ndarray:
    """Return how many positions to choose in rows of `lengths` tokens (including special tokens),
    int64.

    ``max(1, round(mask_rate * length))``, at most ``ceil(mask_rate * max_length)``.
    """
    wanted = np.maximum(1, np.rint(mask_rate * lengths)).astype(np.int64)
    return np.minimum(wanted, math.ceil(mask_rate * max_length))


def choose_positions(
    ids: np.ndarray,
    row_offsets: np.ndarray,
    segment_b_start: np.ndarray,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
) -> Positions:
    """Choose the positions to predict: `num_to_mask` tokens of each row, never [CLS] or [SEP].

    Whole-word and span masking choose at most that many tokens, in whole words, or a row's shortest
    word if none fits.
    """
    wanted = num_to_mask(np.diff(row_offsets), config.mask_rate, config.max_length)
    if config.masking == "token":
        return _choose_tokens(row_offsets, segment_b_start, wanted, rng)
    words = find_words(ids, row_offsets, segment_b_start, vocabulary.continues)
    choose = _choose_words if config.masking == "whole-word" else _choose_spans
    return choose(words, wanted, rng)


def apply_masks(
    ids: np.ndarray,
    positions: Positions,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
) -> np.ndarray:
    """Overwrite the chosen positions of `ids` in place; return the original tokens there.

    The choice of ``config.mask_split`` is made per token, or per span if the positions have spans
    (SpanBERT, section 3.1: "at the span level"); random tokens are ordinary ones, drawn one by one.
    """
    originals = ids[positions.flat]
    num_choices = (
        len(originals) if positions.span is None else int(positions.span.max(initial=-1)) + 1
    )
    percent = rng.integers(0, 100, num_choices, dtype=np.uint8)
    if positions.span is not None:
        percent = percent[positions.span]
    to_mask, to_random, _ = config.mask_split
    ids[positions.flat[percent < to_mask]] = vocabulary.mask_id
    random = positions.flat[(percent >= to_mask) & (percent < to_mask + to_random)]
    ordinary_ids = np.flatnonzero(vocabulary.is_ordinary)
    ids[random] = ordinary_ids[rng.integers(0, len(ordinary_ids), len(random))]
    return originals


def _random_order(counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return for each row a random permutation of ``0 … counts[r] - 1``, padded: unsigned,
    [num_rows, counts.max()].

    Sorts random numbers whose low bits are the index, which is several times as fast as an argsort.
    """
    width = int(counts.max(initial=1))
    bits = width.bit_length()
    dtype = np.uint32 if bits <= 12 else np.uint64
    highest = np.iinfo(dtype).max
    keys = rng.integers(0, highest, (len(counts), width), dtype=dtype, endpoint=True)
    low = dtype((1 << bits) - 1)
    keys &= ~low
    index = np.arange(width, dtype=dtype)
    keys |= index
    keys[index >= counts.astype(dtype)[:, None]] = highest
    keys.sort(axis=1)
    keys &= low
    return keys


def _choose_tokens(
    row_offsets: np.ndarray,
    segment_b_start: np.ndarray,
    wanted: np.ndarray,
    rng: np.random.Generator,
) -> Positions:
    lengths = np.diff(row_offsets)
    num_maskable = lengths - 2 - (segment_b_start < lengths)
    counts = np.minimum(wanted, num_maskable)
    within = np.arange(int(counts.max(initial=0))) < counts[:, None]
    chosen = _random_order(num_maskable, rng)[:, : within.shape[1]].astype(np.int32)
    chosen[~within] = lengths.max(initial=0)
    chosen.sort(axis=1)
    # So far the numbers skip special tokens: step over [CLS] and, for B's tokens, over the [SEP]
    # before B.
    chosen += 1 + (chosen >= (segment_b_start - 2)[:, None])
    return Positions(chosen[within] + np.repeat(row_offsets[:-1], counts), counts)


@dataclass(frozen=True)
class Words:
    """The first token, length and row of each word, int64 [num_words]; `offsets` (by row) give
    where a row's words begin.
    """

    start: np.ndarray
    length: np.ndarray
    row: np.ndarray
    offsets: np.ndarray


def find_words(
    ids: np.ndarray, row_offsets: np.ndarray, segment_b_start: np.ndarray, continues: np.ndarray
) -> Words:
    """Join each piece that starts a word with those that continue it; a segment always starts a
    word.
    """
    row_starts = row_offsets[:-1]
    b_starts = (row_starts + segment_b_start)[segment_b_start < np.diff(row_offsets)]
    starts = ~continues[ids]
    starts[row_starts + 1] = True
    starts[b_starts] = True
    special = np.zeros(len(ids), bool)
    special[row_starts] = special[row_offsets[1:] - 1] = special[b_starts - 1] = True
    start = np.flatnonzero(starts)
    length = np.diff(start, append=len(ids))
    word = ~special[start]
    start, length = start[word], length[word]
    offsets = np.searchsorted(start, row_offsets)
    return Words(start, length, np.repeat(np.arange(len(row_starts)), np.diff(offsets)), offsets)


def _word_order(words: Words, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of each row in random order, and their lengths: int32 [widest row in words,
    rows], padded.
    """
    counts = np.diff(words.offsets)
    order = _random_order(counts, rng).astype(np.int32)
    beyond = np.arange(order.shape[1]) >= counts[:, None]
    order += words.offsets[:-1, None].astype(np.int32)
    order[beyond] = 0
    lengths = words.length.astype(np.int32)[order]
    lengths[beyond] = np.iinfo(np.int32).max
    # The loops take one word of every row at a time, so rows are the inner axis.
    return np.ascontiguousarray(order.T), np.ascontiguousarray(lengths.T)


def _choose_words(words: Words, wanted: np.ndarray, rng: np.random.Generator) -> Positions:
    """Take words in random order, skipping those that no longer fit."""
    order, lengths = _word_order(words, rng)
    remaining = wanted.copy()
    taken = np.zeros(len(words.start), bool)
    for word, length in zip(order, lengths, strict=True):
        fits = length <= remaining
        taken[word[fits]] = True
        remaining[fits] -= length[fits]
        if not remaining.any():
            break
    _take_shortest(taken, np.flatnonzero(remaining == wanted), order, lengths)
    return _word_positions(words, taken)


def _take_shortest(
    taken: np.ndarray, rows: np.ndarray, order: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Take and return the shortest word (a random one of equals) of each of `rows`."""
    shortest = order[lengths[:, rows].argmin(axis=0), rows]
    taken[shortest] = True
    return shortest


def _choose_spans(words: Words, wanted: np.ndarray, rng: np.random.Generator) -> Positions:
    """Take spans of words from random anchors until nothing more fits; a row's last span may be
    shorter.
    """
    order, lengths = _word_order(words, rng)
    remaining = wanted.copy()
    taken = np.zeros(len(words.start), bool)
    span = np.full(len(words.start), -1)
    # Words of one segment are adjacent; between segments and rows there is a special token.
    joined = np.append(words.start[:-1] + words.length[:-1] == words.start[1:], False)
    for word, length in zip(order, lengths, strict=True):
        rows = np.flatnonzero(length <= remaining)
        rows = rows[~taken[word[rows]]]
        _take_spans(word[rows], _span_words(len(rows), rng), words, joined, remaining, taken, span)
        if not remaining.any():
            break
    shortest = _take_shortest(taken, np.flatnonzero(remaining == wanted), order, lengths)
    span[shortest] = shortest
    return _word_positions(words, taken, span)


def _span_words(num_spans: int, rng: np.random.Generator) -> np.ndarray:
    """Draw span lengths in words: geometric, truncated and renormalised, mean 3.8 (SpanBERT,
    section 3.1).
    """
    shares = SPAN_P * (1 - SPAN_P) ** np.arange(MAX_SPAN_WORDS)
    return 1 + np.searchsorted(
        np.cumsum(shares / shares.sum())[:-1], rng.random(num_spans), side="right"
    )


def _take_spans(
    anchors: np.ndarray,
    num_words: np.ndarray,
    words: Words,
    joined: np.ndarray,
    remaining: np.ndarray,
    taken: np.ndarray,
    span: np.ndarray,
) -> None:
    """Take up to `num_words` words from each anchor on, as long as they exist, are free and fit in
    the row's budget.
    """
    word = anchors
    while len(word):
        taken[word] = True
        span[word] = anchors
        remaining[words.row[word]] -= words.length[word]
        num_words = num_words - 1
        growing = np.flatnonzero((num_words > 0) & joined[word])
        growing = growing[~taken[word[growing] + 1]]
        growing = growing[words.length[word[growing] + 1] <= remaining[words.row[word[growing]]]]
        word, anchors, num_words = word[growing] + 1, anchors[growing], num_words[growing]


def _word_positions(words: Words, taken: np.ndarray, span: np.ndarray | None = None) -> Positions:
    """Return the tokens of the taken words, in order."""
    lengths = words.length[taken]
    ends = np.cumsum(lengths)
    flat = np.arange(int(lengths.sum())) + np.repeat(words.start[taken] - (ends - lengths), lengths)
    num_rows = len(words.offsets) - 1
    counts = np.bincount(words.row[taken], lengths, minlength=num_rows).astype(np.int64)
    if span is not None:
        span = np.repeat(np.unique(span[taken], return_inverse=True)[1], lengths)
    return Positions(flat, counts, span)
