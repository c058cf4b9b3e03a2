"""Count what is wrong with labelled texts: repeats, contradictions, and texts in train and dev."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .data import TaskData


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Examples with the same texts as others."""

    repeated: int
    """Training examples that repeat an earlier one: the same texts and label."""
    contradictory: int
    """Training examples whose texts have several labels."""
    example: str
    """The text of one of those; empty if there are none."""
    shared: int
    """Dev examples whose texts are also in the training examples."""


def find_repeats(task: TaskData, train: Sequence[Any], dev: Mapping[str, Sequence[Any]]) -> Repeats:
    """Return how many examples share their texts with others.

    Tasks whose examples have no texts, or more than texts (`TaskData.depends_on_texts_alone`), have
    none.
    """
    labels: dict[tuple[str, ...], list[Any]] = defaultdict(list)
    for example in train:
        texts = _texts(task, example)
        if texts:
            labels[texts].append(_label(task, example))
    repeated = 0
    contradictory = 0
    first = ""
    for texts, found in labels.items():
        num_labels = len(set(found))
        repeated += len(found) - num_labels
        if num_labels > 1:
            contradictory += len(found)
            first = first or texts[0]
    shared = 0
    for examples in dev.values():
        shared += sum(_texts(task, example) in labels for example in examples)
    return Repeats(repeated=repeated, contradictory=contradictory, example=first, shared=shared)


def _texts(task: TaskData, example: Any) -> tuple[str, ...]:
    if not task.depends_on_texts_alone:
        return ()
    return tuple(task.texts(example).values())


def _label(task: TaskData, example: Any) -> Any:
    """Return the label, or the set of labels; None for pairs that have none."""
    truth = task.truth(example)
    if isinstance(truth, list):
        return tuple(truth)
    return truth
