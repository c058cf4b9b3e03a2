"""Entities as character spans: the forms of annotators' tools, their oddities, and a whole run."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import predict
from clozeworks.model.tasks.conll import read_conll, sentence_of_text, with_spans
from clozeworks.model.tasks.ner import ner_task
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.tagged import Entity, entities
from clozeworks.pipeline.errors import UserError

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.finetune_fixture import quick
from tests.fixtures.task_files import write_rows

TEXT = "Ana (Ljubljana) met Bob Ray."
SPANS = [(0, 3, "PER"), (5, 14, "LOC"), (20, 27, "PER")]
TAGS = ("B-PER", "O", "B-LOC", "O", "O", "B-PER", "I-PER", "O")
LISTS: list[list[Any]] = [list(span) for span in SPANS]
OBJECTS = [{"start": start, "end": end, "label": label} for start, end, label in SPANS]
OFFSETS = [
    {"id": 1, "start_offset": start, "end_offset": end, "label": label}
    for start, end, label in SPANS
]
TOKENS = [{"text": "Ana", "start": 0, "end": 3, "id": 0, "ws": True}]
FORMS: dict[str, dict[str, Any]] = {
    "doccano": {"id": 7, "text": TEXT, "label": LISTS},
    "doccano with relations": {"text": TEXT, "entities": OFFSETS},
    "prodigy": {"text": TEXT, "tokens": TOKENS, "spans": OBJECTS, "answer": "accept"},
    "spacy": {"text": TEXT, "entities": LISTS},
}


@pytest.mark.parametrize("form", FORMS)
def test_spans_are_read_in_every_form(tmp_path: Path, form: str):
    path = write_rows(tmp_path / "train.jsonl", [FORMS[form]])
    ((sentence,),) = read_conll(path, labelled=True)
    assert "".join(sentence.words) == TEXT.replace(" ", "")
    assert sentence.tags == TAGS
    ((unlabelled,),) = read_conll(path, labelled=False)
    assert (unlabelled.tags, unlabelled.words) == (None, sentence.words)
    task = ner_task([path], TaskOptions())
    assert (task.name, task.labels[1:]) == ("ner", ("B-LOC", "I-LOC", "B-PER", "I-PER"))


@pytest.mark.parametrize(
    ("span", "tags", "oddity"),
    [
        ((1, 3), "B---", "begin or end within a word"),
        ((0, 6), "BI--", "begin or end within a word"),
        ((3, 4), "----", "are empty or outside"),  # white space
        ((1, 1), "----", "are empty or outside"),
        ((8, 99), "----", "are empty or outside"),
        ((-3, 3), "----", "are empty or outside"),
        ((0, 4), "B---", None),  # with the space after it
    ],
)
def test_odd_spans_are_repaired_or_left_out_and_counted(
    span: tuple[int, int], tags: str, oddity: str | None
):
    oddities: Counter[str] = Counter()
    sentence = with_spans(sentence_of_text("Ana met Bob."), [Entity(*span, "X")], oddities)
    assert sentence.tags is not None
    assert [tag[0] for tag in sentence.tags] == list(tags.replace("-", "O"))
    assert oddities.total() == (oddity is not None)
    assert all(each.startswith(oddity or "") for each in oddities)


def test_the_longest_of_nested_spans_stays():
    oddities: Counter[str] = Counter()
    text = "Bank of Riga, Riga"
    spans = [Entity(8, 12, "LOC"), Entity(0, 12, "ORG"), Entity(14, 18, "LOC")]
    sentence = with_spans(sentence_of_text(text), spans, oddities)
    assert sentence.tags == ("B-ORG", "I-ORG", "I-ORG", "O", "B-LOC")
    assert dict(oddities) == {"overlap a longer one, and are left out": 1}


def test_words_are_cut_at_ideographs_and_punctuation_but_not_at_combining_marks():
    assert sentence_of_text("王小明在北京。").words == tuple("王小明在北京。")
    assert sentence_of_text("हिन्दी में").words == ("हिन्दी", "में")
    assert sentence_of_text("e-mail, 5.4%").words == ("e", "-", "mail", ",", "5", ".", "4", "%")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "Ana", "spans": [[0, 3]]}, "a span is \\[0, 3\\], not such as"),
        ({"text": "Ana", "spans": "PER"}, "the spans are 'PER', not a list"),
        ({"text": 5, "spans": []}, "the text is 5"),
        ({"text": "Ana"}, "there is no column spans"),
    ],
)
def test_spans_that_are_none_are_named_by_line(tmp_path: Path, row: dict, message: str):
    path = write_rows(tmp_path / "train.jsonl", [row])
    with pytest.raises(UserError, match=f"line 1: {message}"):
        list(read_conll(path, labelled=True))


@pytest.mark.parametrize("answer", ["reject", "ignore"])
def test_what_no_annotator_accepted_is_left_out(tmp_path: Path, answer: str):
    row = {"text": TEXT, "spans": OBJECTS, "answer": answer}
    path = write_rows(tmp_path / "train.jsonl", [row])
    with pytest.raises(UserError, match=r"line 1: .*refused"):
        list(read_conll(path, labelled=True))
    write_rows(path, [row, FORMS["prodigy"]])
    assert len(list(read_conll(path, labelled=True))) == 1
    assert len(list(read_conll(path, labelled=False))) == 2


NAMES = ("Ana", "Bob Ray", "Cy")
PLACES = ("Riga", "Port Said")
WORDS = ["ana", "bob", "ray", "cy", "riga", "port", "said", "(", ")", "."]


def examples(seed: int, number: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        name, place = NAMES[random.integers(3)], PLACES[random.integers(2)]
        text = f"{name} ({place})."
        start = len(name) + 2
        spans = [[0, len(name), "PER"], [start, start + len(place), "LOC"]]
        rows.append({"text": text, "label": spans})
    return rows


@pytest.mark.slow
def test_a_model_of_spans_answers_in_spans_as_transformers_does(tmp_path: Path):
    checkpoint = make_checkpoint(tmp_path / "checkpoint", WORDS)
    write_rows(tmp_path / "data" / "train.jsonl", examples(0, 60))
    write_rows(tmp_path / "data" / "dev.jsonl", examples(1, 20))
    config = quick(batch_size=8, max_length=32, epochs=12, learning_rates=(5e-3,), seeds=1)
    output = tmp_path / "model"
    summary = finetune("ner", tmp_path / "data", checkpoint, output, config)
    assert summary["best"]["scores"]["f1"] == 1.0
    lines = (output / "dev" / "dev_spans.jsonl").read_text().splitlines()
    written = [json.loads(line) for line in lines]
    assert [row["text"] for row in written] == [row["text"] for row in examples(1, 20)]
    texts = tmp_path / "new.txt"
    texts.write_text("Bob Ray (Port Said).\nCy (Riga).\n")
    predict(output, texts, tmp_path / "answers.jsonl", "cpu")
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    pipeline = transformers.pipeline(
        "token-classification", str(output), aggregation_strategy="first"
    )
    for answer in answers:
        theirs = pipeline(answer["text"])
        ours = [(span["start"], span["end"], span["label"]) for span in answer["spans"]]
        assert ours == [(each["start"], each["end"], each["entity_group"]) for each in theirs]
    assert answers[0]["spans"][0].items() >= {"start": 0, "end": 7, "label": "PER"}.items()
    # What it answers is what it could be trained on.
    ((again,), _) = read_conll(tmp_path / "answers.jsonl", labelled=True)
    assert entities(again.tags or ()) and 0 < answers[0]["spans"][0]["score"] <= 1
