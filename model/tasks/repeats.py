"""Count what is wrong with labelled texts: repeats, contradictions, and texts in train and dev."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..tokenizer import TextTokenizer
from .data import ExampleT, TaskData

_Key = tuple[str | bytes, ...]


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


def find_repeats(
    task: TaskData[ExampleT],
    train: Sequence[ExampleT],
    dev: Mapping[str, Sequence[ExampleT]],
    tokenizer: TextTokenizer | None = None,
) -> Repeats:
    """Return how many examples share their texts with others.

    Texts are the same if they have the same tokens: case and spacing may differ. Without a
    `tokenizer` they are compared as they are. A dev example is shared even if the texts of its pair
    are in the other order in training. Tasks whose examples have no texts, or more than texts
    (`TaskData.depends_on_texts_alone`), have none.
    """
    labels: dict[_Key, list[Hashable]] = defaultdict(list)
    first_texts: dict[_Key, str] = {}
    for key, example in zip(_keys(task, train, tokenizer), train, strict=True):
        if key:
            labels[key].append(_label(task, example))
            first_texts.setdefault(key, next(iter(task.texts(example).values())))
    repeated = 0
    contradictory = 0
    first = ""
    for key, found in labels.items():
        num_labels = len(set(found))
        repeated += len(found) - num_labels
        if num_labels > 1:
            contradictory += len(found)
            first = first or first_texts[key]
    trained = {frozenset(key) for key in labels}
    shared = 0
    for examples in dev.values():
        keys = _keys(task, examples, tokenizer)
        shared += sum(frozenset(key) in trained for key in keys if key)
    return Repeats(repeated=repeated, contradictory=contradictory, example=first, shared=shared)


def _keys(
    task: TaskData[ExampleT], examples: Sequence[ExampleT], tokenizer: TextTokenizer | None
) -> Iterator[_Key]:
    """Yield the tokens of each example's texts; nothing for one that depends on more."""
    if not task.depends_on_texts_alone:
        yield from ((),) * len(examples)
        return
    texts = [tuple(task.texts(example).values()) for example in examples]
    if tokenizer is None:
        yield from texts
        return
    ids = iter(tokenizer.token_ids(list(chain.from_iterable(texts))))
    for of_example in texts:
        # As bytes, which take less memory than numbers.
        yield tuple(np.array(next(ids), dtype=np.int32).tobytes() for _ in of_example)


def _label(task: TaskData[ExampleT], example: ExampleT) -> Hashable:
    """Return the label, or the set of labels; None for pairs that have none."""
    truth = task.truth(example)
    if isinstance(truth, list):
        return tuple(truth)
    return truth
