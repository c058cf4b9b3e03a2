"""Windows of a passage that is longer than a row, and which of them a token counts in.

Shapes: P tokens of a passage or of its part in a window, W windows.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..tokenizer import TextTokenizer
from .task import TokenRow


class PassageWindow(NamedTuple):
    """The part of a passage that a row holds."""

    first_token: int
    """Index in the passage's tokens of its first one here."""
    row_start: int
    """Index in the row of that token."""
    offsets_P2: np.ndarray
    """First character of each token in the passage, and the one after its last."""
    counts_P: np.ndarray
    """bool: this is the window in which the token has most context."""


class WindowShape(NamedTuple):
    """How rows are cut, in tokens."""

    max_length: int
    stride: int
    """From the start of a window to that of the next."""
    max_question_length: int

    def room(self, question_length: int) -> int:
        """Return how many tokens of the passage stand beside a question; less than 1 where there is no room."""
        return self.max_length - min(question_length, self.max_question_length) - 3


def window_spans(num_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return the first token of each window and the one after its last; an empty passage has one empty window.

    >>> window_spans(10, 6, 3)
    [(0, 6), (3, 9), (6, 10)]
    """
    # Windows further apart than they are long would leave gaps.
    last_start = max(0, num_tokens - room)
    step = min(stride, room)
    starts = range(0, last_start + step, step)
    return [(start, min(start + room, num_tokens)) for start in starts]


@lru_cache(maxsize=1024)
def most_context(num_tokens: int, room: int, stride: int) -> np.ndarray:
    """Return for each token (P,) the index of the window in which it has most context.

    That is the smaller of its numbers of neighbours to the left and to the right in the window, and of two equal
    ones that of the longer window, then the first (google-research's ``_check_is_max_context``).
    """
    starts_W1, ends_W1 = np.array(window_spans(num_tokens, room, stride)).T[:, :, None]
    places_P = np.arange(num_tokens)
    left_WP, right_WP = places_P - starts_W1, ends_W1 - 1 - places_P
    context_WP = np.minimum(left_WP, right_WP) + 0.01 * (ends_W1 - starts_W1)
    return np.where((left_WP >= 0) & (right_WP >= 0), context_WP, -np.inf).argmax(0)


def cut_windows(
    question: Sequence[int],
    passage: Sequence[int],
    offsets_P2: np.ndarray,
    shape: WindowShape,
    tokenizer: TextTokenizer,
) -> Iterator[tuple[TokenRow, PassageWindow]]:
    """Yield the rows ``[CLS] question [SEP] window [SEP]`` of a passage, with what each holds of it.

    The question is cut at `WindowShape.max_question_length`; it must leave room for the passage.
    """
    kept = list(question[: shape.max_question_length])
    room = shape.room(len(kept))
    owner_P = most_context(len(passage), room, shape.stride)
    for index, (start, end) in enumerate(window_spans(len(passage), room, shape.stride)):
        ids, segment_b_start, _ = tokenizer.row(kept, list(passage[start:end]), shape.max_length)
        row = TokenRow(ids, segment_b_start, len(question) - len(kept))
        yield row, PassageWindow(start, row.segment_b_start, offsets_P2[start:end], owner_P[start:end] == index)


def token_span(offsets_P2: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and last token with a character of ``passage[start:end]``; None where there is none."""
    (touching,) = np.nonzero((offsets_P2[:, 0] < end) & (offsets_P2[:, 1] > start))
    return (int(touching[0]), int(touching[-1])) if len(touching) else None


def window_target(span: tuple[int, int] | None, window: PassageWindow) -> np.ndarray:
    """Return the places in the row (2,) of an answer's first and last token; (0, 0), [CLS], where it is not whole."""
    if span is None:
        return np.zeros(2, dtype=np.int64)
    first, last = (token - window.first_token for token in span)
    if first < 0 or last >= len(window.offsets_P2):
        return np.zeros(2, dtype=np.int64)
    return np.array([first, last], dtype=np.int64) + window.row_start
