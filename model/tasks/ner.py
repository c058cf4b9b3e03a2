"""Named-entity recognition: a class for the first token of each word (section 5.3 of the paper).

Files have CoNLL columns (`conll`), the model is that of `tagging`. There is no CRF. Metrics follow
``conlleval`` (`entities`).
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ...pipeline.encodings import AUTO
from ...pipeline.errors import UserError
from .class_report import ClassReport
from .conll import (
    ENTITY_TAGS,
    OUTSIDE,
    Entity,
    Sentence,
    bio_tags,
    entities,
    entity_scores,
    lines_in_bio,
    read_conll,
)
from .options import TaskOptions
from .sentence_rows import SentenceExample
from .tables import listed, notice_once
from .tagging import WordTagging
from .task import Answer, Feature, Outputs, Scores, Size


@dataclass(frozen=True, kw_only=True)
class EntityRecognition(WordTagging):
    """The task."""

    form = ENTITY_TAGS
    types: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Of the entities, in order."""
    max_length: Size = 128
    encoding: str = AUTO
    """Of files that are not UTF-8; no setting of the trained model."""
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

    def read(self, path: Path, labelled: bool) -> Iterator[SentenceExample]:
        """Yield the sentences in a file with CoNLL columns.

        Entities of unknown types are counted, and are missed whatever the model answers. Raises
        `UserError` naming file and line.
        """
        unknown: Counter[str] = Counter()
        for example in super().read(path, labelled):
            for entity in entities(example.sentence.tags or ()):
                if entity.type not in self.types:
                    unknown[entity.type] += 1
            yield example
        if unknown:
            notice_once(
                f"{path}: {unknown.total():,} entities are of types that are not in the training "
                f"data ({listed(unknown)}); they count as missed."
            )

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

    def truth(self, example: SentenceExample) -> list[str]:
        """Return the tags, as BIO."""
        return self.gold(example.sentence)

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

    def columns(self, sentence: Sentence) -> Sequence[str]:
        """Return the lines with their tags as BIO, or ``conlleval`` would count an I-loc that
        should be a B-loc as a wrong token.
        """
        return lines_in_bio(super().columns(sentence))


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
