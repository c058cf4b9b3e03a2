"""Classes and scores of texts and pairs: what a table defines, the model, answers and metrics."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.tasks.batches import Feature, make_batch
from clozeworks.model.tasks.catalogue import GLUE, KINDS, read_task, restore_task
from clozeworks.model.tasks.classify import (
    Classification,
    SequenceClassifier,
    TextExample,
    classify_task,
)
from clozeworks.model.tasks.options import TASK_NAMES, TaskOptions, check_task
from clozeworks.model.tokenizer import TextTokenizer, TokenRow
from clozeworks.pipeline.errors import UserError
from sklearn.utils.class_weight import compute_class_weight

from tests.fixtures.parity_fixture import check_learning, make_pair
from tests.fixtures.task_files import write


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"task": "no"}', '{"task": "sst2"}', '{"task": "squad", "a": 1}']
)
def test_a_damaged_task_is_reported(tmp_path, content):
    with pytest.raises(UserError, match=r"task\.json is damaged.* Fine-tune again"):
        read_task(write(tmp_path / "task.json", content))


def test_the_words_of_a_file_sorted_by_class_are_a_baseline_too():
    classes = [0] * 9 + [1] * 9
    texts = [f"it was {('bad', 'good')[label]}" for label in classes]
    train = [TextExample(text, None, label) for text, label in zip(texts, classes, strict=True)]
    for most_texts in (18, 9):
        assert GLUE["sst2"].word_baseline(train, train, most_texts) == {"accuracy": 1.0}


def test_the_constant_answer_with_most_f1_is_the_positive_class():
    train = [TextExample("a", "b", target) for target in (0, 0, 1)]
    scores = GLUE["qqp"].baseline(train, train)
    assert scores == {"f1": pytest.approx(1 / 2), "accuracy": pytest.approx(2 / 3)}


def test_a_first_row_without_a_label_or_its_column_is_no_reason_to_refuse_the_others(tmp_path):
    rows = [{"text": "a"}, {"text": "a", "label": None}]
    rows += [{"text": name, "label": [name]} for name in ("a", "b")]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    task = classify(write(tmp_path / "a.jsonl", lines))
    assert task.labels == ("a", "b")
    assert task.has_lists


def classify(path: Path, **options):
    return classify_task([path], TaskOptions(**options))


@pytest.mark.parametrize(
    ("labels", "chosen", "names", "refused"),
    [
        ("'yes' 'yes' 'no' 'no'", "matthews", ["matthews", "accuracy", "macro_f1"], "f1"),
        ("0.5 1.5", "pearson", ["pearson", "spearman", "rmse", "r2"], "rmse"),
        ("['a','b'] ['a']", "macro_f1", ["macro_f1", "micro_f1"], "accurracy"),
    ],
)
def test_a_metric_that_suits_the_labels_can_be_named_for_ones_own_table(
    tmp_path, labels, chosen, names, refused
):
    lines = [f'{{"text": "x", "label": {label}}}\n' for label in labels.replace("'", '"').split()]
    path = write(tmp_path / "a.jsonl", "".join(lines))
    usual = classify(path)
    task = classify(path, metric=chosen)
    examples = list(task.read(path, True))
    # The first one chooses between runs.
    assert list(task.baseline(examples, examples)) == list(task.metrics) == names
    assert restore_task(json.loads(json.dumps(task.settings()))) == task
    assert "metric" not in usual.settings()
    with pytest.raises(UserError, match=f"`metric` is '{refused}'.* {chosen}"):
        replace(task, metric=refused)
    with pytest.raises(UserError, match=r"`metric`.* sst2"):
        replace(GLUE["sst2"], metric="accuracy")


@pytest.mark.parametrize(
    ("rows", "advice"),
    [([("a", 6), ("b", 2)], ""), ([("b", 2), ("a", 7)], "(7 rows are 'a', 2 'b'): read macro F1")],
)
def test_a_class_over_three_times_the_smallest_is_said(tmp_path, capsys, rows, advice):
    labels = [label for label, number in rows for _ in range(number)]
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"x,{label}\n" for label in labels))
    classify(path)
    said = capsys.readouterr().err
    assert advice in said and ("unbalanced" in said) == bool(advice)
    classify(path, metric="accuracy")
    assert "unbalanced" not in capsys.readouterr().err


LOGITS = torch.tensor([[0.5, 1.0], [2.0, -1.0], [0.0, 0.5], [1.5, 0.0], [0.3, 0.1]])


@pytest.mark.parametrize(
    ("has_lists", "targets"), [(False, [0, 0, 1, 0, 0]), (True, [(0,), (0, 1), (0,), (0,), ()])]
)
def test_a_balanced_loss_is_that_of_other_libraries_however_it_is_divided(
    has_lists, targets, checkpoint
):
    task = Classification(
        name="classify", text=("text",), labels=("no", "yes"), has_lists=has_lists
    )
    task = replace(task, class_weights="balanced")
    examples = [TextExample("a", None, target) for target in targets]
    checkpoint = Checkpoint.open(checkpoint)
    features = task.encode(examples, checkpoint.text_tokenizer(24))
    model = task.model(checkpoint.shape)
    task.weigh_classes(model, features)
    batch = make_batch(features)
    assert batch.target is not None
    if has_lists:
        # The yes of a class counts as much as all its no: 4 to 1, and 1 to 4.
        weights_K = torch.tensor([1 / 4, 4 / 1])
        loss = torch.nn.BCEWithLogitsLoss(pos_weight=weights_K)(LOGITS, batch.target)
    else:
        weights_K = compute_class_weight("balanced", classes=np.arange(2), y=targets)
        weights = torch.tensor(weights_K).float()
        loss = torch.nn.CrossEntropyLoss(weights, reduction="sum")(LOGITS, batch.target) / 5
    torch.testing.assert_close(model.loss(LOGITS, batch), loss)
    parts = [slice(0, 2), slice(2, 5)]
    losses = [model.loss(LOGITS[part], make_batch(features[part])) for part in parts]
    torch.testing.assert_close(losses[0] * 2 / 5 + losses[1] * 3 / 5, loss)


def test_weights_of_classes_are_refused_where_they_would_do_nothing():
    with pytest.raises(UserError, match=r"`class_weights` is for classes; these labels are scores"):
        Classification(name="classify", text=("text",), class_weights="balanced")
    task = replace(GLUE["sst2"], class_weights="balanced")
    with pytest.raises(UserError, match=r"needs a SequenceClassifier; Linear is none"):
        task.weigh_classes(torch.nn.Linear(1, 1), [])


def test_a_column_names_groups_and_is_needed_for_training_alone(tmp_path):
    rows = "text,label,author\na,x,Ann\nb,y,Ben\nc,x,\na,y,Ben\n"
    path = write(tmp_path / "a.csv", rows)
    task = classify(path, group="author")
    assert [task.group(example) for example in task.read(path, True)] == ["Ann", "Ben", "Ben"]
    saved = restore_task(json.loads(json.dumps(task.settings())))
    assert saved == replace(task, group_column=None)
    with pytest.raises(UserError, match=r"no column 'writer', only text, label, author"):
        classify(path, group="writer")


def test_classes_of_a_table_of_the_users_own(tmp_path):
    words = write(tmp_path / "a.csv", "id,text,label\n1,x,no\n2,y,yes\n3,z,no\n4,z,no\n")
    task = classify(words)
    assert task.labels == ("no", "yes")
    assert [example.target for example in task.read(words, True)] == [0, 1, 0, 0]
    named = write(tmp_path / "b.tsv", "q\ta\tkind\n1\tx\t10\n2\ty\t9\n3\tz\t10\n4\tz\t9\n")
    task = classify(named, text="q,a", label="kind")
    assert task.labels == ("9", "10")
    assert next(task.read(named, True)) == TextExample("1", "x", 1)
    assert restore_task(json.loads(json.dumps(task.settings()))) == task


def test_scores_of_a_table_of_the_users_own_are_a_regression(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nx,1\ny,2.5\nz,3\nz,3.0\n")
    task = classify(path)
    assert task.labels == ()
    assert [example.target for example in task.read(path, True)] == [1, 2.5, 3, 3]
    for score, fault in (("inf", "not a number"), ("1e999", "but 1e30 is the limit")):
        with pytest.raises(UserError, match=f"line 2: the score is '{score}', {fault}"):
            list(task.read(write(tmp_path / "b.csv", f"text,label\nx,{score}\n"), True))
    whole = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": list("abcd"), "label": [1.0, 0.0, 1.0, 0.0]}), whole)
    assert classify(whole).labels == ("0", "1")


@pytest.mark.parametrize(
    "labels, classes",
    [
        (["pos", " neg", "pos ", "neg"], ["neg", "pos"]),
        (["caf\u00e9", "bar", "cafe\u0301", "bar"], ["bar", "caf\u00e9"]),
        ([2**53, 2**53 + 1, 2**53, 2**53 + 1], [str(2**53), str(2**53 + 1)]),
        ([["1", None], ["2.0 "], [1.0], [2]], ["1", "2"]),
    ],
)
def test_a_class_is_the_same_however_it_is_written(tmp_path, labels, classes):
    rows = [json.dumps({"text": "x", "label": label}) for label in labels]
    path = write(tmp_path / "TRAIN.JSONL", "\n".join(rows))
    assert classify(path).labels == tuple(classes)


@pytest.mark.parametrize(
    "content, message",
    [
        ("a,b\nx,1\n", "a.csv, line 2: there is no column 'text', only a, b; choose with"),
        ("text,label\n", "contains no rows"),
        ("text,label\nx,\ny,\n", "label holds 0 different labels in 0 rows, and training needs 2"),
        ("text, label\nx,1\n", "line 2: there is no column 'label', only text, ' label'; choose"),
        ("text,label\nx,1\ny,1\n", "a.csv: label holds 1 different labels in 2 rows, and training"),
        ("text,label\nx,p\ny,q\nz,r\n", "3 different labels in 3 rows, and training needs 2 to 2;"),
    ],
)
def test_tables_that_pose_no_task_are_refused(tmp_path, content, message):
    with pytest.raises(UserError) as error:
        classify(write(tmp_path / "a.csv", content))
    assert message in str(error.value)


def test_every_task_is_named_before_pytorch_is_loaded():
    assert tuple(KINDS) == TASK_NAMES


def test_unknown_tasks_and_columns_of_fixed_tasks_are_refused():
    with pytest.raises(UserError, match="There is no task 'sst'; did you mean sst2"):
        check_task("sst", TaskOptions())
    with pytest.raises(UserError, match="`text` is for classify; sst2 does not take it"):
        check_task("sst2", TaskOptions(text="b"))


def features_of(lengths: list[int], vocab_size: int, num_classes: int) -> list[Feature]:
    rng = np.random.default_rng(len(lengths))
    rows = (rng.integers(1, vocab_size, length).astype(np.int32) for length in lengths)
    dtype = np.float32 if num_classes == 1 else np.int64
    return [
        Feature(TokenRow(row, len(row) // 2), np.array(index % num_classes, dtype=dtype), index)
        for index, row in enumerate(rows)
    ]


@pytest.mark.parametrize("num_classes", [1, 2, 5])
def test_logits_loss_and_gradients_equal_transformers(num_classes):
    ours, theirs = make_pair(
        lambda config: SequenceClassifier(config, num_classes), num_labels=num_classes
    )
    batch = make_batch(features_of([3, 20, 11, 7], 60, num_classes))
    expected = theirs(
        batch.input_ids_BL, batch.attention_mask_BL, batch.token_type_ids_BL, labels=batch.target
    )
    logits = ours(batch)
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=1e-5)
    check_learning(ours, ours.loss(logits, batch), theirs, expected.loss)


def test_answers_are_probabilities(tmp_path):
    logits = [np.array(pair, dtype=np.float32) for pair in ([0.0, np.log(3)], [1000.0, 0.0])]
    first, second = GLUE["sst2"].answers(logits, features_of([2, 2], 60, 2), [])
    assert first["label"] == "positive"
    assert first["probabilities"] == pytest.approx({"negative": 0.25, "positive": 0.75})
    assert second["probabilities"]["negative"] == 1
    score = np.array([2.5], dtype=np.float32)
    assert GLUE["stsb"].answers([score], features_of([2], 60, 1), []) == [{"score": 2.5}]


def answers_of(task: Any) -> list[dict[str, Any]]:
    return [{"label": name} for name in task.labels] or [
        {"score": score} for score in (-0.5, 2.71828, 5.2)
    ]


@pytest.mark.parametrize(
    "name, file, predictions",
    [
        ("cola", "CoLA.tsv", ["0", "1"]),
        ("sst2", "SST-2.tsv", ["0", "1"]),
        ("mrpc", "MRPC.tsv", ["0", "1"]),
        ("qqp", "QQP.tsv", ["0", "1"]),
        ("stsb", "STS-B.tsv", ["0.000", "2.718", "5.000"]),
        ("mnli", "MNLI-m.tsv", ["entailment", "neutral", "contradiction"]),
        ("qnli", "QNLI.tsv", ["entailment", "not_entailment"]),
        ("rte", "RTE.tsv", ["entailment", "not_entailment"]),
        ("wnli", "WNLI.tsv", ["0", "1"]),
    ],
)
def test_files_for_the_glue_server(name, file, predictions):
    # Names and labels as gluebenchmark.com/faq and jiant's glue_submission_formatter.py have them.
    lines = ["index\tprediction", *(f"{index}\t{value}" for index, value in enumerate(predictions))]
    assert GLUE[name].official(answers_of(GLUE[name]), [], "test") == {
        file: ("\n".join(lines) + "\n").encode()
    }
    assert GLUE[name].official(answers_of(GLUE[name]), [], "dev") == {}


def test_mnli_has_two_files_for_the_server(tmp_path):
    answers = answers_of(GLUE["mnli"])
    assert list(GLUE["mnli"].official(answers, [], "test_mismatched")) == ["MNLI-mm.tsv"]
    own = classify(write(tmp_path / "a.csv", "text,label\nx,a\ny,b\nz,b\n"))
    assert own.official(answers, [], "test") == {}


def test_whole_numbers_are_classes_and_fractions_scores_and_it_is_said(tmp_path, capsys):
    path = write(tmp_path / "train.tsv", "text\tlabel\ngood\t5\nbad\t1\ndull\t1\nfine\t5\n")
    assert classify(path).labels == ("1", "5")
    assert "label holds 2 classes: 1, 5." in capsys.readouterr().err
    write(path, "text\tlabel\ngood\t5.5\nbad\t1\n")
    task = classify(path)
    assert task.labels == ()
    assert [example.target for example in task.read(path, True)] == [5.5, 1]
    assert "label holds numbers with fractions: they are scores" in capsys.readouterr().err


def test_long_texts_are_read_in_windows_whose_logits_are_averaged(tmp_path, checkpoint):
    path = write(tmp_path / "a.csv", "text,label\n" + "the film was very,1\nbad,0\n" * 2)
    task = classify_task([path], TaskOptions(max_length=8, stride=3))
    assert restore_task(json.loads(json.dumps(task.settings()))) == task
    tokenizer = TextTokenizer(checkpoint)
    words = "the film was very good the film was bad"
    examples = [TextExample(words, None, 1), TextExample("bad", None, 0)]
    features = task.encode(examples, tokenizer)
    assert [feature.example for feature in features] == [0, 0, 1]
    assert [feature.row.num_cut for feature in features] == [0, 0, 0]
    inside = [feature.row.input_ids[1:-1].tolist() for feature in features[:2]]
    expected = [word for (word,) in tokenizer.token_ids(words.split())]
    assert inside == [expected[:6], expected[3:9]]
    logits = [np.array(values, dtype=np.float32) for values in ([0, 4], [1, 0], [1, 0])]
    assert [answer["label"] for answer in task.answers(logits, features, examples)] == ["1", "0"]
    with pytest.raises(UserError, match="`stride` makes windows of single texts"):
        classify_task([path], TaskOptions(text="text,label", stride=3))
