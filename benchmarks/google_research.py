"""google-research's ``create_pretraining_data.py``, as a peer.

Ported line by line without TensorFlow, so the time to write TFRecords is not included. The
tokeniser is the copy in `transformers`.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from transformers.models.bert_japanese.tokenization_bert_japanese import (
    BasicTokenizer,
    WordpieceTokenizer,
)

MAX_PREDICTIONS = 20
MASK_RATE = 0.15

Document = Sequence[list[str]]
Instance = tuple[list[str], list[int], bool, list[int], list[str]]


def make_tokenizer(vocabulary: Sequence[str], lowercase: bool) -> Callable[[str], list[str]]:
    """Return a function that splits text into pieces as ``FullTokenizer.tokenize`` does."""
    basic = BasicTokenizer(do_lower_case=lowercase)
    wordpiece = WordpieceTokenizer(vocab=dict.fromkeys(vocabulary), unk_token="[UNK]")

    def tokenize(text: str) -> list[str]:
        words = basic.tokenize(text)
        return [piece for word in words for piece in wordpiece.tokenize(word)]

    return tokenize


def create_instances(
    documents: Sequence[Document],
    vocabulary: Sequence[str],
    max_length: int,
    duplicates: int,
    seed: int = 0,
) -> Iterator[Instance]:
    """Yield the instances of all documents, `duplicates` times, with other random numbers each.

    An instance is (tokens, segment ids, is random next, masked positions, their tokens).
    """
    rng = random.Random(seed)
    for _ in range(duplicates):
        for index in range(len(documents)):
            for a, b, is_random_next in _pairs_of(documents, index, max_length, rng):
                tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
                segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
                positions, originals = _mask(tokens, vocabulary, rng)
                yield tokens, segments, is_random_next, positions, originals


def _pairs_of(
    documents: Sequence[Document], index: int, max_length: int, rng: random.Random
) -> Iterator[tuple[list[str], list[str], bool]]:
    """Follow ``create_instances_from_document`` statement by statement."""
    document = documents[index]
    limit = max_length - 3
    target = rng.randint(2, limit) if rng.random() < 0.1 else limit
    chunk: list[list[str]] = []
    length = 0
    i = 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = list(chain(*chunk[:a_end]))
            is_random_next = len(chunk) == 1 or rng.random() < 0.5
            if is_random_next:
                b = _random_segment(documents, index, target - len(a), rng)
                # The sentences after A are used again.
                i -= len(chunk) - a_end
            else:
                b = list(chain(*chunk[a_end:]))
            while len(a) + len(b) > limit:
                longer = a if len(a) > len(b) else b
                del longer[0 if rng.random() < 0.5 else -1]
            yield a, b, is_random_next
            chunk = []
            length = 0
        i += 1


def _random_segment(
    documents: Sequence[Document], index: int, target: int, rng: random.Random
) -> list[str]:
    other = index
    # Ten tries only, as in the original: B may come from the same document.
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    segment: list[str] = []
    first = rng.randint(0, len(documents[other]) - 1)
    for sentence in documents[other][first:]:
        segment.extend(sentence)
        if len(segment) >= target:
            break
    return segment


def _mask(
    tokens: list[str], vocabulary: Sequence[str], rng: random.Random
) -> tuple[list[int], list[str]]:
    candidates = [i for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(candidates)
    wanted = min(MAX_PREDICTIONS, max(1, round(len(tokens) * MASK_RATE)))
    positions = sorted(candidates[:wanted])
    originals = [tokens[position] for position in positions]
    for position in positions:
        if rng.random() < 0.8:
            tokens[position] = "[MASK]"
        elif rng.random() < 0.5:
            tokens[position] = vocabulary[rng.randint(0, len(vocabulary) - 1)]
    return positions, originals
