"""Compute the official metrics of GLUE, and figures of each class, with scikit-learn and SciPy.

These are imported late: that takes as long as importing torch, and `predict` needs neither.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .options import ClassReport

ZERO: Any = 0.0
"""What is undefined counts as 0; scikit-learn's stubs know only words."""


def measure(name: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return a metric in `METRICS` of arrays (N,) of class indices or scores, or bool (N, K): which
    of the classes each example has. It is 0 if undefined: all predictions or labels are equal.
    """
    from scipy import stats
    from sklearn import metrics as sklearn_metrics

    f1_score = partial(sklearn_metrics.f1_score, zero_division=ZERO)
    measures: dict[str, Callable[..., Any]] = {
        "accuracy": sklearn_metrics.accuracy_score,
        "f1": f1_score,
        "macro_f1": partial(f1_score, average="macro"),
        "micro_f1": partial(f1_score, average="micro"),
        "matthews": sklearn_metrics.matthews_corrcoef,
        "rmse": sklearn_metrics.root_mean_squared_error,
        "r2": sklearn_metrics.r2_score,
        "pearson": lambda truths, answers: stats.pearsonr(answers, truths)[0],
        "spearman": lambda truths, answers: stats.spearmanr(answers, truths)[0],
    }
    if name in ("pearson", "spearman") and len(labels) < 2:
        return 0.0  # SciPy refuses a correlation of one pair
    # The libraries warn about constant predictions, which any degenerate run produces.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = measures[name](labels, predictions)
    return 0.0 if math.isnan(value) else float(value)


def label_report(names: Sequence[str], truths: Any, answers: Any) -> ClassReport:
    """Return precision, recall and F1 of each class (0 if undefined), of lists (N,) of names with
    the confusion matrix, or of bool (N, K): which of the K classes each example has.
    """
    from sklearn import metrics as sklearn_metrics

    labels = list(names) if isinstance(truths, list) else None
    figures = sklearn_metrics.precision_recall_fscore_support(
        truths, answers, labels=labels, average=None, zero_division=ZERO
    )
    classes: dict[str, dict[str, int | float]] = {}
    precisions, recalls, f1s, counts = map(np.asarray, figures)
    rows = zip(names, precisions, recalls, f1s, counts, strict=True)
    for name, precision, recall, f1, count in rows:
        classes[name] = {
            "precision": float(precision),
            "recall": float(recall),
            "f1": float(f1),
            "count": int(count),
        }
    confusion: list[list[int]] = []
    if labels and len(labels) <= 100:  # more would be over 10,000 numbers
        matrix_KK = sklearn_metrics.confusion_matrix(truths, answers, labels=labels)
        confusion = np.asarray(matrix_KK).tolist()
    return ClassReport(classes=classes, confusion=confusion)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities along the last axis."""
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)
