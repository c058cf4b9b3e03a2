"""Give each text any number of labels: an independent yes or no for each class, by a linear layer
on the pooled [CLS] and the sigmoid.

Shapes: B rows, N examples, K classes.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from scipy.special import expit
from sklearn.metrics import f1_score, precision_recall_fscore_support
from torch import Tensor

from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from .class_report import ClassReport
from .classification import (
    Classification,
    SequenceClassifier,
    TextExample,
    read_own_table,
)
from .options import TaskOptions
from .tables import TableRow, UnusableRowError, shown
from .task import Answer, Feature, Outputs, Scores, TaskBatch, hf_labels

ZERO: Any = 0.0
"""What is undefined counts as 0; scikit-learn's stubs know only words."""
MAX_CLASSES = 5000
"""More are a mistake: the words of a text instead of its labels."""


class MultiLabelClassifier(SequenceClassifier):
    """Logits as in ``transformers`` for the problem type ``multi_label_classification``."""

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean binary cross-entropy over all examples and classes."""
        assert batch.target is not None
        return F.binary_cross_entropy_with_logits(outputs.float(), batch.target)


@dataclass(frozen=True, kw_only=True)
class MultiLabel(Classification):
    """The task; the target of an example is the tuple of its classes' indices."""

    name: str = "multilabel"
    separator: str = ","
    """Between the labels of an example, if they are one text instead of a list."""

    def _target(self, row: TableRow) -> Any:
        indices = set()
        for label in _labels_of(row, self.label[0], self.separator):
            if label not in self.labels:
                raise self._unknown_class(row, label)
            indices.add(self.labels.index(label))
        return tuple(sorted(indices))

    def _as_array(self, target: Any) -> np.ndarray:
        target_K = np.zeros(len(self.labels), dtype=np.float32)
        target_K[list(target)] = 1
        return target_K

    def stratum(self, example: Any) -> None:
        """Return None: most sets of labels are too rare for a share of each to be held out."""

    def model(self, config: EncoderConfig) -> MultiLabelClassifier:
        """Return the encoder with a new linear layer."""
        return MultiLabelClassifier(config, len(self.labels))

    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> Scores:
        """Return F1 over all decisions (micro), and the mean of the classes' F1 (macro)."""
        given_NK = self._logits(outputs, features, len(examples)) > 0
        return _f1(self._truths(examples), given_NK)

    def _truths(self, examples: Sequence[Any]) -> np.ndarray:
        return np.stack([self._as_array(example.target) for example in examples]) > 0

    def baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> Scores:
        """Return the metrics on `examples` of always giving the most frequent class of `train`."""
        given_NK = np.zeros((len(examples), len(self.labels)), dtype=bool)
        given_NK[:, self._truths(train).sum(0).argmax()] = True
        return _f1(self._truths(examples), given_NK)

    def word_baseline(
        self, train: Sequence[TextExample], examples: Sequence[TextExample]
    ) -> Scores:
        """Return nothing."""
        return {}

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> list[Answer]:
        """Return each example's labels, whose probability is above 0.5, and all probabilities."""
        logits_NK = self._logits(outputs, features, len(examples)).astype(np.float64)
        answers = []
        for probabilities_K in expit(logits_NK).tolist():
            probabilities = dict(zip(self.labels, probabilities_K, strict=True))
            chosen = [label for label, share in probabilities.items() if share > 0.5]
            answers.append({"labels": chosen, "probabilities": probabilities})
        return answers

    def truth(self, example: Any) -> list[str] | None:
        """Return the names of the classes."""
        if example.target is None:
            return None
        return [self.labels[index] for index in example.target]

    def class_report(
        self, answers: Sequence[Answer], examples: Sequence[TextExample]
    ) -> ClassReport:
        """Return the figures of each class; none is taken for another."""
        given_NK = np.array(
            [[label in answer["labels"] for label in self.labels] for answer in answers]
        )
        figures = precision_recall_fscore_support(
            self._truths(examples), given_NK, average=None, zero_division=ZERO
        )
        classes: dict[str, dict[str, int | float]] = {}
        for index, label in enumerate(self.labels):
            precision, recall, f1, count = (np.asarray(values)[index] for values in figures)
            classes[label] = {
                "precision": float(precision),
                "recall": float(recall),
                "f1": float(f1),
                "count": int(count),
            }
        return {"classes": classes, "confusion": []}

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``."""
        return {**super().settings(), "separator": self.separator}

    def hf_settings(self) -> dict[str, Any]:
        """Return the kind of problem and the classes for ``config.json``."""
        return {"problem_type": "multi_label_classification", **hf_labels(self.labels)}


def _f1(truths_NK: np.ndarray, given_NK: np.ndarray) -> Scores:
    return {
        f"{average}_f1": float(f1_score(truths_NK, given_NK, average=average, zero_division=ZERO))
        for average in ("micro", "macro")
    }


def _labels_of(row: TableRow, column: str, separator: str) -> list[str]:
    """Return the labels of a row, a list or one text; an empty list or text means none.

    Raises `UnusableRowError` if there is neither.
    """
    value = row.value(column)
    if value is None:
        raise UnusableRowError(
            f"{row.where}: the labels in {column} are missing.", "without labels"
        )
    if isinstance(value, list):
        parts = [str(part) for part in value]
    elif isinstance(value, str):
        parts = value.split(separator)
    else:
        raise UserError(
            f"{row.where}: the labels in {column} are {shown(value)}, neither a list nor text."
        )
    return [part.strip() for part in parts if part.strip()]


def read_multilabel(files: Sequence[Path], options: TaskOptions) -> MultiLabel:
    """Return the task that the training `files`, a table of the user's own, define.

    Raises `UserError` for missing columns, and without two classes.
    """
    table = read_own_table(files, options)
    task = MultiLabel(**table.settings, **options.given("separator"))
    counts: Counter[str] = Counter()
    for row in table.rows:
        if row.value(table.label) is not None:
            counts.update(_labels_of(row, table.label, task.separator))
    if not 2 <= len(counts) <= MAX_CLASSES:
        raise UserError(
            f"{files[0]}: {table.label} holds {len(counts):,} different labels; training needs 2 "
            f"to {MAX_CLASSES:,}. Labels are a list, or separated by {task.separator!r} "
            "(`separator`)."
        )
    return replace(task, labels=tuple(sorted(counts)))
