"""examples/paper/swag.py: a task of one's own, its rows and logits those of transformers."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from clozeworks.model import FinetuneConfig, evaluate_task, finetune, predict
from clozeworks.model.tasks.batches import make_batch
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.pipeline import UserError
from swag import ChoiceModel, Question, Swag

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.parity_fixture import check_learning, make_pair
from tests.fixtures.task_files import write_lines

COLUMNS = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)
LINE = '0,v-1,7,"He sits. He","He sits.",He,gold,"stands, up.",sits.,"says ""no"".",runs.,2'
CODAH = "o\tI am hungry. I\teat.\tfly away.\tsing\tsit"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint")


def test_the_files_of_swag_and_codah(tmp_path: Path):
    path = write_lines(tmp_path / "train.csv", COLUMNS, LINE)
    expected = Question("He sits.", ("He stands, up.", "He sits.", 'He says "no".', "He runs."), 2)
    assert list(Swag().read(path, labelled=True)) == [expected]
    unlabelled = write_lines(
        tmp_path / "test.csv", COLUMNS.removesuffix(",label"), LINE.removesuffix(",2")
    )
    assert list(Swag().read(unlabelled, labelled=False)) == [expected._replace(target=None)]
    path = write_lines(tmp_path / "train.tsv", f"{CODAH}\t0")
    expected = Question("I am hungry. I", ("eat.", "fly away.", "sing", "sit"), 0)
    assert list(Swag().read(path, labelled=True)) == [expected]
    unlabelled = write_lines(tmp_path / "test.tsv", CODAH)
    assert list(Swag().read(unlabelled, labelled=False)) == [expected._replace(target=None)]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.csv", [COLUMNS, LINE[:-1] + "4"], "question 1: the label is '4', not an ending"),
        ("a.csv", [COLUMNS.replace("ending3", "e"), LINE], "no column 'ending3', only "),
        ("a.tsv", [CODAH.replace("\tsit", "")], "question 1 does not have 4 endings"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, name: str, lines: list[str], message: str):
    with pytest.raises(UserError, match=message):
        list(Swag().read(write_lines(tmp_path / name, *lines), labelled=True))


def test_rows_logits_and_gradients_equal_those_of_transformers(checkpoint: Path):
    questions = [
        Question("the film", ("was good", "was very dull"), 1),
        Question("a", ("b", "b " * 30), 0),
    ]
    features = Swag(num_choices=2, max_length=16).encode(questions, TextTokenizer(checkpoint))
    assert [feature.row.num_cut for feature in features] == [0, 18]
    batch = make_batch(features)
    peer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    rows = [(question.text, ending) for question in questions for ending in question.endings]
    encoded = peer(rows, truncation=True, max_length=16, padding=True, return_tensors="pt")
    ours, theirs = make_pair(ChoiceModel)
    inputs = {name: values.view(2, 2, -1) for name, values in encoded.items()}
    expected = theirs(**inputs, labels=batch.target)
    logits = ours(batch)
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=1e-5)
    check_learning(ours, ours.loss(logits, batch), theirs, expected.loss)


def test_accuracy_baseline_and_probabilities():
    task = Swag(num_choices=2)
    questions = [Question("a", ("b", "c"), target) for target in (1, 1, 0)]
    outputs = [np.array([0, np.log(3)]), np.array([1000.0, 0]), np.array([1.0, 0])]
    assert task.scores(outputs, [], questions) == {"accuracy": pytest.approx(2 / 3)}
    assert task.baseline(questions[:2], questions) == {"accuracy": pytest.approx(2 / 3)}
    first, second, _ = task.answers(outputs, [], questions)
    assert first["label"] == 1
    assert first["probabilities"] == {0: pytest.approx(0.25), 1: pytest.approx(0.75)}
    assert second["probabilities"] == {0: 1.0, 1: 0.0}


def stories(num: int, seed: int) -> list[str]:
    """Return lines of CODAH's form: the right one of three endings has the letter of the text."""
    draw = random.Random(seed)
    lines = []
    for _ in range(num):
        letters = draw.sample("bcde", 3)
        target = draw.randrange(3)
        starts = [" ".join(draw.choices(["was", "very", "good"], k=2)) for _ in letters]
        endings = [f"{start} {letter}" for start, letter in zip(starts, letters, strict=True)]
        lines.append("\t".join(["o", f"the film {letters[target]}", *endings, str(target)]))
    return lines


@pytest.mark.slow
def test_it_learns_and_transformers_gives_the_same_probabilities(checkpoint: Path, tmp_path: Path):
    write_lines(tmp_path / "data" / "train.tsv", *stories(240, 1))
    dev = write_lines(tmp_path / "data" / "dev.tsv", *stories(60, 2))
    task = Swag(num_choices=3, max_length=24)
    config = FinetuneConfig(batch_size=8, epochs=10, learning_rates=(2e-3,), device="cpu")
    output = tmp_path / "run"
    summary = finetune(task, tmp_path / "data", checkpoint, output, config)
    assert summary["best"]["scores"]["accuracy"] > 0.8 > 1.6 * summary["baseline"]["accuracy"]
    measured = evaluate_task(output, tmp_path / "data", "cpu", task=task)
    assert measured["accuracy"] == summary["best"]["scores"]["accuracy"]
    assert predict(output, dev, tmp_path / "out.jsonl", "cpu", task=task) == 60
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    model = transformers.AutoModelForMultipleChoice.from_pretrained(output).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    for answer, line in zip(answers[:5], dev.read_text().splitlines()[:5], strict=True):
        _, prompt, *endings, _ = line.split("\t")
        encoded = tokenizer([prompt] * 3, endings, padding=True, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**{name: part[None] for name, part in encoded.items()}).logits
        assert list(answer["probabilities"].values()) == pytest.approx(
            logits.softmax(-1)[0].tolist(), abs=1e-5
        )
