"""Compute the official metrics of GLUE, and figures of each class, with scikit-learn and SciPy."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics

from .options import ClassReport

ZERO: Any = 0.0
"""What is undefined counts as 0; scikit-learn's stubs know only words."""
MAX_CONFUSION = 100
"""Of more classes no confusion matrix is kept: it would have 10,000 numbers and more."""


def measure(name: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the metric `name` of arrays (N,) of class indices or scores, or bool (N, K): which of
    the classes each example has.

    It is ``accuracy``, ``f1`` (of class 1 of two), ``macro_f1`` (the mean of the classes'),
    ``micro_f1`` (of all decisions), ``matthews``, ``pearson`` or ``spearman``; 0 if it is undefined
    because all predictions or all labels are equal, or there is only one.
    """
    # The libraries warn about constant predictions, which any degenerate run produces.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match name:
            case "accuracy":
                value = sklearn_metrics.accuracy_score(labels, predictions)
            case "f1":
                value = sklearn_metrics.f1_score(labels, predictions, pos_label=1)
            case "macro_f1" | "micro_f1":
                average = name.removesuffix("_f1")
                value = sklearn_metrics.f1_score(
                    labels, predictions, average=average, zero_division=ZERO
                )
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
    classes = class_figures(labels, truths, answers, labels)
    confusion: list[list[int]] = []
    if len(labels) <= MAX_CONFUSION:
        confusion = matrix_KK.tolist()
    return ClassReport(classes=classes, confusion=confusion)


def class_figures(
    names: Sequence[str], truths: Any, answers: Any, labels: Sequence[str] | None = None
) -> dict[str, dict[str, int | float]]:
    """Return precision, recall, F1 (0 if undefined) and number of examples of each class.

    `truths` and `answers` are classes (N,) among `labels`, or bool (N, K): which of the K classes
    each example has.
    """
    figures = sklearn_metrics.precision_recall_fscore_support(
        truths, answers, labels=labels, average=None, zero_division=ZERO
    )
    classes: dict[str, dict[str, int | float]] = {}
    for index, name in enumerate(names):
        precision, recall, f1, count = (np.asarray(values)[index] for values in figures)
        classes[name] = {
            "precision": float(precision),
            "recall": float(recall),
            "f1": float(f1),
            "count": int(count),
        }
    return classes


def share_interval(num_right: int, num_all: int) -> tuple[float, float]:
    """Return the ends of the 95% interval (Wilson's) of a share."""
    low, high = stats.binomtest(num_right, num_all).proportion_ci(method="wilson")
    return float(low), float(high)
