"""The official metrics of GLUE, from scikit-learn and SciPy.

Each takes predictions and labels, arrays (N,) of class indices or scores, and returns a number; 0 if the metric is
undefined because all predictions or all labels are equal, or there is only one.
"""

import math
import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of correct predictions."""
    return float(sklearn_metrics.accuracy_score(labels, predictions))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the F1 score of class 1 of two."""
    return _zero_if_undefined(lambda: sklearn_metrics.f1_score(labels, predictions, pos_label=1))


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean F1 score of all classes."""
    return _zero_if_undefined(lambda: sklearn_metrics.f1_score(labels, predictions, average="macro"))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Matthews' correlation coefficient."""
    return _zero_if_undefined(lambda: sklearn_metrics.matthews_corrcoef(labels, predictions))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Pearson's correlation."""
    return _zero_if_undefined(lambda: stats.pearsonr(predictions, labels)[0]) if len(labels) > 1 else 0.0


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    return _zero_if_undefined(lambda: stats.spearmanr(predictions, labels)[0]) if len(labels) > 1 else 0.0


def _zero_if_undefined(metric: Callable[[], object]) -> float:
    # The libraries warn about constant predictions, which any degenerate run produces.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = float(np.asarray(metric()))
    return 0.0 if math.isnan(value) else value


METRICS = {metric.__name__: metric for metric in (accuracy, f1, macro_f1, matthews, pearson, spearman)}
