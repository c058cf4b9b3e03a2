"""Classification and regression on a table of the user's own; what the labels are is read from the training file."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ...pipeline.errors import UserError
from ..finetuning.config import FinetuneConfig
from .classification import Classification
from .metrics import Metric, accuracy, macro_f1, pearson, spearman
from .tables import TableRow, listed, read_rows, shown

TEXT_COLUMNS = ("text", "sentence")
LABEL_COLUMN = "label"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def read_classify(files: Sequence[Path], config: FinetuneConfig) -> Classification:
    """Return the task that the training `files` pose.

    Labels that are words or whole numbers are classes; numbers with fractions make it a regression. Raises
    `UserError` for missing columns, and for labels that are no sensible classes.
    """
    rows = chain.from_iterable(map(read_rows, files))
    first = next(rows, None)
    if first is None:
        raise UserError(f"{files[0]} holds no rows.")
    text = config.text or next((name for name in TEXT_COLUMNS if name in first.values), None)
    label = config.label or LABEL_COLUMN
    if text not in first.values or label not in first.values:
        raise UserError(
            f"{files[0]} has the columns {listed(first.values)}; say with --text and --label which ones to use."
        )
    labels = _labels(chain([first], rows), label, str(files[0]))
    return Classification(
        name="classify",
        text=(text,),
        text_pair=(config.text_pair,) if config.text_pair else (),
        label=(label,),
        labels=labels,
        by_index=False,
        metrics=classify_metrics(labels),
        max_length=config.max_length or Classification.max_length,
    )


def restore_classify(settings: dict[str, Any]) -> Classification:
    """Return the task from what `Classification.settings` gave."""
    labels = tuple(settings["labels"])
    return Classification(
        name=settings["task"],
        text=tuple(settings["text"]),
        text_pair=tuple(settings["text_pair"]),
        label=tuple(settings["label"]),
        labels=labels,
        metrics=classify_metrics(labels),
        by_index=False,
        max_length=settings["max_length"],
    )


def classify_metrics(labels: tuple[str, ...]) -> tuple[Metric, ...]:
    """Return the metrics for these classes, or for regression where there are none."""
    return (accuracy, macro_f1) if labels else (spearman, pearson)


def _labels(rows: Iterable[TableRow], column: str, where: str) -> tuple[str, ...]:
    """Return the names of the classes, in order; none where the labels are scores. `where` is for messages."""
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}
    first = None
    for row in rows:
        text = row.label(column)
        first = first or text
        if _is_number(text) != _is_number(first):
            found = f"the label {shown(text)} in {column} follows {shown(first)}"
            raise UserError(f"{row.where}: {found}; words and numbers mix.")
        counts[text] += 1
        places.setdefault(text, row.where)
    is_number = all(map(_is_number, counts))
    if is_number and not all(float(text).is_integer() for text in counts):
        return ()
    labels = _by_number(places, column) if is_number else tuple(sorted(counts))
    _check_classes(counts, column, where)
    return labels


def _by_number(places: Mapping[str, str], column: str) -> tuple[str, ...]:
    """Return the labels in the order of the numbers that they are; `places` tells where each was first."""
    written: dict[float, str] = {}
    for text, where in places.items():
        other = written.setdefault(float(text), text)
        if other != text:
            found = f"the label {shown(text)} in {column} is the same number as {shown(other)}"
            raise UserError(f"{where}: {found}; write each class in one way.")
    return tuple(written[number] for number in sorted(written))


def _check_classes(counts: Counter[str], column: str, where: str) -> None:
    if len(counts) < 2:
        raise UserError(f"{where}: every row has {shown(*counts)} in {column}; a class alone cannot be learned.")
    if len(counts) > max(2, counts.total() / 2):
        found = f"{column} holds {len(counts):,} labels in {counts.total():,} rows"
        raise UserError(f"{where}: {found}; is it the column of the label?")


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
