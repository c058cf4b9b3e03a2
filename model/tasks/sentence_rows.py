"""Rows of tokens from sentences of given words, filled up with context from their document."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
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
    """One row of tokens, and the tokens and words of the sentence whose outputs are read from it.

    Positions are indices in the row; [CLS] is 0.
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


class _DocumentTokens(NamedTuple):
    ids: list[int]
    word_starts: np.ndarray
    """Index of each word's first token, then the number of tokens."""
    sentence_starts: np.ndarray
    """Index of each sentence's first word, then the number of words."""


def sentence_rows(
    examples: Sequence[SentenceExample], tokenizer: TextTokenizer, max_length: int
) -> Iterator[SentenceRow]:
    """Yield the rows of each example, of at most `max_length` tokens: one, or several if it is longer than that.

    Words are tokenised one by one, and stay one word even if the tokenizer splits them at punctuation; one without
    tokens (control characters) becomes [UNK]. Each token, and so each word, is read from exactly one row.
    """
    tokenised: dict[int, _DocumentTokens] = {}
    for index, example in enumerate(examples):
        # `examples` keeps the documents alive, so an id is not reused.
        key = id(example.document)
        if key not in tokenised:
            tokenised = {key: _tokenise(example.document, tokenizer)}
        yield from _rows(index, example.number, tokenised[key], tokenizer, max_length)


def _tokenise(document: Sequence[Sentence], tokenizer: TextTokenizer) -> _DocumentTokens:
    words = [word for sentence in document for word in sentence.words]
    tokens = [ids or [tokenizer.unknown] for ids in tokenizer.token_ids(words)]
    return _DocumentTokens(
        list(chain.from_iterable(tokens)),
        _starts([len(ids) for ids in tokens]),
        _starts([len(sentence.words) for sentence in document]),
    )


def _starts(lengths: Sequence[int]) -> np.ndarray:
    return np.cumsum([0, *lengths])


def _rows(
    example: int, sentence: int, document: _DocumentTokens, tokenizer: TextTokenizer, max_length: int
) -> Iterator[SentenceRow]:
    begin, end = document.sentence_starts[sentence : sentence + 2]
    word_starts = document.word_starts[begin:end]
    first, last = int(document.word_starts[begin]), int(document.word_starts[end])
    for window in context_windows(first, last, len(document.ids), max_length - 2):
        row = TokenRow(*tokenizer.row(document.ids[window.start : window.end], None, max_length))
        tokens = np.arange(window.first, window.last)
        words = np.flatnonzero((word_starts >= window.first) & (word_starts < window.last))
        shift = 1 - window.start
        yield SentenceRow(example, row, tokens - first, tokens + shift, words, word_starts[words] + shift)


class ContextWindow(NamedTuple):
    """The tokens of a row, and those read from it, as ranges of the document's tokens."""

    start: int
    end: int
    first: int
    """The first token read; the others are context."""
    last: int
    """One past the last token read."""


def context_windows(first: int, last: int, num_tokens: int, size: int) -> list[ContextWindow]:
    """Return windows of at most `size` tokens from which the tokens from `first` to `last` are read, each from one.

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
    return [ContextWindow(start, start + size, bounds[index], bounds[index + 1]) for index, start in enumerate(starts)]
