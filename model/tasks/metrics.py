"""Compute the official metrics of GLUE, and figures of each class, with scikit-learn and SciPy."""

import math
import warnings
from collections.abc import Sequence

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics

from .class_report import ClassReport

MAX_CONFUSION = 100
"""Of more classes no confusion matrix is kept: it would have 10,000 numbers and more."""


def measure(name: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the metric `name` of arrays (N,) of class indices or scores.

    It is ``accuracy``, ``f1`` (of class 1 of two), ``macro_f1``, ``matthews``, ``pearson`` or
    ``spearman``; 0 if it is undefined because all predictions or all labels are equal, or there is
    only one.
    """
    # The libraries warn about constant predictions, which any degenerate run produces.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match name:
            case "accuracy":
                value = sklearn_metrics.accuracy_score(labels, predictions)
            case "f1":
                value = sklearn_metrics.f1_score(labels, predictions, pos_label=1)
            case "macro_f1":
                value = sklearn_metrics.f1_score(labels, predictions, average="macro")
            case "matthews":
                value = sklearn_metrics.matthews_corrcoef(labels, predictions)
            case _ if len(labels) < 2:
                value = 0.0  # SciPy refuses a correlation of one pair
            case "pearson":
                value = stats.pearsonr(predictions, labels)[0]
            case _:
                value = stats.spearmanr(predictions, labels)[0]
    value = float(np.asarray(value))
    if math.isnan(value):
        return 0.0
    return value


def label_report(
    labels: Sequence[str], truths: Sequence[str], answers: Sequence[str]
) -> ClassReport:
    """Return precision, recall and F1 of each class (0 if undefined), and the confusion matrix."""
    matrix_KK = np.asarray(sklearn_metrics.confusion_matrix(truths, answers, labels=list(labels)))
    right_K = matrix_KK.diagonal()
    count_K = matrix_KK.sum(1)
    given_K = matrix_KK.sum(0)
    # Where a divisor is 0, so is what it divides.
    precision_K = right_K / np.maximum(1, given_K)
    recall_K = right_K / np.maximum(1, count_K)
    f1_K = 2 * right_K / np.maximum(1, given_K + count_K)
    classes: dict[str, dict[str, int | float]] = {}
    for index, name in enumerate(labels):
        classes[name] = {
            "precision": float(precision_K[index]),
            "recall": float(recall_K[index]),
            "f1": float(f1_K[index]),
            "count": int(count_K[index]),
        }
    confusion: list[list[int]] = []
    if len(labels) <= MAX_CONFUSION:
        confusion = matrix_KK.tolist()
    return {"classes": classes, "confusion": confusion}
