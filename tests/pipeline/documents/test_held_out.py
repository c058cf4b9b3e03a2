"""How many documents are held out: enough to judge by, at most a tenth of a small corpus."""

import pytest
from clozeworks.pipeline.documents.layout import (
    ENOUGH_BYTES,
    ENOUGH_DOCUMENTS,
    MAX_SHARE,
    MAX_SHARE_OF_ONE,
    Candidate,
    num_held_out,
)


def candidates(*sizes: int) -> list[Candidate]:
    return [Candidate(number, number, size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("num_documents", "held_out"),
    [(4, 2), (30, 3), (100, 10), (200, 20), (500, 50), (2000, 167), (10_000, 167), (40_000, 200)],
)
def test_the_share_falls_as_the_corpus_grows(num_documents: int, held_out: int):
    articles = candidates(*[3000] * min(num_documents, 4096))
    num_asked = num_documents // 200
    assert num_held_out(articles, num_documents, num_asked) == held_out


def test_a_large_corpus_holds_out_what_was_asked_for():
    assert num_held_out(candidates(*[3000] * 4096), 1_000_000, 5000) == 5000


@pytest.mark.parametrize("asked", [30, 60])
def test_a_larger_share_than_the_rule_needs_stands(asked: int):
    assert num_held_out(candidates(*[100_000] * 100), 100, asked) == asked


def test_one_long_document_calls_for_more_beside_it():
    # With the long one, a quarter is reached when the others have three times its text.
    sizes = [1_000_000, *[50_000] * 500]
    number = num_held_out(candidates(*sizes), 5000, 25)
    assert sizes[0] <= MAX_SHARE_OF_ONE * sum(sizes[:number])
    assert sizes[0] > MAX_SHARE_OF_ONE * sum(sizes[: number - 1])


def test_a_tenth_is_the_most_however_long_one_is():
    sizes = [10_000_000, *[3000] * 999]
    assert num_held_out(candidates(*sizes), 1000, 5) == MAX_SHARE * 1000


def test_a_few_long_documents_have_enough_text_but_are_too_few():
    number = num_held_out(candidates(*[ENOUGH_BYTES] * 1000), 1000, 5)
    assert number == ENOUGH_DOCUMENTS
