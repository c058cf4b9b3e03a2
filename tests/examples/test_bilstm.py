"""The BiLSTM heads of examples/paper: shapes, padding, the order of tokens, learning."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from bilstm import (
    FEATURES,
    BiLstm,
    BiLstmClassification,
    BiLstmSquad,
    BiLstmTagger,
    chosen_layers,
    of_bert,
    on_features,
    with_bilstm,
)
from clozeworks.model import (
    EntityRecognition,
    FinetuneConfig,
    Squad,
    Task,
    evaluate_task,
    finetune,
    make_task,
    predict,
)
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.finetuning.model import make_model
from clozeworks.model.finetuning.results import read_results
from clozeworks.model.tasks.batches import Feature, make_batch
from clozeworks.model.tokenizer import TextTokenizer, TokenRow
from clozeworks.pipeline import UserError
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.fixtures.checkpoint_fixture import SPECIALS, WORDS, make_checkpoint
from tests.fixtures.finetune_fixture import write_reviews

CLASSIFICATION = BiLstmClassification(
    name="classify", text=("text",), labels=("a", "b", "c"), lstm_size=5
)
TASKS: list[Task] = [CLASSIFICATION, BiLstmSquad(version="2.0", lstm_size=7)]
ENTITIES = EntityRecognition(types=("loc", "per"), max_length=24)
NO_DROPOUT = FinetuneConfig(dropout=0.0)


@pytest.fixture(scope="module", params=[False, True], ids=["both-ways", "left-to-right"])
def checkpoint(request, tmp_path_factory) -> Path:
    return make_checkpoint(
        tmp_path_factory.mktemp("model") / "checkpoint", is_decoder=request.param
    )


@pytest.fixture(scope="module")
def deep_checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "deep"
    return make_checkpoint(folder, num_hidden_layers=4)


def feature(length: int) -> Feature:
    row = np.random.default_rng(length).integers(
        len(SPECIALS), len(SPECIALS + WORDS), length, dtype=np.int32
    )
    return Feature(TokenRow(row, length), None, 0)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_outputs_have_their_shape_and_padding_changes_nothing(checkpoint, task: Task):
    model = make_model(task, Checkpoint.open(checkpoint), NO_DROPOUT, seed=1)
    features = [feature(length) for length in (5, 12, 7)]
    together = model(make_batch(features))
    assert together.shape == ((3, 12, 2) if model.per_token else (3, 3))
    for outputs, alone in zip(together, features, strict=True):
        expected = model(make_batch([alone]))[0]
        torch.testing.assert_close(outputs[: len(expected)], expected, rtol=0, atol=1e-6)


def test_the_bilstm_computes_what_pytorchs_own_does_on_packed_rows():
    torch.manual_seed(0)
    ours = BiLstm(6, 5, dropout_rate=0.1).eval()
    theirs = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
    for layer in range(2):
        for suffix, lstms in (("", ours.rightwards), ("_reverse", ours.leftwards)):
            for name, weight in lstms[layer].named_parameters():
                their_name = f"{name.replace('l0', f'l{layer}')}{suffix}"
                theirs.get_parameter(their_name).data.copy_(weight)
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
    model = make_model(CLASSIFICATION, Checkpoint.open(checkpoint), NO_DROPOUT, seed=1)
    batch = make_batch([feature(9)])
    lstm, classifier = model.get_submodule("lstm"), model.get_submodule("classifier")
    outputs_LU = lstm(model.encoder(*batch[:4]), torch.tensor([9]))[0]
    expected = classifier(torch.cat([outputs_LU[-1, :5], outputs_LU[0, 5:]]))
    torch.testing.assert_close(model(batch)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_fine_tuning_trains_encoder_and_lstm(checkpoint, tmp_path):
    data, output = write_reviews(tmp_path / "data"), tmp_path / "run"
    task = with_bilstm(make_task("sst2", data, max_length=24), 16)
    config = FinetuneConfig(batch_size=8, epochs=4, learning_rates=(3e-3,), device="cpu")
    summary = finetune(task, data, checkpoint, output, config)
    assert summary["best"]["scores"]["accuracy"] > 0.9
    measured = evaluate_task(output, data, "cpu", task=task)
    assert measured["accuracy"] == summary["best"]["scores"]["accuracy"]
    weights = load_file(output / "model.safetensors")
    start = make_model(task, Checkpoint.open(checkpoint), config, seed=0)
    first = start.state_dict()
    unchanged = [name for name, weight in weights.items() if torch.equal(weight, first[name])]
    # The pooler is not used.
    assert all(name.startswith("bert.pooler") for name in unchanged)
    (line,) = read_results(output)
    left_to_right = start.encoder.config.is_decoder
    assert line.variant == ("bilstm left-to-right" if left_to_right else "bilstm")
    assert transformers.AutoConfig.from_pretrained(output).architectures == ["BertModel"]


@pytest.mark.slow
def test_a_task_of_ones_own_is_needed_again_and_must_be_the_same(deep_checkpoint, tmp_path):
    data, output = write_reviews(tmp_path / "data"), tmp_path / "run"
    plain = make_task("sst2", data, max_length=24)
    task = with_bilstm(plain, 8)
    config = FinetuneConfig(epochs=0.1, learning_rates=(1e-3,), device="cpu")
    finetune(task, data, deep_checkpoint, output, config)
    with pytest.raises(UserError, match="was fine-tuned as BiLstmClassification, a task of your"):
        evaluate_task(output, data, "cpu")
    with pytest.raises(UserError, match="fine-tuned with lstm_size 8, but `task` has 9"):
        evaluate_task(output, data, "cpu", task=with_bilstm(plain, 9))
    with pytest.raises(UserError, match="with class 'BiLstmClassification', but `task` has None"):
        evaluate_task(output, data, "cpu", task=plain)
    with pytest.raises(UserError, match="task_settings"):
        finetune(with_bilstm(plain, 9), data, deep_checkpoint, output, config)
    with pytest.raises(UserError, match="`max_length` is a field of the task itself"):
        wrong = FinetuneConfig(max_length=24)
        finetune(task, data, deep_checkpoint, tmp_path / "other", wrong)


@pytest.mark.slow
def test_what_was_tuned_is_taken_from_the_model(deep_checkpoint, tmp_path):
    context = "the film was good"
    answers = [{"text": "film", "answer_start": 4}]
    questions: list[dict[str, Any]] = [
        {"id": f"{index}", "question": "what", "answers": answers if index % 2 else []}
        for index in range(8)
    ]
    articles = [{"title": "a", "paragraphs": [{"context": context, "qas": questions}]}]
    (tmp_path / "data").mkdir()
    for split in ("train", "dev"):
        content = json.dumps({"version": "v2.0", "data": articles})
        (tmp_path / "data" / f"{split}.json").write_text(content)
    task = with_bilstm(make_task("squad", tmp_path / "data", max_length=32, stride=8), 4)
    assert isinstance(task, Squad) and task.tau == 0
    config = FinetuneConfig(epochs=1, device="cpu")
    output = tmp_path / "run"
    summary = finetune(task, tmp_path / "data", deep_checkpoint, output, config)
    assert summary["best"]["tuned"]["tau"] != 0
    measured = evaluate_task(output, tmp_path / "data", "cpu", task=task)
    scores = summary["best"]["scores"]
    assert {name: measured[name] for name in scores} == scores


def test_the_rows_of_table_7_name_layers():
    assert {name: chosen_layers(name, 12) for name in FEATURES} == {
        "embeddings": [0],
        "second-to-last": [11],
        "last": [12],
        "weighted-sum-last-four": [9, 10, 11, 12],
        "concat-last-four": [9, 10, 11, 12],
        "weighted-sum-all": list(range(1, 13)),
    }
    with pytest.raises(UserError, match="the encoder has 2"):
        chosen_layers("concat-last-four", 2)


def some_features(checkpoint: Path) -> list[Feature]:
    lines = ["the film was b c", "d books", "very-good film films and b"]
    examples = [ENTITIES.parse_line(line, "") for line in lines]
    return ENTITIES.encode(examples, TextTokenizer(checkpoint))


@pytest.mark.parametrize("features", FEATURES)
def test_the_bilstm_reads_the_hidden_states_of_transformers(features, deep_checkpoint):
    opened = Checkpoint.open(deep_checkpoint)
    model = BiLstmTagger(of_bert(opened.shape), 5, features, 6).eval()
    opened.load_into(nn.ModuleDict({"bert": model.encoder}))
    theirs = transformers.BertModel.from_pretrained(
        deep_checkpoint, attn_implementation="eager"
    ).eval()
    if model.is_weighted:
        model.layer_weights.data = torch.linspace(-1, 1, len(model.layers))
        model.layer_scale.data.fill_(1.5)
    rows = some_features(deep_checkpoint)
    batch = make_batch(rows)
    with torch.no_grad():
        logits = model(batch)
        states = theirs(
            batch.input_ids_BL, batch.attention_mask_BL, output_hidden_states=True
        ).hidden_states
    for index, row in enumerate(rows):
        positions = row.context.word_positions
        layers = [states[layer][index, positions] for layer in chosen_layers(features, 4)]
        inputs = torch.cat(layers, -1)
        if "weighted" in features:
            odds = torch.linspace(-1, 1, len(layers)).exp()
            inputs = 1.5 * torch.einsum("s,swd->wd", odds / odds.sum(), torch.stack(layers))
        with torch.no_grad():
            expected = model.classifier(model.lstm(inputs[None], torch.tensor([len(inputs)])))[0]
        torch.testing.assert_close(logits[index, positions], expected, rtol=0, atol=1e-5)


def write_entities(folder: Path) -> Path:
    """Write sentences in which b is a person, and d a place."""
    folder.mkdir()
    sentences = ["the b was very good", "film d was the film", "a book and b", "d films"]
    tags = {"b": "B-per", "d": "B-loc"}
    lines = []
    for sentence in sentences * 10:
        lines += [f"{word}\t{tags.get(word, 'O')}" for word in sentence.split()] + [""]
    for split in ("train", "dev"):
        (folder / f"{split}.conll").write_text("\n".join(lines) + "\n")
    return folder


def frozen_weights(directory: Path) -> dict[str, torch.Tensor]:
    weights = load_file(directory / "model.safetensors")
    return {name: weight for name, weight in weights.items() if name.startswith("bert.")}


@pytest.mark.slow
def test_frozen_features_are_learned_and_predict_alike(deep_checkpoint, tmp_path):
    data, output = write_entities(tmp_path / "data"), tmp_path / "run"
    task = on_features(make_task("ner", data, max_length=24), "weighted-sum-last-four", 16)
    config = FinetuneConfig(epochs=24, batch_size=8, learning_rates=(2e-2,), device="cpu")
    summary = finetune(task, data, deep_checkpoint, output, config)
    assert summary["best"]["scores"]["f1"] > 0.9
    measured = evaluate_task(output, data, "cpu", task=task)
    assert measured["f1"] == summary["best"]["scores"]["f1"]
    (tmp_path / "new.txt").write_text("the b was very\n")
    predict(output, tmp_path / "new.txt", tmp_path / "out.jsonl", "cpu", task=task)
    answer = json.loads((tmp_path / "out.jsonl").read_text())
    assert answer["tags"] == ["O", "B-per", "O", "O"]
    weights = frozen_weights(output)
    before = frozen_weights(deep_checkpoint)
    assert all(torch.equal(weight, weights[name]) for name, weight in before.items())
