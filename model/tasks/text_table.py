"""Tables with a text or a pair of texts, and a label, in each row."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...pipeline.errors import UserError
from ..tokenizer import TextTokenizer
from .batches import Feature
from .glue_form import GlueForm
from .options import Size, TaskOptions
from .squad_windows import window_spans
from .tables import TableRow, UnusableRowError, listed, read_rows, shown, usable
from .task import Task

TEXT_COLUMNS = ("text", "sentence")


class TextExample(NamedTuple):
    """One text or pair."""

    text: str
    text_pair: str | None
    target: Any
    """Index of the class, tuple of several, or score; None without a label."""


@dataclass(frozen=True, kw_only=True)
class TextTable(Task[TextExample]):
    """The columns of a table's texts and label.

    A column is a tuple of alternative names, since published forms of a data set differ; the first
    one present is used.
    """

    text: tuple[str, ...]
    text_pair: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    labels: tuple[str, ...] = ()
    """Names of the classes, in order; none if labels are scores."""
    max_length: Size = 128
    stride: Size | None = None
    """Tokens from the start of a text's window to the start of the next; None cuts long texts."""
    glue: GlueForm | None = None
    """For the tasks of GLUE only."""

    @abstractmethod
    def _target(self, row: TableRow) -> Any:
        """Return a row's target; raises `UnusableRowError` without one."""

    @abstractmethod
    def _as_array(self, target: Any) -> np.ndarray:
        """Return a target as the loss needs it."""

    def read(self, path: Path, labelled: bool) -> Iterator[TextExample]:
        """Yield the examples in a table; raises `UserError` naming file and line.

        Labelled rows without a text, without a label and of an unknown class are left out and
        counted.
        """
        max_short_share = 0.0
        # The server expects a prediction for every line, so no line of a test file may be left out.
        if self.glue and labelled:
            max_short_share = self.glue.max_short_share
        rows = read_rows(path, self._columns, max_short_share)
        yield from usable(rows, partial(self._example, labelled=labelled), labelled)

    def _columns(self, fields: list[str]) -> tuple[str, ...] | None:
        # CoLA: its train and dev files have no header line, its test file has one.
        has_header = any(name in fields for name in self.text)
        if has_header or self.glue is None:
            return None
        return self.glue.headerless

    def _example(self, row: TableRow, labelled: bool) -> TextExample:
        text = row.text(row.first_column(self.text) or self.text[0])
        text_pair = None
        if self.text_pair:
            text_pair = row.text(row.first_column(self.text_pair) or self.text_pair[0])
        if not labelled:
            return TextExample(text, text_pair, None)
        is_empty = not text.strip() and not (text_pair or "").strip()
        # GLUE's files are taken as they are.
        if is_empty and not self.glue:
            raise UnusableRowError(f"{row.where}: the text is empty.", "without a text")
        return TextExample(text, text_pair, self._target(row))

    def class_index(self, label: str, row: TableRow) -> int:
        """Return the index of the class named `label`; raises `UnusableRowError` if unknown."""
        if label in self.labels:
            return self.labels.index(label)
        # Published forms of GLUE give classes by name or by index.
        if self.glue and label.isdecimal() and int(label) < len(self.labels):
            return int(label)
        raise UnusableRowError(
            f"{row.where}: the label {shown(label)} in {row.first_column(self.label)} is not one "
            f"of {listed(self.labels)}.",
            "of a class that is not in the training data",
        )

    def parse_line(self, line: str, where: str) -> TextExample:
        """Return the example on a line of plain text; a tab separates the texts of a pair."""
        if not self.text_pair:
            return TextExample(line, None, None)
        texts = line.split("\t")
        if len(texts) != 2:
            raise UserError(f"{where}: write two texts, separated by a tab.")
        return TextExample(texts[0], texts[1], None)

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
                features.append(Feature(row, target, index))
        return features

    def _windows(self, tokens: list[int]) -> Iterator[list[int]]:
        if self.stride is None:
            yield tokens
            return
        room = self.max_length - 2  # without [CLS] and [SEP]
        for start, end in window_spans(len(tokens), room, self.stride):
            yield tokens[start:end]

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``: what a table of the user's own needs."""
        settings = super().settings()
        settings.pop("glue", None)
        return settings


class OwnTable(NamedTuple):
    """The rows of a table of the user's own, and the settings that say how to read it."""

    rows: Iterator[TableRow]
    label: str
    """Name of the column."""
    has_lists: bool
    """Whether the first row has a list of labels."""
    settings: dict[str, Any]
    """Fields of `TextTable`."""


def read_own_table(files: Sequence[Path], options: TaskOptions) -> OwnTable:
    """Open the training `files`; raises `UserError` for missing columns."""
    rows = chain.from_iterable(map(read_rows, files))
    first = next(rows, None)
    if first is None:
        raise UserError(f"{files[0]} contains no rows.")
    text = options.text or first.first_column(TEXT_COLUMNS) or TEXT_COLUMNS[0]
    columns = text.split(",")
    if len(columns) > 2:
        raise UserError(f"`text` is {text}; give one column, or both of a pair.")
    label = options.label or "label"
    for name in (*columns, label):
        if name not in first.values:
            raise UserError(
                f"{files[0]} has no column {shown(name)}, only {listed(first.values)}; choose with "
                "`text` and `label`."
            )
    if options.stride and len(columns) > 1:
        raise UserError("`stride` makes windows of single texts, not of pairs; leave it out.")
    settings = {
        "text": tuple(columns[:1]),
        "text_pair": tuple(columns[1:]),
        "label": (label,),
        **options.given("max_length", "stride"),
    }
    # The first row is read already, so it goes before the others again.
    has_lists = isinstance(first.values[label], list)
    return OwnTable(chain([first], rows), label, has_lists, settings)
