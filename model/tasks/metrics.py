"""Compute the official metrics of GLUE with scikit-learn and SciPy."""

import math
import warnings

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics


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
