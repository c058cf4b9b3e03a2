"""A head that gives each example one class or score: a linear layer on the pooled [CLS].

Shapes: N examples, B rows, K classes (1 for regression).
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch.nn.functional as F
from scipy.special import softmax
from torch import Tensor

from .batches import Feature, TaskBatch
from .head import Answer, LinearHead, Outputs, Scores
from .metrics import measure
from .task import Task


class SequenceClassifier(LinearHead):
    """An encoder with a linear layer on each pooled row; keys and logits as in ``transformers``."""

    hf_name = "ForSequenceClassification"

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, K)."""
        return self.classify(self.pooled(batch))

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy, or the mean squared error if there is one output."""
        assert batch.target is not None
        if outputs.shape[1] > 1:
            return super().loss(outputs, batch)
        return F.mse_loss(outputs.squeeze(1), batch.target)


class Labelled(Protocol):
    """An example with one class or score."""

    @property
    def target(self) -> float | None:
        """Index of the class, or the score; None without a label."""
        ...


LabelledT = TypeVar("LabelledT", bound=Labelled)


class LabelHead(Task[LabelledT]):
    """One class or score per example, which is its ``target``."""

    labels: tuple[str, ...]
    """Names of the classes, in order; none for regression."""
    metrics: tuple[str, ...]
    """The first one chooses between runs."""

    def stratum(self, example: LabelledT) -> float | None:
        """Return the index of the class; a regression has none."""
        return example.target if self.labels else None

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[LabelledT]
    ) -> list[Answer]:
        """Return each example's label and the probability of each class, or its score."""
        logits_NK = example_logits(outputs, features)
        if not self.labels:
            return [{"score": float(logits_K[0])} for logits_K in logits_NK]
        answers = []
        for logits_K in logits_NK:
            # In float64, so that the probabilities in the file sum to 1.
            probabilities_K = softmax(logits_K.astype(np.float64)).tolist()
            probabilities = dict(zip(self.labels, probabilities_K, strict=True))
            label = self.labels[logits_K.argmax()]
            answers.append({"label": label, "probabilities": probabilities})
        return answers

    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[LabelledT]
    ) -> Scores:
        """Return the task's metrics; `outputs` are logits (K,)."""
        logits_NK = example_logits(outputs, features)
        if self.labels:
            return self.measured(logits_NK.argmax(1), examples)
        return self.measured(logits_NK[:, 0], examples)

    def baseline(self, train: Sequence[LabelledT], examples: Sequence[LabelledT]) -> Scores:
        """Return the metrics on `examples` of always predicting the most frequent class of `train`.

        For a regression this is its mean score.
        """
        targets = np.array([example.target for example in train])
        if self.labels:
            constant = np.bincount(targets.astype(np.int64)).argmax()
        else:
            constant = targets.mean()
        return self.measured(np.full(len(examples), constant), examples)

    def measured(self, predictions_N: np.ndarray, examples: Sequence[LabelledT]) -> Scores:
        """Return the metrics of predicted class indices or scores."""
        targets_N = np.array([example.target for example in examples], dtype=np.float64)
        if self.labels:
            targets_N = targets_N.astype(np.int64)
        return {name: measure(name, predictions_N, targets_N) for name in self.metrics}


def example_logits(outputs: Outputs, features: Sequence[Feature]) -> np.ndarray:
    """Return the logits (N, K) of the examples; of a long text, the mean over its windows."""
    windows: dict[int, list[np.ndarray]] = {}
    for feature, logits_K in zip(features, outputs, strict=False):
        windows.setdefault(feature.example, []).append(logits_K)
    if len(windows) == len(features):  # one each
        return np.stack(outputs)
    return np.stack([np.mean(logits, axis=0) for logits in windows.values()])
