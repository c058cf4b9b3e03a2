"""Fertility by size is that of vocabularies that are learned with these sizes."""

from pathlib import Path

import pyarrow as pa
import pytest
from clozeworks.pipeline.vocabulary.bpe import learn_bpe
from clozeworks.pipeline.vocabulary.byte_level import ByteLevelSplitter, byte_level_tokenizer
from clozeworks.pipeline.vocabulary.fertility import fertility_by_size, fertility_report
from clozeworks.pipeline.vocabulary.files import byte_level_vocabulary
from clozeworks.pipeline.vocabulary.tokenize import (
    Normalization,
    Speller,
    count_words,
)
from clozeworks.pipeline.vocabulary.vocabulary import Vocabulary
from clozeworks.pipeline.vocabulary.wordpiece import learn_wordpiece

BOOKS = Path(__file__).parents[3] / "examples/quickstart/corpus/books"
NORMALIZATION = Normalization(lowercase=True, strip_accents=True)


def sentences(book: str) -> pa.Array:
    """Return the lines of a story."""
    return pa.array((BOOKS / f"{book}.txt").read_text().splitlines())


TRAINING = sentences("doyle-the-red-headed-league")
HELD_OUT = sentences("chekhov-gusev")


def wordpiece(size: int) -> tuple[Vocabulary, int]:
    """Return a vocabulary of this size, and the number of its merges."""
    words = count_words([TRAINING], Speller(NORMALIZATION))
    tokens, report = learn_wordpiece(
        words["word"], words["count"].to_numpy(), size=size, min_frequency=1
    )
    return Vocabulary(tuple(tokens), NORMALIZATION), report.num_merges


def bpe(size: int) -> tuple[Vocabulary, int]:
    """Return a byte-level vocabulary of this size, and the number of its merges."""
    splitter = ByteLevelSplitter(byte_level_tokenizer([], [], NORMALIZATION, []))
    words = count_words([TRAINING], splitter)
    tokens, merges, report = learn_bpe(
        words["word"], words["count"].to_numpy(), size=size, min_frequency=1
    )
    return byte_level_vocabulary(tokens, merges, NORMALIZATION), report.num_merges


@pytest.mark.parametrize("learn", [wordpiece, bpe])
def test_fertility_by_size_is_that_of_smaller_vocabularies(learn):
    largest, num_merges = learn(2800)
    words = count_words([HELD_OUT], largest.splitter())
    by_size = fertility_by_size(words, largest, num_merges)
    expected = [
        (size, fertility_report(words, learn(size)[0]).tokens_per_word) for size in (1000, 2000)
    ]
    assert by_size == expected
    assert len({tokens_per_word for _, tokens_per_word in by_size}) == 2


def test_sizes_without_room_for_the_alphabet_or_near_the_whole_are_left_out():
    tokens = [f"[unused{i}]" for i in range(1500)]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    merges = [f"w{i}" for i in range(2700)]
    vocabulary = Vocabulary((*specials, *tokens, *merges), NORMALIZATION)
    words = pa.table({"word": ["w1", "w2699"], "count": [3, 1]})
    # Of 4,205 tokens; "w2699" is unknown to the first 2,000, which is one token too.
    assert fertility_by_size(words, vocabulary, len(merges)) == [(2000, 1.0)]


def test_fertility_by_size_of_no_words():
    words = pa.table({"word": pa.array([], pa.string()), "count": pa.array([], pa.int64())})
    vocabulary, num_merges = wordpiece(2000)
    assert fertility_by_size(words, vocabulary, num_merges) == [(1000, 0.0)]
