"""Tag parts of speech: one of a set of tags for each word, such as NOUN or VBZ; the metric is
accuracy.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ...pipeline.encodings import AUTO
from ...pipeline.errors import UserError
from .class_report import ClassReport
from .conll import PART_OF_SPEECH_TAGS, Sentence, read_conll
from .metrics import label_report
from .options import TaskOptions
from .sentence_rows import SentenceExample
from .tables import listed, notice_once
from .tagging import WordTagging
from .task import Answer, Feature, Outputs, Scores, Size

SUFFIXES = (".conllu", ".conll", ".tsv", ".json", ".jsonl", ".parquet")


@dataclass(frozen=True, kw_only=True)
class PartOfSpeech(WordTagging):
    """The task."""

    form = PART_OF_SPEECH_TAGS
    labels: Annotated[tuple[str, ...], Meta(min_length=2)]
    """The tags, in order."""
    max_length: Size = 128
    encoding: str = AUTO
    """Of files that are not UTF-8; no setting of the trained model."""
    name: str = "pos"

    def gold(self, sentence: Sentence) -> Sequence[str]:
        """Return the tags of the file."""
        return sentence.tags or [self.labels[0]] * len(sentence.words)

    def read(self, path: Path, labelled: bool) -> Iterator[SentenceExample]:
        """Yield the sentences in a file.

        Words with an unknown tag are counted, and are wrong whatever the model answers. Raises
        `UserError` naming file and line.
        """
        unknown: Counter[str] = Counter()
        for example in super().read(path, labelled):
            tags = example.sentence.tags or ()
            unknown.update(tag for tag in tags if tag not in self.labels)
            yield example
        if unknown:
            notice_once(
                f"{path}: {unknown.total():,} words have tags that are not in the training data "
                f"({listed(unknown)}); they count as wrong."
            )

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
        truths = list(chain.from_iterable(self.truth(example) for example in examples))
        given = list(chain.from_iterable(answer["tags"] for answer in answers))
        return label_report(self.labels, truths, given)


def _accuracy(tags: Sequence[Sequence[str]], examples: Sequence[SentenceExample]) -> Scores:
    num_right = 0
    num_words = 0
    for given, example in zip(tags, examples, strict=True):
        gold = example.sentence.tags or ()
        num_right += sum(map(str.__eq__, given, gold))
        num_words += len(gold)
    return {"accuracy": num_right / max(1, num_words)}


def read_pos(files: Sequence[Path], options: TaskOptions) -> PartOfSpeech:
    """Return the task that the training `files` define: their tags.

    Raises `UserError` if there are fewer than two.
    """
    tags: set[str] = set()
    for file in files:
        documents = read_conll(file, True, PART_OF_SPEECH_TAGS, options.encoding or AUTO)
        for sentence in chain.from_iterable(documents):
            tags.update(sentence.tags or ())
    if len(tags) < 2:
        raise UserError(f"{files[0]} contains fewer than two different tags.")
    return PartOfSpeech(labels=tuple(sorted(tags)), **options.given("max_length", "encoding"))
