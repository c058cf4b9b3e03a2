"""Sentences are scored as a plain loop over `transformers`' model scores them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from clozeworks.model.scoring.likelihood import SentenceScorer
from clozeworks.pipeline.errors import UserError
from tokenizers import Tokenizer
from transformers import BertForMaskedLM

from tests.fixtures.checkpoint_fixture import make_checkpoint

SENTENCES = ["the film was very good", "films was very good", "a films , not bad books !", "films"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("run") / "model")


def loop_over_tokens(run: Path, sentence: str) -> float:
    """Return the PLL-word-l2r of a sentence, a forward pass a token."""
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
            if not encoding.tokens[later].startswith("##"):
                break
            ids[0, later] = mask
        with torch.no_grad():
            score += model(ids).logits[0, position].log_softmax(-1)[token_id].item()
    return score


def test_scores_are_those_of_a_plain_loop(run):
    assert "##s" in Tokenizer.from_file(str(run / "tokenizer.json")).encode("films").tokens
    wanted = [loop_over_tokens(run, sentence) for sentence in SENTENCES]
    np.testing.assert_allclose(SentenceScorer(run, "cpu").scores(SENTENCES), wanted, atol=1e-4)


def test_a_score_depends_on_neither_batch_nor_order(run, monkeypatch):
    scorer = SentenceScorer(run, "cpu")
    together = scorer.scores(SENTENCES)
    monkeypatch.setattr("clozeworks.model.scoring.likelihood.SENTENCES_AT_ONCE", 1)
    monkeypatch.setattr("clozeworks.model.scoring.likelihood.TOKENS_AT_ONCE", (1, 1))
    np.testing.assert_allclose(scorer.scores(SENTENCES[::-1])[::-1], together, atol=1e-5)


def test_a_mask_in_a_sentence_is_text_and_an_empty_one_scores_0(run):
    scorer = SentenceScorer(run, "cpu")
    assert scorer.scores(["the [MASK]"]) != scorer.scores(["the film"])
    assert scorer.scores([""]) == [0.0]


def test_a_sentence_that_is_too_long_is_refused(run):
    with pytest.raises(UserError, match=r"A sentence has 72 tokens, but .* reads at most 64"):
        SentenceScorer(run, "cpu").scores(["the film was " + "very " * 67])
