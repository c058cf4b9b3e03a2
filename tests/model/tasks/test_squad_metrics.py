"""The official metrics of SQuAD, and the threshold of its version 2.0."""

import pytest
from clozeworks.model.tasks.squad_metrics import (
    best_threshold,
    exact_match,
    normalize_answer,
    overlap_f1,
    question_scores,
    squad_scores,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The Cat", "cat"),
        ("  two \t\n words\u00a0\u3000here ", "two words here"),
        ("$5 & ~x~ _y_", "5 x y"),
        ("“The” café—naïve", "“ ” café—naïve"),
        ("ÜBER Straße", "über straße"),
        # Punctuation goes before the articles, so that it makes new words of two, and articles of
        # words.
        ("A.", ""),
        ("the-end", "theend"),
    ],
)
def test_answers_are_normalised_as_in_the_official_scripts(text, expected):
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    "prediction, gold, exact, f1, f1_or_none",
    [
        ("The Denver Broncos", "denver broncos!", 1, 1, 1),
        ("Denver", "Denver Broncos", 0, 2 / 3, 2 / 3),
        ("x y z", "y z w v", 0, 2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2), 4 / 7),
        ("b b b", "b b c", 0, 2 / 3, 2 / 3),
        ("x", "y", 0, 0, 0),
        ("", "y", 0, 0, 0),
        ("y", "", 0, 0, 0),
        # Without words on both sides the two scripts differ.
        ("", "", 1, 0, 1),
        ("the", "A.", 1, 0, 1),
    ],
)
def test_exact_match_and_f1_of_one_answer(prediction, gold, exact, f1, f1_or_none):
    assert exact_match(prediction, gold) == exact
    assert overlap_f1(prediction, gold) == pytest.approx(f1)
    assert overlap_f1(prediction, gold, "2.0") == pytest.approx(f1_or_none)


def test_scores_of_squad_2_with_and_without_answers():
    golds = [["b c", "b"], ["d e"], [], [], ["the"]]
    scores = squad_scores(["b", "d", "", "x", ""], golds, "2.0")
    assert scores == {
        "exact": 60.0,
        "f1": pytest.approx(100 * (1 + 2 / 3 + 1 + 0 + 1) / 5),
        "total": 5,
        "HasAns_exact": pytest.approx(200 / 3),
        "HasAns_f1": pytest.approx(100 * (1 + 2 / 3 + 1) / 3),
        "HasAns_total": 3,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    # An answer that is nothing once normalised is left out of the gold answers, where there is
    # another one too.
    assert question_scores([""], [["the", "b"]], "2.0") == ([0.0], [0.0])
    assert not any(name.startswith("NoAns") for name in squad_scores(["b"], [["b"]], "2.0"))
    assert not any(name.startswith("HasAns") for name in squad_scores(["b"], [[]], "2.0"))


def test_the_best_threshold_answers_up_to_the_odds_that_gain_most():
    golds, texts, odds = (
        [["b"], [], ["d"], [], ["e"]],
        ["b", "x", "d", "y", "z"],
        [-3.0, -1.0, 0.5, 2.0, 3.0],
    )
    # None answered: 2 right. +1 (b), -1 (x), +1 (d), -1 (y), +0 (z): 3 is first reached at the odds
    # of b.
    assert best_threshold(texts, [1.0, 0.0, 1.0, 0.0, 0.0], odds, golds) == (60.0, -3.0)
    assert best_threshold(texts, [0.4, 0.0, 1.0, 0.0, 0.9], odds, golds) == (
        pytest.approx(48.0),
        -3.0,
    )
    assert best_threshold(texts, [0.4, 0.0, 1.0, 0.0, 1.9], odds, golds) == (
        pytest.approx(46 * 1 + 20),
        3.0,
    )
    # An empty best answer to a question without answer costs nothing.
    assert best_threshold(["b", "", "d", "y", "z"], [1.0, 0.0, 1.0, 0.0, 0.0], odds, golds) == (
        80.0,
        0.5,
    )
    # Where nothing is gained the official script says 0, whatever the odds.
    assert best_threshold(texts, [0.0] * 5, odds, golds) == (40.0, 0.0)


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 4), st.integers(-3, 3)), min_size=1, max_size=12
    )
)
def test_no_threshold_is_better_than_the_best_one(rows):
    golds = [["b"] if has else [] for has, _, _ in rows]
    scores, odds = (
        [score / 4 if has else 0.0 for has, score, _ in rows],
        [float(odds) for _, _, odds in rows],
    )

    def at(threshold: float) -> float:
        answered = [value <= threshold for value in odds]
        gained = (
            score if does else not gold
            for score, does, gold in zip(scores, answered, golds, strict=True)
        )
        return 100 * sum(gained) / len(rows)

    best, threshold = best_threshold(["b"] * len(rows), scores, odds, golds)
    assert best >= max(map(at, [-10.0, *odds])) - 1e-9
    if len(set(odds)) == len(odds) and best > 100 * golds.count([]) / len(rows):
        assert best == pytest.approx(at(threshold))
