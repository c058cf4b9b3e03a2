"""Multiple choice, SWAG's form of it: which of several endings follows a text (the paper's section 4.4).

Each choice is a row of its own, ``[CLS] text [SEP] ending [SEP]``; one vector scores them. SWAG comes as CSV (or with
the same columns in another table), CODAH as TSV without a line of names.

Shapes: N examples, C choices, D hidden size.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from scipy.special import softmax
from torch import Tensor

from ...pipeline.errors import UserError
from ..config import ModelConfig
from ..finetuning.config import FinetuneConfig
from ..tokenizer import TextTokenizer
from .metrics import accuracy
from .tables import TableRow, listed, read_rows, shown, text_lines
from .task import Feature, LinearHead, Recipe, Task, TaskBatch, TokenRow

SWAG_RECIPE = Recipe(batch_size=16, epochs=3.0, learning_rates=(2e-5,))
_ENDING = re.compile(r"ending(\d+)")


class Choices(NamedTuple):
    """A text and what may follow it."""

    text: str
    endings: tuple[str, ...]
    target: int | None
    """Index of the right one; None where the file holds no labels."""


class BertForMultipleChoice(LinearHead):
    """BERT with one vector that scores the pooled [CLS] of each choice; keys and logits as in ``transformers``."""

    def __init__(self, config: ModelConfig, num_choices: int):
        super().__init__(config, 1)
        self.num_choices = num_choices

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (N, C)."""
        return self.classify(self.bert.pooler(self.states(batch))).view(-1, self.num_choices)

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy over the choices."""
        assert batch.target is not None
        return F.cross_entropy(outputs, batch.target)


@dataclass(frozen=True, kw_only=True)
class Choice(Task):
    """A set of questions that have the same number of choices each."""

    name: str = "swag"
    num_choices: int
    max_length: int = 128

    @property
    def recipe(self) -> Recipe:
        """The paper's for SWAG (section 4.4)."""
        return SWAG_RECIPE

    def read(self, path: Path, labelled: bool) -> Iterator[Choices]:
        """Yield the examples in a table; raises `UserError` naming file and line."""
        for row in read_rows(path, _codah_columns(path, self.num_choices, labelled)):
            text, start = _texts(row)
            endings = _endings(row)
            if len(endings) != self.num_choices:
                raise UserError(f"{row.where}: {self.num_choices} endings are needed, not {len(endings)}.")
            target = self._target(row) if labelled else None
            yield Choices(text, tuple(f"{start} {ending}".strip() for ending in endings), target)

    def _target(self, row: TableRow) -> int:
        label = row.label("label")
        if not label.isdecimal() or int(label) >= self.num_choices:
            raise UserError(
                f"{row.where}: the label is {shown(label)}, but 0 to {self.num_choices - 1} are the endings."
            )
        return int(label)

    def parse_line(self, line: str, where: str) -> Choices:
        """Return the example on a line of plain text: the text and its endings, with tabs between them."""
        text, *endings = line.split("\t")
        if len(endings) != self.num_choices:
            needed = f"a text and {self.num_choices} endings with tabs between them are needed"
            raise UserError(f"{where}: {needed}, not {len(endings)}.")
        return Choices(text, tuple(endings), None)

    def group(self, example: Choices) -> str:
        """Return the text, so that what may follow the same one stays together."""
        return example.text

    def encode(self, examples: Sequence[Choices], tokenizer: TextTokenizer) -> list[Feature]:
        """Return a feature for each example, of one row for each choice."""
        texts = tokenizer.token_ids([example.text for example in examples])
        endings = iter(tokenizer.token_ids([ending for example in examples for ending in example.endings]))
        features = []
        for index, (example, text) in enumerate(zip(examples, texts, strict=True)):
            rows = tuple(TokenRow(*tokenizer.row(text, next(endings), self.max_length)) for _ in example.endings)
            target = None if example.target is None else np.array(example.target, dtype=np.int64)
            features.append(Feature(rows, target, index))
        return features

    def model(self, config: ModelConfig) -> BertForMultipleChoice:
        """Return the encoder with a new vector."""
        return BertForMultipleChoice(config, self.num_choices)

    def scores(
        self, outputs: Sequence[np.ndarray], features: Sequence[Feature], examples: Sequence[Choices]
    ) -> dict[str, float]:
        """Return the accuracy; `outputs` are logits (C,)."""
        return {"accuracy": accuracy(np.stack(outputs).argmax(1), _targets(examples))}

    def baseline(self, train: Sequence[Choices], examples: Sequence[Choices]) -> dict[str, float]:
        """Return the accuracy of always taking the ending that is most often right in `train`, by its place."""
        answer = np.bincount(_targets(train)).argmax()
        return {"accuracy": accuracy(np.full(len(examples), answer), _targets(examples))}

    def answers(
        self, outputs: Sequence[np.ndarray], features: Sequence[Feature], examples: Sequence[Choices]
    ) -> list[dict[str, Any]]:
        """Return for each example the index of the ending, and the probability of each."""
        answers = []
        for logits_C in outputs:
            shares = softmax(logits_C.astype(np.float64)).tolist()
            probabilities = {str(index): share for index, share in enumerate(shares)}
            answers.append({"label": int(logits_C.argmax()), "probabilities": probabilities})
        return answers

    def settings(self) -> dict[str, Any]:
        """Return what is kept in ``task.json``."""
        return {"task": self.name, "num_choices": self.num_choices, "max_length": self.max_length}

    def hf_settings(self) -> dict[str, Any]:
        """Return the architecture for ``config.json``."""
        return {"architectures": ["BertForMultipleChoice"]}


def read_choice(files: Sequence[Path], config: FinetuneConfig) -> Choice:
    """Return the task that the training `files` pose; the first row says how many choices there are.

    Raises `UserError` where there are no rows, or fewer than two choices.
    """
    first = next(read_rows(files[0], _codah_columns(files[0])), None)
    if first is None:
        raise UserError(f"{files[0]} holds no rows.")
    num_choices = len(_endings(first))
    if num_choices < 2:
        columns = listed(first.values)
        raise UserError(f"{first.where}: two or more of the columns ending0, ending1, … are needed, not {columns}.")
    return Choice(num_choices=num_choices, max_length=config.max_length or Choice.max_length)


def restore_choice(settings: dict[str, Any]) -> Choice:
    """Return the task from what `Choice.settings` gave."""
    return Choice(num_choices=settings["num_choices"], max_length=settings["max_length"])


def _codah_columns(path: Path, num_choices: int | None = None, labelled: bool = True) -> tuple[str, ...] | None:
    """Return the columns of a TSV without a line of names, from the number of fields on its first line.

    Without labels the last column may be missing: it is where there is room for `num_choices` endings only.
    """
    if path.suffix != ".tsv" or not path.is_file():
        return None
    with path.open("rb") as file:
        _, line = next(text_lines(file, str(path)), ("", ""))
    fields = line.split("\t")
    if "ending0" in fields:
        return None
    has_label = labelled or num_choices is None or len(fields) != num_choices + 2
    endings = (f"ending{index}" for index in range(max(2, len(fields) - 2 - has_label)))
    return "category", "prompt", *endings, *(["label"] if has_label else [])


def _texts(row: TableRow) -> tuple[str, str]:
    """Return what is given, and how each ending begins."""
    if "sent1" in row.values:
        return row.text("sent1"), row.text("sent2")
    return row.text("prompt" if "prompt" in row.values else "startphrase"), ""


def _endings(row: TableRow) -> list[str]:
    """Return the endings in the order of their numbers, without empty cells behind the last.

    Raises `UserError` where a number is left out, as labels are these numbers.
    """
    names = {name for name in row.values if _ENDING.fullmatch(name)}
    endings = [row.text(f"ending{index}") for index in range(len(names))]
    while endings and not endings[-1]:
        endings.pop()
    return endings


def _targets(examples: Sequence[Choices]) -> np.ndarray:
    return np.array([example.target for example in examples], dtype=np.int64)
