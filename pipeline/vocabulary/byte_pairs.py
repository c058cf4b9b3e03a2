"""Merge the byte pairs of many words at once.

Each column is a word, and each round makes one merge in every word that has one, that of the lowest
rank, as byte-level BPE does word by word::

    words         " the"             " ten"                merges   0: t h   1: h e   2: Ġ t
    symbols       Ġ    t    h   e    Ġ    t    e   n                3: th e  4: e n   5: Ġ the
    merge         2    0    1        2    -    4
    after round   Ġ    th   e        Ġt   e    n           0 and 2 are the lowest
                  Ġ    the           Ġt   en               3 and 4
                  Ġthe               Ġt   en               5

A byte is its own symbol, and a merge's symbol is 256 and its rank: the lowest symbol that a pair
becomes is the first merge.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..ragged import indices_of, offsets_of

MAX_BYTES = 32
"""Longer words are not merged here: each round moves all symbols of a word."""

_NONE = 1 << 24  # the symbol of a pair that is not merged, and what stands beside a word
_SHIFT = 6  # bits for a place in a word


class BytePairs:
    """The merges of a byte-level BPE, looked up for many pairs at once."""

    def __init__(
        self, merges: Sequence[Sequence[str]], ids: Mapping[str, int], characters: str
    ) -> None:
        """`ids` has those of all merged tokens and of the 256 `characters` that stand for bytes.
        Raise `ValueError` if two merges make the same token, which is then no symbol of its own.
        """
        tokens = [*characters, *(left + right for left, right in merges)]
        symbols = dict(zip(tokens, range(len(tokens)), strict=True))
        if len(symbols) < len(tokens):
            raise ValueError("two merges make the same token")
        self._ids = np.array([ids[token] for token in tokens], np.int32)
        left = np.array([symbols.get(left, -1) for left, _ in merges], np.int64)
        right = np.array([symbols.get(right, -1) for _, right in merges], np.int64)
        # Other pairs never come about.
        made = np.flatnonzero((left >= 0) & (right >= 0))
        self._build((left[made] << 32) | right[made], (256 + made).astype(np.int32))

    def _build(self, keys: np.ndarray, merged: np.ndarray) -> None:
        """Fill a hash table of at least four places a merge; what collides moves on by a place."""
        bits = max((4 * len(keys)).bit_length(), 4)
        self._hash_shift = np.int64(64 - bits)
        self._mask = (1 << bits) - 1
        self._keys = np.full(1 << bits, -1, np.int64)
        self._merged = np.full(1 << bits, _NONE, np.int32)
        slots = self._hash(keys)
        while len(keys):
            is_free = self._keys[slots] < 0
            self._keys[slots[is_free]] = keys[is_free]
            # If several want the same place, one has it.
            is_in = self._keys[slots] == keys
            self._merged[slots[is_in]] = merged[is_in]
            keys = keys[~is_in]
            merged = merged[~is_in]
            slots = (slots[~is_in] + 1) & self._mask

    def _hash(self, keys: np.ndarray) -> np.ndarray:
        hashes = keys * np.int64(-7046029254386353131)
        hashes ^= hashes >> 29
        hashes *= np.int64(-4658895280553007687)
        return (hashes >> self._hash_shift) & self._mask

    def _look_up(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the symbol that each pair becomes, int32; `_NONE` if it is not merged."""
        keys = (left.astype(np.int64) << 32) | right
        slots = self._hash(keys)
        found = self._keys.take(slots)
        merged = self._merged.take(slots)
        unlike = np.flatnonzero(found != keys)
        merged[unlike] = _NONE
        unlike = unlike[found[unlike] >= 0]
        while len(unlike):
            slots[unlike] = (slots[unlike] + 1) & self._mask
            at = slots[unlike]
            found = self._keys[at]
            same = found == keys[unlike]
            merged[unlike[same]] = self._merged[at[same]]
            unlike = unlike[~same & (found >= 0)]
        return merged

    def encode(self, text: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all words, end to end, int32, and the number of each word's.

        `text`, uint8, has words of 1 to `MAX_BYTES` bytes at `offsets`.
        """
        lengths = np.diff(offsets)
        order = np.argsort(lengths, kind="stable")
        num_tokens = np.empty(len(lengths), np.int64)
        ids = [np.zeros(0, np.int32)]
        block = 4096  # a few megabytes, so that rounds stay in the cache
        for first in range(0, len(order), block):
            chosen = order[first : first + block]
            block_ids, counts = self._encode_block(text, offsets[chosen], lengths[chosen])
            ids.append(block_ids)
            num_tokens[chosen] = counts
        # Back from the order of their lengths.
        places = np.argsort(order)
        starts = offsets_of(num_tokens[order])
        return np.concatenate(ids)[indices_of(starts, places)], num_tokens

    def _encode_block(
        self, text: np.ndarray, starts: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        num_words = len(starts)
        width = int(lengths.max())
        # One row before and one after the word, which no pair joins.
        symbols = np.full((width + 2, num_words), _NONE, np.int32)
        for place in range(width):
            symbols[place + 1] = text.take(starts + place, mode="clip")
        symbols[1:-1][np.arange(width)[:, None] >= lengths] = _NONE
        merged = self._look_up(symbols[:-1].ravel(), symbols[1:].ravel())
        merged = merged.reshape(width + 1, num_words)
        finished = np.full((width, num_words), _NONE, np.int32)
        words = np.arange(num_words)
        rows = np.arange(width + 1, dtype=np.int32)[:, None]
        while True:
            best = ((merged << _SHIFT) | rows[: len(merged)]).min(axis=0)
            goes_on = best < _NONE << _SHIFT
            if not goes_on.all():
                ended = ~goes_on
                finished[: len(symbols) - 2, words[ended]] = symbols[1:-1, ended]
                words = words[goes_on]
                if not len(words):
                    break
                symbols = symbols[:, goes_on]
                merged = merged[:, goes_on]
                best = best[goes_on]
            at = best & ((1 << _SHIFT) - 1)
            symbol = best >> _SHIFT
            columns = np.arange(len(words))
            # What follows the pair moves up by one.
            follows = rows[: len(merged)] >= at
            symbols = np.where(follows, symbols[1:], symbols[:-1])
            follows = follows[:-1]
            merged = np.where(follows, merged[1:], merged[:-1])
            symbols[at, columns] = symbol
            before = symbols[at - 1, columns]
            after = symbols[at + 1, columns]
            both = self._look_up(np.append(before, symbol), np.append(symbol, after))
            merged[at - 1, columns] = both[: len(words)]
            merged[at, columns] = both[len(words) :]
        by_word = np.ascontiguousarray(finished.T)
        is_token = by_word != _NONE
        return self._ids[by_word[is_token]], np.count_nonzero(is_token, axis=1)
