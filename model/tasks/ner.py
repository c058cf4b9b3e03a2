"""Give each word of a sentence a class, at its first token: named entities (section 5.3 of the
paper), or other tags such as parts of speech.

Files have CoNLL columns or texts with spans (`conll`); a row holds a sentence with
context on both sides (`sentence_rows`). There is no CRF. Metrics of entities follow ``conlleval``
(`tagged`).

Shapes: B rows, L padded length, W words read from a row, K classes.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from torch import Tensor

from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from ..encoders.heads import IGNORED
from ..tokenizer import TextTokenizer
from .batches import Feature, TaskBatch
from .conll import ANY_TAGS, ENTITY_TAGS, TABLES, WORD_TAGS, TagForm, read_conll, sentence_of_text
from .example_tables import listed, notice_once
from .metrics import label_report, softmax
from .options import ClassReport, Size, TaskOptions
from .sentence_rows import SentenceExample, SentenceRow, sentence_rows
from .tagged import OUTSIDE, Entity, Sentence, bio_tags, entities, entity_scores, split_words
from .task import (
    Answer,
    Answers,
    Features,
    LinearHead,
    Outputs,
    Recipe,
    Scores,
    Task,
    TaskModel,
    hf_labels,
)

Examples = Sequence[SentenceExample]


class TokenClassifier(LinearHead):
    """An encoder with a linear layer on each hidden state; logits as in ``transformers``."""

    per_token = True
    uses_pooler = False
    hf_name = "ForTokenClassification"

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, L, K)."""
        return self.classify(self.encoder(*batch[:4]))


class WordTagging(Task[SentenceExample]):
    """The task; an example is one sentence."""

    form: ClassVar[TagForm]
    suffixes = ()
    tables = TABLES
    pipeline = "token-classification"
    labels: tuple[str, ...]
    """The classes of a word, in order."""
    recipe = Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5,))  # the paper's

    def gold(self, sentence: Sentence) -> Sequence[str]:
        """Return the right class of each word; the first one for all words without tags."""
        return sentence.tags or [self.labels[0]] * len(sentence.words)

    def read(self, path: Path, labelled: bool) -> Iterator[SentenceExample]:
        """Yield the sentences in a file; what is not in the training data is counted."""
        unknown: Counter[str] = Counter()
        for document in read_conll(path, labelled, self.form):
            for number, sentence in enumerate(document):
                unknown.update(tag for tag in self.gold(sentence) if tag not in self.labels)
                yield SentenceExample(document, number)
        if unknown:
            notice_once(
                f"{path}: {unknown.total():,} words are of classes that are not in the training "
                f"data ({listed(unknown)}); they count as wrong."
            )

    def parse_line(self, line: str, where: str) -> SentenceExample:
        return SentenceExample([split_words(line)], 0)

    def group(self, example: SentenceExample) -> str:
        return "\n".join(" ".join(sentence.words) for sentence in example.document)

    def encode(self, examples: Examples, tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per row; a sentence without words has none.

        The target of a word's first token is its class, or 0 without labels; other tokens, and
        words of an unknown class, have `IGNORED`.
        """
        class_of_tag = {tag: index for index, tag in enumerate(self.labels)}
        features = []
        for row in sentence_rows(examples, tokenizer, self.max_length):
            if not len(row.words):
                continue
            tags = self.gold(examples[row.example].sentence)
            words: list[int] = row.words.tolist()
            classes_W = [class_of_tag.get(tags[word], IGNORED) for word in words]
            # Only words' first tokens have a class, as in the paper:
            #
            #     [CLS]  play  ##ers  from  Lon    ##don  [SEP]
            #     -100   O     -100   O     B-loc  -100   -100
            target_L = np.full(len(row.row.input_ids), IGNORED, dtype=np.int64)
            target_L[row.word_positions] = classes_W
            features.append(Feature(row.row, target_L, row.example, row))
        return features

    def model(self, config: EncoderConfig) -> TaskModel:
        return TokenClassifier(config, len(self.labels))

    def tagged(
        self, outputs: Outputs, features: Features, examples: Examples
    ) -> list[tuple[list[str], list[float]]]:
        """Return the most probable class of each word of each sentence, and its probability."""
        # A place for each word. The rows of a long sentence fill its places in turn, since each
        # word is read from exactly one row.
        sentences = []
        for example in examples:
            num_words = len(example.sentence.words)
            sentences.append(([self.labels[0]] * num_words, [1.0] * num_words))
        for logits_LK, feature in zip(outputs, features, strict=True):
            row: SentenceRow = feature.context
            logits_WK = logits_LK[row.word_positions].astype(np.float64)
            probabilities_WK = softmax(logits_WK)
            classes_W = probabilities_WK.argmax(1).tolist()
            highest_W = probabilities_WK.max(1).tolist()
            tags, probabilities = sentences[row.example]
            for place, word in enumerate(row.words.tolist()):
                tags[word] = self.labels[classes_W[place]]
                probabilities[word] = highest_W[place]
        return sentences

    def scores(self, outputs: Outputs, features: Features, examples: Examples) -> Scores:
        """Return the share of words with the right tag."""
        tagged = self.tagged(outputs, features, examples)
        return _accuracy([tags for tags, _ in tagged], examples)

    def baseline(self, train: Examples, examples: Examples) -> Scores:
        """Return the accuracy on `examples` of the most frequent tag of `train`."""
        counts = Counter(chain.from_iterable(example.sentence.tags or () for example in train))
        ((most_frequent, _),) = counts.most_common(1)
        constant = [[most_frequent] * len(example.sentence.words) for example in examples]
        return _accuracy(constant, examples)

    def answers(self, outputs: Outputs, features: Features, examples: Examples) -> list[Answer]:
        """Return each sentence's words, their tags, and the tags' probabilities."""
        answers = []
        tagged = self.tagged(outputs, features, examples)
        for example, (tags, probabilities) in zip(examples, tagged, strict=True):
            words = list(example.sentence.words)
            answers.append({"words": words, "tags": tags, "tag_probabilities": probabilities})
        return answers

    def truth(self, example: SentenceExample) -> list[str]:
        return list(self.gold(example.sentence))

    def class_report(self, answers: Answers, examples: Examples) -> ClassReport:
        """Return the figures of each tag, without unknown ones, and which is taken for which."""
        truths: list[str] = []
        given: list[str] = []
        for answer, example in zip(answers, examples, strict=True):
            for truth, tag in zip(self.truth(example), answer["tags"], strict=True):
                if truth in self.labels:
                    truths.append(truth)
                    given.append(tag)
        return label_report(self.labels, truths, given)

    def official(self, answers: Answers, examples: Examples, split: str) -> dict[str, bytes]:
        """Return the sentences' lines with the predicted tag added, the input of ``conlleval``."""
        sentences = []
        for answer, example in zip(answers, examples, strict=True):
            tagged_lines = []
            lines = example.sentence.lines or example.sentence.words
            for line, tag in zip(lines, answer["tags"], strict=True):
                separator = "\t" if "\t" in line else " "
                tagged_lines.append(f"{line}{separator}{tag}\n")
            sentences.append("".join(tagged_lines))
        return {f"{split}.conll": "\n".join(sentences).encode()}

    def hf_settings(self) -> dict[str, Any]:
        return hf_labels(self.labels)


def _accuracy(tags: Sequence[Sequence[str]], examples: Examples) -> Scores:
    num_right = 0
    num_words = 0
    for given, example in zip(tags, examples, strict=True):
        gold = example.sentence.tags or ()
        num_right += sum(map(str.__eq__, given, gold))
        num_words += len(gold)
    return {"accuracy": num_right / max(1, num_words)}


def _gold_entities(example: SentenceExample) -> list[Entity]:
    return entities(example.sentence.tags or ())


@dataclass(frozen=True, kw_only=True)
class EntityRecognition(WordTagging):
    """Named entities, which BIO tags or spans of the text mark."""

    form = ENTITY_TAGS
    types: Annotated[tuple[str, ...], Meta(min_length=1)]
    max_length: Size = 128
    from_texts: bool = False
    """Whether words are cut from texts with spans, and plain texts as they are."""
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

    def parse_line(self, line: str, where: str) -> SentenceExample:
        if self.from_texts:
            return SentenceExample([sentence_of_text(line)], 0)
        return super().parse_line(line, where)

    def scores(self, outputs: Outputs, features: Features, examples: Examples) -> Scores:
        """Return F1, precision and recall of the entities; `outputs` are logits (L, K)."""
        answers = self.answers(outputs, features, examples)
        predicted = [entities(answer["tags"]) for answer in answers]
        return entity_scores(predicted, [_gold_entities(example) for example in examples])

    def baseline(self, train: Examples, examples: Examples) -> Scores:
        """Return the metrics of always predicting O, the most frequent tag: all are 0."""
        return entity_scores([[] for _ in examples], map(_gold_entities, examples))

    def answers(self, outputs: Outputs, features: Features, examples: Examples) -> list[Answer]:
        """Return each sentence's words, their BIO tags, and the entities with their probabilities.

        ``start`` and ``end`` of an entity are word indices; the end is exclusive. Its probability
        is the product of its words' probabilities.
        """
        answers = []
        tagged = self.tagged(outputs, features, examples)
        for example, (most_probable, probabilities) in zip(examples, tagged, strict=True):
            words = example.sentence.words
            predicted = entities(most_probable)
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
            tags = bio_tags(predicted, len(words))
            answers.append({"words": list(words), "tags": tags, "entities": described})
        return answers

    def prediction(self, example: SentenceExample, answer: Answer) -> Answer:
        """Return the answer to a text as its text and spans, in the form of the training data."""
        sentence = example.sentence
        if sentence.text is None:
            return super().prediction(example, answer)
        spans = []
        for entity in answer["entities"]:
            start, _ = sentence.offsets[entity["start"]]
            _, end = sentence.offsets[entity["end"] - 1]
            label, score = entity["type"], entity["probability"]
            spans.append({"start": start, "end": end, "label": label, "score": score})
        return {"text": sentence.text, "spans": spans}

    def official(self, answers: Answers, examples: Examples, split: str) -> dict[str, bytes]:
        """Return the input of ``conlleval``; for texts, JSON Lines with their spans."""
        if all(example.sentence.text is None for example in examples):
            return super().official(answers, examples, split)
        lines = [
            json.dumps(self.prediction(example, answer), ensure_ascii=False) + "\n"
            for example, answer in zip(examples, answers, strict=True)
        ]
        return {f"{split}_spans.jsonl": "".join(lines).encode()}

    def class_report(self, answers: Answers, examples: Examples) -> ClassReport:
        """Return the figures of each type of entity."""
        all_predicted = [entities(answer["tags"]) for answer in answers]
        all_gold = [_gold_entities(example) for example in examples]
        classes = {}
        for kind in self.types:
            predicted = [[span for span in spans if span.type == kind] for spans in all_predicted]
            gold = [[span for span in spans if span.type == kind] for spans in all_gold]
            scores = entity_scores(predicted, gold)
            classes[kind] = {**scores, "count": sum(map(len, gold))}
        return ClassReport(classes=classes)


@dataclass(frozen=True, kw_only=True)
class WordClasses(WordTagging):
    """Tags that are not those of entities, such as parts of speech: the metric is accuracy."""

    form = WORD_TAGS
    labels: Annotated[tuple[str, ...], Meta(min_length=2)]
    max_length: Size = 128
    name: str = "pos"


def ner_task(files: Sequence[Path], options: TaskOptions) -> WordTagging:
    """Return the task that the training `files` define, by types of entities or by other tags."""
    # A wrong tag among those of entities is an error: all tags of a file decide, of the first one
    # that has any.
    tags_by_file = (_tags(_sentences([file], ANY_TAGS)) for file in files)
    tags = next(filter(None, tags_by_file), None)
    if tags and not any(map(ENTITY_TAGS.pattern.fullmatch, tags)):
        return pos_task(files, options)
    sentences = list(_sentences(files, ENTITY_TAGS))
    types = {tag[2:] for tag in _tags(sentences) if tag != OUTSIDE}
    if not types:
        raise UserError(
            f"{files[0]} contains no entity; the last column of each line must be a tag such as "
            "B-person, or a text have spans."
        )
    return EntityRecognition(
        types=tuple(sorted(types)),
        from_texts=sentences[0].text is not None,
        **options.given("max_length"),
    )


def pos_task(files: Sequence[Path], options: TaskOptions) -> WordTagging:
    """Return the task whose classes are the tags of the training `files`."""
    tags = _tags(_sentences(files, WORD_TAGS))
    if len(tags) < 2:
        raise UserError(f"{files[0]} contains fewer than two different tags.")
    return WordClasses(labels=tuple(sorted(tags)), **options.given("max_length"))


def _sentences(files: Sequence[Path], form: TagForm) -> Iterator[Sentence]:
    for file in files:
        yield from chain.from_iterable(read_conll(file, True, form))


def _tags(sentences: Iterable[Sentence]) -> set[str]:
    return set(chain.from_iterable(sentence.tags or () for sentence in sentences))
