"""Which tokens a row holds beside those that it is read for: as much of their document as there is room for.

Places are indices of the document's tokens, without special ones; ranges go up to, without, their end.
"""

from itertools import pairwise
from typing import NamedTuple


class Window(NamedTuple):
    """The tokens of a row, and those of them that count in it."""

    start: int
    end: int
    first: int
    """The first token that counts; the others are context."""
    last: int
    """One past the last token that counts."""


def windows(first: int, last: int, num_tokens: int, size: int) -> list[Window]:
    """Return the windows of at most `size` tokens in which the tokens from `first` to `last` count, each in one.

    Where they fit into one window they stand in its middle, or nearer to an end of the document of `num_tokens` than
    that, so that the window is full. Where they do not, windows follow each other by half their size, without tokens
    around the sentence, and each token counts where the smaller of its contexts, to the left and to the right, is
    largest.

    >>> windows(4, 6, 20, 6), windows(0, 2, 20, 6), windows(4, 6, 7, 8)
    ([Window(start=2, end=8, first=4, last=6)], [Window(start=0, end=6, first=0, last=2)], \
[Window(start=0, end=7, first=4, last=6)])
    >>> windows(0, 9, 20, 6)
    [Window(start=0, end=6, first=0, last=5), Window(start=3, end=9, first=5, last=9)]
    """
    length = last - first
    if length <= size:
        start = max(0, min(first - (size - length) // 2, num_tokens - size))
        return [Window(start, min(start + size, num_tokens), first, last)]
    starts = [*range(first, last - size, max(1, size // 2)), last - size]
    middles = [(later + start + size + 1) // 2 for start, later in pairwise(starts)]
    bounds = [first, *middles, last]
    return [Window(start, start + size, bounds[index], bounds[index + 1]) for index, start in enumerate(starts)]
