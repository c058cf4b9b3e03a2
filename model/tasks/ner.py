"""Named-entity recognition: a class for the first token of each word (section 5.3 of the paper).

Files have CoNLL columns (`conll`). A row holds a sentence with context on both sides
(`sentence_rows`). There is no CRF. Metrics follow ``conlleval`` (`entities`).

Shapes: B rows, L padded length, W words read from a row, K classes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from scipy.special import softmax
from torch import Tensor

from ...pipeline.encodings import AUTO
from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from ..tokenizer import TextTokenizer
from .class_report import ClassReport
from .conll import (
    OUTSIDE,
    Entity,
    bio_tags,
    entities,
    entity_scores,
    lines_in_bio,
    read_conll,
    split_words,
)
from .options import TaskOptions
from .sentence_rows import SentenceExample, SentenceRow, sentence_rows
from .task import (
    IGNORED,
    Answer,
    Feature,
    LinearHead,
    Outputs,
    Recipe,
    Scores,
    Size,
    Task,
    TaskBatch,
    TaskModel,
    hf_labels,
)


class TokenClassifier(LinearHead):
    """An encoder with a linear layer on each hidden state; keys and logits as in
    ``transformers``.
    """

    per_token = True
    uses_pooler = False
    hf_name = "ForTokenClassification"

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, L, K)."""
        return self.classify(self.encoder(*batch[:4]))


@dataclass(frozen=True, kw_only=True)
class EntityRecognition(Task):
    """The task; an example is one sentence."""

    types: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Of the entities, in order."""
    max_length: Size = 128
    encoding: str = AUTO
    """Of files that are not UTF-8; no setting of the trained model."""
    name: str = "ner"

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes of a word: BIO tags."""
        tags = [OUTSIDE]
        for kind in self.types:
            tags += [f"B-{kind}", f"I-{kind}"]
        return tuple(tags)

    @property
    def recipe(self) -> Recipe:
        """The paper's."""
        return Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5,))

    def read(self, path: Path, labelled: bool) -> Iterator[SentenceExample]:
        """Yield the sentences in a file with CoNLL columns.

        Raises `UserError` naming file and line.
        """
        for document in read_conll(path, labelled, self.types, self.encoding):
            for number in range(len(document)):
                yield SentenceExample(document, number)

    def parse_line(self, line: str, where: str) -> SentenceExample:
        """Return the sentence on a line of plain text, split into words at white space."""
        return SentenceExample([split_words(line)], 0)

    def group(self, example: SentenceExample) -> str:
        """Return the text of the whole document."""
        return "\n".join(" ".join(sentence.words) for sentence in example.document)

    def encode(
        self, examples: Sequence[SentenceExample], tokenizer: TextTokenizer
    ) -> list[Feature]:
        """Return one feature per row; a sentence without words has none.

        The target of a word's first token is its class, or 0 without labels; other tokens have
        `IGNORED`.
        """
        class_of_tag = {tag: index for index, tag in enumerate(self.labels)}
        features = []
        for row in sentence_rows(examples, tokenizer, self.max_length):
            if not len(row.words):
                continue
            sentence = examples[row.example].sentence
            # The model learns BIO, whatever the scheme of the file.
            gold_entities = entities(sentence.tags or ())
            tags = bio_tags(gold_entities, len(sentence.words))
            classes_W = [class_of_tag[tags[word]] for word in row.words]
            # Only words' first tokens have a class, as in the paper:
            #
            #     [CLS]  play  ##ers  from  Lon    ##don  [SEP]
            #     -100   O     -100   O     B-loc  -100   -100
            target_L = np.full(len(row.row.input_ids), IGNORED, dtype=np.int64)
            target_L[row.word_positions] = classes_W
            features.append(Feature((row.row,), target_L, row.example, row))
        return features

    def model(self, config: EncoderConfig) -> TaskModel:
        """Return the encoder with a new linear layer."""
        return TokenClassifier(config, len(self.labels))

    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[SentenceExample]
    ) -> Scores:
        """Return F1, precision and recall of the entities; `outputs` are logits (L, K)."""
        answers = self.answers(outputs, features, examples)
        return _measure([entities(answer["tags"]) for answer in answers], examples)

    def baseline(
        self, train: Sequence[SentenceExample], examples: Sequence[SentenceExample]
    ) -> Scores:
        """Return the metrics of always predicting O, the most frequent tag: all are 0."""
        return _measure([[] for _ in examples], examples)

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[SentenceExample]
    ) -> list[Answer]:
        """Return each sentence's words, their BIO tags, and the entities with their probabilities.

        ``start`` and ``end`` of an entity are word indices; the end is exclusive. Its probability
        is the product of its words' probabilities.
        """
        labels = self.labels
        # A place for each word. The rows of a long sentence fill its places in turn, since each
        # word is read from exactly one row.
        tags: list[list[str]] = []
        probabilities: list[list[float]] = []
        for example in examples:
            num_words = len(example.sentence.words)
            tags.append([OUTSIDE] * num_words)
            probabilities.append([1.0] * num_words)
        for logits_LK, feature in zip(outputs, features, strict=True):
            row: SentenceRow = feature.context
            logits_WK = logits_LK[row.word_positions].astype(np.float64)
            probabilities_WK = softmax(logits_WK, axis=1)
            classes_W = probabilities_WK.argmax(1).tolist()
            highest_W = probabilities_WK.max(1).tolist()
            for place, word in enumerate(row.words.tolist()):
                tags[row.example][word] = labels[classes_W[place]]
                probabilities[row.example][word] = highest_W[place]
        return [
            _answer(example.sentence.words, example_tags, example_probabilities)
            for example, example_tags, example_probabilities in zip(
                examples, tags, probabilities, strict=True
            )
        ]

    def truth(self, example: SentenceExample) -> list[str]:
        """Return the tags, as BIO."""
        gold = entities(example.sentence.tags or ())
        return bio_tags(gold, len(example.sentence.words))

    def class_report(
        self, answers: Sequence[Answer], examples: Sequence[SentenceExample]
    ) -> ClassReport:
        """Return the figures of each type of entity."""
        classes = {}
        for kind in self.types:
            predicted = [_of_type(entities(answer["tags"]), kind) for answer in answers]
            gold = [_of_type(entities(self.truth(example)), kind) for example in examples]
            scores = entity_scores(predicted, gold)
            classes[kind] = {**scores, "count": sum(map(len, gold))}
        return {"classes": classes, "confusion": []}

    def official(
        self, answers: Sequence[Answer], examples: Sequence[SentenceExample], split: str
    ) -> dict[str, bytes]:
        """Return the input of ``conlleval``: the file's lines with the predicted tag added.

        Tags of the file become BIO too, or ``conlleval`` would count an I-loc that should be a
        B-loc as a wrong token. Marks between documents are left out.
        """
        sentences = []
        for answer, example in zip(answers, examples, strict=True):
            # Sentences made in Python have no lines of a file.
            lines = example.sentence.lines or answer["words"]
            lines = lines_in_bio(lines)
            tagged_lines = [
                _with_tag(line, tag) for line, tag in zip(lines, answer["tags"], strict=True)
            ]
            sentences.append("".join(tagged_lines))
        return {f"{split}.conll": "\n".join(sentences).encode()}

    def hf_settings(self) -> dict[str, Any]:
        """Return the classes for ``config.json``."""
        return hf_labels(self.labels)


def read_ner(files: Sequence[Path], options: TaskOptions) -> EntityRecognition:
    """Return the task that the training `files` define: their types of entities.

    Raises `UserError` if they contain no entity.
    """
    types: set[str] = set()
    for file in files:
        for document in read_conll(file, labelled=True, encoding=options.encoding or AUTO):
            for sentence in document:
                types.update(tag[2:] for tag in sentence.tags or () if tag != OUTSIDE)
    if not types:
        raise UserError(
            f"{files[0]} contains no entity; the last column of each line must be a tag such as "
            "B-person."
        )
    return EntityRecognition(types=tuple(sorted(types)), **options.given("max_length", "encoding"))


def _of_type(spans: Sequence[Entity], kind: str) -> list[Entity]:
    return [span for span in spans if span.type == kind]


def _answer(words: Sequence[str], tags: Sequence[str], probabilities: Sequence[float]) -> Answer:
    predicted = entities(tags)
    described = [
        {
            "type": kind,
            "text": " ".join(words[start:end]),
            "start": start,
            "end": end,
            "probability": math.prod(probabilities[start:end]),
        }
        for start, end, kind in predicted
    ]
    # A model may predict an invalid sequence, such as I- after O; these tags are valid.
    return {"words": list(words), "tags": bio_tags(predicted, len(words)), "entities": described}


def _measure(
    predicted: Sequence[Sequence[Entity]], examples: Sequence[SentenceExample]
) -> dict[str, float]:
    gold = [entities(example.sentence.tags or ()) for example in examples]
    return entity_scores(predicted, gold)


def _with_tag(line: str, tag: str) -> str:
    if "\t" in line:
        return f"{line}\t{tag}\n"
    return f"{line} {tag}\n"
