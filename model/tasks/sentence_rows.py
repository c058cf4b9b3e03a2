"""From sentences of given words to rows of tokens, with as much of their document around them as there is room for."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from ..tokenizer import TextTokenizer
from .conll import Sentence
from .task import TokenRow


class SentenceExample(NamedTuple):
    """One sentence, and the document that it stands in."""

    document: Sequence[Sentence]
    number: int
    """Index of the sentence in it."""

    @property
    def sentence(self) -> Sentence:
        """The sentence itself."""
        return self.document[self.number]


class SentenceRow(NamedTuple):
    """One row of tokens, and what of its sentence is to be read from it.

    Places are indices in the row, [CLS] being 0.
    """

    example: int
    """Index of the sentence among those that were encoded together."""
    row: TokenRow
    tokens: np.ndarray
    """Indices of the sentence's tokens that are read here."""
    token_positions: np.ndarray
    words: np.ndarray
    """Indices of the sentence's words whose first tokens are read here."""
    word_positions: np.ndarray
    """Where these first tokens stand."""


class _Tokens(NamedTuple):
    ids: list[int]
    word_starts: np.ndarray
    """Index of each word's first token, and at the end the number of tokens."""
    sentence_starts: np.ndarray
    """Index of each sentence's first word, and at the end the number of words."""


def sentence_rows(
    examples: Sequence[SentenceExample], tokenizer: TextTokenizer, max_length: int
) -> Iterator[SentenceRow]:
    """Yield the rows, of at most `max_length` tokens, for each example: one, or several where it is longer than that.

    Each word is tokenised by itself, and is one word even where that parts it at punctuation; one that leaves nothing
    (control characters) is [UNK]. Each token, and so each word, is read from one row alone.
    """
    tokenised: dict[int, _Tokens] = {}
    for index, example in enumerate(examples):
        # Documents stay alive as long as `examples`, so that an id means the same one throughout.
        key = id(example.document)
        if key not in tokenised:
            tokenised = {key: _tokenise(example.document, tokenizer)}
        yield from _rows(index, example.number, tokenised[key], tokenizer, max_length)


def _tokenise(document: Sequence[Sentence], tokenizer: TextTokenizer) -> _Tokens:
    words = [word for sentence in document for word in sentence.words]
    tokens = [ids or [tokenizer.unknown] for ids in tokenizer.token_ids(words)]
    return _Tokens(
        list(chain.from_iterable(tokens)),
        _starts([len(ids) for ids in tokens]),
        _starts([len(sentence.words) for sentence in document]),
    )


def _starts(lengths: Sequence[int]) -> np.ndarray:
    return np.cumsum([0, *lengths])


def _rows(
    example: int, sentence: int, document: _Tokens, tokenizer: TextTokenizer, max_length: int
) -> Iterator[SentenceRow]:
    begin, end = document.sentence_starts[sentence : sentence + 2]
    word_starts = document.word_starts[begin:end]
    first, last = (int(document.word_starts[place]) for place in (begin, end))
    for window in context_windows(first, last, len(document.ids), max_length - 2):
        row = TokenRow(*tokenizer.row(document.ids[window.start : window.end], None, max_length))
        tokens = np.arange(window.first, window.last)
        words = np.flatnonzero((word_starts >= window.first) & (word_starts < window.last))
        to_place = 1 - window.start
        yield SentenceRow(example, row, tokens - first, tokens + to_place, words, word_starts[words] + to_place)


class ContextWindow(NamedTuple):
    """The tokens of a row, and those of them that count in it, as ranges of the document's tokens."""

    start: int
    end: int
    first: int
    """The first token that counts; the others are context."""
    last: int
    """One past the last token that counts."""


def context_windows(first: int, last: int, num_tokens: int, size: int) -> list[ContextWindow]:
    """Return the windows of at most `size` tokens in which the tokens from `first` to `last` count, each in one.

    Where they fit into one window they stand in its middle, or nearer to an end of the document of `num_tokens` than
    that, so that the window is full. Where they do not, windows follow each other by half their size, without tokens
    around the sentence, and each token counts where the smaller of its contexts, to the left and to the right, is
    largest.

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
