"""Make rows of tokens from sentences of given words, filled up with context from their document."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from ...pipeline.ragged import offsets_of
from ..tokenizer import TextTokenizer, TokenRow
from .tagged import Sentence


class SentenceExample(NamedTuple):
    """A sentence and its document."""

    document: Sequence[Sentence]
    number: int

    @property
    def sentence(self) -> Sentence:
        return self.document[self.number]


class SentenceRow(NamedTuple):
    """One row of tokens, and the words of its sentence that are read from it."""

    example: int
    """Index of the sentence among those encoded together."""
    row: TokenRow
    words: np.ndarray
    """Indices of the sentence's words whose first tokens are read here."""
    word_positions: np.ndarray
    """Positions of these first tokens in the row, where [CLS] is 0."""


def sentence_rows(
    examples: Sequence[SentenceExample], tokenizer: TextTokenizer, max_length: int
) -> Iterator[SentenceRow]:
    """Yield the rows of each example, of at most `max_length` tokens.

    A sentence has one row, or several if it is longer than that. Words are tokenised one by one,
    and stay one word even if the tokenizer splits them at punctuation. Each token, and so each
    word, is read from exactly one row.
    """
    # Two sentences, "cats purr loudly" and "dogs". Sentences begin at words, words at tokens:
    #
    #     tokens            cats   pur  ##r    loud  ##ly     dogs
    #     index of token      0     1    2       3     4        5
    #     word_starts       [ 0     1            3              5     6 ]
    #     index of word       0     1            2              3
    #     sentence_starts   [ 0                                 3     4 ]
    document: Sequence[Sentence] | None = None
    ids: list[int] = []
    word_starts = sentence_starts = np.zeros(1, dtype=np.int64)
    for index, example in enumerate(examples):
        # Sentences of one document follow each other, so it is tokenised once.
        if example.document is not document:
            document = example.document
            words = [word for sentence in document for word in sentence.words]
            spaced = [is_spaced for sentence in document for is_spaced in sentence.spaced()]
            # A word of control characters alone has no tokens, but needs one to be read from.
            word_ids = [ids or [tokenizer.unknown] for ids in tokenizer.word_ids(words, spaced)]
            ids = list(chain.from_iterable(word_ids))
            word_starts = offsets_of(list(map(len, word_ids)))
            sentence_starts = offsets_of([len(sentence.words) for sentence in document])
        first_word, end_word = sentence_starts[example.number : example.number + 2]
        starts_W = word_starts[first_word:end_word]
        room = max_length - 2  # without [CLS] and [SEP]
        start, end = int(word_starts[first_word]), int(word_starts[end_word])
        for first, last, read_start, read_end in context_windows(start, end, len(ids), room):
            words_read = np.flatnonzero((starts_W >= read_start) & (starts_W < read_end))
            yield SentenceRow(
                example=index,
                row=tokenizer.row(ids[first:last], None, max_length),
                words=words_read,
                word_positions=starts_W[words_read] + 1 - first,  # 1 for [CLS]
            )


def context_windows(
    sentence_start: int, sentence_end: int, num_tokens: int, size: int
) -> list[tuple[int, int, int, int]]:
    """Return windows of at most `size` tokens of a document, from which its sentence is read: where
    each starts and ends in the document, and where what is read of it does.

    A sentence that fits into one window lies in its middle, or off-centre at an end of the document
    of `num_tokens`, to keep the window full. A longer sentence gets overlapping windows, half their
    size apart, without context around the sentence. Each token is read from the window in which the
    smaller of its left and right contexts is largest, so two windows divide their overlap in the
    middle.

    >>> context_windows(4, 6, 20, 6)
    [(2, 8, 4, 6)]
    >>> [window[:2] for window in context_windows(0, 2, 20, 6)]
    [(0, 6)]
    >>> [window[2:] for window in context_windows(0, 9, 20, 6)]
    [(0, 5), (5, 9)]
    """
    length = sentence_end - sentence_start
    # Tokens 4 and 5 of 20 are the sentence, a window has 6, and read tokens are in brackets:
    #
    #     0 1 2 3 4 5 6 7 8 …
    #         2 3[4 5]6 7
    if length <= size:
        centred = sentence_start - (size - length) // 2
        # Moved left at the document's end, then right at its beginning: in this order, since a
        # document shorter than the window has both.
        start = max(0, min(centred, num_tokens - size))
        end = min(start + size, num_tokens)
        return [(start, end, sentence_start, sentence_end)]
    # Tokens 0 to 8 are the sentence:
    #
    #     0 1 2 3 4 5 6 7 8
    #    [0 1 2 3 4]5
    #           3 4[5 6 7 8]
    #
    # The last window ends with the sentence, so it may overlap the one before by more than half.
    last_start = sentence_end - size
    starts = [*range(sentence_start, last_start, max(1, size // 2)), last_start]
    # The overlap of two windows begins at the later one's start, and ends at the earlier one's end.
    # The middle token of an odd overlap is read from the earlier window.
    middles = [(later + earlier + size + 1) // 2 for earlier, later in pairwise(starts)]
    bounds = pairwise([sentence_start, *middles, sentence_end])
    return [
        (start, start + size, read_start, read_end)
        for start, (read_start, read_end) in zip(starts, bounds, strict=True)
    ]
