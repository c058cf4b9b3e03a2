"""The windows that a passage longer than a row is read in, and the best answers from the logits of
all its windows.

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
    counts_P: np.ndarray
    """bool: the token has most context in this window."""


def window_spans(num_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return each window's first token and one past its last; an empty passage has one empty
    window.

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

    Context is the smaller of the numbers of neighbours to the left and right; ties go to the longer
    window, then to the first (google-research's ``_check_is_max_context``).
    """
    starts_W1, ends_W1 = np.array(window_spans(num_tokens, room, stride)).T[:, :, None]
    tokens_P = np.arange(num_tokens)
    left_WP, right_WP = tokens_P - starts_W1, ends_W1 - 1 - tokens_P
    context_WP = np.minimum(left_WP, right_WP) + 0.01 * (ends_W1 - starts_W1)
    return np.where((left_WP >= 0) & (right_WP >= 0), context_WP, -np.inf).argmax(0)


def token_span(offsets_P2: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and last token that overlap ``passage[start:end]``; None if there is none."""
    (touching,) = np.nonzero((offsets_P2[:, 0] < end) & (offsets_P2[:, 1] > start))
    return (int(touching[0]), int(touching[-1])) if len(touching) else None


def window_target(span: tuple[int, int] | None, window: PassageWindow) -> np.ndarray:
    """Return the positions in the row (2,) of an answer's first and last token; (0, 0) unless both
    are in it.
    """
    first, last = (token - window.first_token for token in span or (-1, -1))
    if first < 0 or last >= len(window.offsets_P2):
        return np.zeros(2, dtype=np.int64)
    return np.array([first, last], dtype=np.int64) + window.row_start


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
        return sum(self.null_logits) - self.spans[0].score if self.spans else 0.0


def predict_answer(
    windows: Iterable[tuple[PassageWindow, np.ndarray]], passage: str, max_tokens: int
) -> Prediction:
    """Return the best spans of at most `max_tokens` tokens over the windows and their logits, float
    (L, 2).
    """
    candidates: list[Span] = []
    null_logits = []
    for window, logits_L2 in windows:
        logits_L2 = logits_L2.astype(np.float64)
        null_logits.append((float(logits_L2[0, 0]), float(logits_L2[0, 1])))
        logits_P2 = logits_L2[window.row_start : window.row_start + len(window.offsets_P2)]
        for first, last in best_spans(
            logits_P2[:, 0], logits_P2[:, 1], window.counts_P, max_tokens
        ):
            start, end = int(window.offsets_P2[first, 0]), int(window.offsets_P2[last, 1])
            # A combining accent, which BERT strips, is in no token; it belongs to the letter before
            # it.
            while end < len(passage) and unicodedata.category(passage[end]) == "Mn":
                end += 1
            start_logit, end_logit = float(logits_P2[first, 0]), float(logits_P2[last, 1])
            candidates.append(
                Span(start_logit + end_logit, start, passage[start:end], start_logit, end_logit)
            )
    candidates.sort(key=lambda span: (-span.score, span.start))
    distinct: dict[str, Span] = {}
    for span in candidates:
        distinct.setdefault(span.text, span)
    return Prediction(list(distinct.values())[:N_BEST], min(null_logits, key=sum))


def best_spans(
    starts_P: np.ndarray, ends_P: np.ndarray, counts_P: np.ndarray, max_tokens: int
) -> np.ndarray:
    """Return (first, last) of the `N_BEST` spans with the highest sum of logits, int (n, 2), the
    best first.

    A span has at most `max_tokens` tokens and begins at a token that has most context in this
    window (`counts_P`). Its end need not, as in google-research's ``run_squad.py``, so that no span
    is lost between two windows.
    """
    padded = np.concatenate([ends_P, np.full(max_tokens, -np.inf)])
    scores_PK = (
        np.where(counts_P, starts_P, -np.inf)[:, None]
        + sliding_window_view(padded, max_tokens)[: len(starts_P)]
    )
    flat = scores_PK.ravel()
    chosen = (
        np.argpartition(-flat, N_BEST - 1)[:N_BEST] if len(flat) > N_BEST else np.arange(len(flat))
    )
    chosen = chosen[np.lexsort((chosen, -flat[chosen]))]
    chosen = chosen[np.isfinite(flat[chosen])]
    firsts = chosen // max_tokens
    return np.stack([firsts, firsts + chosen % max_tokens], axis=1)
