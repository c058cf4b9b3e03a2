"""Classification and regression on single texts and pairs: one linear layer on the pooled [CLS].

Shapes: B rows, D hidden size, K classes (1 for regression).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from scipy.special import softmax
from torch import Tensor

from ...pipeline.errors import UserError
from ..config import ModelConfig
from ..tokenizer import TextTokenizer
from .metrics import Metric
from .tables import TableRow, listed, read_rows, shown
from .task import Answer, Feature, LinearHead, Outputs, Recipe, Scores, Task, TaskBatch, TokenRow, hf_labels

GLUE_RECIPE = Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5, 4e-5, 3e-5, 2e-5))

SCORES = (0.0, 5.0)
"""Lowest and highest score that the server of STS-B accepts."""


class TextExample(NamedTuple):
    """One text or pair."""

    text: str
    text_pair: str | None
    target: float | None
    """Index of the class, or the score; None without a label."""


class BertForSequenceClassification(LinearHead):
    """BERT with a linear layer on the pooled [CLS]; keys and logits as in ``transformers``."""

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, K)."""
        return self.classify(self.bert.pooler(self.states(batch)))

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy, or the mean squared error if there is one output."""
        if outputs.shape[1] > 1:
            return super().loss(outputs, batch)
        assert batch.target is not None
        return F.mse_loss(outputs.squeeze(1), batch.target)


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """A task on a table: the columns of the texts and the label, and the classes.

    A column is a tuple of alternative names, since published forms of a data set differ; the first one present is used.
    """

    name: str
    text: tuple[str, ...]
    text_pair: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    labels: tuple[str, ...] = ()
    """Names of the classes, in order; none for regression."""
    metrics: tuple[Metric, ...]
    """The first one chooses between runs."""
    by_index: bool = True
    """Files may give a class by its index instead of its name."""
    headerless: tuple[str, ...] | None = None
    """Columns of a TSV without a header line."""
    max_short_share: float = 0.0
    """Share of a TSV's lines that may lack columns and are left out: QQP was published damaged."""
    max_length: int = 128
    server_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the files for GLUE's server, by split."""
    server_words: bool = False
    """The server expects the names of the classes instead of their indices."""

    @property
    def recipe(self) -> Recipe:
        """The paper's for GLUE (section 4.1)."""
        return GLUE_RECIPE

    def read(self, path: Path, labelled: bool) -> Iterator[TextExample]:
        """Yield the examples in a table; raises `UserError` naming file and line."""
        # The server expects a prediction for every line, so no line of a test file may be left out.
        for row in read_rows(path, self.headerless, self.max_short_share if labelled else 0.0):
            text = row.text(_column(row, self.text))
            text_pair = row.text(_column(row, self.text_pair)) if self.text_pair else None
            yield TextExample(text, text_pair, self._target(row) if labelled else None)

    def parse_line(self, line: str, where: str) -> TextExample:
        """Return the example on a line of plain text; a tab separates the texts of a pair."""
        if not self.text_pair:
            return TextExample(line, None, None)
        texts = line.split("\t")
        if len(texts) != 2:
            raise UserError(f"{where}: write two texts, separated by a tab.")
        return TextExample(texts[0], texts[1], None)

    def _target(self, row: TableRow) -> float:
        column = _column(row, self.label)
        text = row.label(column)
        if not self.labels:
            return _score(text, f"{row.where}: the score in {column}")
        if text in self.labels:
            return self.labels.index(text)
        if self.by_index and text.isdecimal() and int(text) < len(self.labels):
            return int(text)
        raise UserError(f"{row.where}: the label {shown(text)} in {column} is not one of {listed(self.labels)}.")

    def group(self, example: TextExample) -> str:
        """Return the first text."""
        return example.text

    def encode(self, examples: Sequence[TextExample], tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per example."""
        tokens_a = tokenizer.token_ids([example.text for example in examples])
        tokens_b: Sequence[list[int] | None] = [None] * len(examples)
        if self.text_pair:
            tokens_b = tokenizer.token_ids([example.text_pair or "" for example in examples])
        rows = (tokenizer.row(a, b, self.max_length) for a, b in zip(tokens_a, tokens_b, strict=True))
        targets = (self._as_array(example.target) for example in examples)
        return [
            Feature((TokenRow(*row),), target, index)
            for index, (row, target) in enumerate(zip(rows, targets, strict=True))
        ]

    def _as_array(self, target: float | None) -> np.ndarray | None:
        return None if target is None else np.array(target, dtype=np.int64 if self.labels else np.float32)

    def model(self, config: ModelConfig) -> BertForSequenceClassification:
        """Return the encoder with a new linear layer."""
        return BertForSequenceClassification(config, len(self.labels) or 1)

    def scores(self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[TextExample]) -> Scores:
        """Return the task's metrics; `outputs` are logits (K,)."""
        logits = np.stack(outputs)
        return self._measure(logits.argmax(1) if self.labels else logits[:, 0], examples)

    def baseline(self, train: Sequence[TextExample], examples: Sequence[TextExample]) -> Scores:
        """Return the metrics on `examples` of always predicting the most frequent class (the mean score) of `train`."""
        targets = np.array([example.target for example in train])
        answer = np.bincount(targets.astype(np.int64)).argmax() if self.labels else targets.mean()
        return self._measure(np.full(len(examples), answer), examples)

    def _measure(self, predictions: np.ndarray, examples: Sequence[TextExample]) -> Scores:
        targets = np.array([example.target for example in examples], dtype=np.float64)
        if self.labels:
            targets = targets.astype(np.int64)
        return {metric.__name__: metric(predictions, targets) for metric in self.metrics}

    def answers(self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[TextExample]) -> list[Answer]:
        """Return each example's label and the probability of each class, or its score."""
        if not self.labels:
            return [{"score": float(logits_K[0])} for logits_K in outputs]
        answers = []
        for logits_K in outputs:
            probabilities = dict(zip(self.labels, softmax(logits_K.astype(np.float64)).tolist(), strict=True))
            answers.append({"label": self.labels[logits_K.argmax()], "probabilities": probabilities})
        return answers

    def official(self, answers: Sequence[Answer], examples: Sequence[TextExample], split: str) -> dict[str, bytes]:
        """Return the file for GLUE's server if `split` is a test split of GLUE, else nothing."""
        if split not in self.server_files:
            return {}
        lines = ["index\tprediction", *(f"{index}\t{self._for_server(answer)}" for index, answer in enumerate(answers))]
        return {self.server_files[split]: ("\n".join(lines) + "\n").encode()}

    def _for_server(self, answer: Answer) -> str:
        if not self.labels:
            low, high = SCORES
            return f"{min(max(answer['score'], low), high):.3f}"
        return answer["label"] if self.server_words else str(self.labels.index(answer["label"]))

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``: what a table of the user's own needs."""
        columns = {"text": list(self.text), "text_pair": list(self.text_pair), "label": list(self.label)}
        return {"task": self.name, **columns, "labels": list(self.labels), "max_length": self.max_length}

    def hf_settings(self) -> dict[str, Any]:
        """Return the architecture and the classes for ``config.json``."""
        return {
            "architectures": ["BertForSequenceClassification"],
            "problem_type": "single_label_classification" if self.labels else "regression",
            **hf_labels(self.labels or ("LABEL_0",)),
        }


def _column(row: TableRow, names: tuple[str, ...]) -> str:
    return next((name for name in names if name in row.values), names[0])


def _score(text: str, what: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise UserError(f"{what} is {shown(text)}, not a number.")
    return score
