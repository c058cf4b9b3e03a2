"""Learn a vocabulary from word counts, WordPiece or byte-level BPE: the same on every run.

The algorithm is that of the ``tokenizers`` library: merge the most frequent pair of pieces (BPE;
Sennrich et al. 2016, arXiv 1508.07909), where a piece that continues a word starts with "##". Ties
have a fixed order: of pairs with equal counts, the one whose pieces were learned first wins. Byte-
level BPE merges bytes in the same way: it has no alphabet to choose and no character to leave out.
(The trainer of `tokenizers` would need the texts themselves.)

All words lie end to end in flat arrays with one position per character: the piece that starts
there, and the positions of the next and the previous piece of the word. A pair of pieces is stored
as the positions of its left piece. For the words "the" and "he", after "##h" and "##e" were merged
("." is `GONE`, "-" no neighbour)::

    position    0    1      2    3    4
    symbol      t    ##he   .    h    ##e
    next        1    -           4    -
    previous    -    0           -    3
    pairs       (t, ##he): [0]   (h, ##e): [3]

Merges do not update the counts of the pairs that they destroy: an occurrence that is gone never
returns, so a pair's count is an upper bound, and it is recounted only when no bound is higher.

Half of the pairs occur in a single word, and a dozen NumPy calls for each would take most of the
time. So pairs with equal counts are merged together, in their order up to the first two that may
overlap, as (a, b) and (b, c) do in "abc". The merges are those that one after the other gives: no
merge changes the count of another pair in the batch, and a pair that it makes comes after them. To
come before (c, d), (x, ab) would have to occur as often, and x be older than c. But then (x, a)
occurs as often too, and the batch ends before it, or before (a, b) if x is older than a.
"""

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UserError
from ..manifests import WordPieceReport
from ..ragged import flat_text
from .byte_level import CHARACTERS
from .normalization import MAX_WORD_CHARACTERS

# What a position's symbol can be besides the index of a piece:
GONE = -1  # no piece starts here any more
_JUST_MERGED = -2

_LEFT = 1 << 32


def special_tokens(num_unused: int) -> list[str]:
    """Return the tokens that come before all others, in BERT's layout."""
    unused = [f"[unused{index}]" for index in range(num_unused)]
    return ["[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def learn_pieces(
    words: pa.Array | pa.ChunkedArray,
    counts: np.ndarray,
    *,
    size: int,
    min_frequency: int = 2,
    limit_alphabet: int | None = None,
    num_unused: int = 0,
    of_bytes: bool = False,
    max_words: int = 1_000_000,
) -> tuple[list[str], list[tuple[str, str]], WordPieceReport]:
    """Return a vocabulary of `size` tokens in the order of their ids, its merges, and a report of
    what was left out.

    `words` are distinct words of a `Splitter`, the most frequent ones first, and `counts` their
    counts, int64 [num_words]. The tokens are:
    `special_tokens`; single characters by code point, then those with "##", or the 256 bytes in
    GPT-2's order if `of_bytes`; and the merges as they were made. Merges end early, and the
    vocabulary is smaller, if no pair occurs `min_frequency` times. Raise `UserError` if `size` is
    too small for the alphabet.

    Merges are learned from the first `max_words`: this bounds the time and the memory (2 GB).
    """
    specials = special_tokens(num_unused)
    frequent, frequent_counts, num_long = _select_words(words, counts, max_words)
    # Return what is free to the system before the two steps in which memory peaks.
    pa.default_memory_pool().release_unused()
    if of_bytes:
        spelled = _spell_bytes(frequent, frequent_counts)
    else:
        spelled = _spell(frequent, frequent_counts, limit_alphabet, most=size // 4)
    room = size - len(specials) - len(spelled.pieces)
    if room < 0:
        raise UserError(
            f"`size` is {size}, but special tokens and single characters alone take "
            f"{size - room}: raise `size`."
        )
    pa.default_memory_pool().release_unused()
    merger = _Merger(spelled, min_frequency)
    merger.merge(room)
    pieces = merger.pieces
    merges = [(pieces[left], pieces[right]) for left, right in merger.merges]
    report = WordPieceReport(
        num_words=len(words),
        num_words_long=num_long,
        num_words_rare=len(words) - num_long - len(frequent),
        num_words_alphabet=spelled.num_words_left_out,
        alphabet_left_out=spelled.alphabet_left_out,
        num_alphabet=len(spelled.pieces),
        num_merges=len(merges),
        num_missing=room - len(merges),
    )
    return specials + pieces, merges, report


class _Spelled(NamedTuple):
    """The words as pieces of one character, each an index into `pieces`."""

    pieces: list[str]
    symbols: np.ndarray
    """int32 [num_characters + 1]; the last is `GONE`."""
    starts_word: np.ndarray
    """bool [num_characters]"""
    weights: np.ndarray
    """The count of each character's word, unsigned [num_characters], in the fewest bytes."""
    alphabet_left_out: str
    num_words_left_out: int


def _select_words(
    words: pa.Array | pa.ChunkedArray, counts: np.ndarray, max_words: int
) -> tuple[pa.Array, np.ndarray, int]:
    """Return the words to learn from, their counts, and the number of words that are too long."""
    fits = _num_characters(words) <= MAX_WORD_CHARACTERS
    num_long = int(np.count_nonzero(~fits))
    num_fitting = np.cumsum(fits)
    stop = int(np.searchsorted(num_fitting, max_words, side="right"))
    table = pa.table({"word": words, "count": counts})
    selected = table.slice(0, stop).filter(pa.array(fits[:stop]))
    selected_words = selected["word"].combine_chunks()
    return selected_words, selected["count"].to_numpy(), num_long


def _num_characters(words: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return pc.call_function("utf8_length", [words]).to_numpy(zero_copy_only=False)


def _spell(words: pa.Array, counts: np.ndarray, limit_alphabet: int | None, most: int) -> _Spelled:
    """Choose the alphabet (see `_choose_alphabet`), and spell the words that it can spell."""
    # One entry per character of all words, end to end: its code point, and its word's index.
    codes = np.frombuffer("".join(words.to_pylist()).encode("utf-32-le"), np.uint32)
    word_of = np.repeat(np.arange(len(words), dtype=np.int32), _num_characters(words))
    # bincount sums weights as floats: exact here, for integers below 2**53.
    char_counts = np.bincount(codes, weights=counts[word_of])
    alphabet, left_out = _choose_alphabet(char_counts, limit_alphabet, most)

    is_spellable = np.ones(len(words), bool)
    is_spellable[word_of[np.isin(codes, left_out)]] = False
    stays = is_spellable[word_of]
    codes = codes[stays]
    word_of = word_of[stays]
    del stays

    # Two pieces for each character: one that starts a word, one ("##") that continues it.
    starts_word = np.diff(word_of, prepend=-1) != 0
    continuing = np.unique(codes[~starts_word])
    symbol_of = np.zeros((2, len(char_counts)), np.int32)  # [starts word, code point]
    symbol_of[1, alphabet] = np.arange(len(alphabet))
    symbol_of[0, continuing] = len(alphabet) + np.arange(len(continuing))
    symbols = symbol_of[starts_word.astype(np.int8), codes]
    pieces = [chr(code) for code in alphabet]
    pieces += [f"##{chr(code)}" for code in continuing]
    smallest_type = np.min_scalar_type(counts.max(initial=0))
    return _Spelled(
        pieces=pieces,
        symbols=np.append(symbols, np.int32(GONE)),
        starts_word=starts_word,
        weights=counts.astype(smallest_type)[word_of],
        alphabet_left_out="".join(map(chr, left_out)),
        num_words_left_out=len(words) - int(np.count_nonzero(is_spellable)),
    )


def _spell_bytes(words: pa.Array, counts: np.ndarray) -> _Spelled:
    """Return the words byte by byte."""
    text, offsets = flat_text(words)
    # GPT-2 numbers the bytes by the characters that stand for them.
    pieces = sorted(CHARACTERS)
    number_of_piece = {piece: number for number, piece in enumerate(pieces)}
    symbol_of_byte = np.array([number_of_piece[character] for character in CHARACTERS], np.int32)
    starts_word = np.zeros(len(text), bool)
    starts_word[offsets[:-1]] = True
    smallest_type = np.min_scalar_type(counts.max(initial=0))
    return _Spelled(
        pieces=pieces,
        symbols=np.append(symbol_of_byte[text], np.int32(GONE)),
        starts_word=starts_word,
        weights=np.repeat(counts.astype(smallest_type), np.diff(offsets)),
        alphabet_left_out="",
        num_words_left_out=0,
    )


def _choose_alphabet(
    char_counts: np.ndarray, limit_alphabet: int | None, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the code points of the alphabet, sorted, and those left out, most frequent first: by
    default as many as cover 99.95% of the text, as in SentencePiece, from 1000 to `most`.
    """
    code_points = np.arange(len(char_counts))
    by_count = np.lexsort((code_points, -char_counts))
    # Code points that do not occur come last.
    by_count = by_count[: np.count_nonzero(char_counts)]
    if limit_alphabet is None:
        covered = np.cumsum(char_counts[by_count])
        wanted = 0.9995 * char_counts.sum()
        num_covering = int(np.searchsorted(covered, wanted)) + 1
        limit_alphabet = max(1000, min(num_covering, most))
    return np.sort(by_count[:limit_alphabet]), by_count[limit_alphabet:]


class _Merger:
    """The words as linked pieces, and the pairs of neighbours in them by count.

    A pair is one number, its left piece times `_LEFT` plus its right piece. Ties go to the smaller
    number, so to the older pieces.
    """

    def __init__(self, spelled: _Spelled, min_frequency: int) -> None:
        self.pieces = list(spelled.pieces)
        self.merges: list[tuple[int, int]] = []
        """The two pieces of each merge, in their order."""
        self._min_frequency = min_frequency
        self._weights = spelled.weights
        self._symbols = spelled.symbols

        # Link the characters of each word. One extra position at the end means "no neighbour", so
        # no look-up needs a special case. For the words "the" and "he":
        #
        #   position       0  1  2    3  4    5 = end
        #   starts_word    T  F  F    T  F    T
        #   previous       5  0  1    5  3    5
        #   next           1  2  5    4  5    5
        end = len(spelled.symbols) - 1
        self._end = end
        positions = np.arange(end + 1, dtype=np.int32)
        starts_word = np.append(spelled.starts_word, True)
        previous = np.where(starts_word, end, positions - 1)
        self._previous = previous.astype(np.int32)
        ends_word = starts_word[1:]
        following = np.where(ends_word, end, positions[1:])
        self._next = np.append(following.astype(np.int32), np.int32(end))
        has_next = self._next[:end] != end
        # Memory peaks in the call of `_add_pairs` below.
        del positions, starts_word, previous, ends_word, following

        self._positions: dict[int, np.ndarray] = {}
        self._pairs_of_bound: dict[int, list[int]] = {}
        """The pairs by the upper bound of their count."""
        self._bounds: list[int] = []
        """A heap of these bounds, negative, so that the highest comes first."""
        self._add_pairs(np.flatnonzero(has_next).astype(np.int32))

    def merge(self, num_merges: int) -> None:
        """Make `num_merges` merges, or as many as there are frequent pairs."""
        while self._bounds and len(self.merges) < num_merges:
            bound = -self._bounds[0]
            pairs = self._pairs_of_bound[bound]
            pairs.sort()
            apart = _first_apart(pairs, num_merges - len(self.merges))
            del pairs[: len(apart)]
            if not pairs:
                del self._pairs_of_bound[bound]
                heappop(self._bounds)
            tied = []
            for pair, count in zip(apart, self._recount(apart), strict=True):
                # No other pair can occur more often: their bounds are lower, or equal.
                if count == bound:
                    tied.append(pair)
                elif count >= self._min_frequency:
                    self._file(pair, count)
                else:
                    del self._positions[pair]
            if tied:
                self._merge(tied)

    def _file(self, pair: int, bound: int) -> None:
        """Add a pair whose count is at most `bound`."""
        if bound not in self._pairs_of_bound:
            self._pairs_of_bound[bound] = []
            heappush(self._bounds, -bound)
        self._pairs_of_bound[bound].append(pair)

    def _occurrences(self, pairs: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of all pairs, end to end, and the number of each pair's."""
        arrays = [self._positions[pair] for pair in pairs]
        return np.concatenate(arrays), np.array([len(array) for array in arrays])

    def _recount(self, pairs: list[int]) -> list[int]:
        """Forget where pairs no longer occur; return their counts. A double one comes alone."""
        positions, lengths = self._occurrences(pairs)
        lefts, rights = np.divmod(np.array(pairs), _LEFT)
        remains = self._symbols[positions] == np.repeat(lefts, lengths)
        remains &= self._symbols[self._next[positions]] == np.repeat(rights, lengths)
        starts = np.cumsum(lengths) - lengths
        weights = self._weights[positions] * remains
        counts = np.add.reduceat(weights, starts, dtype=np.int64).tolist()
        num_remaining = np.add.reduceat(remains, starts, dtype=np.int64)
        positions = positions[remains]
        start = 0
        for pair, stop in zip(pairs, np.cumsum(num_remaining).tolist(), strict=True):
            self._positions[pair] = positions[start:stop]
            start = stop
        if _is_double(pairs[0]):
            return [int(self._weights[self._without_overlaps(positions)].sum())]
        return counts

    def _without_overlaps(self, positions: np.ndarray) -> np.ndarray:
        """In runs of one piece keep every second pair from the left."""
        # For the words "aaaa" and "aa":
        #
        #   pieces        a a a a   a a
        #   positions     0 1 2     4         of the pair (a, a), by its left piece
        #   overlaps      F T T     F         starts at the right piece of the pair before
        #   run_starts    0 0 0     3         the index, in `positions`, where the run starts
        #   returned      0   2     4
        positions = np.sort(positions)
        indices = np.arange(len(positions))
        right_pieces = self._next[positions[:-1]]
        overlaps = np.append(False, right_pieces == positions[1:])
        run_starts = np.maximum.accumulate(np.where(overlaps, 0, indices))
        index_in_run = indices - run_starts
        return positions[index_in_run % 2 == 0]

    def _merge(self, pairs: list[int]) -> None:
        """Join `pairs` wherever they occur, and add those that the joined pieces form."""
        if _is_double(pairs[0]):
            self._positions[pairs[0]] = self._without_overlaps(self._positions[pairs[0]])
        positions, lengths = self._occurrences(pairs)
        # Unlink the right pieces, as in a linked list:
        #
        #   before - position - second - after   becomes   before - position ------- after
        second = self._next[positions]
        after = self._next[second]
        self._symbols[second] = GONE
        self._symbols[positions] = _JUST_MERGED
        self._next[positions] = after
        self._previous[after] = positions

        before = self._previous[positions]
        # If two joined pieces meet, their pair is found from the left one and must not be counted
        # twice.
        is_first_of_run = self._symbols[before] != _JUST_MERGED
        before = before[(before != self._end) & is_first_of_run]
        # The pieces are always new: earlier merges within a piece's bounds depended on its text
        # alone, so no other pair of pieces can spell the same text.
        new_pieces = np.arange(len(self.pieces), len(self.pieces) + len(pairs))
        self._symbols[positions] = np.repeat(new_pieces, lengths)
        for pair in pairs:
            left, right = divmod(pair, _LEFT)
            self.pieces.append(self.pieces[left] + self.pieces[right].removeprefix("##"))
            self.merges.append((left, right))
            del self._positions[pair]
        has_next = after != self._end
        self._add_pairs(np.concatenate([before, positions[has_next]]))

    def _add_pairs(self, positions: np.ndarray) -> None:
        """Group new pairs by their two pieces; drop those below the minimum frequency."""
        if not len(positions):
            return
        # All in place: the first call has a pair for nearly every character.
        keys = self._symbols[positions].astype(np.int64)
        keys *= _LEFT
        keys += self._symbols[self._next[positions]]
        positions = positions[np.argsort(keys)]
        keys.sort()
        is_new_pair = keys[1:] != keys[:-1]
        starts = np.append(0, np.flatnonzero(is_new_pair) + 1)
        stops = np.append(starts[1:], len(keys))
        counts = np.add.reduceat(self._weights[positions], starts, dtype=np.int64)
        pairs = keys[starts]
        is_frequent = counts >= self._min_frequency
        for pair, start, stop, count in zip(
            pairs[is_frequent].tolist(),
            starts[is_frequent].tolist(),
            stops[is_frequent].tolist(),
            counts[is_frequent].tolist(),
            strict=True,
        ):
            self._positions[pair] = positions[start:stop]
            self._file(pair, count)


def _first_apart(pairs: list[int], most: int) -> list[int]:
    """Return the first of `pairs` that do not overlap; a pair of two equal pieces alone."""
    apart: list[int] = []
    lefts: set[int] = set()
    rights: set[int] = set()
    for pair in pairs[:most]:
        left, right = divmod(pair, _LEFT)
        if left == right:
            return apart or [pair]
        if left in rights or right in lefts:
            break
        apart.append(pair)
        lefts.add(left)
        rights.add(right)
    return apart


def _is_double(pair: int) -> bool:
    return pair // _LEFT == pair % _LEFT
