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
from sklearn.metrics import f1_score
from torch import Tensor

from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from .batches import Feature, TaskBatch
from .class_report import ClassReport
from .head import Answer, Outputs, Scores, hf_labels
from .label_head import SequenceClassifier, example_logits
from .metrics import ZERO, class_figures
from .options import TaskOptions
from .tables import TableRow, UnusableRowError, class_name, shown
from .text_table import TextExample, TextTable, read_own_table

MAX_CLASSES = 5000
"""More are a mistake: the words of a text instead of its labels."""
SEPARATOR = ","
"""Between the labels of an example, if they are one text instead of a list."""


class MultiLabelClassifier(SequenceClassifier):
    """Logits as in ``transformers`` for the problem type ``multi_label_classification``."""

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean binary cross-entropy over all examples and classes."""
        assert batch.target is not None
        return F.binary_cross_entropy_with_logits(outputs.float(), batch.target)


@dataclass(frozen=True, kw_only=True)
class MultiLabel(TextTable):
    """Any number of classes for each row of a table; the target of an example is the tuple of their
    indices.
    """

    name: str = "multilabel"

    # No `stratum`: most sets of labels are too rare for a share of each to be held out.

    def _target(self, row: TableRow) -> tuple[int, ...]:
        labels = _labels_of(row, self.label[0])
        return tuple(sorted({self.class_index(label, row) for label in labels}))

    def _as_array(self, target: Any) -> np.ndarray:
        target_K = np.zeros(len(self.labels), dtype=np.float32)
        target_K[list(target)] = 1
        return target_K

    def model(self, config: EncoderConfig) -> MultiLabelClassifier:
        """Return the encoder with a new linear layer."""
        return MultiLabelClassifier(config, len(self.labels))

    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[TextExample]
    ) -> Scores:
        """Return F1 over all decisions (micro), and the mean of the classes' F1 (macro)."""
        given_NK = example_logits(outputs, features) > 0
        return _f1(self._truths(examples), given_NK)

    def _truths(self, examples: Sequence[TextExample]) -> np.ndarray:
        return np.stack([self._as_array(example.target) for example in examples]) > 0

    def baseline(self, train: Sequence[TextExample], examples: Sequence[TextExample]) -> Scores:
        """Return the metrics on `examples` of always giving the most frequent class of `train`."""
        given_NK = np.zeros((len(examples), len(self.labels)), dtype=bool)
        given_NK[:, self._truths(train).sum(0).argmax()] = True
        return _f1(self._truths(examples), given_NK)

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[TextExample]
    ) -> list[Answer]:
        """Return each example's labels, whose probability is above 0.5, and all probabilities."""
        logits_NK = example_logits(outputs, features).astype(np.float64)
        answers = []
        for probabilities_K in expit(logits_NK).tolist():
            probabilities = dict(zip(self.labels, probabilities_K, strict=True))
            chosen = [label for label, share in probabilities.items() if share > 0.5]
            answers.append({"labels": chosen, "probabilities": probabilities})
        return answers

    def truth(self, example: TextExample) -> list[str] | None:
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
        classes = class_figures(self.labels, self._truths(examples), given_NK)
        return ClassReport(classes=classes)

    def hf_settings(self) -> dict[str, Any]:
        """Return the kind of problem and the classes for ``config.json``."""
        return {"problem_type": "multi_label_classification", **hf_labels(self.labels)}


def _f1(truths_NK: np.ndarray, given_NK: np.ndarray) -> Scores:
    return {
        f"{average}_f1": float(f1_score(truths_NK, given_NK, average=average, zero_division=ZERO))
        for average in ("micro", "macro")
    }


def _labels_of(row: TableRow, column: str) -> list[str]:
    """Return the labels of a row, a list or one text; an empty list or text means none.

    Raises `UnusableRowError` if there is neither.
    """
    value = row.value(column)
    if value is None:
        raise UnusableRowError(
            f"{row.where}: the labels in {column} are missing.", "without labels"
        )
    if isinstance(value, list):
        parts = [part for part in value if part is not None]
    elif isinstance(value, str):
        parts = value.split(SEPARATOR)
    else:
        raise UserError(
            f"{row.where}: the labels in {column} are {shown(value)}, neither a list nor text."
        )
    return [name for name in map(class_name, parts) if name]


def read_multilabel(files: Sequence[Path], options: TaskOptions) -> MultiLabel:
    """Return the task that the training `files`, a table of the user's own, define.

    Raises `UserError` for missing columns, and without two classes.
    """
    table = read_own_table(files, options)
    task = MultiLabel(**table.settings)
    counts: Counter[str] = Counter()
    for row in table.rows:
        if row.value(table.label) is not None:
            counts.update(_labels_of(row, table.label))
    if not 2 <= len(counts) <= MAX_CLASSES:
        raise UserError(
            f"{files[0]}: {table.label} holds {len(counts):,} different labels; training needs 2 "
            f"to {MAX_CLASSES:,}. Labels are a list, or have commas between them."
        )
    return replace(task, labels=tuple(sorted(counts)))
