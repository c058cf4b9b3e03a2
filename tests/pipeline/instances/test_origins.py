"""Pairs of a mixture: each group exchanges within itself, exactly; small groups are widened."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.instances.chunks import Corpus
from clozeworks.pipeline.instances.origins import (
    Origins,
    assume_languages,
    origins_of,
    partner_groups,
)
from clozeworks.pipeline.instances.pairs import IS_NEXT, NOT_NEXT, make_pairs
from clozeworks.pipeline.seeding import rng_for
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pairs import (
    CONTINUES,
    LENGTHS,
    check_balanced,
    check_label_tells_nothing,
    corpus_of,
    generate,
)

NAMES = [("enwiki", "en"), ("books", "en"), ("kowiki", "ko")]


def mixed(corpus: Corpus, kinds: np.ndarray) -> Corpus:
    """Say which of `NAMES` each document is."""
    columns = {
        "source": [NAMES[kind][0] for kind in kinds],
        "language": [NAMES[kind][1] for kind in kinds],
    }
    return replace(
        corpus,
        origins=origins_of(
            pa.table({name: pa.array(v, pa.string()) for name, v in columns.items()})
        ),
    )


def pairs_of(corpus: Corpus, **options):
    return make_pairs(corpus, CONTINUES, BuildConfig(**options), rng_for(0, "pairs"))


def test_negatives_change_nothing_within_one_source():
    corpus = generate("book among articles", 800)
    alone = mixed(corpus, np.full(801, 2))
    for negatives in ("same-source", "same-language"):
        one, other = pairs_of(corpus, negatives="any"), pairs_of(alone, negatives=negatives)
        for name in ("a_start", "a_stop", "b_start", "b_stop", "label", "document_a", "document_b"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["articles", "stubs", "near-one-sentence"])
def test_each_group_is_exact_and_keeps_to_itself(kind: str):
    corpus = generate(kind, 6000)
    kinds = rng_for(0, "kinds").choice(3, 6000, p=[0.6, 0.3, 0.1])
    pairs = pairs_of(mixed(corpus, kinds))
    check_balanced(corpus, pairs, 125)
    check_label_tells_nothing(corpus, pairs)
    np.testing.assert_array_equal(kinds[pairs.document_a], kinds[pairs.document_b])
    for number in range(3):
        own = pairs.take(np.flatnonzero(kinds[pairs.document_a] == number))
        assert abs(int((own.label == IS_NEXT).sum()) - int((own.label == NOT_NEXT).sum())) <= 1


def test_the_language_may_be_asked_for_alone_or_nothing():
    corpus = generate("articles", 900)
    kinds = np.arange(900) % 3
    corpus = mixed(corpus, kinds)
    language = pairs_of(corpus, negatives="same-language")
    is_korean = kinds == 2
    np.testing.assert_array_equal(is_korean[language.document_a], is_korean[language.document_b])
    assert (kinds[language.document_a] != kinds[language.document_b]).mean() == pytest.approx(
        1 / 6, abs=0.02
    )
    anything = pairs_of(corpus, negatives="any")
    assert (kinds[anything.document_a] != kinds[anything.document_b]).mean() == pytest.approx(
        1 / 3, abs=0.02
    )


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.lists(st.tuples(LENGTHS, st.integers(0, 2)), max_size=9),
    st.sampled_from(["same-source", "same-language"]),
)
def test_balanced_holds_on_any_mixture(documents, negatives):
    corpus = corpus_of([lengths for lengths, _ in documents])
    if np.count_nonzero(corpus.document_lengths()) < 2:
        return
    pairs = pairs_of(mixed(corpus, np.array([kind for _, kind in documents])), negatives=negatives)
    check_balanced(corpus, pairs, 125)


@pytest.mark.parametrize(
    ("sources", "languages", "lengths", "groups"),
    [
        # All are large enough.
        ([0, 0, 1, 1], [0, 0, 1, 1], [4000] * 4, [0, 0, 1, 1]),
        # A book of another source joins the largest one of its language, not of another.
        ([0, 0, 1, 2, 2], [0, 0, 0, 1, 1], [4000] * 5, [0, 0, 0, 1, 1]),
        # Two that are too small join each other first.
        ([0, 0, 1, 2, 3], [0, 0, 0, 0, 0], [4000] * 5, [0, 0, 1, 1, 1]),
        # A language of its own with a single document joins the largest.
        ([0, 0, 1, 1, 2], [0, 0, 1, 1, 2], [4000, 4000, 5000, 5000, 9000], [0, 0, 1, 1, 1]),
        # A group of a few short documents, and one that is mostly one document.
        ([0, 0, 1, 1], [0, 0, 0, 0], [4000, 4000, 20, 20], [0, 0, 0, 0]),
        ([0, 0, 1, 1], [0, 0, 0, 0], [4000, 4000, 11000, 5000], [0, 0, 0, 0]),
        # Nothing to widen with, and no text.
        ([0, 1], [0, 1], [10, 9000], [0, 0]),
        ([0, 1], [0, 1], [0, 0], [0, 1]),
    ],
)
def test_small_groups_are_widened(sources, languages, lengths, groups):
    names = ["a", "b", "c", "d"]
    origins = Origins(np.array(sources), np.array(languages), names, names)
    found = partner_groups(origins, np.array(lengths), "same-source", 100)
    assert np.unique(found, return_inverse=True)[1].tolist() == groups


def test_an_unknown_language_is_that_of_most_of_its_source():
    names = ["ko", "und", "en"]
    origins = Origins(np.array([0, 0, 0, 0, 1]), np.array([0, 2, 2, 1, 1]), ["a", "b"], names)
    for tokens, language in ((90, 2), (120, 0)):
        assumed = assume_languages(origins, np.array([tokens, 50, 50, 200, 10]))
        assert assumed.language.tolist() == [0, 2, 2, language, 1]
    known = replace(origins, language_names=["ko", "fr", "en"])
    assert assume_languages(known, np.ones(5)) is known
