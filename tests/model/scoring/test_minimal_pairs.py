"""Minimal pairs are counted by which sentence scores higher."""

import json
from pathlib import Path

import numpy as np
import pytest
from clozeworks.cli.main import main
from clozeworks.model.scoring.likelihood import SentenceScorer
from clozeworks.model.scoring.minimal_pairs import (
    Accuracy,
    evaluate_minimal_pairs,
    read_minimal_pairs,
)
from clozeworks.pipeline.errors import UserError
from scipy.stats import binomtest

from tests.fixtures.checkpoint_fixture import make_checkpoint

SAMPLE = Path(__file__).parents[2] / "fixtures" / "minimal_pairs.jsonl"


def test_accuracy_is_that_of_the_scores_by_group(tmp_path):
    run = make_checkpoint(tmp_path / "run", [*"abcdefghijklmnopqrstuvwxyz", *ends()])
    pairs = list(read_minimal_pairs(SAMPLE))
    scorer = SentenceScorer(run, "cpu")
    good = scorer.scores([pair.good for pair in pairs])
    bad = scorer.scores([pair.bad for pair in pairs])
    measured = evaluate_minimal_pairs(run, SAMPLE, "cpu")
    assert measured["all"]["pairs"] == len(pairs) == 120
    assert measured["all"]["accuracy"] == np.mean(good > bad)
    for column in ("field", "phenomenon"):
        assert sum(group["pairs"] for group in measured[column].values()) == 120
    binding = np.array([pair.groups["phenomenon"] == "binding" for pair in pairs])
    assert measured["phenomenon"]["binding"]["accuracy"] == np.mean((good > bad)[binding])


def ends() -> list[str]:
    return [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"] + ["'", ".", ",", "?"]


@pytest.mark.parametrize(("right", "pairs"), [(0, 10), (7, 10), (680, 1000), (10, 10)])
def test_the_interval_is_wilsons(right: int, pairs: int):
    measured = Accuracy.of([True] * right + [False] * (pairs - right))
    low, high = binomtest(right, pairs).proportion_ci(method="wilson")
    assert (measured.low, measured.high) == pytest.approx((low, high), abs=1e-6)


def test_a_folder_and_other_columns_are_read(tmp_path):
    (tmp_path / "b.jsonl").write_text(json.dumps({"yes": "a", "no": "b", "field": "x"}) + "\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"yes": "c", "no": "d"}) + "\n")
    pairs = list(read_minimal_pairs(tmp_path, ("yes", "no")))
    assert pairs == [("c", "d", {}), ("a", "b", {"field": "x"})]
    with pytest.raises(UserError, match="there is no column sentence_good, only yes, no"):
        list(read_minimal_pairs(tmp_path))
    with pytest.raises(UserError, match=r"has no \.jsonl files"):
        list(read_minimal_pairs(tmp_path.parent))


def test_the_command_prints_accuracy_by_kind_and_names_what_is_missing(tmp_path, capsys):
    run = make_checkpoint(tmp_path / "run", [*"abcdefghijklmnopqrstuvwxyz", *ends()])
    main(["evaluate", str(run), str(SAMPLE), "--device", "cpu"])
    shown = capsys.readouterr().out
    assert "120 pairs" in shown and "… subject-verb agreement" in shown
    main(["evaluate", str(run), str(SAMPLE), "--device", "cpu", "--json"])
    assert json.loads(capsys.readouterr().out)["field"]["morphology"]["pairs"] == 40
    with pytest.raises(SystemExit):
        main(["evaluate", str(run), str(SAMPLE), "--pair-columns", "yes,no"])
    assert "there is no column yes, only sentence_good" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", str(run), str(SAMPLE), "--pair-columns", "yes"])
    assert "--pair-columns yes is not two names" in capsys.readouterr().err
