"""Sentences of tagged words, and the entities in their tags, scored by the rules of ``conlleval``.

The same rules read every scheme of tags: IOB1 (an entity begins with I-, or with B- right after
another of its type), BIO (always B-), IOBES (E- ends, S- is a single word) and BILOU, which calls
these two L- and U-. They also define the entities of invalid sequences, which a model may predict.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"


class Sentence(NamedTuple):
    """One sentence of a document."""

    words: tuple[str, ...]
    """As in the file; one may be empty, or only punctuation."""
    tags: tuple[str, ...] | None
    """One per word, in the file's own scheme; None if not read."""
    lines: tuple[str, ...] = ()
    """The file's lines, without line ends."""
    text: str | None = None
    """That the words were cut from; None if the words were given."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Where each word lies in `text`: its first character, and one past its last."""

    def spaced(self) -> list[bool]:
        """Return, for each word, whether a space stands before it; given words all have one."""
        if self.text is None:
            return [True] * len(self.words)
        return [start > 0 and self.text[start - 1].isspace() for start, _ in self.offsets]


def split_words(line: str) -> Sentence:
    """Return the sentence in a plain text, split at spaces, tabs and line ends."""
    return Sentence(tuple(re.findall(r"[^ \t\r\n]+", line)), None)


class Entity(NamedTuple):
    """The words from `start` up to but excluding `end`."""

    start: int
    end: int
    type: str


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities in a sentence, from left to right.

    An entity begins at B-, S- and U-, after O, E-, S-, L- and U-, and where the type changes; it
    extends to the next beginning or O::

        I-loc  I-loc  B-loc  O  I-org  I-per
        [----------]  [---]     [---]  [---]

    >>> entities(["I-loc", "I-loc", "B-loc"])
    [Entity(start=0, end=2, type='loc'), Entity(start=2, end=3, type='loc')]
    """
    spans: list[Entity] = []
    previous = OUTSIDE
    for index, tag in enumerate(tags):
        if tag != OUTSIDE:
            follows_end = previous[0] in "OESLU"
            begins = tag[0] in "BSU" or follows_end or previous[2:] != tag[2:]
            start = index
            if not begins:
                start = spans.pop().start  # the entity continues: make it longer
            spans.append(Entity(start, index + 1, tag[2:]))
        previous = tag
    return spans


def bio_tags(spans: Iterable[Entity], num_words: int) -> list[str]:
    """Return the BIO tags of a sentence with these entities.

    >>> bio_tags([Entity(1, 3, "loc")], 4)
    ['O', 'B-loc', 'I-loc', 'O']
    """
    tags = [OUTSIDE] * num_words
    for start, end, kind in spans:
        tags[start] = f"B-{kind}"
        tags[start + 1 : end] = [f"I-{kind}"] * (end - start - 1)
    return tags


def entity_scores(
    predicted: Iterable[Sequence[Entity]], gold: Iterable[Sequence[Entity]]
) -> dict[str, float]:
    """Return F1, precision and recall of whole entities with their types, 0 if undefined."""
    num_correct = num_predicted = num_gold = 0
    for predicted_here, gold_here in zip(predicted, gold, strict=True):
        num_correct += len(set(predicted_here) & set(gold_here))
        num_predicted += len(predicted_here)
        num_gold += len(gold_here)
    # If a divisor is 0, so is its numerator.
    return {
        "f1": 2 * num_correct / max(1, num_predicted + num_gold),
        "precision": num_correct / max(1, num_predicted),
        "recall": num_correct / max(1, num_gold),
    }
