"""Sentences are scored as by a plain loop over `transformers`' model; pairs are counted."""

import csv
import json
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch
from clozeworks.cli.main import main
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.minimal_pairs import (
    accuracy,
    evaluate_minimal_pairs,
    read_minimal_pairs,
    sentence_scores,
)
from clozeworks.pipeline.errors import UserError
from scipy.stats import binomtest, norm, sem
from tokenizers import Tokenizer
from transformers import BertForMaskedLM

from tests.fixtures.checkpoint_fixture import fill, make_checkpoint

SAMPLE = Path(__file__).parents[1] / "fixtures" / "minimal_pairs.jsonl"
MULTIBLIMP = SAMPLE.with_name("multiblimp")
SENTENCES = ["the film was very good", "films was very good", "a films , not bad books !", "films"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("run") / "model")


@pytest.fixture(scope="module")
def speller(tmp_path_factory) -> Path:
    """A model that knows all letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [*letters, *(f"##{letter}" for letter in letters), "'", ".", ",", "?"]
    return make_checkpoint(tmp_path_factory.mktemp("speller") / "model", words)


def scores(run: Path, sentences: list[str], tokens_at_once: int | None = None) -> np.ndarray:
    checkpoint = Checkpoint.open(run)
    model = checkpoint.pretrain_model().eval()
    return sentence_scores(model, checkpoint.vocabulary(), sentences, tokens_at_once)


def loop_over_tokens(run: Path, sentence: str, whole_words: bool) -> float:
    """Return the PLL (of `whole_words`, PLL-word-l2r) of a sentence, a forward pass a token."""
    model = BertForMaskedLM.from_pretrained(run).eval()
    tokenizer = Tokenizer.from_file(str(run / "tokenizer.json"))
    encoding = tokenizer.encode(sentence)
    mask = tokenizer.token_to_id("[MASK]") or 0
    score = 0.0
    for position, token_id in enumerate(encoding.ids):
        if encoding.special_tokens_mask[position]:
            continue
        ids = torch.tensor([encoding.ids])
        ids[0, position] = mask
        for later in range(position + 1, len(encoding.ids)):
            if not whole_words or not encoding.tokens[later].startswith("##"):
                break
            ids[0, later] = mask
        with torch.no_grad():
            score += model(ids).logits[0, position].log_softmax(-1)[token_id].item()
    return score


def test_scores_are_those_of_a_plain_loop(run):
    assert "##s" in Tokenizer.from_file(str(run / "tokenizer.json")).encode("films").tokens
    wanted = [
        [loop_over_tokens(run, sentence, whole_words) for sentence in SENTENCES]
        for whole_words in (False, True)
    ]
    assert wanted[0][1] != wanted[1][1]  # "films" is two tokens
    np.testing.assert_allclose(scores(run, SENTENCES), wanted, atol=1e-4)


def test_a_score_depends_on_neither_batch_nor_order(run):
    together = scores(run, SENTENCES)
    alone = scores(run, SENTENCES[::-1], tokens_at_once=1)
    np.testing.assert_allclose(alone[:, ::-1], together, atol=1e-5)


def test_a_mask_in_a_sentence_is_text_and_an_empty_one_scores_0(run):
    assert (scores(run, ["the [MASK]"]) != scores(run, ["the film"])).all()
    assert (scores(run, [""]) == 0.0).all()


def test_a_sentence_that_is_too_long_is_refused(run):
    with pytest.raises(UserError, match=r"A sentence has 72 tokens, but .* reads at most 64"):
        scores(run, ["the film was " + "very " * 67])


def test_accuracy_is_that_of_the_scores_by_group(speller):
    pairs = list(read_minimal_pairs(SAMPLE))
    alone_good, good = scores(speller, [good for good, _, _ in pairs])
    alone_bad, bad = scores(speller, [bad for _, bad, _ in pairs])
    measured = evaluate_minimal_pairs(speller, SAMPLE, "cpu", sentences_at_once=100)
    assert measured["all"]["pairs"] == len(pairs) == 120
    assert measured["all"]["accuracy"] == np.mean(good > bad)
    assert measured["all"]["token_alone"] == np.mean(alone_good >= alone_bad)
    assert (measured["paradigms"], measured["mean_token_alone"]) == (
        1,
        measured["all"]["token_alone"],
    )
    for column in ("field", "phenomenon"):
        assert sum(group["pairs"] for group in measured[column].values()) == 120
    binding = np.array([groups["phenomenon"] == "binding" for _, _, groups in pairs])
    assert measured["phenomenon"]["binding"]["accuracy"] == np.mean((good > bad)[binding])


@pytest.mark.parametrize(("right", "pairs"), [(0, 10), (7, 10), (680, 1000), (10, 10)])
def test_the_interval_is_wilsons(right: int, pairs: int):
    difference = [1.0] * right + [-1.0] * (pairs - right)
    measured = accuracy(np.array([difference, difference]))
    low, high = binomtest(right, pairs).proportion_ci(method="wilson")
    assert (measured["low"], measured["high"]) == pytest.approx((low, high))


def test_ties_are_right_for_babylm_and_counted():
    measured = accuracy(np.array([[0.0, 1.0, -1.0], [0.0, 1.0, -1.0]]))
    assert (measured["accuracy"], measured["token_alone"], measured["ties"]) == (1 / 3, 2 / 3, 1)


def test_paradigms_count_alike_and_questions_with_answers_are_pairs(speller, tmp_path):
    good, bad = "Who did you see? Ann.", "Who did you see? Bread."
    shares = [1.0, 0.0] * 8
    for name, share in enumerate(shares):
        first, second, times = (good, bad, 1) if share else (bad, good, 3)
        row = json.dumps({"sentence_good": first, "sentence_bad": second})
        (tmp_path / f"{name}.jsonl").write_text(f"{row}\n" * times)
    measured = evaluate_minimal_pairs(speller, tmp_path, "cpu")
    assert measured["all"]["accuracy"] in (0.25, 0.75)
    assert (measured["paradigms"], measured["mean_accuracy"]) == (16, 0.5)
    interval = norm.interval(0.95, 0.5, sem(shares))  # of the mean over other such paradigms
    ends = [measured[f"mean_accuracy_{end}"] for end in ("low", "high")]
    assert ends == pytest.approx(interval, abs=1e-4)


def test_a_bert_without_pooler_and_next_sentences_is_measured(run, tmp_path):
    copytree(run, tmp_path / "masked")
    BertForMaskedLM.from_pretrained(run).save_pretrained(tmp_path / "masked")
    kinds = [evaluate_minimal_pairs(model, SAMPLE) for model in (run, tmp_path / "masked")]
    assert kinds[0] == kinds[1]
    assert fill(tmp_path / "masked", "the [MASK]") == fill(run, "the [MASK]")


def test_a_folder_is_read_and_a_missing_column_is_named(tmp_path):
    pair = {"sentence_good": "a", "sentence_bad": "b"}
    (tmp_path / "b.jsonl").write_text(json.dumps({**pair, "field": "x/y", "UID": "u"}) + "\n")
    (tmp_path / "a.jsonl").write_text(json.dumps(pair) + "\n")
    assert list(read_minimal_pairs(tmp_path)) == [
        ("a", "b", {"UID": "a"}),
        ("a", "b", {"field": "x_y", "UID": "u"}),
    ]
    with pytest.raises(UserError, match=r"has no \.jsonl files"):
        list(read_minimal_pairs(tmp_path.parent))
    (tmp_path / "a.jsonl").write_text('{"yes": "a", "no": "b"}\n')
    with pytest.raises(UserError, match="there is no column sentence_good, only yes, no"):
        list(read_minimal_pairs(tmp_path))


def test_pairs_of_multiblimp_are_read_by_language_and_agreement(speller, capsys):
    """The oracle is a reader of quoted tables, as pandas wrote them."""
    wanted = []
    for language in ("deu", "eng"):
        with (MULTIBLIMP / language / "data.tsv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                groups = {"phenomenon": row["phenomenon"], "language": language}
                groups["UID"] = f"{language} {row['phenomenon']}"
                wanted.append((row["sen"], row["wrong_sen"], groups))
    assert list(read_minimal_pairs(MULTIBLIMP)) == wanted
    assert list(read_minimal_pairs(MULTIBLIMP / "eng" / "data.tsv")) == wanted[4:]
    main(["evaluate", str(speller), str(MULTIBLIMP), "--device", "cpu"])
    shown = capsys.readouterr().out
    assert all(f"… {kind}" in shown for kind in ("deu", "eng", "SV-#", "SV-P"))
    main(["evaluate", str(speller), str(MULTIBLIMP / "deu"), "--device", "cpu", "--json"])
    measured = json.loads(capsys.readouterr().out)
    assert measured["language"]["deu"]["pairs"] == 4 and measured["paradigms"] == 2
