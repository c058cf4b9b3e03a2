"""Encoders that read from left to right, and read a row at its last token."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.features.config import FeaturesConfig
from clozeworks.model.features.features import extract_features
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.model import load_finetuned, make_model
from clozeworks.model.finetuning.predict import evaluate_task, predict
from clozeworks.model.finetuning.results import read_results
from clozeworks.model.tasks.batches import Feature, make_batch
from clozeworks.model.tasks.catalogue import GLUE
from clozeworks.model.tasks.ner import EntityRecognition
from clozeworks.model.tasks.squad import SpanClassifier, Squad
from clozeworks.model.tasks.task import LinearHead, Task
from clozeworks.model.tokenizer import TextTokenizer, TokenRow
from clozeworks.pipeline.errors import UserError

from tests.fixtures.checkpoint_fixture import SPECIALS, WORDS, make_checkpoint
from tests.fixtures.finetune_fixture import write_reviews

CLS, SEP = SPECIALS.index("[CLS]"), SPECIALS.index("[SEP]")
TASKS = [GLUE["sst2"], Squad(version="2.0")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint", is_decoder=True)


def make_row(length: int, seed: int) -> np.ndarray:
    inner = np.random.default_rng(seed).integers(len(SPECIALS), len(SPECIALS + WORDS), length - 2)
    return np.array([CLS, *inner, SEP], dtype=np.int32)


def feature(row: np.ndarray) -> Feature:
    return Feature(TokenRow(row, len(row)), None, 0)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_token_sees_nothing_to_its_right_but_the_first_state_sees_the_whole_row(
    checkpoint, task: Task
):
    model = make_model(task, Checkpoint.open(checkpoint), FinetuneConfig(dropout=0.0), seed=1)
    row = make_row(9, 1)
    before = model.states(make_batch([feature(row)]))[0]
    for position in range(9):
        changed = row.copy()
        changed[position] = row[position] + 1
        moved = (model.states(make_batch([feature(changed)]))[0] - before).abs().amax(1) > 1e-6
        # [CLS] itself comes last.
        assert moved.tolist() == [
            True,
            *(other >= position for other in range(1, 8)),
            position == 0,
        ]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_padding_changes_nothing(checkpoint, task: Task):
    model = make_model(task, Checkpoint.open(checkpoint), FinetuneConfig(dropout=0.0), seed=1)
    features = [feature(make_row(length, length)) for length in (5, 12, 7, 9)]
    together = model(make_batch(features))
    for index, alone in enumerate(features):
        expected = model(make_batch([alone]))[0]
        torch.testing.assert_close(together[index][: len(expected)], expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_whole_row_is_read_at_the_last_token_of_transformers_decoder(checkpoint):
    model, squad = (
        make_model(TASKS[index], Checkpoint.open(checkpoint), FinetuneConfig(), seed=1).eval()
        for index in (0, 1)
    )
    assert isinstance(model, LinearHead)
    assert isinstance(squad, SpanClassifier)
    decoder = transformers.BertModel.from_pretrained(checkpoint).eval()
    assert decoder.config.is_decoder
    row = make_row(11, 3)
    with torch.inference_mode():
        hidden = decoder(torch.from_numpy(row).long()[None]).last_hidden_state
        # Their pooler takes the first of what it is given.
        expected = model.classifier(decoder.get_submodule("pooler")(hidden[:, -1:]))
        torch.testing.assert_close(model(make_batch([feature(row)])), expected, rtol=0, atol=1e-5)
        logits_L2 = squad.get_submodule("qa_outputs")(hidden)[0]
        order = [10, *range(1, 10), 0]
        torch.testing.assert_close(
            squad(make_batch([feature(row)]))[0], logits_L2[order], rtol=0, atol=1e-5
        )


@pytest.mark.slow
def test_fine_tuning_learns_and_keeps_the_constraint(checkpoint, tmp_path):
    data, output = write_reviews(tmp_path / "data"), tmp_path / "run"
    config = FinetuneConfig(
        max_length=24, batch_size=8, epochs=4, learning_rates=(2e-3,), device="cpu"
    )
    summary = finetune("sst2", data, checkpoint, output, config)
    assert summary["best"]["scores"]["accuracy"] > 0.9
    assert evaluate_task(output, data, "cpu")["accuracy"] == summary["best"]["scores"]["accuracy"]
    assert Checkpoint.open(output).shape.is_decoder
    (line,) = read_results(output)
    assert line.variant == "left-to-right"
    (tmp_path / "new.txt").write_text("a film , very good\nbad , the film was bad\n")
    predict(output, tmp_path / "new.txt", tmp_path / "out.jsonl", "cpu")
    with pytest.raises(UserError, match=r"out\.docx: give a file that ends in \.tsv, "):
        predict(output, tmp_path / "new.txt", tmp_path / "out.docx", "cpu")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"holds pre-training data, but .* is fine-tuned for"):
        evaluate_task(output, tmp_path, "cpu")
    labels = [
        json.loads(line)["label"] for line in (tmp_path / "out.jsonl").read_text().splitlines()
    ]
    assert labels == ["positive", "negative"]


def test_entities_are_those_of_transformers_decoder(checkpoint, tmp_path):
    lines = [
        f"{word} {'B-x' if word == 'book' else 'O'}"
        for word in ("a", "book", "is", "good", "a", "film")
    ]
    (tmp_path / "train.conll").write_text("\n".join(lines) + "\n")
    (tmp_path / "dev.conll").write_text("\n".join(lines) + "\n")
    config = FinetuneConfig(max_length=24, epochs=1, device="cpu")
    finetune("ner", tmp_path, checkpoint, tmp_path / "run", config)
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "run").eval()
    ours = load_finetuned(tmp_path / "run", torch.device("cpu"))
    assert isinstance(ours.task, EntityRecognition)
    row = make_row(10, 4)
    with torch.inference_mode():
        theirs = model(torch.from_numpy(row).long()[None]).logits
        torch.testing.assert_close(
            ours.model(make_batch([feature(row)])), theirs, rtol=0, atol=1e-5
        )


def test_features_are_those_of_transformers_decoder(checkpoint, tmp_path):
    (tmp_path / "texts.txt").write_text("the film was good\n")
    extract_features(
        checkpoint, tmp_path / "texts.txt", tmp_path / "a.parquet", FeaturesConfig(device="cpu")
    )
    tokenizer = TextTokenizer(checkpoint)
    ids = tokenizer.row(tokenizer.token_ids(["the film was good"])[0], None, 64)[0]
    with torch.inference_mode():
        states = transformers.BertModel.from_pretrained(checkpoint)(
            torch.from_numpy(ids).long()[None]
        )
    found = np.array(pq.read_table(tmp_path / "a.parquet")["layer_2"].to_pylist())
    np.testing.assert_allclose(found, states.last_hidden_state[0, 1:-1].numpy(), rtol=0, atol=1e-5)
