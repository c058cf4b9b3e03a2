"""Rows of tokens from sentences of given words, filled up with context from their document."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from ..tokenizer import TextTokenizer
from .conll import Sentence
from .task import TokenRow


class SentenceExample(NamedTuple):
    """A sentence and its document."""

    document: Sequence[Sentence]
    number: int
    """Index of the sentence in it."""

    @property
    def sentence(self) -> Sentence:
        """The sentence itself."""
        return self.document[self.number]


class SentenceRow(NamedTuple):
    """One row of tokens, and what of its sentence is read from it; positions are those in the row,
    [CLS] is 0.
    """

    example: int
    """Index of the sentence among those encoded together."""
    row: TokenRow
    tokens: np.ndarray
    """Indices of the sentence's tokens read here."""
    token_positions: np.ndarray
    words: np.ndarray
    """Indices of the sentence's words whose first tokens are read here."""
    word_positions: np.ndarray
    """Positions of these first tokens."""


def sentence_rows(
    examples: Sequence[SentenceExample], tokenizer: TextTokenizer, max_length: int
) -> Iterator[SentenceRow]:
    """Yield the rows of each example, of at most `max_length` tokens: one, or several if it is
    longer than that.

    Words are tokenised one by one, and stay one word even if the tokenizer splits them at
    punctuation; one without tokens (control characters) becomes [UNK]. Each token, and so each
    word, is read from exactly one row.
    """
    # Sentences of one document follow each other. `examples` keeps the documents alive, so an id is
    # not reused.
    for _, group in groupby(enumerate(examples), key=lambda each: id(each[1].document)):
        sentences = list(group)
        document = sentences[0][1].document
        tokens = tokenizer.token_ids([word for sentence in document for word in sentence.words])
        ids = [token for word in tokens for token in word or [tokenizer.unknown]]
        # The first token of each word and the first word of each sentence, and one past the last.
        word_starts = np.cumsum([0, *(len(word) or 1 for word in tokens)])
        sentence_starts = np.cumsum([0, *(len(sentence.words) for sentence in document)])
        for index, example in sentences:
            begin, end = sentence_starts[example.number : example.number + 2]
            first, last = int(word_starts[begin]), int(word_starts[end])
            for window in context_windows(first, last, len(ids), max_length - 2):
                row = TokenRow(*tokenizer.row(ids[window.start : window.end], None, max_length))
                shift = 1 - window.start
                tokens_read = np.arange(window.first, window.last)
                starts = word_starts[begin:end]
                words = np.flatnonzero((starts >= window.first) & (starts < window.last))
                yield SentenceRow(
                    index,
                    row,
                    tokens_read - first,
                    tokens_read + shift,
                    words,
                    starts[words] + shift,
                )


class ContextWindow(NamedTuple):
    """The tokens of a row, and those read from it, as ranges of the document's tokens."""

    start: int
    end: int
    first: int
    """The first token read; the others are context."""
    last: int
    """One past the last token read."""


def context_windows(first: int, last: int, num_tokens: int, size: int) -> list[ContextWindow]:
    """Return windows of at most `size` tokens from which the tokens from `first` to `last` are
    read, each from one.

        A sentence that fits into one window lies in its middle, or off-centre at an end of the document of `num_tokens` to
        keep the window full. A longer one gets overlapping windows, half their size apart, without context around the
        sentence; each token is read from the window in which the smaller of its left and right contexts is largest.

        >>> context_windows(4, 6, 20, 6), context_windows(0, 2, 20, 6), context_windows(4, 6, 7, 8)
        ([ContextWindow(start=2, end=8, first=4, last=6)], [ContextWindow(start=0, end=6, first=0, last=2)], \
    [ContextWindow(start=0, end=7, first=4, last=6)])
        >>> context_windows(0, 9, 20, 6)
        [ContextWindow(start=0, end=6, first=0, last=5), ContextWindow(start=3, end=9, first=5, last=9)]
    """
    length = last - first
    if length <= size:
        start = max(0, min(first - (size - length) // 2, num_tokens - size))
        return [ContextWindow(start, min(start + size, num_tokens), first, last)]
    starts = [*range(first, last - size, max(1, size // 2)), last - size]
    middles = [(later + start + size + 1) // 2 for start, later in pairwise(starts)]
    bounds = [first, *middles, last]
    return [
        ContextWindow(start, start + size, bounds[index], bounds[index + 1])
        for index, start in enumerate(starts)
    ]
