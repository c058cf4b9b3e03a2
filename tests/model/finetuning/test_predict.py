"""Prediction and evaluation with a fine-tuned model, and their files."""

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from clozeworks.cli.evaluate import evaluate
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.model import find_model
from clozeworks.model.finetuning.predict import evaluate_task, predict, write_answers
from clozeworks.model.tasks.classify import Classification, TextExample
from clozeworks.model.tasks.example_tables import read_rows
from clozeworks.model.tasks.splits import make_task
from clozeworks.pipeline.errors import UserError

from tests.fixtures.finetune_fixture import quick, sentences, write_table


def test_dev_is_measured_as_evaluate_does_whatever_the_training_is_computed_in(
    checkpoint, tmp_path
):
    lines = [f"{text},{index / 7}" for index, (text, _) in enumerate(sentences(40, 3))]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    config = quick(epochs=1, learning_rates=(1e-3,), precision="bf16")
    scores = finetune("classify", tmp_path, checkpoint, tmp_path / "run", config)["best"]["scores"]
    measured = evaluate_task(tmp_path / "run", tmp_path, "cpu")
    assert measured["examples"] == 40
    assert {name: measured[name] for name in scores} == scores


def test_predict_reads_standard_input_and_answers_every_line(trained, monkeypatch, capsys):
    stdin = io.TextIOWrapper(io.BytesIO("good\n\n[SEP] bad \u2028 x\n".encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    generator = torch.get_rng_state()
    assert predict(trained[0], "-", "-", "cpu") == 3
    assert torch.equal(torch.get_rng_state(), generator)  # no weights were drawn, only read
    # Not `splitlines`, to which U+2028 is the end of a line too.
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == "text\tlabel\tnegative\tpositive"
    assert [line.split("\t")[0] for line in lines[1:]] == ["good", "", "[SEP] bad \u2028 x", ""]


def test_predictions_keep_the_order_of_their_lines(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("clozeworks.model.finetuning.predict.EXAMPLES_AT_ONCE", 7)
    rows = sentences(30, 4)
    (tmp_path / "all.txt").write_text("".join(f"{text}\n" for text, _ in rows))
    predict(trained[0], tmp_path / "all.txt", tmp_path / "all.jsonl", "cpu")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    together = [json.loads(line)["probabilities"]["positive"] for line in lines]
    for index in (0, 8, 29):
        (tmp_path / "one.txt").write_text(rows[index][0] + "\n")
        predict(trained[0], tmp_path / "one.txt", tmp_path / "one.jsonl", "cpu")
        alone = json.loads((tmp_path / "one.jsonl").read_text())["probabilities"]["positive"]
        assert together[index] == pytest.approx(alone, abs=1e-6)


def test_predictions_in_each_form_say_the_same(trained, tmp_path):
    (tmp_path / "new.TXT").write_text("good\n... !\n" + "x" * 1000 + "\n")
    names = {"tsv": "out.tsv", "csv": "out.CSV", "jsonl": "out.jsonl"}
    forms = {suffix: tmp_path / name for suffix, name in names.items()}
    for path in forms.values():
        assert predict(trained[0], tmp_path / "new.TXT", path, "cpu") == 3
    expected = [json.loads(line) for line in forms["jsonl"].read_text().splitlines()]
    for suffix, delimiter in (("tsv", "\t"), ("csv", ",")):
        with forms[suffix].open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter=delimiter))
        assert [row["label"] for row in rows] == [answer["label"] for answer in expected]
        assert float(rows[1]["positive"]) == pytest.approx(
            expected[1]["probabilities"]["positive"], rel=1e-5
        )


def test_a_table_of_predictions_is_one_that_finetune_reads(tmp_path):
    label, probabilities = 'a "b"\t\nc', {"label": 0.25, 'a "b"\t\nc': 1.0}
    answers = [{"label": label, "start": None, "tags": ['"'], "probabilities": probabilities}]
    for suffix, text in ((".tsv", 'a "b"  c'), (".csv", 'a "b"\t\nc')):
        path = tmp_path / f"out{suffix}"
        with path.open("w", newline="") as file:
            write_answers(file, answers, suffix)
        (row,) = read_rows(path)
        assert row.values == {
            "label": text, "start": "", "tags": '["\\""]', "p(label)": "0.25", text: "1",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "answer", "expected"),
    [
        (".tsv", {"answer": ""}, "answer\n\n"),
        (".csv", {"answer": ""}, 'answer\n""\n'),
        # Columns of the user's own table, or what `columns` names.
        (".tsv", {"probabilities": [1], "n_best": []}, "probabilities\tn_best\n[1]\t[]\n"),
    ],
)
def test_a_table_has_the_columns_that_are_chosen(suffix, answer, expected):
    file = io.StringIO()
    assert write_answers(file, [answer], suffix) == 1
    assert file.getvalue() == expected


def test_predict_for_a_contest_names_its_columns(trained, tmp_path):
    rows = [(str(10 + index), *row) for index, row in enumerate(sentences(40, 3))]
    table = write_table(tmp_path / "train.tsv", rows, "PhraseId\ttext\tlabel")
    assert make_task("classify", table).settings()["id_column"] == "PhraseId"
    twice = write_table(tmp_path / "twice.tsv", [*rows, rows[0]], "PhraseId\ttext\tlabel")
    assert "id_column" not in make_task("classify", twice).settings()
    model = trained[0]
    new = write_table(tmp_path / "new.tsv", [("a", "good"), ("b", "bad")], "PhraseId\tPhrase")
    with pytest.raises(UserError, match=r"no column sentence, .* training had sentence; .*`text`"):
        predict(model, new, tmp_path / "out.csv", "cpu")
    columns = "PhraseId,label=Sentiment"
    predict(model, new, tmp_path / "out.csv", "cpu", columns=columns, text="Phrase")
    (header, *lines) = (tmp_path / "out.csv").read_text().split()
    assert header == "PhraseId,Sentiment"
    assert [line.split(",")[0] for line in lines] == ["a", "b"]
    for columns, text, fault in (
        ("label=x,PhraseId=x", "Phrase", "`columns` names 'x' twice"),
        ("labels=x", "Phrase", "no column 'labels'"),
        (None, "Phrase,PhraseId", "the model reads one column"),
    ):
        with pytest.raises(UserError, match=fault):
            predict(model, new, tmp_path / "o.csv", "cpu", columns=columns, text=text)
    with pytest.raises(UserError, match="`text` names columns of a table"):
        predict(model, "-", "-", "cpu", text="Phrase")


@pytest.mark.parametrize(("id_column", "kept"), [("PhraseId", ["PhraseId"]), (None, [])])
def test_predictions_keep_the_id_column_of_the_training(trained, tmp_path, id_column, kept):
    model = tmp_path / "model"
    shutil.copytree(trained[0], model)
    settings = {"task": "classify", "text": ["text"], "labels": ["a", "b"], "max_length": 24}
    if id_column:
        settings["id_column"] = id_column
    (model / "task.json").write_text(json.dumps(settings))
    new = write_table(tmp_path / "new.tsv", [("a", "good")], "PhraseId\ttext")
    predict(model, new, tmp_path / "out.tsv", "cpu")
    header = (tmp_path / "out.tsv").read_text().split("\n")[0]
    assert header.split("\t") == [*kept, "text", "label", "a", "b"]


def test_predictions_keep_the_columns_of_their_rows(trained, tmp_path):
    rows = [
        {"id": f"r{i}", "sentence": text, "n": i, "label": 0}
        for i, (text, _) in enumerate(sentences(3, 4))
    ]
    data = tmp_path / "new.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def written(name: str, columns: str | None = None) -> list[dict[str, Any]]:
        predict(trained[0], data, tmp_path / name, "cpu", columns=columns)
        text = (tmp_path / name).read_text()
        if name.endswith(".csv"):
            return list(csv.DictReader(io.StringIO(text)))
        return [json.loads(line) for line in text.splitlines()]

    kept = written("out.jsonl")
    assert [(row["id"], row["n"]) for row in kept] == [("r0", 0), ("r1", 1), ("r2", 2)]
    assert all(row["label"] in ("negative", "positive") for row in kept)
    assert list(written("out.csv")[0]) == ["id", "text", "label", "negative", "positive"]
    alone = written("out.csv", "id,label")
    assert [list(row.values()) for row in alone] == [[row["id"], row["label"]] for row in kept]
    assert list(written("out.csv", "n,positive")[0]) == ["n", "positive"]
    with pytest.raises(UserError, match="There is no column 'day', only id, sentence, n, label"):
        written("none.csv", "id,day")
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.parametrize("chosen", [(1, 2), (0, 1), (0, 0, 1, 2)])
def test_columns_are_never_those_of_another_row(chosen, trained, tmp_path, monkeypatch):
    data = write_table(tmp_path / "new.tsv", [("good", "a"), ("bad", "b"), ("good", "c")])
    read = Classification.read

    def read_others(task: Classification, path: Path, labelled: bool) -> Iterator[TextExample]:
        examples = list(read(task, path, labelled))
        return (examples[index] for index in chosen)

    monkeypatch.setattr(Classification, "read", read_others)
    with pytest.raises(ValueError, match=r"zip\(\) argument"):
        predict(trained[0], data, tmp_path / "out.jsonl", "cpu")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_csv_of_predictions_has_no_formulas(trained, tmp_path):
    (tmp_path / "new.txt").write_text('=HYPERLINK("http://x")\n-good\n')
    predict(trained[0], tmp_path / "new.txt", tmp_path / "out.csv", "cpu")
    content = (tmp_path / "out.csv").read_text()
    texts = [row["text"] for row in csv.DictReader(io.StringIO(content))]
    assert texts == ['\'=HYPERLINK("http://x")', "'-good"]


def test_a_table_of_the_users_own_has_predictions_of_its_test_file_but_no_official_form(
    checkpoint, tmp_path
):
    rows = sentences(24, 1)
    for name, header in (("train", "text\tlabel"), ("dev", "text\tlabel")):
        write_table(tmp_path / "data" / f"{name}.tsv", rows, header)
    write_table(tmp_path / "data" / "test.tsv", [(text,) for text, _ in rows[:5]], "text")
    finetune(
        "classify",
        tmp_path / "data",
        checkpoint,
        tmp_path / "run",
        quick(epochs=0.3, learning_rates=(1e-3,)),
    )
    lines = (tmp_path / "run" / "test" / "test.tsv").read_text().splitlines()
    assert lines[0] == "text\tlabel\t0\t1"
    assert len(lines) == 6
    with pytest.raises(UserError, match=r"classify has no official format for .*test\.tsv; leave"):
        predict(
            tmp_path / "run",
            tmp_path / "data" / "test.tsv",
            tmp_path / "server",
            "cpu",
            official=True,
        )


def test_predict_names_bad_input_and_leaves_no_output(trained, checkpoint, tmp_path):
    pairs = write_table(tmp_path / "pairs.tsv", [("a", "b")], "sentence1\tsentence2")
    with pytest.raises(UserError, match=r"pairs.tsv, line 2: there is no column sentence"):
        predict(trained[0], pairs, tmp_path / "out.tsv", "cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]
    with pytest.raises(UserError, match=r"has no task\.json: give a model that `clozeworks"):
        predict(checkpoint, pairs, tmp_path / "out.tsv", "cpu")
    shutil.copytree(trained[0], tmp_path / "above" / "one")
    above = tmp_path / "above"
    assert find_model(above) == above / "one"  # what can only be meant
    shutil.copytree(trained[0], above / "two")
    with pytest.raises(UserError, match=r"above has no task.json: give one of .*/one, .*/two\.$"):
        predict(above, pairs, tmp_path / "out.tsv", "cpu")
    with pytest.raises(UserError, match=r"none\.txt does not exist"):
        predict(trained[0], tmp_path / "none.txt", tmp_path / "out.tsv", "cpu")
    for path in (pairs, "s3://bucket/pairs.tsv"):
        with pytest.raises(UserError, match=rf"^`output` is DATA itself \({path}\); give another"):
            predict(trained[0], path, path, "cpu")


def test_evaluate_names_data_and_models_that_do_not_belong_together(
    trained, checkpoint, data, tmp_path
):
    pairs = write_table(tmp_path / "pairs.tsv", [("a", "b", "1")], "sentence1\tsentence2\tlabel")
    named, odd = "there is no column", [("a", "good"), ("a", "bad")]
    for file, message in [
        (pairs, rf"pairs\.tsv, line 2: {named} sentence, only sentence1, sentence2, label"),
        (write_table(tmp_path / "empty.tsv", []), r"empty\.tsv contains no rows"),
        (write_table(tmp_path / "bare.tsv", [("a",)], "sentence"), rf"line 2: {named} label"),
        (write_table(tmp_path / "odd.tsv", odd), r"odd\.tsv, line 2: the label 'good'"),
    ]:
        with pytest.raises(UserError, match=message):
            evaluate_task(trained[0], file, "cpu")
    (tmp_path / "manifest.json").write_text("{}")
    line = (
        f"{tmp_path} holds pre-training data, but {trained[0]} is fine-tuned for sst2: "
        "give labelled examples."
    )
    with pytest.raises(UserError, match=f"^{re.escape(line)}$"):
        evaluate_task(trained[0], tmp_path, "cpu")
    with pytest.raises(UserError, match=r"dev\.tsv, .*labelled examples need a model that is fine"):
        evaluate.main([str(checkpoint), str(data / "dev.tsv")], standalone_mode=False)
