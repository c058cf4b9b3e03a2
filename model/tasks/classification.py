"""Classify single texts and pairs, or score them: one linear layer on the pooled [CLS].

Shapes: B rows, L padded length, D hidden size, K classes (1 for regression).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import Tensor

from ...pipeline.encodings import AUTO
from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from ..tokenizer import TextTokenizer
from .class_report import ClassReport
from .metrics import label_report, measure
from .options import TaskOptions
from .squad_windows import window_spans
from .tables import TableRow, UnusableRowError, listed, read_rows, shown, usable
from .task import (
    Answer,
    Feature,
    LinearHead,
    Outputs,
    Scores,
    Size,
    Task,
    TaskBatch,
    hf_labels,
)

TEXT_COLUMNS = ("text", "sentence")
WORD_BASELINE_EXAMPLES = 20_000
"""More take longer than a baseline should."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


class TextExample(NamedTuple):
    """One text or pair."""

    text: str
    text_pair: str | None
    target: float | None
    """Index of the class, or the score; None without a label."""


class SequenceClassifier(LinearHead):
    """An encoder with a linear layer on each pooled row; keys and logits as in ``transformers``.

    `class_weights` are those of the loss; all are 1 by default.
    """

    hf_name = "ForSequenceClassification"
    class_weights: Tensor

    def __init__(
        self, config: EncoderConfig, num_outputs: int, class_weights: Sequence[float] = ()
    ):
        super().__init__(config, num_outputs)
        # A buffer, so that it moves with the model: a copy to a GPU at each loss would wait for it.
        # It is no weight of the checkpoint.
        self.register_buffer("class_weights", torch.tensor(class_weights), persistent=False)

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, K)."""
        return self.classify(self.pooled(batch))

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy, or the mean squared error if there is one output."""
        assert batch.target is not None
        if outputs.shape[1] > 1 and len(self.class_weights):
            # Divided by the number of examples, not by the sum of their weights, so that
            # micro-batches add up to the batch.
            losses = F.cross_entropy(outputs, batch.target, reduction="none")
            return (losses * self.class_weights[batch.target]).mean()
        if outputs.shape[1] > 1:
            return super().loss(outputs, batch)
        return F.mse_loss(outputs.squeeze(1), batch.target)


class LabelTask(Task):
    """A task with one class or score per example, which is its ``target``."""

    labels: tuple[str, ...]
    """Names of the classes, in order; none for regression."""
    metrics: tuple[str, ...]
    """The first one chooses between runs; a table of the user's own names none."""

    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> Scores:
        """Return the task's metrics; `outputs` are logits (K,)."""
        logits_NK = self._logits(outputs, features, len(examples))
        if self.labels:
            predictions_N = logits_NK.argmax(1)
        else:
            predictions_N = logits_NK[:, 0]
        return self._measure(predictions_N, examples)

    def _logits(
        self, outputs: Outputs, features: Sequence[Feature], num_examples: int
    ) -> np.ndarray:
        """Return the logits (N, K) of the examples."""
        return np.stack(outputs)

    def stratum(self, example: Any) -> Any:
        """Return the index of the class; a regression has none."""
        return int(example.target) if self.labels else None

    def baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> Scores:
        """Return the metrics on `examples` of always predicting the most frequent class of `train`.

        For a regression this is its mean score.
        """
        targets = np.array([example.target for example in train])
        if self.labels:
            constant = np.bincount(targets.astype(np.int64)).argmax()
        else:
            constant = targets.mean()
        return self._measure(np.full(len(examples), constant), examples)

    def _measure(self, predictions: np.ndarray, examples: Sequence[Any]) -> Scores:
        targets = np.array([example.target for example in examples], dtype=np.float64)
        metrics = self.metrics
        if self.labels:
            targets = targets.astype(np.int64)
            metrics = metrics or ("accuracy", "macro_f1")
        else:
            metrics = metrics or ("spearman", "pearson")
        return {name: measure(name, predictions, targets) for name in metrics}

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> list[Answer]:
        """Return each example's label and the probability of each class, or its score."""
        logits_NK = self._logits(outputs, features, len(examples))
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

    def truth(self, example: Any) -> Any:
        """Return the name of the class, or the score."""
        if example.target is None or not self.labels:
            return example.target
        return self.labels[int(example.target)]


@dataclass(frozen=True, kw_only=True)
class Classification(LabelTask):
    """A task on a table: the columns of the texts and the label, and the classes.

    A column is a tuple of alternative names, since published forms of a data set differ; the first
    one present is used. The fields from `metrics` on are set for the tasks of GLUE only.
    """

    name: str
    text: tuple[str, ...]
    text_pair: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    labels: tuple[str, ...] = ()
    class_weights: tuple[float, ...] = ()
    """Of the loss, in the order of the classes; all are 1 by default."""
    max_length: Size = 128
    stride: Size | None = None
    """Tokens from the start of a text's window to the start of the next; None cuts long texts."""
    encoding: str = AUTO
    """Of files that are not UTF-8; no setting of the trained model."""
    metrics: tuple[str, ...] = ()
    headerless: tuple[str, ...] | None = None
    """Columns of a TSV without a header line."""
    max_short_share: float = 0.0
    """Share of a TSV's lines that may lack columns and are left out: QQP was published damaged."""
    server_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the files for GLUE's server, by split."""
    server_words: bool = False
    """The server expects the names of the classes instead of their indices."""

    def read(self, path: Path, labelled: bool) -> Iterator[TextExample]:
        """Yield the examples in a table; raises `UserError` naming file and line.

        Labelled rows without a text, without a label and of an unknown class are left out and
        counted.
        """
        # The server expects a prediction for every line, so no line of a test file may be left out.
        max_short_share = self.max_short_share if labelled else 0.0
        rows = read_rows(path, self._columns, max_short_share, self.encoding)
        yield from usable(rows, partial(self._example, labelled=labelled), labelled)

    def _example(self, row: TableRow, labelled: bool) -> TextExample:
        text = row.text(_column(row, self.text))
        text_pair = None
        if self.text_pair:
            text_pair = row.text(_column(row, self.text_pair))
        if not labelled:
            return TextExample(text, text_pair, None)
        # GLUE's files are taken as they are.
        is_empty = not text.strip() and not (text_pair or "").strip()
        if is_empty and not self.is_of_glue:
            raise UnusableRowError(f"{row.where}: the text is empty.", "without a text")
        return TextExample(text, text_pair, self._target(row))

    @property
    def is_of_glue(self) -> bool:
        """Whether the columns and classes are those of GLUE."""
        return bool(self.metrics)

    def _columns(self, fields: list[str]) -> tuple[str, ...] | None:
        # CoLA: its train and dev files have no header line, its test file has one.
        has_header = any(name in fields for name in self.text)
        if has_header:
            return None
        return self.headerless

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
        if not self.labels:
            return row.number(column)
        text = row.label(column)
        if text in self.labels:
            return self.labels.index(text)
        # Published forms of GLUE give classes by name or by index.
        if self.is_of_glue and text.isdecimal() and int(text) < len(self.labels):
            return int(text)
        raise self._unknown_class(row, text)

    def _unknown_class(self, row: TableRow, text: str) -> UnusableRowError:
        return UnusableRowError(
            f"{row.where}: the label {shown(text)} in {_column(row, self.label)} is not one of "
            f"{listed(self.labels)}.",
            "of a class that is not in the training data",
        )

    def group(self, example: TextExample) -> str:
        """Return the first text."""
        return example.text

    def texts(self, example: TextExample) -> dict[str, str]:
        """Return the text, or both texts of a pair."""
        if example.text_pair is None:
            return {"text": example.text}
        return {"text": example.text, "text_pair": example.text_pair}

    def encode(self, examples: Sequence[TextExample], tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per example, or per window of a long text."""
        tokens_a = tokenizer.token_ids([example.text for example in examples])
        tokens_b: Sequence[list[int] | None] = [None] * len(examples)
        if self.text_pair:
            tokens_b = tokenizer.token_ids([example.text_pair or "" for example in examples])
        features = []
        for index, example in enumerate(examples):
            target = None
            if example.target is not None:
                target = self._as_array(example.target)
            for window in self._windows(tokens_a[index]):
                row = tokenizer.row(window, tokens_b[index], self.max_length)
                features.append(Feature((row,), target, index))
        return features

    def _as_array(self, target: Any) -> np.ndarray:
        # As the losses need it: cross-entropy takes indices, the squared error numbers.
        dtype = np.float32
        if self.labels:
            dtype = np.int64
        return np.array(target, dtype=dtype)

    def _windows(self, tokens: list[int]) -> Iterator[list[int]]:
        if self.stride is None:
            yield tokens
            return
        room = self.max_length - 2  # without [CLS] and [SEP]
        for start, end in window_spans(len(tokens), room, self.stride):
            yield tokens[start:end]

    def _logits(
        self, outputs: Outputs, features: Sequence[Feature], num_examples: int
    ) -> np.ndarray:
        """Return the logits (N, K) of the examples, the mean over the windows of each."""
        if self.stride is None:
            return np.stack(outputs)
        windows: list[list[np.ndarray]] = [[] for _ in range(num_examples)]
        for feature, logits_K in zip(features, outputs, strict=True):
            windows[feature.example].append(logits_K)
        return np.stack([np.mean(logits, axis=0) for logits in windows])

    def model(self, config: EncoderConfig) -> SequenceClassifier:
        """Return the encoder with a new linear layer."""
        return SequenceClassifier(config, len(self.labels) or 1, self.class_weights)

    def class_report(
        self, answers: Sequence[Answer], examples: Sequence[TextExample]
    ) -> ClassReport:
        """Return the figures of each class, and up to `MAX_CONFUSION` classes which is taken for
        which.
        """
        if not self.labels:
            return super().class_report(answers, examples)
        truths = [self.truth(example) for example in examples]
        given = [answer["label"] for answer in answers]
        return label_report(self.labels, truths, given)

    def word_baseline(
        self, train: Sequence[TextExample], examples: Sequence[TextExample]
    ) -> Scores:
        """Return the metrics of logistic regression on TF-IDF of words, for classes of single
        texts.
        """
        # A file may be sorted by class, so the examples are taken from all over it.
        step = math.ceil(len(train) / WORD_BASELINE_EXAMPLES)
        train = train[::step]
        train_texts = [example.text for example in train]
        targets = [example.target for example in train]
        if not self.labels or self.text_pair or len(set(targets)) < 2:
            return {}
        # A punctuation mark is a word too, as in BERT's tokens; so is a single letter, which is
        # left out by default.
        words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
        model = make_pipeline(words, LogisticRegression(C=10, max_iter=1000))
        model.fit(train_texts, targets)
        predictions = model.predict([example.text for example in examples])
        return self._measure(predictions, examples)

    def official(
        self, answers: Sequence[Answer], examples: Sequence[TextExample], split: str
    ) -> dict[str, bytes]:
        """Return the file for GLUE's server if `split` is a test split of GLUE, else nothing."""
        if split not in self.server_files:
            return {}
        lines = ["index\tprediction"]
        for index, answer in enumerate(answers):
            lines.append(f"{index}\t{self._for_server(answer)}")
        return {self.server_files[split]: ("\n".join(lines) + "\n").encode()}

    def _for_server(self, answer: Answer) -> str:
        if not self.labels:
            score = min(max(answer["score"], 0.0), 5.0)  # the range of STS-B
            return f"{score:.3f}"
        if self.server_words:
            return answer["label"]
        return str(self.labels.index(answer["label"]))

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``: what a table of the user's own needs."""
        settings = {
            "task": self.name,
            "text": list(self.text),
            "text_pair": list(self.text_pair),
            "label": list(self.label),
            "labels": list(self.labels),
            "max_length": self.max_length,
        }
        if self.class_weights:
            settings["class_weights"] = list(self.class_weights)
        if self.stride:
            settings["stride"] = self.stride
        return settings

    def hf_settings(self) -> dict[str, Any]:
        """Return the kind of problem and the classes for ``config.json``."""
        kind = "single_label_classification" if self.labels else "regression"
        return {"problem_type": kind, **hf_labels(self.labels or ("LABEL_0",))}


def _column(row: TableRow, names: tuple[str, ...]) -> str:
    """Return the first of alternative `names` that the table has, or else the first of them."""
    for name in names:
        if name in row.values:
            return name
    return names[0]


def read_classify(files: Sequence[Path], options: TaskOptions) -> Classification:
    """Return the task that the training `files`, a table of the user's own, define.

    Labels that are words or whole numbers are classes, unless `regression` is chosen; labels with
    fractions make it a regression.
    Raises `UserError` for missing columns, and for labels that cannot be classes.
    """
    table = read_own_table(files, options)
    label = table.label
    counts: Counter[str] = Counter()
    all_rows = _counted(table.rows, label, counts)
    labels: tuple[str, ...] = ()
    if options.regression:
        for row in all_rows:
            row.number(label)
    else:
        labels = _labels(all_rows, label, str(files[0]))
    class_weights: tuple[float, ...] = ()
    if options.class_weights == "balanced":
        if not labels:
            raise UserError(f"`class_weights` is balanced, but {label} holds scores, not classes.")
        # As scikit-learn's: the mean weight of an example is 1.
        class_weights = tuple(counts.total() / (len(labels) * counts[name]) for name in labels)
    return Classification(
        name="classify", labels=labels, class_weights=class_weights, **table.settings
    )


class OwnTable(NamedTuple):
    """The rows of a table of the user's own, and the settings that say how to read it."""

    rows: Iterator[TableRow]
    label: str
    """Name of the column."""
    settings: dict[str, Any]
    """Fields of `Classification`."""


def read_own_table(files: Sequence[Path], options: TaskOptions) -> OwnTable:
    """Open the training `files`; raises `UserError` for missing columns."""
    encoding = options.encoding or AUTO
    rows = chain.from_iterable(read_rows(file, encoding=encoding) for file in files)
    first = next(rows, None)
    if first is None:
        raise UserError(f"{files[0]} contains no rows.")
    text = options.text or _column(first, TEXT_COLUMNS)
    label = options.label or "label"
    if text not in first.values or label not in first.values:
        raise UserError(
            f"{files[0]} has the columns {listed(first.values)}; choose with `text` and `label`."
        )
    text_pair: tuple[str, ...] = ()
    if options.text_pair:
        text_pair = (options.text_pair,)
    if options.stride and text_pair:
        raise UserError("`stride` makes windows of single texts; leave out `text_pair` or it.")
    settings = {
        "text": (text,),
        "text_pair": text_pair,
        "label": (label,),
        **options.given("max_length", "stride", "encoding"),
    }
    # The first row is read already, so it goes before the others again.
    return OwnTable(chain([first], rows), label, settings)


def _counted(rows: Iterable[TableRow], column: str, counts: Counter[str]) -> Iterator[TableRow]:
    """Yield the rows that have a label, and count the labels."""
    for row in rows:
        with suppress(UnusableRowError):  # `usable` counts them
            counts[row.label(column)] += 1
            yield row


def _labels(rows: Iterable[TableRow], column: str, where: str) -> tuple[str, ...]:
    """Return the names of the classes, in order; none if the labels are scores."""
    # Each label, and the place of its first row, for messages.
    first_seen: dict[str, str] = {}
    num_rows = 0
    for row in rows:
        num_rows += 1
        first_seen.setdefault(row.label(column), row.where)
    if not first_seen:
        raise UserError(f"{where}: {column} is empty in every row; is it the column of the label?")
    if _are_numbers(first_seen, column):
        if not all(float(text).is_integer() for text in first_seen):
            return ()
        labels = _sorted_numbers(first_seen, column)
    else:
        labels = tuple(sorted(first_seen))
    if len(labels) == 1:
        raise UserError(
            f"{where}: every row has {shown(labels[0])} in {column}; training needs at least two "
            "classes."
        )
    # A class needs more than one example: this is a column of texts or of ids.
    if len(labels) > max(2, num_rows / 2):
        raise UserError(
            f"{where}: {column} holds {len(labels):,} labels in {num_rows:,} rows; is it "
            "the column of the label?"
        )
    return labels


def _are_numbers(first_seen: Mapping[str, str], column: str) -> bool:
    """Return whether the labels are all numbers; raises `UserError` if only some of them are."""
    first = next(iter(first_seen))
    are_numbers = _is_number(first)
    for text, where in first_seen.items():
        if _is_number(text) != are_numbers:
            raise UserError(
                f"{where}: the label {shown(text)} in {column} follows {shown(first)}; give labels "
                "that are all words or all numbers."
            )
    return are_numbers


def _sorted_numbers(first_seen: Mapping[str, str], column: str) -> tuple[str, ...]:
    """Return labels that are whole numbers in their order: 10 comes after 9.

    Raises `UserError` if one number is written in two ways, such as 1 and 01.
    """
    text_of_number: dict[float, str] = {}
    for text, where in first_seen.items():
        other = text_of_number.setdefault(float(text), text)
        if other != text:
            raise UserError(
                f"{where}: the label {shown(text)} in {column} is the same number as "
                f"{shown(other)}; write each class in one way."
            )
    return tuple(text_of_number[number] for number in sorted(text_of_number))


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
