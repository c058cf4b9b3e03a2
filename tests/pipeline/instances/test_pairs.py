"""Pairs: every token once, labels that length does not give away, NotNext from elsewhere."""

import random
from itertools import chain

import numpy as np
import pytest
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.instances.chunks import Corpus, cut_segments
from clozeworks.pipeline.instances.pairs import IS_NEXT, NOT_NEXT, Pairs, make_pairs
from clozeworks.pipeline.seeding import rng_for
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.corpus_fixture import one_source

VOCAB_SIZE = 1000
CONTINUES = np.arange(VOCAB_SIZE) >= 800
FULL_STOP = 5


def corpus_of(documents: list[list[int]], seed: int = 0) -> Corpus:
    """Return documents of random sentences with the given lengths, each ending in a full stop."""
    lengths = np.array([length for document in documents for length in document], np.int64)
    sentence_offsets = np.append(0, np.cumsum(lengths))
    token_ids = (
        rng_for(seed, "tokens").integers(10, VOCAB_SIZE, sentence_offsets[-1]).astype(np.int32)
    )
    token_ids[sentence_offsets[1:][lengths > 0] - 1] = FULL_STOP
    sizes = np.array([len(document) for document in documents], np.int64)
    return one_source(token_ids, sentence_offsets, np.append(0, np.cumsum(sizes)))


def generate(kind: str, num_documents: int, seed: int = 0) -> Corpus:
    rng = rng_for(seed, "corpus", kind)
    sizes = {
        "articles": lambda: rng.lognormal(4.2, 0.8, num_documents).astype(int) + 5,
        "stubs": lambda: rng.integers(2, 7, num_documents),
        "near-one-sentence": lambda: rng.choice([1, 2, 3], num_documents, p=[0.5, 0.3, 0.2]),
        "book among articles": lambda: np.append(
            rng.integers(3, 15, num_documents), 6 * num_documents
        ),
    }[kind]()
    lengths = (rng.lognormal(3.1, 0.55, size) for size in rng.permutation(sizes))
    return corpus_of([np.clip(each, 1, 400).astype(int).tolist() for each in lengths], seed)


def pairs_of(corpus: Corpus, seed: int = 0, short_share: float = 0.1, **options) -> Pairs:
    config = BuildConfig(**options)
    return make_pairs(corpus, CONTINUES, config, rng_for(seed, "pairs"), short_share)


def times_used(corpus: Corpus, pairs: Pairs) -> np.ndarray:
    """Return how often each token is in a row."""
    change = np.zeros(len(corpus.token_ids) + 1, int)
    for start, stop in ((pairs.a_start, pairs.a_stop), (pairs.b_start, pairs.b_stop)):
        np.add.at(change, start, 1)
        np.add.at(change, stop, -1)
    return np.cumsum(change)[:-1]


def auc(values: np.ndarray, labels: np.ndarray) -> float:
    """Return the probability that a NotNext row has the higher value (ties count one half)."""
    positive, negative = np.sort(values[labels == 1]), values[labels == 0]
    below = np.searchsorted(positive, negative, side="left")
    up_to = np.searchsorted(positive, negative, side="right")
    return 1 - float((below + up_to).mean() / 2 / len(positive))


def check_balanced(corpus: Corpus, pairs: Pairs, limit: int) -> None:
    """Check what holds on any corpus."""
    assert (pairs.a_length >= 1).all()
    assert (pairs.b_length >= 1).all()
    assert (pairs.a_length + pairs.b_length <= limit).all()
    np.testing.assert_array_equal(pairs.document_a != pairs.document_b, pairs.label == NOT_NEXT)
    sentence_document = np.repeat(
        np.arange(len(corpus.document_offsets) - 1), np.diff(corpus.document_offsets)
    )
    document = np.repeat(sentence_document, np.diff(corpus.sentence_offsets))
    np.testing.assert_array_equal(document[pairs.a_start], pairs.document_a)
    np.testing.assert_array_equal(document[pairs.b_start], pairs.document_b)
    np.testing.assert_array_equal(document[pairs.a_stop - 1], pairs.document_a)
    np.testing.assert_array_equal(document[pairs.b_stop - 1], pairs.document_b)
    consecutive = pairs.a_stop == pairs.b_start
    assert consecutive[pairs.label == IS_NEXT].all()
    used = times_used(corpus, pairs)
    assert used.max(initial=0) <= 1
    assert len(used) - used.sum() == pairs.tokens_cut


def check_label_tells_nothing(corpus: Corpus, pairs: Pairs) -> None:
    label = pairs.label
    assert abs(np.mean(label == IS_NEXT) - 0.5) <= 0.005
    assert auc(pairs.a_length + pairs.b_length, label) == pytest.approx(0.5, abs=0.02)
    assert auc(pairs.a_length, label) == pytest.approx(0.5, abs=0.05)
    assert auc(pairs.b_length, label) == pytest.approx(0.5, abs=0.05)
    assert auc(corpus.token_ids[pairs.b_stop - 1] == FULL_STOP, label) == pytest.approx(
        0.5, abs=0.05
    )
    assert pairs.tokens_cut <= 0.005 * len(corpus.token_ids)
    assert pairs.warning() is None


@pytest.mark.slow
@pytest.mark.parametrize("max_length", [32, 128, 512])
@pytest.mark.parametrize(
    ("kind", "num_documents"),
    [
        ("articles", 3000),
        ("stubs", 20000),
        ("near-one-sentence", 20000),
        ("book among articles", 6000),
    ],
)
def test_balanced_labels_tell_nothing(kind, num_documents, max_length):
    corpus = generate(kind, num_documents)
    pairs = pairs_of(corpus, max_length=max_length)
    check_balanced(corpus, pairs, max_length - 3)
    check_label_tells_nothing(corpus, pairs)


@pytest.mark.parametrize("num_documents", [2, 10])
def test_balanced_on_tiny_shards(num_documents):
    rng = rng_for(1, "tiny")
    documents = [rng.integers(5, 60, rng.integers(60, 100)).tolist() for _ in range(num_documents)]
    corpus = corpus_of(documents)
    pairs = pairs_of(corpus)
    check_balanced(corpus, pairs, 125)
    assert abs(np.mean(pairs.label) - 0.5) <= 1.5 / len(pairs)
    assert pairs.unexchanged == 0


LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([1, 200]), max_size=12)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(LENGTHS, max_size=8), st.integers(0, 5), st.sampled_from([8, 9, 32, 128]))
def test_balanced_holds_on_any_corpus(documents, seed, max_length):
    corpus = corpus_of(documents, seed)
    if np.count_nonzero(corpus.document_lengths()) < 2:
        with pytest.raises(UserError, match=r"documents? with text.*`shards`"):
            pairs_of(corpus, seed, max_length=max_length)
        return
    pairs = pairs_of(corpus, seed, max_length=max_length)
    check_balanced(corpus, pairs, max_length - 3)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(LENGTHS, max_size=8),
    st.sampled_from(["bert", "sop", "none"]),
    st.sampled_from([8, 32, 128]),
)
def test_other_pairings_hold_on_any_corpus(documents, pairing, max_length):
    corpus = corpus_of(documents)
    if pairing == "bert" and np.count_nonzero(corpus.document_lengths()) < 2:
        return
    pairs = pairs_of(corpus, pairing=pairing, max_length=max_length)
    assert (pairs.a_length >= 1).all()
    assert ((pairs.b_length >= 1) == (pairing != "none")).all()
    assert (pairs.a_length + pairs.b_length <= max_length - (2 if pairing == "none" else 3)).all()
    used = times_used(corpus, pairs)
    if pairing != "bert":
        assert used.max(initial=0) <= 1
        assert len(used) - used.sum() == pairs.tokens_cut


def test_every_sentence_is_used_once_in_every_duplicate_and_duplicates_differ():
    corpus = generate("articles", 200)
    first, second = pairs_of(corpus, 0), pairs_of(corpus, 1)
    for pairs in (first, second):
        assert times_used(corpus, pairs).mean() >= 0.9995
    same = np.isin(first.a_start * 10**9 + first.b_start, second.a_start * 10**9 + second.b_start)
    assert same.mean() < 0.3


def test_short_rows_are_drawn_for_the_asked_share():
    corpus = generate("articles", 2000)
    pairs = pairs_of(corpus, short_share=0.0)
    assert np.mean(pairs.a_length + pairs.b_length < 60) < 0.06
    pairs = pairs_of(corpus, short_share=1.0)
    assert np.mean(pairs.a_length + pairs.b_length < 60) > 0.3


def test_a_document_that_is_most_of_the_shard_is_reported():
    pairs = pairs_of(corpus_of([[20] * 1000, [20] * 40]))
    assert pairs.unexchanged > 0
    assert pairs.largest_document == pytest.approx(1000 / 1040)
    assert "one document holds 96%" in (pairs.warning() or "")


def test_a_document_of_less_than_two_thirds_can_be_balanced():
    corpus = corpus_of([[20] * 1200] + [[20] * 10] * 80)
    pairs = pairs_of(corpus)
    check_balanced(corpus, pairs, 125)
    assert pairs.warning() is None
    assert abs(pairs.label.mean() - 0.5) < 0.01


def test_documents_of_one_sentence_are_reported():
    pairs = pairs_of(corpus_of([[20]] * 100))
    assert (pairs.label == NOT_NEXT).all()
    assert "can only be NotNext" in (pairs.warning() or "")


def test_sentences_alone_that_are_too_long_to_pair_are_reported():
    """Those over half a row are split into short free pairs; others make long NotNext pairs."""
    pairs = pairs_of(corpus_of([[length] for length in range(50, 75) for _ in range(20)]))
    assert 2 * pairs.forced < len(pairs)
    assert auc(pairs.a_length + pairs.b_length, pairs.label) > 0.6
    assert "length gives away the label" in (pairs.warning() or "")


def test_long_sentences_are_cut_between_words_into_near_equal_pieces():
    corpus = corpus_of([[20_000, 5], [300]])
    segments = cut_segments(corpus, CONTINUES, 125)
    lengths = np.diff(segments.offsets)
    assert lengths.max() <= 125
    assert lengths.sum() == len(corpus.token_ids)
    starts_inside_word = CONTINUES[corpus.token_ids[segments.offsets[:-1]]]
    own_start = np.isin(segments.offsets[:-1], corpus.sentence_offsets)
    assert not (starts_inside_word & ~own_start).any()
    assert lengths[~np.isin(segments.offsets[1:], corpus.sentence_offsets)].min() > 90


def test_a_sentence_too_long_to_pair_is_cut_in_its_middle_half():
    # Two to a row do not fit, and there is no short one to go with them.
    pairs = pairs_of(corpus_of([[100]] * 200))
    assert (pairs.b_start == pairs.a_stop)[pairs.label == IS_NEXT].all()
    assert min(pairs.a_length.min(), pairs.b_length.min()) >= 20
    assert len(np.unique(pairs.a_length)) > 20


def test_a_long_sentence_pairs_with_a_short_one_rather_than_being_cut():
    corpus = corpus_of([[100], [20]] * 100 + [[40] * 60] * 20)
    pairs = pairs_of(corpus)
    check_balanced(corpus, pairs, 125)
    whole = np.isin(pairs.a_stop, corpus.sentence_offsets)
    assert whole.mean() > 0.95
    assert abs(np.mean(pairs.label) - 0.5) < 0.01


def google_research_rows(
    documents: list[list[list[int]]], max_length: int, short: float, seed: int
):
    """Return (A, B, is_random_next) as create_pretraining_data.py makes them, line by line."""
    rng, limit, rows = random.Random(seed), max_length - 3, []
    for index, document in enumerate(documents):
        target = rng.randint(2, limit) if rng.random() < short else limit
        chunk, i = [], 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
                a, b = list(chain(*chunk[:a_end])), []
                random_next = len(chunk) == 1 or rng.random() < 0.5
                if random_next:
                    target_b = target - len(a)
                    other = index
                    while other == index:
                        other = rng.randint(0, len(documents) - 1)
                    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                        b.extend(sentence)
                        if len(b) >= target_b:
                            break
                    i -= len(chunk) - a_end
                else:
                    b = list(chain(*chunk[a_end:]))
                while len(a) + len(b) > limit:
                    longer = a if len(a) > len(b) else b
                    del longer[0 if rng.random() < 0.5 else -1]
                rows.append((a, b, random_next))
                chunk = []
            i += 1
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "num_documents", "short"), [("articles", 400, 0.0), ("stubs", 4000, 0.1)]
)
def test_bert_pairing_matches_google_research_in_distribution(kind, num_documents, short):
    corpus = generate(kind, num_documents)
    sentences = np.split(corpus.token_ids, corpus.sentence_offsets[1:-1])
    lists = [sentence.tolist() for sentence in sentences]
    documents = [
        lists[a:b]
        for a, b in zip(corpus.document_offsets, corpus.document_offsets[1:], strict=False)
    ]
    rows = google_research_rows(documents, 128, short, seed=0)
    pairs = pairs_of(corpus, short_share=short, pairing="bert")
    labels = np.array([random_next for _, _, random_next in rows])
    assert len(pairs) == pytest.approx(len(rows), rel=0.03)
    assert pairs.label.mean() == pytest.approx(labels.mean(), abs=0.02)
    for measured, rows_of in ((pairs.a_length, 0), (pairs.b_length, 1)):
        expected = np.array([len(row[rows_of]) for row in rows])
        shares = np.histogram(measured, 8, (0, 125))[0] / len(measured)
        np.testing.assert_allclose(
            shares, np.histogram(expected, 8, (0, 125))[0] / len(expected), atol=0.025
        )
    full = np.array([len(a) + len(b) == 125 for a, b, _ in rows])
    assert (pairs.a_length + pairs.b_length == 125).mean() == pytest.approx(full.mean(), abs=0.03)
    assert ((pairs.document_a != pairs.document_b) == (pairs.label == NOT_NEXT)).all()


def test_sop_swaps_half_of_the_pairs_at_every_length():
    corpus = generate("stubs", 5000)
    pairs = pairs_of(corpus, pairing="sop")
    swapped = pairs.label == 1
    assert abs(swapped.mean() - 0.5) < 0.001
    assert (
        np.where(swapped, pairs.b_stop, pairs.a_stop)
        == np.where(swapped, pairs.a_start, pairs.b_start)
    ).all()
    assert (pairs.document_a == pairs.document_b).all()
    assert auc(pairs.a_length + pairs.b_length, pairs.label) == pytest.approx(0.5, abs=0.02)
    assert len(corpus.token_ids) - times_used(corpus, pairs).sum() == pairs.tokens_cut


def test_none_packs_whole_sentences_of_one_document():
    corpus = generate("articles", 300)
    pairs = pairs_of(corpus, short_share=0.0, pairing="none")
    assert pairs.b_length.max() == 0
    assert pairs.a_length.max() <= 126
    assert (times_used(corpus, pairs) == 1).all()
    assert pairs.a_length.mean() > 90


@pytest.mark.parametrize("pairing", ["sop", "none"])
def test_pairings_within_a_document_take_a_shard_of_one_or_none(pairing):
    assert len(pairs_of(corpus_of([[20] * 30]), pairing=pairing)) > 0
    assert len(pairs_of(corpus_of([]), pairing=pairing)) == 0
