"""Entities in tag sequences, and their precision, recall and F1, by the rules of the CoNLL script ``conlleval``.

A tag is ``O`` or a prefix and a type, such as ``B-person``. The same rules read every scheme: IOB1 (an entity begins
with I-, or with B- right after another of its type), BIO (always B-) and IOBES (E- ends, S- is a single word). They
also define the entities of invalid sequences, which a model may predict.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
PREFIXES = "BIES"


class Entity(NamedTuple):
    """The words from `start` up to but excluding `end`."""

    start: int
    end: int
    type: str


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities in a sentence, from left to right.

    An entity begins at B- and S-, after O, E- and S-, and where the type changes; it extends to the next beginning or
    O.

    >>> entities(["I-loc", "I-loc", "B-loc", "O", "I-org", "I-per"])
    [Entity(start=0, end=2, type='loc'), Entity(start=2, end=3, type='loc'), Entity(start=4, end=5, type='org'), \
Entity(start=5, end=6, type='per')]
    """
    found: list[Entity] = []
    previous = OUTSIDE
    for index, tag in enumerate(tags):
        if tag != OUTSIDE:
            if _begins(previous, tag):
                found.append(Entity(index, index, tag[2:]))
            found[-1] = found[-1]._replace(end=index + 1)
        previous = tag
    return found


def _begins(previous: str, tag: str) -> bool:
    return tag[0] in "BS" or previous[0] in "OES" or previous[2:] != tag[2:]


def bio_tags(found: Iterable[Entity], num_words: int) -> list[str]:
    """Return the BIO tags of a sentence with these entities.

    >>> bio_tags([Entity(1, 3, "loc")], 4)
    ['O', 'B-loc', 'I-loc', 'O']
    """
    tags = [OUTSIDE] * num_words
    for start, end, kind in found:
        tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return tags


def entity_scores(predicted: Iterable[Sequence[Entity]], gold: Iterable[Sequence[Entity]]) -> dict[str, float]:
    """Return F1, precision and recall over all sentences; 0 if undefined.

    An entity is correct if its first word, its last word and its type are.
    """
    num_correct = num_predicted = num_gold = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        num_correct += len(set(ours) & set(theirs))
        num_predicted += len(ours)
        num_gold += len(theirs)
    return {
        "f1": _share(2 * num_correct, num_predicted + num_gold),
        "precision": _share(num_correct, num_predicted),
        "recall": _share(num_correct, num_gold),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
