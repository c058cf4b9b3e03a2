"""A BiLSTM on top of an encoder that is fine-tuned: shapes, padding, the order of the tokens, and
learning.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_fixture import SPECIALS, WORDS, make_checkpoint, write_reviews
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune, make_model
from clozeworks.model.finetuning.predict import evaluate_task, load_finetuned
from clozeworks.model.finetuning.results import Figure, read_results
from clozeworks.model.tasks.bilstm import BiLstm
from clozeworks.model.tasks.catalogue import restore_task
from clozeworks.model.tasks.classification import Classification
from clozeworks.model.tasks.glue import GLUE
from clozeworks.model.tasks.squad import Squad
from clozeworks.model.tasks.task import Feature, Task, TokenRow, make_batch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

OWN = Classification(name="classify", text=("text",), labels=("a", "b", "c"), lstm_size=5)
TASKS: list[Task] = [OWN, Squad(version="2.0", lstm_size=7)]
NO_DROPOUT = FinetuneConfig(dropout=0.0)


@pytest.fixture(scope="module", params=[False, True], ids=["both-ways", "left-to-right"])
def checkpoint(request, tmp_path_factory) -> Path:
    return make_checkpoint(
        tmp_path_factory.mktemp("model") / "checkpoint", is_decoder=request.param
    )


def feature(length: int) -> Feature:
    row = np.random.default_rng(length).integers(
        len(SPECIALS), len(SPECIALS + WORDS), length, dtype=np.int32
    )
    return Feature((TokenRow(row, length),), None, 0)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_outputs_have_their_shape_and_padding_changes_nothing(checkpoint, task: Task):
    model = make_model(task, checkpoint, NO_DROPOUT, seed=1)
    features = [feature(length) for length in (5, 12, 7)]
    together = model(make_batch(features))
    assert together.shape == ((3, 12, 2) if model.per_token else (3, 3))
    for outputs, alone in zip(together, features, strict=True):
        expected = model(make_batch([alone]))[0]
        torch.testing.assert_close(outputs[: len(expected)], expected, rtol=0, atol=1e-6)


def test_the_bilstm_computes_what_pytorchs_own_does_on_packed_rows():
    torch.manual_seed(0)
    ours, theirs = (
        BiLstm(6, 5, rate=0.1).eval(),
        nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True),
    )
    for layer in range(2):
        for suffix, lstms in (("", ours.rightwards), ("_reverse", ours.leftwards)):
            for name, weight in lstms[layer].named_parameters():
                theirs.get_parameter(f"{name.replace('l0', f'l{layer}')}{suffix}").data.copy_(
                    weight
                )
    values_BLD, lengths_B = torch.randn(4, 9, 6, requires_grad=True), torch.tensor([9, 1, 4, 7])
    packed = pack_padded_sequence(values_BLD, lengths_B, batch_first=True, enforce_sorted=False)
    expected_BLU, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True)
    is_real_BL = torch.arange(9) < lengths_B[:, None]
    results = [
        outputs_BLU[is_real_BL] for outputs_BLU in (ours(values_BLD, lengths_B), expected_BLU)
    ]
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)
    gradients = [torch.autograd.grad((outputs**3).sum(), values_BLD)[0] for outputs in results]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)


def test_a_row_is_read_at_both_its_ends(checkpoint):
    model = make_model(OWN, checkpoint, NO_DROPOUT, seed=1)
    batch = make_batch([feature(9)])
    lstm, classifier = model.get_submodule("lstm"), model.get_submodule("classifier")
    outputs_LU = lstm(model.bert(*batch[:4]), torch.tensor([9]))[0]
    expected = classifier(torch.cat([outputs_LU[-1, :5], outputs_LU[0, 5:]]))
    torch.testing.assert_close(model(batch)[0], expected, rtol=0, atol=1e-6)


def test_a_token_of_a_left_to_right_encoder_sees_what_follows_through_the_lstm(checkpoint):
    model = make_model(TASKS[1], checkpoint, NO_DROPOUT, seed=1)
    before, changed = feature(9), feature(9)
    changed.rows[0].input_ids[7] += 1
    moved = (model(make_batch([before])) - model(make_batch([changed])))[0].abs().amax(1) > 1e-9
    assert moved.all()


@pytest.mark.parametrize("task", [*TASKS, GLUE["sst2"], Squad(version="1.1")], ids=str)
def test_the_task_is_restored_from_its_settings(task: Task):
    settings = json.loads(json.dumps(task.settings()))
    assert ("lstm_size" in settings) == ("bilstm" in task.variant)
    assert restore_task(settings) == task


def test_fine_tuning_trains_encoder_and_lstm(checkpoint, tmp_path):
    data, output = write_reviews(tmp_path / "data"), tmp_path / "run"
    config = FinetuneConfig(
        max_length=24,
        batch_size=8,
        epochs=4,
        learning_rates=(3e-3,),
        bilstm=True,
        lstm_size=16,
        device="cpu",
    )
    summary = finetune("sst2", data, checkpoint, output, config)
    assert summary["best"]["scores"]["accuracy"] > 0.9
    assert evaluate_task(output, data, "cpu")["accuracy"] == summary["best"]["scores"]["accuracy"]
    task = replace(GLUE["sst2"], max_length=24, lstm_size=16)
    assert load_finetuned(output, torch.device("cpu")).task == task
    start = make_model(task, checkpoint, config, seed=0)
    weights, first = load_file(output / "model.safetensors"), start.state_dict()
    unchanged = [name for name, weight in weights.items() if torch.equal(weight, first[name])]
    # The pooler is not used.
    assert all(name.startswith("bert.pooler") for name in unchanged)
    (line,) = read_results(output)
    left_to_right = start.bert.config.is_decoder
    assert line.variant == ("bilstm left-to-right" if left_to_right else "bilstm")
    assert line.paper.base == (Figure(91.6, "dev") if left_to_right else None)


def test_bf16_trains_a_bilstm(checkpoint, tmp_path):
    data = write_reviews(tmp_path / "data")
    config = FinetuneConfig(
        max_length=24, epochs=0.1, bilstm=True, lstm_size=8, precision="bf16", device="cpu"
    )
    scores = finetune("sst2", data, checkpoint, tmp_path / "run", config)["best"]["scores"]
    assert 0 <= scores["accuracy"] <= 1
