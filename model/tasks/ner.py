"""Named-entity recognition: a class for the first token of each word (section 5.3 of the paper).

Files have CoNLL columns (`conll`). A row holds a sentence with context on both sides (`sentence_rows`). There is no
CRF. Metrics are those of ``conlleval`` (`entities`).

Shapes: B rows, L padded length, D hidden size, K classes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from torch import Tensor

from ...pipeline.errors import UserError
from ..config import ModelConfig
from ..finetuning.config import FinetuneConfig
from ..tokenizer import TextTokenizer
from .bilstm import LSTM_SIZE, BiLstmTagger
from .conll import Sentence, read_documents, split_words
from .entities import OUTSIDE, Entity, bio_tags, entities, entity_scores
from .sentence_rows import SentenceExample, SentenceRow, sentence_rows
from .task import (
    IGNORED,
    Answer,
    Feature,
    LinearHead,
    Outputs,
    Recipe,
    Scores,
    Task,
    TaskBatch,
    TaskModel,
    hf_labels,
)

MAX_LENGTH = 128
OTHER_FORMS = (".csv", ".json", ".jsonl", ".parquet")
RECIPE = Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5,))
FEATURES_RECIPE = Recipe(batch_size=32, epochs=10.0, learning_rates=(1e-3,))
"""Our own: the paper does not say how it trains the BiLSTM; new weights need larger steps."""


class BertForTokenClassification(LinearHead):
    """BERT with a linear layer on each hidden state; keys and logits as in ``transformers``."""

    per_token = True

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, L, K)."""
        return self.classify(self.bert(*batch[:4]))


class Tagging(NamedTuple):
    """The predicted tags of a sentence."""

    tags: list[str]
    probabilities: list[float]
    """One per word: of its tag."""

    def answer(self, words: Sequence[str]) -> Answer:
        """Return the answer; an entity's probability is the product of those of its words' tags."""
        found = entities(self.tags)
        return {
            "words": list(words),
            "tags": bio_tags(found, len(words)),
            "entities": [
                {
                    "type": entity.type,
                    "text": " ".join(words[entity.start : entity.end]),
                    "start": entity.start,
                    "end": entity.end,
                    "probability": math.prod(self.probabilities[entity.start : entity.end]),
                }
                for entity in found
            ],
        }


@dataclass(frozen=True, kw_only=True)
class EntityRecognition(Task):
    """The task; an example is one sentence."""

    types: tuple[str, ...]
    """Of the entities, in order."""
    max_length: int = MAX_LENGTH
    features: str | None = None
    """The hidden states that a BiLSTM is trained on; None to fine-tune the whole encoder."""
    lstm_size: int = LSTM_SIZE
    name: str = "ner"

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes of a word: BIO tags."""
        return (OUTSIDE, *(f"{prefix}-{kind}" for kind in self.types for prefix in "BI"))

    @property
    def recipe(self) -> Recipe:
        """The paper's, or one for the BiLSTM."""
        return FEATURES_RECIPE if self.features else RECIPE

    def read(self, path: Path, labelled: bool) -> Iterator[SentenceExample]:
        """Yield the sentences in a file with CoNLL columns; raises `UserError` naming file and line."""
        for document in _documents(path, labelled, self.types):
            yield from (SentenceExample(document, index) for index in range(len(document)))

    def parse_line(self, line: str, where: str) -> SentenceExample:
        """Return the sentence on a line of plain text, split into words at white space."""
        return SentenceExample([split_words(line)], 0)

    def group(self, example: SentenceExample) -> str:
        """Return the text of the whole document."""
        return "\n".join(" ".join(sentence.words) for sentence in example.document)

    def encode(self, examples: Sequence[SentenceExample], tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per row; a sentence without words has none.

        The target of a word's first token is its class, or 0 without labels, so that `IGNORED` marks the other tokens.
        """
        rows = sentence_rows(examples, tokenizer, self.max_length)
        classes = {tag: index for index, tag in enumerate(self.labels)}
        return [_feature(row, examples[row.example], classes) for row in rows if len(row.words)]

    def model(self, config: ModelConfig) -> TaskModel:
        """Return the encoder with a new linear layer, or frozen with a new BiLSTM."""
        if self.features:
            return BiLstmTagger(config, len(self.labels), self.features, self.lstm_size)
        return BertForTokenClassification(config, len(self.labels))

    def scores(self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[SentenceExample]) -> Scores:
        """Return F1, precision and recall of the entities; `outputs` are logits (L, K)."""
        return _measure([entities(tagging.tags) for tagging in self._taggings(outputs, features, examples)], examples)

    def baseline(self, train: Sequence[SentenceExample], examples: Sequence[SentenceExample]) -> Scores:
        """Return the metrics of always predicting O, the most frequent tag: all are 0."""
        return _measure([[] for _ in examples], examples)

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[SentenceExample]
    ) -> list[Answer]:
        """Return each sentence's words, their BIO tags, and the entities with their probabilities.

        ``start`` and ``end`` of an entity are word indices; the end is exclusive.
        """
        taggings = self._taggings(outputs, features, examples)
        return [tagging.answer(example.sentence.words) for tagging, example in zip(taggings, examples, strict=True)]

    def _taggings(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[SentenceExample]
    ) -> list[Tagging]:
        """Return the most probable tags; every word of a sentence is read from one of its features."""
        labels = self.labels
        taggings = [
            Tagging([OUTSIDE] * len(example.sentence.words), [1.0] * len(example.sentence.words))
            for example in examples
        ]
        for logits_LK, feature in zip(outputs, features, strict=True):
            row: SentenceRow = feature.context
            shares_WK = softmax(logits_LK[row.word_positions].astype(np.float64), axis=1)
            best = zip(row.words.tolist(), shares_WK.argmax(1).tolist(), shares_WK.max(1).tolist(), strict=True)
            for word, label, probability in best:
                taggings[row.example].tags[word] = labels[label]
                taggings[row.example].probabilities[word] = probability
        return taggings

    def official(self, answers: Sequence[Answer], examples: Sequence[SentenceExample], split: str) -> dict[str, bytes]:
        """Return the input of ``conlleval``: the file's lines, without document marks, with the predicted tag added."""
        sentences = (
            "".join(map(_with_tag, example.sentence.lines or answer["words"], answer["tags"]))
            for answer, example in zip(answers, examples, strict=True)
        )
        return {f"{split}.conll": "\n".join(sentences).encode()}

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``."""
        shape = {"features": self.features, "lstm_size": self.lstm_size} if self.features else {}
        return {"task": self.name, "types": list(self.types), "max_length": self.max_length, **shape}

    def hf_settings(self) -> dict[str, Any]:
        """Return the architecture and the classes for ``config.json``; ``transformers`` does not have the BiLSTM."""
        return {
            "architectures": ["BertModel" if self.features else "BertForTokenClassification"],
            **hf_labels(self.labels),
        }


def read_ner(files: Sequence[Path], config: FinetuneConfig) -> EntityRecognition:
    """Return the task defined by the training `files`; raises `UserError` if they contain no entity."""
    documents = chain.from_iterable(_documents(file, labelled=True) for file in files)
    tags = {tag for document in documents for sentence in document for tag in sentence.tags or ()}
    types = sorted({tag[2:] for tag in tags if tag != OUTSIDE})
    if not types:
        raise UserError(f"{files[0]} contains no entity; the last column of each line must be a tag such as B-person.")
    if config.lstm_size and not config.features:
        raise UserError("--lstm-size is for the BiLSTM on frozen features; add --features or leave it out.")
    if config.compile and config.features:
        raise UserError("--compile gains nothing for a BiLSTM on frozen features; leave it out.")
    return EntityRecognition(types=tuple(types), **config.given("max_length", "features", "lstm_size"))


def _documents(path: Path, labelled: bool, types: Sequence[str] | None = None) -> Iterator[list[Sentence]]:
    if path.suffix in OTHER_FORMS:
        raise UserError(f"{path} is a {path.suffix} file; ner reads files with CoNLL columns.")
    return read_documents(path, labelled, types)


def _feature(row: SentenceRow, example: SentenceExample, classes: dict[str, int]) -> Feature:
    target = np.full(len(row.row.input_ids), IGNORED, dtype=np.int64)
    sentence = example.sentence
    # The model learns BIO, whatever the scheme of the file.
    tags = bio_tags(entities(sentence.tags), len(sentence.tags)) if sentence.tags else [OUTSIDE] * len(sentence.words)
    target[row.word_positions] = [classes[tags[word]] for word in row.words]
    return Feature((row.row,), target, row.example, row)


def _measure(predicted: Sequence[Sequence[Entity]], examples: Sequence[SentenceExample]) -> dict[str, float]:
    return entity_scores(predicted, [entities(example.sentence.tags or ()) for example in examples])


def _with_tag(line: str, tag: str) -> str:
    return line + ("\t" if "\t" in line else " ") + tag + "\n"
