"""Classification and regression on the user's own table; the labels are read from the training file."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ...pipeline.errors import UserError
from ..finetuning.config import FinetuneConfig
from .classification import Classification
from .metrics import accuracy, macro_f1, pearson, spearman
from .tables import TableRow, listed, read_rows, shown

TEXT_COLUMNS = ("text", "sentence")
LABEL_COLUMN = "label"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def read_classify(files: Sequence[Path], config: FinetuneConfig) -> Classification:
    """Return the task defined by the training `files`.

    Labels that are words or whole numbers are classes; labels with fractions make it a regression. Raises `UserError`
    for missing columns, and for labels that cannot be classes.
    """
    rows = chain.from_iterable(map(read_rows, files))
    first = next(rows, None)
    if first is None:
        raise UserError(f"{files[0]} holds no rows.")
    text = config.text or next((name for name in TEXT_COLUMNS if name in first.values), None)
    label = config.label or LABEL_COLUMN
    if text not in first.values or label not in first.values:
        raise UserError(f"{files[0]} has the columns {listed(first.values)}; choose with --text and --label.")
    return classify_task(
        text=(text,),
        text_pair=(config.text_pair,) if config.text_pair else (),
        label=(label,),
        labels=_labels(chain([first], rows), label, str(files[0])),
        **config.given("max_length"),
    )


def classify_task(*, labels: tuple[str, ...], **settings: Any) -> Classification:
    """Return the task with these classes, or a regression if there are none."""
    metrics = (accuracy, macro_f1) if labels else (spearman, pearson)
    return Classification(name="classify", labels=labels, metrics=metrics, by_index=False, **settings)


def _labels(rows: Iterable[TableRow], column: str, where: str) -> tuple[str, ...]:
    """Return the names of the classes, in order; none if the labels are scores. `where` is for messages."""
    counts: Counter[str] = Counter()
    first_seen: dict[str, str] = {}
    first = None
    for row in rows:
        text = row.label(column)
        first = first or text
        if _is_number(text) != _is_number(first):
            found = f"the label {shown(text)} in {column} follows {shown(first)}"
            raise UserError(f"{row.where}: {found}; words and numbers mix.")
        counts[text] += 1
        first_seen.setdefault(text, row.where)
    is_number = all(map(_is_number, counts))
    if is_number and not all(float(text).is_integer() for text in counts):
        return ()
    labels = _by_number(first_seen, column) if is_number else tuple(sorted(counts))
    if len(counts) < 2:
        raise UserError(f"{where}: every row has {shown(*counts)} in {column}; training needs at least two classes.")
    if len(counts) > max(2, counts.total() / 2):
        found = f"{column} holds {len(counts):,} labels in {counts.total():,} rows"
        raise UserError(f"{where}: {found}; is it the column of the label?")
    return labels


def _by_number(first_seen: Mapping[str, str], column: str) -> tuple[str, ...]:
    """Return the labels in numeric order; `first_seen` maps each to the row where it first occurs."""
    written: dict[float, str] = {}
    for text, where in first_seen.items():
        other = written.setdefault(float(text), text)
        if other != text:
            found = f"the label {shown(text)} in {column} is the same number as {shown(other)}"
            raise UserError(f"{where}: {found}; write each class in one way.")
    return tuple(written[number] for number in sorted(written))


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
