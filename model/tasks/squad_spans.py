"""Find the n best answers to a question: spans of its passage, from the logits of all its windows.

Shapes: P passage tokens in a window, K longest answer in tokens, L tokens of a row.
"""

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .squad_windows import PassageWindow

N_BEST = 20


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


def predict_answer(windows: Iterable[tuple[PassageWindow, np.ndarray]], passage: str, max_tokens: int) -> Prediction:
    """Return the best spans of at most `max_tokens` tokens over the windows and their logits, float (L, 2)."""
    candidates: list[Span] = []
    null_logits = []
    for window, logits_L2 in windows:
        logits_L2 = logits_L2.astype(np.float64)
        null_logits.append((float(logits_L2[0, 0]), float(logits_L2[0, 1])))
        logits_P2 = logits_L2[window.row_start : window.row_start + len(window.offsets_P2)]
        for first, last in best_spans(logits_P2[:, 0], logits_P2[:, 1], window.counts_P, max_tokens):
            candidates.append(_span(window.offsets_P2[[first, last]], logits_P2[[first, last]], passage))
    candidates.sort(key=lambda span: (-span.score, span.start))
    distinct: dict[str, Span] = {}
    for span in candidates:
        distinct.setdefault(span.text, span)
    return Prediction(list(distinct.values())[:N_BEST], min(null_logits, key=sum))


def best_spans(starts_P: np.ndarray, ends_P: np.ndarray, counts_P: np.ndarray, max_tokens: int) -> np.ndarray:
    """Return (first, last) of the `N_BEST` spans with the highest sum of logits, int (n, 2), the best first.

    A span has at most `max_tokens` tokens and begins at a token that has most context in this window (`counts_P`). Its
    end need not, as in google-research's ``run_squad.py``, so that no span is lost between two windows.
    """
    padded = np.concatenate([ends_P, np.full(max_tokens, -np.inf)])
    scores_PK = (
        np.where(counts_P, starts_P, -np.inf)[:, None] + sliding_window_view(padded, max_tokens)[: len(starts_P)]
    )
    flat = scores_PK.ravel()
    chosen = np.argpartition(-flat, N_BEST - 1)[:N_BEST] if len(flat) > N_BEST else np.arange(len(flat))
    chosen = chosen[np.lexsort((chosen, -flat[chosen]))]
    chosen = chosen[np.isfinite(flat[chosen])]
    firsts = chosen // max_tokens
    return np.stack([firsts, firsts + chosen % max_tokens], axis=1)


def _span(offsets_22: np.ndarray, logits_22: np.ndarray, passage: str) -> Span:
    start, end = int(offsets_22[0, 0]), _with_accents(int(offsets_22[1, 1]), passage)
    start_logit, end_logit = float(logits_22[0, 0]), float(logits_22[1, 1])
    return Span(start_logit + end_logit, start, passage[start:end], start_logit, end_logit)


def _with_accents(end: int, passage: str) -> int:
    # A combining accent, which BERT strips, is in no token; it belongs to the letter before it.
    while end < len(passage) and unicodedata.category(passage[end]) == "Mn":
        end += 1
    return end
