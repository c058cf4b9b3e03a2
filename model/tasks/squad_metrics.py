"""Compute the official metrics of SQuAD and KorQuAD, in percent.

They follow the scripts ``evaluate-v1.1.py`` and ``evaluate-v2.0.py`` of SQuAD, and KorQuAD's
``evaluate-v1.0.py``.

Predictions and gold answers are texts, in the order of the questions; an empty prediction means "no
answer". The two differ in how they normalise an answer and what they count in it: SQuAD shared
words, KorQuAD shared characters, because a Korean word carries its particles with it.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

# What KorQuAD removes besides ASCII punctuation; unlike that, it separates words.
_KOREAN_MARKS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))

Version = Literal["1.1", "2.0"]
Metric = Literal["squad", "korquad"]


def normalize_answer(text: str, metric: Metric = "squad") -> str:
    """Return the text as the official script of `metric` compares it: in lower case, without ASCII
    punctuation and extra white space, and without English articles or Korean quotes and brackets.

    >>> normalize_answer("The  Panthers' “A” team, 24-10")
    'panthers “ ” team 2410'
    >>> normalize_answer("《The Art》(1990)", "korquad")
    'the art 1990'
    """
    match metric:
        case "korquad":
            text = text.translate(_KOREAN_MARKS).lower().translate(_NO_PUNCTUATION)
        case "squad":
            # In the order of the official script; the other way round, "a.m." would lose its "a".
            text = _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION))
        case _:
            raise ValueError(f"there is no script {metric!r}")
    return " ".join(text.split())


def exact_match(prediction: str, gold: str, metric: Metric = "squad") -> float:
    """Return 1 if both are equal once normalised, else 0."""
    return float(normalize_answer(prediction, metric) == normalize_answer(gold, metric))


def overlap_f1(
    prediction: str, gold: str, version: Version = "1.1", metric: Metric = "squad"
) -> float:
    """Return the F1 score of shared words or, for KorQuAD, characters."""
    predicted: Sequence[str] = normalize_answer(prediction, metric).split()
    wanted: Sequence[str] = normalize_answer(gold, metric).split()
    if metric == "korquad":
        predicted = "".join(predicted)
        wanted = "".join(wanted)
    # Only the script of 2.0 takes nothing for the same as nothing.
    if version == "2.0" and not predicted and not wanted:
        return 1.0
    # As multisets: a word that the gold answer has once counts once.
    shared = Counter(predicted) & Counter(wanted)
    num_shared = shared.total()
    if num_shared == 0:
        return 0.0
    precision = num_shared / len(predicted)
    recall = num_shared / len(wanted)
    return (2 * precision * recall) / (precision + recall)


def question_scores(
    predictions: Sequence[str],
    golds: Sequence[Sequence[str]],
    version: Version,
    metric: Metric = "squad",
) -> tuple[list[float], list[float]]:
    """Return exact match and F1 (0 to 1) of each question: the highest over its gold answers."""
    exact = []
    f1 = []
    for prediction, answers in zip(predictions, golds, strict=True):
        if version == "2.0":
            # As in the official script, gold answers that are empty once normalised are ignored.
            answers = [gold for gold in answers if normalize_answer(gold, metric)] or [""]
        exact.append(max(exact_match(prediction, gold, metric) for gold in answers))
        f1.append(max(overlap_f1(prediction, gold, version, metric) for gold in answers))
    return exact, f1


def squad_scores(
    predictions: Sequence[str],
    golds: Sequence[Sequence[str]],
    version: Version,
    metric: Metric = "squad",
) -> dict[str, float]:
    """Return ``f1`` and ``exact_match`` of SQuAD 1.1, in which each question has a gold answer; of
    2.0 ``exact``, ``f1`` and ``total``, for all questions, and for those with and without an answer
    under the prefixes ``HasAns_`` and ``NoAns_``.
    """
    exact, f1 = question_scores(predictions, golds, version, metric)
    if version == "1.1":
        return {"f1": _percent(f1), "exact_match": _percent(exact)}
    groups = {
        "": list(range(len(golds))),
        "HasAns_": [index for index, answers in enumerate(golds) if answers],
        "NoAns_": [index for index, answers in enumerate(golds) if not answers],
    }
    scores = {}
    for prefix, questions in groups.items():
        if questions:
            scores[f"{prefix}exact"] = _percent([exact[index] for index in questions])
            scores[f"{prefix}f1"] = _percent([f1[index] for index in questions])
            scores[f"{prefix}total"] = len(questions)
    return scores


def best_threshold(
    predictions: Sequence[str],
    scores: Sequence[float],
    null_odds: Sequence[float],
    golds: Sequence[Sequence[str]],
) -> tuple[float, float]:
    """Return the best total score in percent, and the threshold that reaches it.

    Questions whose null odds are at most the threshold get their best non-null answer, which
    `predictions` and `scores` hold; the others get none. If answering nothing is best, the
    threshold is 0, as in ``find_best_thresh`` of ``evaluate-v2.0.py``.
    """
    # Answer nothing at first: right for each question without a gold answer. Then answer one
    # question after the other, surest first. Each adds its score, or loses what silence gained:
    #
    #     null odds             -9    -4     1     6
    #     gold answer          yes    no   yes    no
    #     score                1.0     0   0.5     0
    #     gain                +1.0  -1.0  +0.5  -1.0
    #     total        2       3.0   2.0   2.5   1.5    best after one: threshold -9
    has_answer = np.array([bool(answers) for answers in golds])
    is_answered = np.array([bool(prediction) for prediction in predictions])
    # Stable, like the script's sort: among equal odds the order of the questions decides.
    order = np.argsort(null_odds, kind="stable")
    gains = np.where(has_answer, scores, -1.0 * is_answered)[order]
    score_of_silence = np.count_nonzero(~has_answer)
    totals = np.cumsum(np.concatenate([[score_of_silence], gains]))
    num_answered = int(totals.argmax())
    best_score = float(100 * totals[num_answered] / len(golds))
    if num_answered == 0:
        return best_score, 0.0
    last_answered = order[num_answered - 1]
    return best_score, float(null_odds[last_answered])


def _percent(scores: list[float]) -> float:
    # NumPy sums pairwise, which rounds differently from the official scripts.
    return 100 * sum(scores) / len(scores)
