"""Cut passages longer than a row into windows, and find the window in which each token has most context.

Shapes: P tokens of a passage or of its part in a window, W windows.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..tokenizer import TextTokenizer
from .task import TokenRow


class PassageWindow(NamedTuple):
    """The part of a passage in one row."""

    first_token: int
    """Index in the passage of the window's first token."""
    row_start: int
    """Index in the row of that token."""
    offsets_P2: np.ndarray
    """First character of each token in the passage, and one past its last."""
    counts_P: np.ndarray
    """bool: the token has most context in this window."""


class WindowShape(NamedTuple):
    """How rows are cut, in tokens."""

    max_length: int
    stride: int
    """From the start of a window to the start of the next."""
    max_question_length: int

    def room(self, question_length: int) -> int:
        """Return how many passage tokens fit beside a question; less than 1 if none do."""
        return self.max_length - min(question_length, self.max_question_length) - 3


def window_spans(num_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return each window's first token and one past its last; an empty passage has one empty window.

    >>> window_spans(10, 6, 3)
    [(0, 6), (3, 9), (6, 10)]
    """
    # A stride longer than a window would leave gaps.
    last_start = max(0, num_tokens - room)
    step = min(stride, room)
    starts = range(0, last_start + step, step)
    return [(start, min(start + room, num_tokens)) for start in starts]


@lru_cache(maxsize=1024)
def most_context(num_tokens: int, room: int, stride: int) -> np.ndarray:
    """Return for each token (P,) the index of the window in which it has most context.

    Context is the smaller of the numbers of neighbours to the left and right; ties go to the longer window, then to the
    first (google-research's ``_check_is_max_context``).
    """
    starts_W1, ends_W1 = np.array(window_spans(num_tokens, room, stride)).T[:, :, None]
    tokens_P = np.arange(num_tokens)
    left_WP, right_WP = tokens_P - starts_W1, ends_W1 - 1 - tokens_P
    context_WP = np.minimum(left_WP, right_WP) + 0.01 * (ends_W1 - starts_W1)
    return np.where((left_WP >= 0) & (right_WP >= 0), context_WP, -np.inf).argmax(0)


def cut_windows(
    question: Sequence[int],
    passage: Sequence[int],
    offsets_P2: np.ndarray,
    shape: WindowShape,
    tokenizer: TextTokenizer,
) -> Iterator[tuple[TokenRow, PassageWindow]]:
    """Yield the rows ``[CLS] question [SEP] window [SEP]`` of a passage, with their windows.

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
    """Return the first and last token that overlap ``passage[start:end]``; None if there is none."""
    (touching,) = np.nonzero((offsets_P2[:, 0] < end) & (offsets_P2[:, 1] > start))
    return (int(touching[0]), int(touching[-1])) if len(touching) else None


def window_target(span: tuple[int, int] | None, window: PassageWindow) -> np.ndarray:
    """Return the positions in the row (2,) of an answer's first and last token; (0, 0) unless both are in it."""
    if span is None:
        return np.zeros(2, dtype=np.int64)
    first, last = (token - window.first_token for token in span)
    if first < 0 or last >= len(window.offsets_P2):
        return np.zeros(2, dtype=np.int64)
    return np.array([first, last], dtype=np.int64) + window.row_start
