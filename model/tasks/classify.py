"""Classify single texts and pairs, or score them; the classes follow from the user's own table."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from ..notices import print_notice
from .class_report import ClassReport
from .head import Answer, Scores, hf_labels
from .label_head import LabelHead, SequenceClassifier
from .metrics import label_report
from .multilabel import MultiLabel, read_multilabel
from .options import TaskOptions
from .tables import TableRow, UnusableRowError, shown
from .text_table import TextExample, TextTable, read_own_table
from .word_baseline import classes_by_words

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


@dataclass(frozen=True, kw_only=True)
class Classification(TextTable, LabelHead[TextExample]):
    """A class, or a score, for each row of a table."""

    name: str

    @property
    def metrics(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """GLUE's, or those of any table."""
        if self.glue:
            return self.glue.metrics
        if self.labels:
            return "accuracy", "macro_f1"
        return "spearman", "pearson"

    def _target(self, row: TableRow) -> float:
        column = row.first_column(self.label) or self.label[0]
        if not self.labels:
            return row.number(column)
        return self.class_index(row.label(column), row)

    def _as_array(self, target: Any) -> np.ndarray:
        # As the losses need it: cross-entropy takes indices, the squared error numbers.
        if self.labels:
            return np.array(target, dtype=np.int64)
        return np.array(target, dtype=np.float32)

    def truth(self, example: TextExample) -> Any:
        """Return the name of the class, or the score."""
        if example.target is None or not self.labels:
            return example.target
        return self.labels[int(example.target)]

    def model(self, config: EncoderConfig) -> SequenceClassifier:
        """Return the encoder with a new linear layer."""
        return SequenceClassifier(config, len(self.labels) or 1)

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
        classes = [example.target for example in train]
        if not self.labels or self.text_pair or len(set(classes)) < 2:
            return {}
        train_texts = [example.text for example in train]
        texts = [example.text for example in examples]
        return self.measured(classes_by_words(train_texts, classes, texts), examples)

    def official(
        self, answers: Sequence[Answer], examples: Sequence[TextExample], split: str
    ) -> dict[str, bytes]:
        """Return the file for GLUE's server if `split` is a test split of GLUE, else nothing."""
        if self.glue is None:
            return {}
        return self.glue.official(answers, self.labels, split)

    def hf_settings(self) -> dict[str, Any]:
        """Return the kind of problem and the classes for ``config.json``."""
        kind = "single_label_classification" if self.labels else "regression"
        return {"problem_type": kind, **hf_labels(self.labels or ("LABEL_0",))}


def read_classify(files: Sequence[Path], options: TaskOptions) -> Classification | MultiLabel:
    """Return the task that the training `files`, a table of the user's own, define.

    Labels that are words or whole numbers are classes; labels with fractions make it a regression.
    Lists of labels are any number of classes for each text. Raises `UserError` for missing columns,
    and for labels that cannot be classes.
    """
    table = read_own_table(files, options)
    if table.has_lists:
        return read_multilabel(files, options)
    label = table.label
    num_rows = 0
    # Of each label the place of its first row, for messages.
    first_seen: dict[str, str] = {}
    for row in table.rows:
        with suppress(UnusableRowError):  # `usable` counts them
            name = row.label(label)
            num_rows += 1
            first_seen.setdefault(name, row.where)
    labels = _labels(first_seen, num_rows, label, str(files[0]))
    if not labels:
        print_notice(f"{label} holds numbers with fractions: they are scores (a regression).")
    elif _is_number(labels[0]):
        print_notice(
            f"{label} holds whole numbers: they are {len(labels)} classes; scores have fractions, "
            "0.8 for 4 of 5."
        )
    return Classification(name="classify", labels=labels, **table.settings)


def _labels(
    first_seen: Mapping[str, str], num_rows: int, column: str, where: str
) -> tuple[str, ...]:
    """Return the names of the classes, in order; none if the labels are scores."""
    if not first_seen:
        raise UserError(f"{where}: {column} is empty in every row; is it the column of the label?")
    # Neither read as a number, as 1,234 may be a thousand, nor taken for the name of a class.
    if all(map(_DECIMAL_COMMA.fullmatch, first_seen)):
        raise UserError(
            f"{where}: {column} holds {shown(next(iter(first_seen)))}; write scores with a decimal "
            "point, or choose the task multilabel if these are several labels."
        )
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
    text_of_number: dict[Decimal, str] = {}
    for text, where in first_seen.items():
        other = text_of_number.setdefault(Decimal(text), text)
        if other != text:
            raise UserError(
                f"{where}: the label {shown(text)} in {column} is the same number as "
                f"{shown(other)}; write each class in one way."
            )
    return tuple(text_of_number[number] for number in sorted(text_of_number))


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
