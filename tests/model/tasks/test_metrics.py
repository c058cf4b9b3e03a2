"""Metrics against their definitions, written out in NumPy, and against published values."""

import numpy as np
import pytest
from clozeworks.model.tasks.metrics import label_report, measure
from clozeworks.model.tasks.options import METRICS
from hypothesis import given
from hypothesis import strategies as st

PAIRS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40)
SCORES = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=40)


def counts(predictions: np.ndarray, labels: np.ndarray) -> tuple[int, int, int, int]:
    right, positive = predictions == labels, predictions == 1
    hits, alarms = int((right & positive).sum()), int((~right & positive).sum())
    return hits, alarms, int((right & ~positive).sum()), int((~right & ~positive).sum())


@given(PAIRS)
def test_binary_metrics_equal_their_definitions(pairs):
    predictions, labels = np.array(pairs).T
    hits, false_alarms, rejections, misses = counts(predictions, labels)
    assert measure("accuracy", predictions, labels) == pytest.approx(
        (hits + rejections) / len(pairs)
    )
    relevant = 2 * hits + false_alarms + misses
    assert measure("f1", predictions, labels) == pytest.approx(
        2 * hits / relevant if relevant else 0
    )
    product = (hits + false_alarms) * (hits + misses)
    product *= (rejections + false_alarms) * (rejections + misses)
    matthews = (hits * rejections - false_alarms * misses) / np.sqrt(product) if product else 0
    assert measure("matthews", predictions, labels) == pytest.approx(matthews)


@given(SCORES)
def test_figures_of_scores_equal_their_definitions(pairs):
    predictions, labels = np.array(pairs, dtype=np.float64).T

    def pearson(x, y):
        return np.corrcoef(x, y)[0, 1] if np.ptp(x) and np.ptp(y) else 0

    def ranks(x):
        return np.array([(x < value).sum() + ((x == value).sum() + 1) / 2 for value in x])

    assert measure("pearson", predictions, labels) == pytest.approx(
        pearson(predictions, labels), abs=1e-9
    )
    assert measure("spearman", predictions, labels) == pytest.approx(
        pearson(ranks(predictions), ranks(labels)), abs=1e-9
    )
    errors = predictions - labels
    assert measure("rmse", predictions, labels) == pytest.approx(np.sqrt((errors**2).mean()))
    if labels.var():
        explained = 1 - (errors**2).mean() / labels.var()
        assert measure("r2", predictions, labels) == pytest.approx(explained)


def test_only_names_of_metrics_have_a_value():
    labels = np.array([0, 1])
    values = {name: measure(name, labels, labels) for name in METRICS}
    assert values == pytest.approx({**dict.fromkeys(METRICS, 1), "rmse": 0})
    with pytest.raises(KeyError):
        measure("accurracy", labels, labels)


def test_macro_f1_weighs_all_classes_alike():
    labels = np.array([0, 0, 0, 0, 1, 2])
    predictions = np.array([0, 0, 0, 0, 2, 2])
    assert measure("macro_f1", predictions, labels) == pytest.approx((1 + 0 + 2 / 3) / 3)


def test_figures_of_classes_follow_from_the_confusion_matrix():
    names = ("a", "b", "c")
    report = label_report(names, list("aaabbbbcc"), list("aabbbbacb"))
    matrix = np.array([[2, 1, 0], [1, 3, 0], [0, 1, 1]])
    assert report.confusion == matrix.tolist()
    for index, name in enumerate(names):
        right = matrix[index, index]
        precision = right / matrix[:, index].sum()
        recall = right / matrix[index].sum()
        figures = {"precision": precision, "recall": recall, "count": matrix[index].sum()}
        figures["f1"] = 2 * precision * recall / (precision + recall)
        assert report.classes[name] == pytest.approx(figures)


def test_many_classes_have_no_matrix():
    names = [f"class {number}" for number in range(101)]
    report = label_report(names, names, names)
    assert len(report.classes) == 101
    assert report.confusion == []
