"""Named-entity recognition: a class for the first token of each word (section 5.3 of the paper).

Files have CoNLL columns (`conll`) or texts with spans (`spans`), the model is that of `tagging`.
There is no CRF. Metrics follow ``conlleval`` (`tagged`).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ...pipeline.errors import UserError
from .batches import Feature
from .conll import (
    ANY_TAGS,
    ENTITY_TAGS,
    WORD_TAGS,
    TagForm,
    lines_in_bio,
    read_conll,
)
from .options import ClassReport, Size, TaskOptions
from .sentence_rows import SentenceExample
from .spans import sentence_of_text, span_of
from .tagged import OUTSIDE, Entity, Sentence, bio_tags, entities, entity_scores
from .tagging import WordTagging
from .task import Answer, Outputs, Scores


@dataclass(frozen=True, kw_only=True)
class EntityRecognition(WordTagging):
    """The task."""

    form = ENTITY_TAGS
    unknown_in_words = (
        "entities are of types that are not in the training data ({types}); they count as missed."
    )
    types: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Of the entities, in order."""
    max_length: Size = 128
    from_texts: bool = False
    """Whether the training data are texts with spans: plain texts are then cut into words as they
    were, and not at white space alone."""
    name: str = "ner"

    @property
    def labels(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The classes of a word: BIO tags."""
        tags = [OUTSIDE]
        for kind in self.types:
            tags += [f"B-{kind}", f"I-{kind}"]
        return tuple(tags)

    def gold(self, sentence: Sentence) -> list[str]:
        """Return the tags as BIO, which the model learns whatever the scheme of the file."""
        return bio_tags(entities(sentence.tags or ()), len(sentence.words))

    def unknown(self, sentence: Sentence) -> list[str]:
        """Return the types of entities that are not in the training data."""
        types = [entity.type for entity in entities(sentence.tags or ())]
        return [kind for kind in types if kind not in self.types]

    def parse_line(self, line: str, where: str) -> SentenceExample:
        """Return the sentence on a line of plain text."""
        if self.from_texts:
            return SentenceExample([sentence_of_text(line)], 0)
        return super().parse_line(line, where)

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
        return [
            _answer(example.sentence.words, sentence.tags, sentence.probabilities)
            for example, sentence in zip(
                examples, self.tagged(outputs, features, examples), strict=True
            )
        ]

    def prediction(self, example: SentenceExample, answer: Answer) -> Answer:
        """Return the answer to a text as its text and spans, in the form of the training data."""
        sentence = example.sentence
        if sentence.text is None:
            return super().prediction(example, answer)
        spans = []
        for entity in answer["entities"]:
            start, end = span_of(sentence, entity["start"], entity["end"])
            label, score = entity["type"], entity["probability"]
            spans.append({"start": start, "end": end, "label": label, "score": score})
        return {"text": sentence.text, "spans": spans}

    def official(
        self, answers: Sequence[Answer], examples: Sequence[SentenceExample], split: str
    ) -> dict[str, bytes]:
        """Return the input of ``conlleval``; for texts, JSON Lines with their spans."""
        if all(example.sentence.text is None for example in examples):
            return super().official(answers, examples, split)
        lines = [
            json.dumps(self.prediction(example, answer), ensure_ascii=False) + "\n"
            for example, answer in zip(examples, answers, strict=True)
        ]
        return {f"{split}_spans.jsonl": "".join(lines).encode()}

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
        return ClassReport(classes=classes)

    def columns(self, sentence: Sentence) -> Sequence[str]:
        """Return the lines with their tags as BIO, or ``conlleval`` would count an I-loc that
        should be a B-loc as a wrong token.
        """
        return lines_in_bio(super().columns(sentence))


@dataclass(frozen=True, kw_only=True)
class WordClasses(WordTagging):
    """Tags that are not those of entities, such as parts of speech: the metric is accuracy."""

    form = WORD_TAGS
    unknown_in_words = (
        "words have tags that are not in the training data ({types}); they count as wrong."
    )
    labels: Annotated[tuple[str, ...], Meta(min_length=2)]
    """The tags, in order."""
    max_length: Size = 128
    name: str = "pos"


def read_ner(files: Sequence[Path], options: TaskOptions) -> EntityRecognition | WordClasses:
    """Return the task that the training `files` define: their types of entities, or their tags if
    none has the form of an entity's.

    Raises `UserError` if they contain no entity and no two tags.
    """
    # A wrong tag among those of entities is an error, so all of the first file's decide.
    tags = _tags(files[:1], ANY_TAGS)
    if tags and not any(map(ENTITY_TAGS.pattern.fullmatch, tags)):
        return read_pos(files, options)
    types = {tag[2:] for tag in _tags(files, ENTITY_TAGS) if tag != OUTSIDE}
    if not types:
        raise UserError(
            f"{files[0]} contains no entity; the last column of each line must be a tag such as "
            "B-person, or a text have spans."
        )
    (first, *_) = next(read_conll(files[0], True, ANY_TAGS))
    return EntityRecognition(
        types=tuple(sorted(types)),
        from_texts=first.text is not None,
        **options.given("max_length"),
    )


def read_pos(files: Sequence[Path], options: TaskOptions) -> WordClasses:
    """Return the task whose classes are the tags of the training `files`, whatever their form.

    Raises `UserError` if there are fewer than two.
    """
    tags = _tags(files, WORD_TAGS)
    if len(tags) < 2:
        raise UserError(f"{files[0]} contains fewer than two different tags.")
    return WordClasses(labels=tuple(sorted(tags)), **options.given("max_length"))


def _tags(files: Sequence[Path], form: TagForm) -> set[str]:
    tags: set[str] = set()
    for file in files:
        for document in read_conll(file, True, form):
            for sentence in document:
                tags.update(sentence.tags or ())
    return tags


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
