"""Give each word of a sentence a class, at its first token, such as its part of speech; the classes
of named entities (`ner`) have a form of their own.

A row holds a sentence with context on both sides (`sentence_rows`).

Shapes: B rows, L padded length, W words read from a row, K classes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import softmax
from torch import Tensor

from ..encoders.config import EncoderConfig
from ..encoders.heads import IGNORED
from ..tokenizer import TextTokenizer
from .batches import Feature, TaskBatch
from .conll import TagForm, read_conll
from .metrics import label_report
from .options import ClassReport
from .sentence_rows import SentenceExample, SentenceRow, sentence_rows
from .tables import listed, notice_once
from .tagged import Sentence, split_words
from .task import Answer, LinearHead, Outputs, Recipe, Scores, Task, TaskModel, hf_labels


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


class TaggedSentence(NamedTuple):
    """The model's most probable class of each word."""

    tags: list[str]
    probabilities: list[float]


class WordTagging(Task[SentenceExample]):
    """The task; an example is one sentence."""

    form: ClassVar[TagForm]
    unknown_in_words: ClassVar[str]
    """For a notice, after their number."""
    suffixes = ()
    pipeline = "token-classification"
    labels: tuple[str, ...]
    """The classes of a word, in order."""

    @property
    def recipe(self) -> Recipe:
        """The paper's."""
        return Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5,))

    def gold(self, sentence: Sentence) -> Sequence[str]:
        """Return the right class of each word: the file's tags; the first for all words without
        tags.
        """
        return sentence.tags or [self.labels[0]] * len(sentence.words)

    def unknown(self, sentence: Sentence) -> list[str]:
        """Return what a sentence's tags name that is not in the training data."""
        return [tag for tag in sentence.tags or () if tag not in self.labels]

    def read(self, path: Path, labelled: bool) -> Iterator[SentenceExample]:
        """Yield the sentences in a file with CoNLL columns; what is unknown is counted, and is
        wrong whatever the model answers.

        Raises `UserError` naming file and line.
        """
        unknown: Counter[str] = Counter()
        for document in read_conll(path, labelled, self.form):
            for number, sentence in enumerate(document):
                unknown.update(self.unknown(sentence))
                yield SentenceExample(document, number)
        if unknown:
            notice_once(
                f"{path}: {unknown.total():,} {self.unknown_in_words.format(types=listed(unknown))}"
            )

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
        """Return the encoder with a new linear layer."""
        return TokenClassifier(config, len(self.labels))

    def tagged(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[SentenceExample]
    ) -> list[TaggedSentence]:
        """Return the class of each word of each sentence; `outputs` are logits (L, K)."""
        # A place for each word. The rows of a long sentence fill its places in turn, since each
        # word is read from exactly one row.
        sentences = []
        for example in examples:
            num_words = len(example.sentence.words)
            sentences.append(TaggedSentence([self.labels[0]] * num_words, [1.0] * num_words))
        for logits_LK, feature in zip(outputs, features, strict=True):
            row: SentenceRow = feature.context
            logits_WK = logits_LK[row.word_positions].astype(np.float64)
            probabilities_WK = softmax(logits_WK, axis=1)
            classes_W = probabilities_WK.argmax(1).tolist()
            highest_W = probabilities_WK.max(1).tolist()
            for place, word in enumerate(row.words.tolist()):
                sentences[row.example].tags[word] = self.labels[classes_W[place]]
                sentences[row.example].probabilities[word] = highest_W[place]
        return sentences

    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[SentenceExample]
    ) -> Scores:
        """Return the share of words with the right tag."""
        sentences = self.tagged(outputs, features, examples)
        return _accuracy([sentence.tags for sentence in sentences], examples)

    def baseline(
        self, train: Sequence[SentenceExample], examples: Sequence[SentenceExample]
    ) -> Scores:
        """Return the accuracy on `examples` of the most frequent tag of `train`."""
        counts = Counter(chain.from_iterable(example.sentence.tags or () for example in train))
        ((most_frequent, _),) = counts.most_common(1)
        constant = [[most_frequent] * len(example.sentence.words) for example in examples]
        return _accuracy(constant, examples)

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[SentenceExample]
    ) -> list[Answer]:
        """Return each sentence's words, their tags, and the tags' probabilities."""
        return [
            {
                "words": list(example.sentence.words),
                "tags": sentence.tags,
                "tag_probabilities": sentence.probabilities,
            }
            for example, sentence in zip(
                examples, self.tagged(outputs, features, examples), strict=True
            )
        ]

    def truth(self, example: SentenceExample) -> list[str]:
        """Return the tags."""
        return list(self.gold(example.sentence))

    def class_report(
        self, answers: Sequence[Answer], examples: Sequence[SentenceExample]
    ) -> ClassReport:
        """Return the figures of each tag, and which is taken for which; unknown tags are left
        out.
        """
        truths: list[str] = []
        given: list[str] = []
        for answer, example in zip(answers, examples, strict=True):
            for truth, tag in zip(self.truth(example), answer["tags"], strict=True):
                if truth in self.labels:
                    truths.append(truth)
                    given.append(tag)
        return label_report(self.labels, truths, given)

    def columns(self, sentence: Sentence) -> Sequence[str]:
        """Return the lines of a sentence in its file; one made in Python has its words only."""
        return sentence.lines or sentence.words

    def official(
        self, answers: Sequence[Answer], examples: Sequence[SentenceExample], split: str
    ) -> dict[str, bytes]:
        """Return the sentences' lines with the predicted tag added, the input of ``conlleval``;
        marks between documents are left out.
        """
        sentences = []
        for answer, example in zip(answers, examples, strict=True):
            lines = self.columns(example.sentence)
            tagged_lines = [
                _with_tag(line, tag) for line, tag in zip(lines, answer["tags"], strict=True)
            ]
            sentences.append("".join(tagged_lines))
        return {f"{split}.conll": "\n".join(sentences).encode()}

    def hf_settings(self) -> dict[str, Any]:
        """Return the classes for ``config.json``."""
        return hf_labels(self.labels)


def _accuracy(tags: Sequence[Sequence[str]], examples: Sequence[SentenceExample]) -> Scores:
    num_right = 0
    num_words = 0
    for given, example in zip(tags, examples, strict=True):
        gold = example.sentence.tags or ()
        num_right += sum(map(str.__eq__, given, gold))
        num_words += len(gold)
    return {"accuracy": num_right / max(1, num_words)}


def _with_tag(line: str, tag: str) -> str:
    """Return a file's line of columns with one more, and the line end."""
    if "\t" in line:
        return f"{line}\t{tag}\n"
    return f"{line} {tag}\n"
