"""Multiple choice: SWAG's and CODAH's files, rows, parity with transformers, and training end to
end.
"""

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from clozeworks.model.finetuning.evaluate import evaluate_task
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import predict
from clozeworks.model.tasks.batches import Feature, make_batch
from clozeworks.model.tasks.catalogue import restore_task
from clozeworks.model.tasks.choice import Choice, ChoiceModel, Choices, read_choice
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.splits import read_data
from clozeworks.model.tokenizer import TextTokenizer, TokenRow
from clozeworks.pipeline.errors import UserError

from tests.fixtures.finetune_fixture import quick
from tests.fixtures.parity_fixture import check_learning, make_pair
from tests.fixtures.shared_data import DATA, needs_shared_data
from tests.fixtures.task_files import write_lines

SWAG_DATA = DATA / "swag"
COLUMNS = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)
LINE = '0,v-1,7,"He sits. He","He sits.",He,gold,"stands, up.",sits.,"says ""no"".",runs.,2'
CODAH = "o\tI am hungry. I\teat.\tfly away.\tsing\tsit\t0\n"


def read(path: Path, labelled: bool = True) -> list[Choices]:
    return list(read_choice([path], TaskOptions()).read(path, labelled))


def test_swag_s_own_columns(tmp_path):
    expected = Choices("He sits.", ("He stands, up.", "He sits.", 'He says "no".', "He runs."), 2)
    path = write_lines(tmp_path / "train.csv", COLUMNS, LINE)
    assert read(path) == [expected]
    unlabelled = write_lines(
        tmp_path / "test.csv", COLUMNS.removesuffix(",label"), LINE.removesuffix(",2")
    )
    task = Choice(num_choices=4)
    assert list(task.read(unlabelled, labelled=False)) == [expected._replace(target=None)]
    with path.open(newline="") as file:
        row = next(csv.DictReader(file))
    pq.write_table(pa.Table.from_pylist([{**row, "label": 2}]), tmp_path / "a.parquet")
    write_lines(tmp_path / "a.jsonl", json.dumps({**row, "label": 2.0}))
    assert read(tmp_path / "a.parquet") == read(tmp_path / "a.jsonl") == [expected]


def test_codah_s_lines_have_no_names(tmp_path):
    path = write_lines(tmp_path / "train.tsv", CODAH.strip())
    assert read(path) == [Choices("I am hungry. I", ("eat.", "fly away.", "sing", "sit"), 0)]
    unlabelled = write_lines(tmp_path / "test.tsv", CODAH.strip().removesuffix("\t0"))
    (example,) = Choice(num_choices=4).read(unlabelled, labelled=False)
    assert (example.endings[-1], example.target) == ("sit", None)
    (example,) = Choice(num_choices=4).read(path, labelled=False)
    assert (example.endings[-1], example.target) == ("sit", None)
    named = write_lines(tmp_path / "named.tsv", "prompt\tending0\tending1\tlabel", "a\tb\tc\t1")
    assert read(named) == [Choices("a", ("b", "c"), 1)]


def test_any_number_of_choices_from_two_on(tmp_path):
    for number in (2, 3, 12):
        endings = ",".join(f"ending{index}" for index in range(number))
        path = write_lines(
            tmp_path / "a.csv",
            f"startphrase,{endings},label",
            "p," + "x," * (number - 1) + f"y,{number - 1}",
        )
        task = read_choice([path], TaskOptions(max_length=30))
        assert (task.num_choices, task.max_length) == (number, 30)
        (example,) = task.read(path, True)
        # In the order of their numbers: ending10 comes after ending9.
        assert example == Choices("p", ("x",) * (number - 1) + ("y",), number - 1)
        assert restore_task(json.loads(json.dumps(task.settings()))) == task


@pytest.mark.parametrize(
    "name, lines, message",
    [
        (
            "a.csv",
            ["startphrase,ending0,label", "a,b,0"],
            "line 2 lacks the columns ending0, ending1, …; it has",
        ),
        ("a.csv", ["startphrase,ending0,ending1,label"], "a.csv contains no rows"),
        (
            "a.csv",
            ["text,ending0,ending1,label", "a,b,c,0"],
            "line 2: there is no column startphrase, only text",
        ),
        (
            "a.csv",
            ["sent1,ending0,ending1,label", "a,b,c,0"],
            "a.csv, line 2: there is no column sent2",
        ),
        (
            "a.csv",
            ["startphrase,ending0,ending1", "a,b,c"],
            "a.csv, line 2: there is no column label",
        ),
        (
            "a.csv",
            [COLUMNS, LINE[:-1] + "4"],
            "a.csv, line 2: the label is '4', not an ending (0 to 3)",
        ),
        ("a.csv", [COLUMNS, LINE[:-1]], "a.csv, line 2: the label in label is empty"),
        ("a.csv", [COLUMNS, LINE[:-1] + "-1"], "the label is '-1'"),
        (
            "a.csv",
            [COLUMNS, LINE, LINE + ",5"],
            "a.csv, line 3: the number of columns is 13, not 12",
        ),
        (
            "a.tsv",
            [CODAH.strip(), CODAH.strip() + "\t1"],
            "a.tsv, line 2: the number of columns is 8, not 7",
        ),
        (
            "a.tsv",
            [CODAH.strip(), CODAH.strip().removesuffix("\t0")],
            "line 2: the number of columns is 6, not 7",
        ),
        (
            "a.tsv",
            [CODAH.strip().removesuffix("\t0")],
            "a.tsv, line 1: the label is 'sit', not an ending (0 to 2)",
        ),
        (
            "a.tsv",
            ["o\ta"],
            "line 1: the number of columns is 2, not 5 (category, prompt, ending0, ending1, label)",
        ),
        (
            "a.csv",
            ["sent1,sent2,ending1,ending2,label", "a,b,c,d,1"],
            "a.csv, line 2: there is no column ending0",
        ),
        (
            "a.csv",
            ["sent1,sent2,ending0,ending2,label", "a,b,c,d,1"],
            "a.csv, line 2: there is no column ending1",
        ),
        (
            "a.jsonl",
            ['{"startphrase": "a", "ending0": "b", "ending1": null, "label": 0}'],
            "the text in ending1 is empty",
        ),
    ],
)
def test_bad_rows_are_named(tmp_path, name, lines, message):
    with pytest.raises(UserError) as error:
        read(write_lines(tmp_path / name, *lines))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_unusable_rows_are_left_out_and_counted(tmp_path, capsys):
    bad = [
        LINE.replace("runs.", ""),
        LINE[:-1],
        LINE[:-1] + "4",
        LINE.replace('"He sits.",He', " ,He"),
        LINE.replace("sits.,", " ,"),
    ]
    path = write_lines(tmp_path / "a.csv", COLUMNS, bad[0], LINE, *bad[1:], LINE)
    assert len(read(path)) == 2  # of four endings, although the first row has three
    told = capsys.readouterr().err
    for count, reason in (
        (1, "with another number of endings"),
        (1, "without a label"),
        (1, "whose label is not an ending"),
        (2, "without a text or an ending"),
    ):
        assert f"Left out {count} of 7 rows ({reason}); the first: {path}, line " in told
    # A row to predict needs an answer, so none may be left out.
    assert len(read(write_lines(tmp_path / "b.csv", COLUMNS, LINE, *bad[1:]), labelled=False)) == 5
    with pytest.raises(UserError, match="line 2: the number of endings is 3, not 4"):
        list(Choice(num_choices=4).read(path, labelled=False))


def test_lines_of_plain_text():
    task = Choice(num_choices=2)
    assert task.parse_line("a b\tc\td", "line 1") == Choices("a b", ("c", "d"), None)
    with pytest.raises(UserError, match=r"line 9: write a text and 2 endings, separated by tabs\."):
        task.parse_line("a b\tc", "line 9")


def test_each_choice_is_a_row_as_transformers_makes_it(checkpoint):
    ours, theirs = TextTokenizer(checkpoint), transformers.AutoTokenizer.from_pretrained(checkpoint)
    examples = [
        Choices("the film", ("was good", "was very dull [SEP]"), 1),
        Choices("a", ("b", "b " * 30), None),
    ]
    features = Choice(num_choices=2, max_length=16).encode(examples, ours)
    assert [feature.target for feature in features] == [np.array(1), None]
    for example, feature in zip(examples, features, strict=True):
        for ending, row in zip(example.endings, feature.rows, strict=True):
            # The one text with a special token in it: for us that is text.
            if "[SEP]" in ending:
                assert np.count_nonzero(row.input_ids == 3) == 2
                continue
            expected = theirs(example.text, ending, truncation=True, max_length=16)
            assert row.input_ids.tolist() == expected["input_ids"]
            types = [int(position >= row.segment_b_start) for position in range(len(row.input_ids))]
            assert types == expected["token_type_ids"]


@pytest.mark.parametrize("num_choices", [2, 4])
def test_logits_loss_and_gradients_equal_transformers(num_choices):
    ours, theirs = make_pair(lambda config: ChoiceModel(config, num_choices))
    rng = np.random.default_rng(0)
    features = [
        Feature(
            tuple(
                TokenRow(rng.integers(1, 60, rng.integers(5, 20)).astype(np.int32), 3)
                for _ in range(num_choices)
            ),
            np.array(index % num_choices),
            index,
        )
        for index in range(3)
    ]
    batch = make_batch(features)
    parts = (batch.input_ids_BL, batch.attention_mask_BL, batch.token_type_ids_BL)
    expected = theirs(*(part.view(3, num_choices, -1) for part in parts), labels=batch.target)
    logits = ours(batch)
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=1e-5)
    check_learning(ours, ours.loss(logits, batch), theirs, expected.loss)


def test_accuracy_baseline_and_probabilities():
    examples = [Choices("a", ("b", "c"), target) for target in (1, 1, 0)]
    task = Choice(num_choices=2)
    outputs = [np.array([0, np.log(3)]), np.array([1000.0, 0]), np.array([1.0, 0])]
    assert task.scores(outputs, [], examples) == {"accuracy": pytest.approx(2 / 3)}
    assert task.baseline(examples[:2], examples) == {"accuracy": pytest.approx(2 / 3)}
    first, second, _ = task.answers(outputs, [], examples)
    assert first == {
        "label": 1,
        "probabilities": {"0": pytest.approx(0.25), "1": pytest.approx(0.75)},
    }
    assert second == {"label": 0, "probabilities": {"0": 1.0, "1": 0.0}}
    assert task.official([first], examples, "test") == {}


def stories(num: int, seed: int) -> list[str]:
    """Return lines of CODAH's form: the right one of three endings has the letter of the prompt."""
    draw = random.Random(seed)
    lines = []
    for _ in range(num):
        letters = draw.sample("bcde", 3)
        target = draw.randrange(3)
        endings = (
            " ".join(draw.choices(["was", "very", "good"], k=2)) + f" {letter}"
            for letter in letters
        )
        lines.append("\t".join(["o", f"the film {letters[target]}", *endings, str(target)]))
    return lines


@pytest.fixture(scope="module")
def trained(tmp_path_factory, checkpoint) -> tuple[Path, Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("choice")
    write_lines(folder / "data" / "train.tsv", *stories(240, 1))
    write_lines(folder / "data" / "dev.tsv", *stories(60, 2))
    summary = finetune(
        "swag",
        folder / "data",
        checkpoint,
        folder / "run",
        quick(epochs=10, learning_rates=(2e-3,)),
    )
    return folder / "data", folder / "run", summary


@pytest.mark.slow
def test_it_learns_and_transformers_gives_the_same_probabilities(trained, tmp_path):
    data, output, summary = trained
    assert summary["best"]["scores"]["accuracy"] > 0.8 > 1.6 * summary["baseline"]["accuracy"]
    measured = evaluate_task(output, data, "cpu")
    assert measured.pop("baseline_accuracy") >= summary["baseline"]["accuracy"]
    assert measured == {"examples": 60, **summary["best"]["scores"]}
    model = transformers.AutoModelForMultipleChoice.from_pretrained(output).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    assert type(model).__name__ == "BertForMultipleChoice"
    assert predict(output, data / "dev.tsv", tmp_path / "out.jsonl", "cpu") == 60
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for answer, line in zip(answers[:5], (data / "dev.tsv").read_text().splitlines(), strict=False):
        _, prompt, *endings, _ = line.split("\t")
        encoded = tokenizer([prompt] * 3, endings, padding=True, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**{name: part[None] for name, part in encoded.items()}).logits
        assert list(answer["probabilities"].values()) == pytest.approx(
            logits.softmax(-1)[0].tolist(), abs=1e-5
        )
        assert answer["label"] == logits.argmax().item()


def test_plain_text_and_other_numbers_of_choices(trained, tmp_path):
    _, output, _ = trained
    write_lines(tmp_path / "new.txt", "the film b\tvery c\tvery b\tvery d")
    assert predict(output, tmp_path / "new.txt", tmp_path / "out.tsv", "cpu") == 1
    header = (tmp_path / "out.tsv").read_text().splitlines()[0]
    assert header == "text\tending0\tending1\tending2\tlabel\t0\t1\t2"
    four = write_lines(tmp_path / "four.tsv", CODAH.strip())
    with pytest.raises(UserError, match=r"four\.tsv, line 1: the number of endings is 4, not 3"):
        predict(output, four, tmp_path / "out.tsv", "cpu")


@needs_shared_data
def test_all_of_codah_and_swag_is_read():
    codah = SWAG_DATA / "codah" / "full_data.tsv"
    data = read_data("swag", codah, TaskOptions())
    assert len(data.train) + len(data.dev[""]) == 2776
    assert data.held_out
    assert not {example.text for example in data.train} & {example.text for example in data.dev[""]}
    examples = read(SWAG_DATA / "swag-sample-100.csv")
    assert len(examples) == 91
    assert {len(example.endings) for example in examples} == {4}
    assert examples[0].endings[0] == "She pats her shoulder, then saunters toward someone."


@needs_shared_data
def test_a_slice_of_swag_end_to_end(checkpoint, tmp_path):
    with (SWAG_DATA / "swag-sample-100.csv").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    write_lines(tmp_path / "data" / "train.csv", *lines[:25])
    # The official name.
    write_lines(tmp_path / "data" / "val.csv", lines[0], *lines[25:35])
    config = quick(epochs=1, learning_rates=(1e-3,), max_length=64)
    summary = finetune("swag", tmp_path / "data", checkpoint, tmp_path / "run", config)
    assert (summary["train_examples"], summary["dev_examples"]) == (24, 10)
    test = SWAG_DATA / "swag-sample-test.csv"
    assert predict(tmp_path / "run", test, tmp_path / "out.tsv", "cpu") == len(read(test))
