"""Choose between endings as in SWAG: which of several follows a text (section 4.4 of the paper).

Each choice is a row of its own, ``[CLS] text [SEP] ending [SEP]``; one vector scores them. SWAG is
a CSV (or another table with the same columns), CODAH a TSV without a header line.

Shapes: N examples, C choices.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta
from torch import Tensor

from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from ..tokenizer import TextTokenizer
from .batches import Feature, TaskBatch
from .head import Answer, LinearHead, Outputs, Recipe
from .label_head import LabelHead
from .options import Size, TaskOptions
from .tables import TableRow, UnusableRowError, listed, read_rows, shown, usable

_ENDING = re.compile(r"ending(\d+)")


class Choices(NamedTuple):
    """A text and its possible endings."""

    text: str
    endings: tuple[str, ...]
    target: int | None
    """Index of the right one; None without a label."""


class ChoiceModel(LinearHead):
    """An encoder with one vector that scores the pooled row of each choice; keys and logits as in
    ``transformers``.
    """

    hf_name = "ForMultipleChoice"

    def __init__(self, config: EncoderConfig, num_choices: int):
        super().__init__(config, 1)
        self.num_choices = num_choices

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (N, C)."""
        logits = self.classify(self.pooled(batch))  # N * C rows
        return logits.view(-1, self.num_choices)


@dataclass(frozen=True, kw_only=True)
class Choice(LabelHead[Choices]):
    """A set of questions with the same number of choices each; the classes are their indices."""

    name: str = "swag"
    num_choices: Annotated[int, Meta(ge=2, le=1 << 16)]
    max_length: Size = 128
    metrics = ("accuracy",)
    pipeline = "multiple-choice"

    @property
    def labels(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The indices of the choices."""
        return tuple(map(str, range(self.num_choices)))

    @property
    def recipe(self) -> Recipe:
        """The paper's for SWAG (section 4.4)."""
        return Recipe(batch_size=16, epochs=3.0, learning_rates=(2e-5,))

    def read(self, path: Path, labelled: bool) -> Iterator[Choices]:
        """Yield the examples in a table; raises `UserError` naming file and line.

        Rows for training or dev without a text, a label that is an ending, or the task's number of
        endings are left out and counted.
        """
        columns = partial(_codah_columns, num_choices=self.num_choices, labelled=labelled)
        rows = read_rows(path, columns)
        yield from usable(rows, partial(self._example, labelled=labelled), labelled)

    def _example(self, row: TableRow, labelled: bool) -> Choices:
        endings = _endings(row)
        if len(endings) != self.num_choices:
            raise UnusableRowError(
                f"{row.where}: the number of endings is {len(endings)}, not {self.num_choices}.",
                "with another number of endings",
            )
        # SWAG: the sentence `sent1` is the text; `sent2` starts every ending.
        #
        #     sent1     She opens the door.       the text
        #     sent2     The cat                   begins each ending
        #     ending0   walks in.                 "The cat walks in."
        start = ""
        if "sent1" in row.values:
            start = row.text("sent2")
            text = row.text("sent1")
        elif "prompt" in row.values:
            text = row.text("prompt")
        else:
            text = row.text("startphrase")
        whole_endings = tuple(f"{start} {ending}".strip() for ending in endings)
        if not labelled:
            return Choices(text, whole_endings, None)
        if not text.strip() or not all(ending.strip() for ending in endings):
            raise UnusableRowError(
                f"{row.where}: the text or an ending is empty.", "without a text or an ending"
            )
        return Choices(text, whole_endings, self._target(row))

    def _target(self, row: TableRow) -> int:
        label = row.label("label")
        if not label.isdecimal() or int(label) >= self.num_choices:
            raise UnusableRowError(
                f"{row.where}: the label is {shown(label)}, not an ending (0 to "
                f"{self.num_choices - 1}).",
                "whose label is not an ending",
            )
        return int(label)

    def parse_line(self, line: str, where: str) -> Choices:
        """Return the example on a line of text: the text and its endings, separated by tabs."""
        text, *endings = line.split("\t")
        if len(endings) != self.num_choices:
            raise UserError(
                f"{where}: write a text and {self.num_choices} endings, separated by tabs."
            )
        return Choices(text, tuple(endings), None)

    def group(self, example: Choices) -> str:
        """Return the text without its endings."""
        return example.text

    def texts(self, example: Choices) -> dict[str, str]:
        """Return the text and its endings, each under the number that is its label."""
        endings = {f"ending{index}": ending for index, ending in enumerate(example.endings)}
        return {"text": example.text, **endings}

    def encode(self, examples: Sequence[Choices], tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per example, with one row per choice."""
        texts = tokenizer.token_ids([example.text for example in examples])
        # All endings in one call, which tokenises them in parallel: one example's after the
        # other's.
        all_endings = tokenizer.token_ids(
            [ending for example in examples for ending in example.endings]
        )
        features = []
        first = 0
        for index, (example, text) in enumerate(zip(examples, texts, strict=True)):
            end = first + len(example.endings)
            rows = [
                tokenizer.row(text, ending, self.max_length) for ending in all_endings[first:end]
            ]
            first = end
            target = None
            if example.target is not None:
                target = np.array(example.target, dtype=np.int64)
            features.append(Feature(tuple(rows), target, index))
        return features

    def model(self, config: EncoderConfig) -> ChoiceModel:
        """Return the encoder with a new vector."""
        return ChoiceModel(config, self.num_choices)

    def truth(self, example: Choices) -> int | None:
        """Return the index of the right ending."""
        return example.target

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Choices]
    ) -> list[Answer]:
        """Return the index of each example's ending, and the probability of each choice."""
        # The classes' names are the indices as text; a reader of the JSON wants numbers.
        answers = super().answers(outputs, features, examples)
        return [{**answer, "label": int(answer["label"])} for answer in answers]


def read_choice(files: Sequence[Path], options: TaskOptions) -> Choice:
    """Return the task that the training `files` define: the number of endings that most rows have.

    Raises `UserError` without two choices.
    """
    first = None
    counts: Counter[int] = Counter()
    for file in files:
        for row in read_rows(file, _codah_columns):
            first = first or row
            with suppress(UnusableRowError):  # `read` counts them
                counts[len(_endings(row))] += 1
    if first is None:
        raise UserError(f"{files[0]} contains no rows.")
    if not counts:
        _endings(first)  # raises the error
    ((num_choices, _),) = counts.most_common(1)
    if num_choices < 2:
        raise UserError(
            f"{first.where} lacks the columns ending0, ending1, …; it has {listed(first.values)}."
        )
    return Choice(num_choices=num_choices, **options.given("max_length"))


def _codah_columns(
    fields: list[str], num_choices: int | None = None, labelled: bool = True
) -> tuple[str, ...] | None:
    """Return the columns of a TSV without a header line, from the fields of its first line.

    They are the category, the text, its endings, and the label, which may be absent where no labels
    are read: then there are only two fields besides `num_choices` endings.
    """
    if "ending0" in fields:
        return None
    has_label = labelled or num_choices is None or len(fields) != num_choices + 2
    num_endings = len(fields) - 2
    if has_label:
        num_endings -= 1
    # With too few fields the table is of another kind; two endings make the row's error say so.
    num_endings = max(2, num_endings)
    columns = ["category", "prompt"]
    columns += [f"ending{index}" for index in range(num_endings)]
    if has_label:
        columns.append("label")
    return tuple(columns)


def _endings(row: TableRow) -> list[str]:
    """Return the endings by number, without trailing empty cells.

    Raises `UserError` if a number is missing.
    """
    # Asked for by number: columns may stand in any order, and ending10 after ending9.
    names = {name for name in row.values if _ENDING.fullmatch(name)}
    endings = [row.text(f"ending{index}") for index in range(len(names))]
    while endings and not endings[-1]:
        endings.pop()
    return endings
