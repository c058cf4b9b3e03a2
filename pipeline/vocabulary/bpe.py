"""Learn byte-level byte-pair encoding from word counts (Sennrich et al. 2016, arXiv 1508.07909;
bytes as in GPT-2).

The merges are found as in `wordpiece`, exact and the same on every run, but of bytes: there is no
alphabet to choose, and no character to leave out. The trainer of `tokenizers` would need the texts
themselves.
"""

import numpy as np
import pyarrow as pa

from ..errors import UserError
from ..manifests import WordPieceReport
from ..ragged import flat_text
from .byte_level import CHARACTERS
from .wordpiece import GONE, Merger, Spelled, select_words, special_tokens


def learn_bpe(
    words: pa.Array | pa.ChunkedArray,
    counts: np.ndarray,
    *,
    size: int,
    min_frequency: int = 2,
    num_unused: int = 0,
) -> tuple[list[str], list[tuple[str, str]], WordPieceReport]:
    """Return a vocabulary of `size` tokens in the order of their ids, its merges, and a report of
    what was left out.

    `words` are distinct words of `ByteLevelSplitter`, `counts` int64 [num_words]. Merges end early,
    and the vocabulary is smaller, if no pair occurs `min_frequency` times. The tokens are:
    `special_tokens` as in BERT's vocabularies, so that [PAD] is 0; the 256 bytes in GPT-2's order;
    and the merges as they were made. Raise `UserError` if `size` is too small.
    """
    specials = special_tokens(num_unused)
    room = size - len(specials) - len(CHARACTERS)
    if room < 0:
        raise UserError(
            f"`size` is {size}, but special tokens and the 256 bytes alone take {size - room}: "
            "raise `size`."
        )
    frequent, frequent_counts, num_long = select_words(words, counts)
    pa.default_memory_pool().release_unused()
    merger = Merger(_spell(frequent, frequent_counts), min_frequency)
    merger.merge(room)
    num_merges = len(merger.merges)
    report = WordPieceReport(
        num_words=len(words),
        num_words_long=num_long,
        num_words_rare=len(words) - num_long - len(frequent),
        num_words_alphabet=0,
        alphabet_left_out="",
        num_alphabet=len(CHARACTERS),
        num_merges=num_merges,
        num_missing=room - num_merges,
    )
    pieces = merger.pieces
    merges = [(pieces[left], pieces[right]) for left, right in merger.merges]
    return specials + pieces, merges, report


def _spell(words: pa.Array, counts: np.ndarray) -> Spelled:
    """Return the words byte by byte."""
    text, offsets = flat_text(words)
    # GPT-2 numbers the bytes by the characters that stand for them.
    pieces = sorted(CHARACTERS)
    number_of_piece = {piece: number for number, piece in enumerate(pieces)}
    symbol_of_byte = np.array([number_of_piece[character] for character in CHARACTERS], np.int32)
    starts_word = np.zeros(len(text), bool)
    starts_word[offsets[:-1]] = True
    smallest_type = np.min_scalar_type(counts.max(initial=0))
    return Spelled(
        pieces=pieces,
        symbols=np.append(symbol_of_byte[text], np.int32(GONE)),
        starts_word=starts_word,
        weights=np.repeat(counts.astype(smallest_type), np.diff(offsets)),
        alphabet_left_out="",
        num_words_left_out=0,
    )
