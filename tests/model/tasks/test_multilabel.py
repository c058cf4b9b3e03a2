"""Any number of labels for a text: the forms of the data, the loss, and the metrics."""

import json
from dataclasses import replace
from typing import Any

import datasets
import numpy as np
import pytest
import sklearn.metrics
import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.model import make_model
from clozeworks.model.finetuning.predict import evaluate_task, predict
from clozeworks.model.tasks.batches import Feature, make_batch
from clozeworks.model.tasks.catalogue import restore_task
from clozeworks.model.tasks.classify import Classification, classify_task
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.splits import find_splits
from clozeworks.model.tokenizer import TextTokenizer, TokenRow
from clozeworks.pipeline.errors import UserError

from tests.fixtures.task_files import write_rows

OPTIONS = TaskOptions()
TASK = Classification(
    name="classify", text=("text",), labels=("anger", "joy", "love"), has_lists=True
)
# In the form of GoEmotions, with some of its classes.
ROWS = (
    {"text": "good film", "label": ["joy", "love"]},
    {"text": "a bad bad book", "label": ["anger"]},
    {"text": "the film", "label": []},
    {"text": "is it very good ?", "label": ["joy"]},
)


def test_labels_are_a_list(tmp_path):
    listed = write_rows(tmp_path / "a.jsonl", ROWS)
    task = classify_task([listed], TaskOptions())
    assert task.labels == ("anger", "joy", "love")
    targets = [example.target for example in task.read(listed, labelled=True)]
    assert targets == [(1, 2), (0,), (), (1,)]
    assert restore_task(json.loads(json.dumps(task.settings()))) == task


def test_a_set_of_the_hub_has_numbered_labels(tmp_path):
    names = ["anger", "joy", "love"]
    rows = [{**row, "label": [names.index(name) for name in row["label"]]} for row in ROWS]
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.List(datasets.ClassLabel(names=names))
    )
    rows.append({"text": "without a label", "label": None})
    saved = datasets.Dataset.from_list(rows, features=features)
    datasets.DatasetDict({"train": saved}).save_to_disk(tmp_path / "set")
    (path,) = find_splits(f"hf:{tmp_path / 'set'}")["train"]
    task = classify_task([path], OPTIONS)
    assert task.labels == tuple(names)
    targets = [example.target for example in task.read(path, labelled=True)]
    assert targets == [(1, 2), (0,), (), (1,)]


def test_rows_without_labels_and_unknown_labels_are_counted(tmp_path, capsys):
    task = replace(TASK, labels=("anger", "joy"))
    rows = [*ROWS, {"text": "a", "label": None}, {"text": "", "label": []}]
    path = write_rows(tmp_path / "dev.jsonl", rows)
    assert [example.target for example in task.read(path, labelled=True)] == [(0,), (), (1,)]
    told = capsys.readouterr().err
    assert "Left out 1 of 6 rows (without label); the first: " in told
    assert "Left out 1 of 6 rows (without text); the first: " in told
    assert f"{path}, line 1: the label 'love' is not one of anger, joy." in told
    with pytest.raises(UserError, match="line 1: the labels are 3, not a list"):
        list(task.read(write_rows(tmp_path / "b.jsonl", [{"text": "a", "label": 3}]), True))
    with pytest.raises(UserError, match="label holds 1 different labels in 1 rows"):
        classify_task([write_rows(tmp_path / "c.jsonl", [{"text": "a", "label": ["b"]}])], OPTIONS)


@pytest.mark.parametrize(
    "vectors", [([1, 0, 1], [0, 0, 1]), ([True, False], [False, True]), (["0", "1"], ["1", "1"])]
)
def test_vectors_of_0_and_1_are_refused(tmp_path, vectors):
    rows = [{"text": f"film {number}", "label": label} for number, label in enumerate(vectors)]
    path = write_rows(tmp_path / "train.jsonl", rows)
    with pytest.raises(UserError, match="label holds vectors of 0 and 1; give"):
        classify_task([path], OPTIONS)
    # Lists of two classes with these names are not vectors: their lengths differ.
    write_rows(path, [{"text": "a", "label": [0, 1]}, {"text": "b", "label": [1]}])
    assert classify_task([path], OPTIONS).labels == ("0", "1")


def test_the_loss_is_that_of_transformers(checkpoint):
    task = replace(TASK, max_length=16)
    examples = [task.parse_line(row["text"], "")._replace(target=(0, 2)) for row in ROWS]
    features = task.encode(examples, TextTokenizer(checkpoint))
    batch = make_batch(features)
    # Targets of classes are not padded, not even for rows of as many tokens.
    row = TokenRow(np.zeros(3, np.int32), 3)
    filled = make_batch([features[0]._replace(row=row)], widths=(16,))
    assert filled.target is not None and filled.target.shape == (1, 3)
    model = make_model(task, Checkpoint.open(checkpoint), FinetuneConfig(dropout=0.0), 0).eval()
    settings = transformers.BertConfig.from_pretrained(checkpoint, **task.hf_settings())
    theirs = transformers.BertForSequenceClassification(settings).eval()
    theirs.load_state_dict(model.state_dict())
    expected = theirs(
        batch.input_ids_BL, batch.attention_mask_BL, batch.token_type_ids_BL, labels=batch.target
    )
    torch.testing.assert_close(model.loss(model(batch), batch), expected.loss)


def test_metrics_are_those_of_scikit_learn_and_a_label_needs_half_the_probability():
    task, targets = TASK, ((0, 1), (), (2,), (1,))
    examples = [task.parse_line("a", "")._replace(target=target) for target in targets]
    logits = np.array([[1, 1, -1], [-1, 2, -1], [-3, -1, -0.1], [-1, 3, 1]], dtype=np.float32)
    rows = [Feature(TokenRow(np.zeros(2, np.int32), 2), None, number) for number in range(4)]
    truths = [[1, 1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0]]
    scores = task.scores(list(logits), rows, examples)
    for average in ("micro", "macro"):
        expected = sklearn.metrics.f1_score(truths, logits > 0, average=average)
        assert scores[f"{average}_f1"] == pytest.approx(expected)
    answers = task.answers(list(logits), rows, examples)
    assert [answer["labels"] for answer in answers] == [
        ["anger", "joy"], ["joy"], [], ["joy", "love"],
    ]  # fmt: skip
    assert answers[0]["probabilities"]["anger"] == pytest.approx(1 / (1 + np.exp(-1)))
    report = task.class_report(answers, examples).classes
    assert report["joy"] == {
        "precision": pytest.approx(2 / 3), "recall": 1, "f1": pytest.approx(0.8), "count": 2,
    }  # fmt: skip
    # "joy" is the most frequent: 2 of 4 right, 2 of 4 found.
    assert task.baseline(examples, examples)["micro_f1"] == pytest.approx(0.5)
    # All labels at once: the mean of 2/5, 2/3 and 2/5.
    assert task.baseline(examples, examples)["macro_f1"] == pytest.approx(22 / 45)
    both = [example._replace(target=(0, 1)) for example in examples]
    assert task.baseline([*both, examples[2]], both)["micro_f1"] == 1


@pytest.mark.slow
def test_it_learns_loads_in_transformers_and_shows_its_mistakes(tmp_path, checkpoint):
    words = {"joy": "good", "anger": "bad", "love": "dull"}
    rows = []
    for index in range(96):
        labels = [label for bit, label in enumerate(words) if index >> bit & 1]
        text = "the film " + " ".join(words[label] for label in labels)
        rows.append({"text": text, "label": labels})
    write_rows(tmp_path / "data/train.jsonl", rows)
    write_rows(tmp_path / "data/dev.jsonl", [*rows[:8], {"text": "good", "label": ["anger"]}])
    config = FinetuneConfig(
        max_length=16, batch_size=8, epochs=15, learning_rates=(1e-3,), device="cpu"
    )
    output = tmp_path / "model"
    summary = finetune("classify", tmp_path / "data", checkpoint, output, config)
    assert summary["best"]["scores"]["micro_f1"] > 0.8
    measured = evaluate_task(output, tmp_path / "data/dev.jsonl", "cpu")
    assert measured["macro_f1"] == summary["best"]["scores"]["macro_f1"]
    predict(output, tmp_path / "data/dev.jsonl", tmp_path / "answers.jsonl", "cpu")
    answer = json.loads((tmp_path / "answers.jsonl").read_text().splitlines()[3])
    classifier: Any = transformers.pipeline("text-classification", str(output), top_k=None)
    (labels,) = classifier([answer["text"]])
    theirs = {each["label"]: each["score"] for each in labels}
    assert answer["probabilities"] == pytest.approx(theirs, abs=1e-4)
