"""The official metrics of SQuAD and KorQuAD, in percent, as in their scripts ``evaluate-v1.1.py``,
``evaluate-v2.0.py`` and ``evaluate-v1.0.py``.

Predictions and gold answers are texts, in the order of the questions; an empty prediction means "no
answer". The two differ in how they normalise an answer and what they count in it: SQuAD shared
words, KorQuAD shared characters, because a Korean word carries its particles with it.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

# What KorQuAD removes besides ASCII punctuation; unlike that, it separates words.
_KOREAN_MARKS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))

Metric = Literal["squad", "korquad"]
TextMetric = Callable[[str, str], float]


def normalize_answer(text: str, metric: Metric = "squad") -> str:
    """Return the text as the official script of `metric` compares it.

    >>> normalize_answer("《The Art》(1990)", "korquad")
    'the art 1990'
    """
    return normalize_korean(text) if metric == "korquad" else normalize_english(text)


def normalize_korean(text: str) -> str:
    """Return the text in lower case without quotes, brackets, ASCII punctuation and extra white
    space.
    """
    return " ".join(text.translate(_KOREAN_MARKS).lower().translate(_NO_PUNCTUATION).split())


def normalize_english(text: str) -> str:
    """Return the text in lower case without ASCII punctuation, English articles and extra white
    space.

    >>> normalize_english("The  Panthers' “A” team, 24-10")
    'panthers “ ” team 2410'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str, metric: Metric = "squad") -> float:
    """Return 1 if both are equal once normalised, else 0."""
    return float(normalize_answer(prediction, metric) == normalize_answer(gold, metric))


def overlap_f1(prediction: str, gold: str, metric: Metric = "squad") -> float:
    """Return the F1 score of shared words (for KorQuAD, characters); 0 if one of the two has none."""
    predicted, wanted = _units(prediction, metric), _units(gold, metric)
    num_same = sum((Counter(predicted) & Counter(wanted)).values())
    if num_same == 0:
        return 0.0
    precision, recall = num_same / len(predicted), num_same / len(wanted)
    return (2 * precision * recall) / (precision + recall)


def overlap_f1_or_none(prediction: str, gold: str, metric: Metric = "squad") -> float:
    """Return `overlap_f1`; 1 if neither has any words (``evaluate-v2.0.py``)."""
    if not normalize_answer(prediction, metric) or not normalize_answer(gold, metric):
        return exact_match(prediction, gold, metric)
    return overlap_f1(prediction, gold, metric)


def _units(text: str, metric: Metric) -> Sequence[str]:
    words = normalize_answer(text, metric).split()
    return "".join(words) if metric == "korquad" else words


def best_over_golds(
    metric: TextMetric, predictions: Sequence[str], golds: Sequence[Sequence[str]]
) -> list[float]:
    """Return each question's highest value of the metric over its gold answers."""
    return [
        max(metric(prediction, gold) for gold in answers)
        for prediction, answers in zip(predictions, golds, strict=True)
    ]


def squad1_scores(
    predictions: Sequence[str], golds: Sequence[Sequence[str]], metric: Metric = "squad"
) -> dict[str, float]:
    """Return ``f1`` and ``exact_match`` of SQuAD 1.1 or KorQuAD; each question has at least one
    gold answer.
    """
    return {
        "f1": _percent(best_over_golds(partial(overlap_f1, metric=metric), predictions, golds)),
        "exact_match": _percent(
            best_over_golds(partial(exact_match, metric=metric), predictions, golds)
        ),
    }


def squad2_scores(
    predictions: Sequence[str], golds: Sequence[Sequence[str]], metric: Metric = "squad"
) -> dict[str, float]:
    """Return ``exact``, ``f1`` and ``total`` as ``evaluate-v2.0.py`` does, of all and of
    ``HasAns_`` and ``NoAns_``.
    """
    exact, f1 = question_scores(predictions, golds, metric)
    everything = range(len(golds))
    has_answer = [index for index in everything if golds[index]]
    no_answer = [index for index in everything if not golds[index]]
    scores = {}
    for prefix, members in (("", everything), ("HasAns_", has_answer), ("NoAns_", no_answer)):
        if members:
            scores[f"{prefix}exact"] = _percent([exact[index] for index in members])
            scores[f"{prefix}f1"] = _percent([f1[index] for index in members])
            scores[f"{prefix}total"] = len(members)
    return scores


def question_scores(
    predictions: Sequence[str], golds: Sequence[Sequence[str]], metric: Metric = "squad"
) -> tuple[list[float], list[float]]:
    """Return exact match and F1 of each question of SQuAD 2.0, 0 to 1; without gold answers, "" is
    correct.
    """
    # As in the official script, gold answers that are empty once normalised are ignored.
    known = [
        [gold for gold in answers if normalize_answer(gold, metric)] or [""] for answers in golds
    ]
    return (
        best_over_golds(partial(exact_match, metric=metric), predictions, known),
        best_over_golds(partial(overlap_f1_or_none, metric=metric), predictions, known),
    )


def best_threshold(
    predictions: Sequence[str],
    scores: Sequence[float],
    null_odds: Sequence[float],
    golds: Sequence[Sequence[str]],
) -> tuple[float, float]:
    """Return the best total score in percent, and the threshold of the null odds up to which
    questions are answered.

    `predictions` are the best non-null answers, and `scores` theirs. If answering nothing is best,
    the threshold is 0, as in ``find_best_thresh`` of ``evaluate-v2.0.py``.
    """
    has_answer = np.array([bool(answers) for answers in golds])
    answered = np.array([bool(prediction) for prediction in predictions])
    order = np.argsort(null_odds, kind="stable")
    gains = np.where(has_answer, scores, -1.0 * answered)[order]
    totals = np.cumsum(np.concatenate([[np.count_nonzero(~has_answer)], gains]))
    best = int(totals.argmax())
    return float(100 * totals[best] / len(golds)), float(
        null_odds[order[best - 1]]
    ) if best else 0.0


def _percent(scores: list[float]) -> float:
    # NumPy sums pairwise, which rounds differently from the official scripts.
    return 100 * sum(scores) / len(scores)
