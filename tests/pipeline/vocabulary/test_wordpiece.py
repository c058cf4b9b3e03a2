"""The learned vocabulary against a plain implementation, and the `tokenizers` trainer."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.vocabulary import wordpiece
from clozeworks.pipeline.vocabulary.fertility import fertility_report
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.tokenize import Speller, count_words
from clozeworks.pipeline.vocabulary.vocabulary import Vocabulary
from clozeworks.pipeline.vocabulary.wordpiece import learn_pieces, special_tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from tests.fixtures.shared_data import DATA, needs_shared_data

word_counts = st.dictionaries(
    st.text("abcAß中", min_size=1, max_size=9), st.integers(1, 50), max_size=25
)


def learn(counts: dict[str, int], **options) -> tuple[list[str], wordpiece.WordPieceReport]:
    columns = pa.array(counts.keys(), pa.string()), np.array(list(counts.values()), np.int64)
    options = {"size": 10_000, "min_frequency": 1, **options}
    tokens, _, report = learn_pieces(*columns, **options)
    return tokens, report


def merged(pieces: list[str], left: str, right: str) -> list[str]:
    """Join every (left, right) in a word, from the left."""
    result: list[str] = []
    for piece in pieces:
        if result and (result[-1], piece) == (left, right):
            result[-1] = (
                left + right.removeprefix("##") + "\0"
            )  # marked, so that it joins nothing in this round
        else:
            result.append(piece)
    return [piece.rstrip("\0") for piece in result]


def count_pairs(words: list[tuple[list[str], int]]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for pieces, count in words:
        repeated_end = {}
        for i, pair in enumerate(pairwise(pieces)):
            if pair[0] == pair[1] and repeated_end.get(pair) == i:
                continue
            repeated_end[pair] = i + 1
            counts[pair] += count
    return counts


def learn_plainly(counts: dict[str, int]) -> list[str]:
    """Count all pairs anew for each merge: slow, and short enough to be seen to be right."""
    words = [
        ([word[0], *(f"##{char}" for char in word[1:])], count) for word, count in counts.items()
    ]
    singles = sorted({char for word in counts for char in word})
    tokens = singles + sorted({f"##{char}" for word in counts for char in word[1:]})
    while pairs := count_pairs(words):
        left, right = min(
            pairs, key=lambda pair: (-pairs[pair], tokens.index(pair[0]), tokens.index(pair[1]))
        )
        words = [(merged(pieces, left, right), count) for pieces, count in words]
        if (token := left + right.removeprefix("##")) not in tokens:
            tokens.append(token)
    return special_tokens(0) + tokens


# Most pairs tie, so that many merges are made together.
tied_word_counts = st.dictionaries(
    st.text("abcd", min_size=1, max_size=12), st.integers(1, 2), min_size=3, max_size=12
)


@pytest.mark.slow
@given(word_counts | tied_word_counts)
@settings(max_examples=300)
def test_merges_equal_plain_implementation(counts):
    assert learn(counts)[0] == learn_plainly(counts)


@pytest.mark.parametrize(
    "counts",
    [
        # (##a, ##b) and (##b, ##c) overlap.
        {"xabc": 2, "yabc": 2},
        {"xcab": 2, "ycab": 2},
        # ##b is before each (##a, ##d), so (##b, ##ad) comes before (##c, ##e).
        {"xbad": 1, "ybad": 1, "xce": 1, "yce": 1},
        # (##a, ##a) overlaps with itself.
        {"xbaaa": 1, "ybaaa": 1, "xce": 1, "yce": 1},
        {"xaaa": 2, "yaaaa": 1, "xce": 3, "yce": 1},
    ],
)
def test_tied_pairs_that_must_not_be_merged_together(counts):
    assert learn(counts)[0] == learn_plainly(counts)


def test_size_may_end_amid_tied_pairs():
    counts = {"ab": 2, "cd": 2, "ef": 2}
    expected = learn_plainly(counts)
    for num_merges in range(4):
        size = len(expected) - 3 + num_merges
        assert learn(counts, size=size)[0] == expected[:size]


@pytest.mark.slow
@given(word_counts, st.integers(5, 60), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_order_of_words_does_not_matter(counts, size, rng):
    shuffled = list(counts.items())
    rng.shuffle(shuffled)
    size += 20
    assert learn(counts, size=size) == learn(dict(shuffled), size=size)


def test_layout_and_size():
    tokens, report = learn({"abab": 5, "ab": 3, "b": 1}, size=12, num_unused=2)
    # (##a, ##b) is as frequent as (a, ##b) less the 3 of "ab".
    assert tokens == [*special_tokens(2), "a", "b", "##a", "##b", "ab"]
    assert special_tokens(1) == ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert (report.num_alphabet, report.num_merges, report.num_missing) == (4, 1, 0)


def test_min_frequency_ends_the_merges():
    tokens, report = learn({"ab": 3, "cd": 2}, min_frequency=3)
    assert "ab" in tokens
    assert "cd" not in tokens
    assert report.num_missing == 10_000 - len(tokens)


def test_limited_alphabet_is_reported_and_its_words_left_out():
    tokens, report = learn({"aab": 3, "ac": 2, "xa": 1, "ya": 1, "a": 9}, limit_alphabet=3)
    assert report.alphabet_left_out == "xy"
    assert report.num_words_alphabet == 2
    assert {"a", "b", "c"} < set(tokens)
    assert not {"x", "y"} & set(tokens)


def test_long_and_rare_words_are_left_out():
    tokens, report = learn({"a" * 101: 99, "ab": 5, "ba": 1, "zz": 1}, max_words=2)
    assert (report.num_words, report.num_words_long, report.num_words_rare) == (4, 1, 1)
    assert "ba" in tokens
    assert "zz" not in tokens


def test_counts_beyond_32_bit():
    tokens, _ = learn({"ab": 2**40, "cd": 2**40 + 1, "ef": 2**33}, size=5 + 9 + 1)
    assert tokens[-1] == "cd"


def test_too_small_for_the_alphabet():
    message = "single characters alone take 24: raise `size`"
    with pytest.raises(UserError, match=message):
        learn({"abcdefghij": 3}, size=10)


def test_no_words():
    assert learn({})[0] == special_tokens(0)


@needs_shared_data
def test_fertility_equals_the_tokenizers_trainer():
    path = DATA / "wikipedia/enwiki-hf-00000-of-00002.parquet"
    batches = pq.ParquetFile(path).iter_batches(120, columns=["text"])
    texts, held_out = next(batches)["text"], next(batches)["text"]
    normalization = Normalization(True, True)
    table = count_words([texts], Speller(normalization))
    tokens, _, _ = learn_pieces(table["word"], table["count"].to_numpy(), size=5000)
    peer = BertWordPieceTokenizer(lowercase=True)
    peer.train_from_iterator(
        texts.to_pylist(), vocab_size=5000, min_frequency=2, show_progress=False
    )
    peer_tokens = sorted(peer.get_vocab(), key=peer.get_vocab().__getitem__)
    words = count_words([held_out], Speller(normalization))
    ours, theirs = (
        fertility_report(words, Vocabulary(tuple(vocabulary), normalization)).tokens_per_word
        for vocabulary in (tokens, peer_tokens)
    )
    assert len(set(tokens) & set(peer_tokens)) > 0.98 * 5000
    assert abs(ours / theirs - 1) < 0.005
