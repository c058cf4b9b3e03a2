"""How the files of a data set give its splits, and what is held out or found in both."""

import json
from collections import Counter
from dataclasses import replace
from itertools import compress
from typing import Any

import pytest
from clozeworks.model.tasks.classify import Classification, TextExample
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.splits import (
    TaskSplits,
    dev_sets,
    find_splits,
    group_keys,
    hold_out,
    read_data,
    repeats,
)
from clozeworks.pipeline.errors import UserError
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.task_files import write, write_lines


def test_texts_of_one_kind_cannot_be_held_out():
    with pytest.raises(UserError, match=r"All examples in a\.csv share one text or group, so none"):
        hold_out(["a", "a"], [0, 1], "a.csv")


def test_the_names_of_files_give_the_splits(tmp_path):
    names = [f"{split}.tsv" for split in ("train", "dev", "test")]
    for name in (*names, "dev_ids.tsv", "msr_paraphrase_train.csv", "notes.md", "x.tsv"):
        write(tmp_path / name, "")
    splits = find_splits(tmp_path)
    assert [[path.name for path in splits[split]] for split in ("train", "dev", "test")] == [
        [name] for name in names
    ]


def test_splits_in_several_files_and_words_that_hold_the_name(tmp_path):
    parts = [f"validation-0000{number}-of-00002.parquet" for number in range(2)]
    names = ["wnut17train.csv", *parts]
    for name in (*names, "evaluation.tsv", "values.tsv", "latest.tsv", "constraints.tsv"):
        write(tmp_path / name, "")
    splits = find_splits(tmp_path)
    assert [path.name for path in splits["train"]] == names[:1]
    assert [path.name for path in splits["dev"]] == names[1:]
    assert splits.keys() == {"train", "dev"}
    write(tmp_path / "sets" / "trainset.csv", "")
    write(tmp_path / "sets" / "devset.csv", "")
    assert find_splits(tmp_path / "sets").keys() == {"train", "dev"}
    write(tmp_path / "train-dev.tsv", "")
    with pytest.raises(UserError, match=r"train-dev.tsv names more than one of train, dev and"):
        find_splits(tmp_path)
    (tmp_path / "train-dev.tsv").unlink()
    write(tmp_path / "wnut17train2.CSV", "")
    assert len(find_splits(tmp_path)["train"]) == 2
    write(tmp_path / "wnut17train.tsv", "")
    with pytest.raises(UserError, match=r"train\.csv and wnut17train\.tsv are both for train;"):
        find_splits(tmp_path)


def test_the_digest_of_the_data_says_which_files_are_for_training(tmp_path):
    for folder, names in (("one", ("train-1", "train-2")), ("two", ("train", "dev"))):
        for number, name in enumerate(names):
            write(
                tmp_path / folder / f"{name}.tsv",
                f"sentence\tlabel\ngood {number}\t1\nbad {number}\t0\n",
            )
    one, two = (read_data("sst2", tmp_path / folder, TaskOptions()) for folder in ("one", "two"))
    assert (one.held_out, two.held_out) == (True, False)
    assert one.digest() != two.digest()


def test_mnli_has_two_dev_sets(tmp_path):
    for name in ("train", "dev_matched", "dev_mismatched", "test_matched"):
        write(tmp_path / f"{name}.tsv", "")
    found = dev_sets(find_splits(tmp_path))
    names = {prefix: [path.stem for path in paths] for prefix, paths in found.items()}
    assert names == {"": ["dev_matched"], "mismatched_": ["dev_mismatched"]}


def test_folders_without_a_split_are_refused(tmp_path):
    write(tmp_path / "reviews.csv", "")
    with pytest.raises(UserError, match="contains no file with train, dev or test in its name"):
        find_splits(tmp_path)
    assert find_splits(tmp_path / "reviews.csv") == {"train": [tmp_path / "reviews.csv"]}
    with pytest.raises(UserError, match="does not exist"):
        find_splits(tmp_path / "none")


@given(
    st.lists(st.integers(0, 300), min_size=2, max_size=200).filter(
        lambda numbers: len(set(numbers)) > 1
    )
)
def test_held_out_examples_share_no_text_with_the_others(numbers):
    is_dev = hold_out([str(number) for number in numbers], [None] * len(numbers), "a.csv")
    dev = set(compress(numbers, is_dev))
    train = {number for number, is_out in zip(numbers, is_dev, strict=True) if not is_out}
    assert not train & dev
    assert len(dev) == max(1, round(0.1 * len(set(numbers))))


def test_a_tenth_of_each_class_is_held_out():
    examples = [TextExample(f"text {i}", None, float(i % 10 == 0)) for i in range(400)]
    task = Classification(name="classify", text=("text",), labels=("no", "yes"))
    dev = held_out(task, examples)
    assert Counter(example.target for example in dev) == {0: 36, 1: 4}
    # Nearly all keep their side when others are added.
    more = [*examples, *(TextExample(f"new {i}", None, 0.0) for i in range(40))]
    assert len(dev - held_out(task, more)) <= 4


def held_out(task: Classification, examples: list[TextExample]) -> set[TextExample]:
    keys = [task.group(example) for example in examples]
    strata = [task.stratum(example) for example in examples]
    return set(compress(examples, hold_out(keys, strata, "a.csv")))


def repeats_of(task: Any, train: list[Any], dev: list[Any]) -> list[str]:
    return [
        notice.split(" of ")[0] for notice in repeats(TaskSplits(task, train, {"": dev}, {}, False))
    ]


def test_repeats_and_contradictions_are_counted():
    task = Classification(name="classify", text=("text",), labels=("no", "yes"))
    texts = ("good", "good", "dull", "dull", "dull", "bad")
    train = [
        TextExample(text, None, int(n % 2))
        for n, text in zip((1, 1, 0, 1, 1, 0), texts, strict=True)
    ]
    dev = [TextExample("bad", None, 0), TextExample("very", None, 0)]
    assert repeats(TaskSplits(task, train, {"": dev}, {}, False)) == [
        "2 of 6 training examples repeat another exactly: they count twice.",
        "3 of 6 training examples have the text of another, but not its label, for example 'dull': "
        "no model can learn both.",
        "1 of 2 dev examples are training examples too, which flatters the scores.",
    ]
    # So are those of scores, and of sets of labels.
    scores = Classification(name="stsb", text=("text",))
    assert repeats_of(scores, train, dev) == ["2", "3", "1"]
    labels = Classification(name="classify", text=("text",), labels=("a", "b"), has_lists=True)
    tagged = [TextExample("good", None, target) for target in ((0, 1), (0, 1), ())]
    assert repeats_of(labels, tagged, []) == ["1", "3"]


def test_texts_with_the_same_words_and_swapped_pairs_are_in_both():
    task = Classification(name="classify", text=("a",), text_pair=("b",), labels=("no", "yes"))
    train = [TextExample("a film", "the book", 0), TextExample("A  FILM", "the book", 1)]
    pairs = (("The book", "a  film"), ("the book", "the book"), ("a film", "bad"))
    dev = [TextExample(*pair, 0) for pair in pairs]
    assert repeats_of(task, train, dev) == ["2", "1"]


def test_texts_of_other_case_and_swapped_pairs_are_held_out_together():
    single = Classification(name="classify", text=("text",), labels=("no", "yes"))
    examples = [TextExample(text, None, 0) for text in ("Good Film", "good  film", "bad")]
    assert group_keys(single, examples) == ["Good Film", "Good Film", "bad"]
    pairs = replace(single, text_pair=("other",))
    examples = [TextExample("a", "b", 0), TextExample("b", "A", 0), TextExample("b", "c", 0)]
    assert group_keys(pairs, examples) == ["a", "a", "b"]


def test_the_rows_of_an_author_are_on_one_side_and_a_rare_class_is_on_both(tmp_path):
    lines = []
    for author in range(40):
        for number in range(5):
            # Authors 0 to 19 complain once each; all write the same last text.
            label = "complaint" if number == 3 and author < 20 else "praise"
            text = f"text {author} {number}" if number < 4 else "no findings"
            lines.append(f"author {author},{text},{label}")
    write_lines(tmp_path / "a.csv", "author,text,label", *lines)
    data = read_data("classify", tmp_path / "a.csv", TaskOptions(group="author"))
    dev = data.dev[""]
    trained, held_out = (set(map(data.task.group, side)) for side in (data.train, dev))
    assert (len(trained), len(held_out)) == (36, 4) and not trained & held_out
    assert len(dev) == 20
    assert Counter(map(data.task.truth, dev)) == {"praise": 18, "complaint": 2}
    assert repeats(data)[-1].startswith("4 of 20 dev examples are training examples too")
    write_lines(tmp_path / "split" / "train.csv", "author,text,label", *lines)
    write_lines(tmp_path / "split" / "dev.csv", "author,text,label", lines[0])
    with pytest.raises(UserError, match=r"`group` divides data that have no dev file, but .*split"):
        read_data("classify", tmp_path / "split", TaskOptions(group="author"))


def test_a_question_about_another_passage_is_no_repeat(tmp_path):
    lines = []
    for name in ("Ann", "Ben"):
        answers = {"text": [name], "answer_start": [0]}
        row = {"id": name, "question": "Who?", "context": name, "answers": answers}
        lines.append(json.dumps(row) + "\n")
    (tmp_path / "train.jsonl").write_text("".join(lines))
    data = read_data("squad", tmp_path / "train.jsonl", TaskOptions())
    examples = [*data.train, *data.dev[""]]
    assert len(examples) == 2
    assert not repeats_of(data.task, examples, examples)
