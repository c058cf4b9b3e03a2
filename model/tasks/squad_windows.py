"""Cut a passage into windows that fit into rows, and find the best answers in all its windows.

A passage of 10 tokens in windows of 6, the stride being 3; digits in brackets have most context in
that window::

    window 0   [0 1 2 3 4]5
    window 1          3 4[5 6 7]8
    window 2                6 7[8 9]

Shapes: P tokens of a passage or of its part in a window, W windows, K longest answer in tokens, L
tokens of a row.
"""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

N_BEST = 20


class PassageWindow(NamedTuple):
    """The part of a passage in one row."""

    first_token: int
    """Index in the passage of the window's first token."""
    row_start: int
    """Index in the row of that token."""
    offsets_P2: np.ndarray
    """First character of each token in the passage, and one past its last."""
    may_start_P: np.ndarray
    """bool: an answer may start at this token, because no other window gives it more context."""


def window_spans(num_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return each window's first token and one past its last.

    An empty passage has one empty window.

    >>> window_spans(10, 6, 3)
    [(0, 6), (3, 9), (6, 10)]
    """
    # A stride longer than a window would leave gaps.
    step = min(stride, room)
    # The first window that reaches the end is the last; the range goes one step past `last_start`
    # to include it.
    last_start = max(0, num_tokens - room)
    starts = range(0, last_start + step, step)
    return [(start, min(start + room, num_tokens)) for start in starts]


@lru_cache(maxsize=1024)
def most_context(num_tokens: int, room: int, stride: int) -> np.ndarray:
    """Return for each token (P,) the index of the window in which it has most context.

    Context is the smaller of the numbers of neighbours to the left and right; ties go to the longer
    window, then to the first (google-research's ``_check_is_max_context``).

    >>> most_context(10, 6, 3)
    array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    """
    # Every window against every token. For the first two windows of the drawing above:
    #
    #     left_WP      0  1  2  3  4  5  6  7  8  9        right_WP   5  4  3  2  1  0 -1 -2 …
    #                 -3 -2 -1  0  1  2  3  4  5  6                   8  7  6  5  4  3  2  1 …
    #
    # A negative number means that the token is outside.
    spans_W2 = np.array(window_spans(num_tokens, room, stride))
    starts_W1 = spans_W2[:, :1]
    ends_W1 = spans_W2[:, 1:]
    tokens_P = np.arange(num_tokens)
    left_WP = tokens_P - starts_W1
    right_WP = ends_W1 - 1 - tokens_P
    # 0.01 per token of the window: it decides only between equal contexts.
    context_WP = np.minimum(left_WP, right_WP) + 0.01 * (ends_W1 - starts_W1)
    is_inside_WP = (left_WP >= 0) & (right_WP >= 0)
    return np.where(is_inside_WP, context_WP, -np.inf).argmax(0)


def token_span(offsets_P2: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and last token that overlap ``passage[start:end]``, or None."""
    overlaps_P = (offsets_P2[:, 0] < end) & (offsets_P2[:, 1] > start)
    tokens = np.flatnonzero(overlaps_P)
    if not len(tokens):
        return None
    return int(tokens[0]), int(tokens[-1])


def window_target(span: tuple[int, int] | None, window: PassageWindow) -> np.ndarray:
    """Return the positions in the row (2,) of an answer's ends, or of [CLS]."""
    nowhere = np.zeros(2, dtype=np.int64)
    if span is None:
        return nowhere
    target = np.array(span, dtype=np.int64) - window.first_token
    if target[0] < 0 or target[1] >= len(window.offsets_P2):
        return nowhere
    return target + window.row_start


class Span(NamedTuple):
    """A candidate answer."""

    score: float
    """Sum of the two logits."""
    start: int
    """Index of its first character in the passage."""
    text: str
    start_logit: float
    end_logit: float


class Prediction(NamedTuple):
    """The prediction for a question."""

    spans: list[Span]
    """At most `N_BEST`, best first, with distinct texts; empty if the passage has no tokens."""
    null_logits: tuple[float, float]
    """Start and end logit of [CLS] in the window with the lowest sum."""

    @property
    def text(self) -> str:
        """The best non-null answer."""
        return self.spans[0].text if self.spans else ""

    @property
    def null_odds(self) -> float:
        """By how much "no answer" outscores the best answer."""
        if not self.spans:
            return 0.0
        return sum(self.null_logits) - self.spans[0].score


def predict_answer(
    windows: Iterable[tuple[PassageWindow, np.ndarray]], passage: str, max_tokens: int
) -> Prediction:
    """Return the best spans in all windows, each with its row's logits (L, 2)."""
    candidates: list[Span] = []
    null_logits: list[tuple[float, float]] = []
    for window, row_logits_L2 in windows:
        logits_L2 = row_logits_L2.astype(np.float64)
        start_logit, end_logit = logits_L2[0].tolist()  # of [CLS]
        null_logits.append((start_logit, end_logit))
        row_end = window.row_start + len(window.offsets_P2)
        starts_P, ends_P = logits_L2[window.row_start : row_end].T
        for first, last in best_spans(starts_P, ends_P, window.may_start_P, max_tokens):
            start = int(window.offsets_P2[first, 0])
            end = int(window.offsets_P2[last, 1])
            # BERT strips combining accents, so they are in no token; one belongs to the letter
            # before.
            while end < len(passage) and unicodedata.category(passage[end]) == "Mn":
                end += 1
            start_logit, end_logit = float(starts_P[first]), float(ends_P[last])
            text = passage[start:end]
            candidates.append(Span(start_logit + end_logit, start, text, start_logit, end_logit))
    # Best first, so the first span of each text is its best.
    candidates.sort(key=lambda span: (-span.score, span.start))
    best_by_text: dict[str, Span] = {}
    for span in candidates:
        best_by_text.setdefault(span.text, span)
    n_best = list(best_by_text.values())[:N_BEST]
    # The lowest: a question has no answer only if none of its windows has one.
    return Prediction(n_best, min(null_logits, key=sum))


def best_spans(
    starts_P: np.ndarray, ends_P: np.ndarray, may_start_P: np.ndarray, max_tokens: int
) -> np.ndarray:
    """Return (first, last) of the `N_BEST` spans with the highest sum of logits, int (n, 2), the
    best first. A span starts at one of `may_start_P`, but may end anywhere, as in google-research's
    ``run_squad.py``: one between two windows would be lost.
    """
    # One row of scores per first token, one column per length. Three tokens, spans of at most two,
    # none of which may start at token 1; past the passage's end no token can be the last:
    #
    #     starts  s0 -inf s2       scores_PK   s0+e0   s0+e1       scores   0 | 1 | 2 | 3 | 4 | 5
    #     ends    e0  e1  e2                   -inf    -inf        first    0   0   1   1   2   2
    #                                          s2+e2   -inf        last     0   1   1   2   2   3
    #
    # The ends are a view that slides over one array, so nothing is copied for it.
    padding_K = np.full(max_tokens, -np.inf)
    padded_ends = np.concatenate([ends_P, padding_K])
    ends_PK = sliding_window_view(padded_ends, max_tokens)[: len(starts_P)]
    allowed_starts_P = np.where(may_start_P, starts_P, -np.inf)
    scores_PK = allowed_starts_P[:, None] + ends_PK
    scores = scores_PK.ravel()
    # Thousands of spans are not sorted for the sake of 20.
    if len(scores) > N_BEST:
        chosen = np.argpartition(-scores, N_BEST - 1)[:N_BEST]
    else:
        chosen = np.arange(len(scores))
    # By score, and equal ones by position.
    chosen = chosen[np.lexsort((chosen, -scores[chosen]))]
    chosen = chosen[np.isfinite(scores[chosen])]
    firsts = chosen // max_tokens
    lasts = firsts + chosen % max_tokens
    return np.stack([firsts, lasts], axis=1)
