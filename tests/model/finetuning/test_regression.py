"""Scores of any size and unit are learned alike, and answered in their own unit."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.encoders.bert_config import RobertaConfig
from clozeworks.model.encoders.modernbert_config import ModernBertConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import predict
from clozeworks.model.finetuning.run import FinetuneState
from clozeworks.model.tasks.batches import Feature, Scale, make_batch, scale_of
from clozeworks.model.tasks.classify import SequenceClassifier
from clozeworks.model.tokenizer import TokenRow
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.parsing import parse_json

from tests.fixtures.finetune_fixture import quick, write_table

WORTH = {"bad": 15.5, "dull": 30.25, "good": 50.0, "bright": 76.75}


def write_scores(folder: Path, change: Callable[[float], float]) -> Path:
    """Write texts whose scores follow from one word, and a little from their lengths."""
    draw = random.Random(4)
    rows = []
    for index in range(150):
        word = list(WORTH)[index % 4]
        filler = ["the", "film"] * draw.randint(1, 3)
        rows.append((" ".join([*filler, word]), repr(change(WORTH[word] + len(filler) / 8))))
    write_table(folder / "train.tsv", rows[:120], "text\tlabel")
    write_table(folder / "dev.tsv", rows[120:], "text\tlabel")
    return folder


def answers(model: Path, data: Path) -> np.ndarray:
    predict(model, data / "dev.tsv", model / "out.jsonl", "cpu")
    lines = (model / "out.jsonl").read_text().splitlines()
    return np.array([json.loads(line)["score"] for line in lines])


@pytest.mark.slow
def test_predictions_do_not_depend_on_the_unit_of_the_scores(checkpoint, tmp_path):
    config = quick(epochs=4, learning_rates=(5e-3,), max_length=16)
    changes: dict[str, tuple[float, float]] = {
        "age": (1.0, 0.0),
        "prices": (1000.0, 200_000.5),
        "reversed": (-3.0, 7.0),
    }
    standard = {}
    for name, (factor, added) in changes.items():
        data = write_scores(tmp_path / name / "data", lambda x, a=factor, b=added: a * x + b)
        summary = finetune("classify", data, checkpoint, tmp_path / name / "run", config)
        scores = summary["best"]["scores"]
        assert scores["r2"] > 0.8 and abs(scores["spearman"]) > 0.85
        assert scores["rmse"] < abs(factor) * 12
        assert summary["degenerate_runs"] == 0
        standard[name] = (answers(tmp_path / name / "run", data) - added) / factor
    spread = float(np.std(standard["age"]))
    for name, values in standard.items():
        np.testing.assert_allclose(values, standard["age"], atol=0.01 * spread, err_msg=name)
    # As transformers answers.
    model = tmp_path / "prices" / "run"
    text = (tmp_path / "prices" / "data" / "dev.tsv").read_text().splitlines()[1].split("\t")[0]
    encoded = transformers.AutoTokenizer.from_pretrained(model)(text, return_tensors="pt")
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(model)
    with torch.no_grad():
        logit = float(classifier(**encoded).logits)
    assert logit == pytest.approx(answers(model, tmp_path / "prices" / "data")[0], abs=0.1)


def feature(score: float, example: int = 0) -> Feature:
    return Feature(TokenRow(np.array([1, 2], np.int32), 2), np.array(score), example)


def features_of(*scores: float) -> list[Feature]:
    return [feature(score, example) for example, score in enumerate(scores)]


@pytest.mark.parametrize(
    "scores", [(3.5,), (0.1, 0.1, 0.1), (0.0, 0.0), (1e9, 1e9 + 1), (0, 1e-40)]
)
def test_scores_that_a_model_cannot_tell_apart_are_refused(scores):
    with pytest.raises(UserError, match=f"scores of the {len(scores)} training examples"):
        scale_of(features_of(*scores))


def test_scores_are_standardised_exactly_each_text_once():
    scale = scale_of([*features_of(2e29, -1e30, 1e29), feature(1e29, 2)])
    scores = np.array([2e29, -1e30, 1e29])
    assert tuple(scale) == pytest.approx((scores.mean(), scores.std()))
    targets = [scale.standardise(each).target for each in features_of(*scores)]
    assert [target.dtype for target in targets if target is not None] == [np.float32] * 3
    np.testing.assert_allclose(scale.restore(np.array(targets)), scores, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "special_ids"),
    [(RobertaConfig, {}), (ModernBertConfig, {"cls_token_id": 1, "sep_token_id": 2})],
)
def test_the_folded_layer_computes_in_fp32(kind, special_ids):
    config = kind.named("tiny", vocab_size=9, pad_token_id=0, **special_ids)
    model = SequenceClassifier(config, 1).eval()
    batch = make_batch([feature(1.0)])
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        standard = float(model(batch))
        model.fold(Scale(200_001.5, -3.0))
        assert float(model(batch)) == pytest.approx(200_001.5 - 3 * standard, abs=0.05)


def test_scores_of_an_interrupted_run_of_before_stay_as_they_are(checkpoint):
    assert parse_json(b'{"step": 3}', FinetuneState, "state.json").scale is None
    model = SequenceClassifier(Checkpoint.open(checkpoint).shape, 1)
    loss = model.loss(torch.tensor([[20.0]]), make_batch([feature(21.0)]))
    assert loss == 1 and loss.dtype == torch.float32
