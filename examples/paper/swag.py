"""SWAG and CODAH: which of several endings follows a text (section 4.4 of the paper, Table 4).

A task of one's own in one file: how its files are read, how an example becomes tokens, the model,
and what its outputs mean. Searches, resuming, results and predictions are those of every task.

    $ python examples/paper/swag.py swag/ --checkpoint run --output results/swag

Each ending has a row ``[CLS] text [SEP] ending [SEP]``, which one vector scores. An example of
Clozeworks is one row, so the rows of a question stand end to end in it::

    [CLS] she runs [SEP] home [SEP] [CLS] she runs [SEP] green [SEP]

and the model cuts them at each [CLS].

Shapes: N questions, T tokens, C endings, R = N * C rows, L tokens of the longest row.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import click
import numpy as np
import torch
from clozeworks.model import (
    EncoderConfig,
    Feature,
    FinetuneConfig,
    SequenceClassifier,
    Task,
    TaskBatch,
    finetune,
)
from clozeworks.model.tokenizer import TextTokenizer, TokenRow
from clozeworks.pipeline import UserError
from scipy.special import softmax
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class Question(NamedTuple):
    """A text and its possible endings."""

    text: str
    endings: tuple[str, ...]
    target: int | None
    """Index of the right one; None without a label."""


class ChoiceModel(SequenceClassifier):
    """Names of weights and logits are those of ``transformers``."""

    hf_name = "ForMultipleChoice"

    def __init__(self, config: EncoderConfig):
        super().__init__(config, 1)

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return the logits of each question's endings (N, C), whose loss is that of classes."""
        logits_R1 = self.classify(self.pooled(cut_into_rows(batch)))
        return logits_R1.view(len(batch.input_ids_BL), -1)


def cut_into_rows(batch: TaskBatch) -> TaskBatch:
    """Return the rows of all questions as a batch of their own."""
    tokens_T = batch.input_ids_BL[batch.attention_mask_BL]
    cls, sep = tokens_T[0], tokens_T[-1]
    starts_R = (tokens_T == cls).nonzero().squeeze(1)
    rows = tokens_T.tensor_split(starts_R[1:].cpu())
    ids_RL = pad_sequence(list(rows), batch_first=True)
    mask_RL = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).bool()
    # The ending is what follows the first [SEP].
    is_sep_RL = (ids_RL == sep).long()
    types_RL = (is_sep_RL.cumsum(1) > is_sep_RL) & mask_RL
    index_T = mask_RL.flatten().nonzero().squeeze(1)
    return TaskBatch(ids_RL, types_RL.long(), mask_RL, index_T, batch.target)


@dataclass(frozen=True, kw_only=True)
class Swag(Task[Question]):
    """Questions with the same number of endings each."""

    name: str = "swag"
    num_choices: int = 4
    max_length: int = 128
    """Of a row, in tokens."""
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    pipeline: ClassVar[str] = "multiple-choice"
    in_transformers: ClassVar[bool] = False

    # What a file and a line hold.

    def read(self, path: Path, labelled: bool) -> Iterator[Question]:
        """Yield the questions of SWAG's CSV or CODAH's TSV."""
        read_lines = codah_lines if path.suffix == ".tsv" else swag_lines
        with path.open(encoding="utf-8", newline="") as file:
            for number, (text, endings, label) in enumerate(read_lines(file, self.num_choices), 1):
                where = f"{path}, question {number}"
                if len(endings) != self.num_choices or not all(map(str.strip, endings)):
                    raise UserError(f"{where} does not have {self.num_choices} endings.")
                target = None
                if labelled:
                    if not label.isdecimal() or int(label) >= self.num_choices:
                        raise UserError(f"{where}: the label is {label!r}, not an ending.")
                    target = int(label)
                yield Question(text, tuple(endings), target)

    def parse_line(self, line: str, where: str) -> Question:
        """Return the question on a line of plain text: the text and its endings, between tabs."""
        text, *endings = line.split("\t")
        if len(endings) != self.num_choices:
            raise UserError(f"{where}: write a text and {self.num_choices} endings, between tabs.")
        return Question(text, tuple(endings), None)

    def group(self, example: Question) -> str:
        """Return the text: questions that share it stay in training, or in dev."""
        return example.text

    def texts(self, example: Question) -> dict[str, str]:
        """Return the text and its endings, as `predict` writes them."""
        endings = {f"ending{index}": ending for index, ending in enumerate(example.endings)}
        return {"text": example.text, **endings}

    def truth(self, example: Question) -> int | None:
        """Return the index of the right ending."""
        return example.target

    # From texts to tokens, from the model's outputs to answers and scores.

    def encode(self, examples: Sequence[Question], tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per question: the rows of its endings, end to end."""
        features = []
        for index, example in enumerate(examples):
            text, *endings = tokenizer.token_ids([example.text, *example.endings])
            rows = [tokenizer.row(text, ending, self.max_length) for ending in endings]
            joined = np.concatenate([row.input_ids for row in rows])
            num_cut = sum(row.num_cut for row in rows)
            target = None
            if example.target is not None:
                target = np.array(example.target)
            features.append(Feature(TokenRow(joined, len(joined), num_cut), target, index))
        return features

    def model(self, config: EncoderConfig) -> ChoiceModel:
        """Return the encoder with a new vector."""
        return ChoiceModel(config)

    def answers(
        self,
        outputs: Sequence[np.ndarray],
        features: Sequence[Feature],
        examples: Sequence[Question],
    ) -> list[dict[str, Any]]:
        """Return the index of each question's best ending, and the probabilities of all."""
        answers = []
        for logits_C in outputs:
            probabilities = dict(enumerate(softmax(logits_C.astype(np.float64)).tolist()))
            answers.append({"label": int(logits_C.argmax()), "probabilities": probabilities})
        return answers

    def scores(
        self,
        outputs: Sequence[np.ndarray],
        features: Sequence[Feature],
        examples: Sequence[Question],
    ) -> dict[str, float]:
        """Return the accuracy."""
        are_right = [
            logits_C.argmax() == example.target
            for logits_C, example in zip(outputs, examples, strict=True)
        ]
        return {"accuracy": float(np.mean(are_right))}

    def baseline(self, train: Sequence[Question], examples: Sequence[Question]) -> dict[str, float]:
        """Return the accuracy of always choosing the most frequent place."""
        ((place, _),) = Counter(example.target for example in train).most_common(1)
        return {"accuracy": float(np.mean([example.target == place for example in examples]))}


Line = tuple[str, list[str], str]
"""A text, its endings, and the label; "" if there is none."""


def swag_lines(file: Iterator[str], num_choices: int) -> Iterator[Line]:
    """Yield the lines of SWAG: the sentence `sent1`, and `sent2`, which begins every ending."""
    for row in csv.DictReader(file):
        try:
            endings = [f"{row['sent2']} {row[f'ending{n}']}".strip() for n in range(num_choices)]
            yield row["sent1"], endings, row.get("label") or ""
        except KeyError as error:
            raise UserError(f"There is no column {error}, only {', '.join(row)}.") from None


def codah_lines(file: Iterator[str], num_choices: int) -> Iterator[Line]:
    """Yield the lines of CODAH: category, text, endings and perhaps a label, without a header."""
    for _, text, *rest in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
        label = rest[num_choices] if len(rest) > num_choices else ""
        yield text, rest[:num_choices], label


@click.command()
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.option("--checkpoint", required=True, type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path))
@click.option("--epochs", default=3.0, show_default=True)
def main(data: Path, checkpoint: Path, output: Path, epochs: float) -> None:
    """Fine-tune an encoder on the questions in DATA, with the paper's rate and batch size."""
    config = FinetuneConfig(batch_size=16, epochs=epochs, learning_rates=(2e-5,))
    summary = finetune(Swag(), data, checkpoint, output, config)
    click.echo(f"accuracy on dev: {summary['best']['scores']['accuracy']:.3f}")


if __name__ == "__main__":
    main()
