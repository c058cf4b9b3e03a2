"""How a task's files are found and read, and how its examples become tensors."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import compress, product
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from checkpoint_fixture import make_checkpoint
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.tasks import word_baseline
from clozeworks.model.tasks.batches import Feature, make_batch
from clozeworks.model.tasks.catalogue import (
    TASKS,
    find_entry,
    read_task,
    restore_task,
    task_settings,
)
from clozeworks.model.tasks.classify import Classification, read_classify
from clozeworks.model.tasks.glue import GLUE
from clozeworks.model.tasks.label_head import SequenceClassifier
from clozeworks.model.tasks.multilabel import MultiLabel
from clozeworks.model.tasks.options import TASK_OPTIONS, TaskOptions, check_task
from clozeworks.model.tasks.repeats import Repeats, find_repeats
from clozeworks.model.tasks.similarity import Similarity, TextGroup
from clozeworks.model.tasks.splits import (
    dev_sets,
    find_splits,
    group_keys,
    hold_out,
    read_data,
    single_file,
)
from clozeworks.model.tasks.tables import read_rows
from clozeworks.model.tasks.text_table import TextExample
from clozeworks.model.tokenizer import TextTokenizer, TokenRow, cut_lengths, tokenizer_files
from clozeworks.pipeline.errors import UserError
from hypothesis import given
from hypothesis import strategies as st
from parity_fixture import check_learning
from shared_data import DATA, needs_shared_data
from sklearn.utils.class_weight import compute_class_weight

GLUE_DATA = DATA / "glue"

SST2 = (
    "sentence\tlabel\n"
    "it 's a charming and often affecting journey . \t1\n"
    "unflinchingly bleak and desperate \t0\n"
)
MRPC = (
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    "1\t1355540\t1355592\tHe said the pie business doesn 't fit .\t"
    '" The pie business does not fit .\n'
    "0\t2029631\t2029565\tMagnarelli said so .\t"
    'His wife said he was " 100 percent behind George Bush " .\r\n'
)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint")


def read(name: str, path: Path, labelled: bool = True) -> list[TextExample]:
    return list(GLUE[name].read(path, labelled))


def test_sst2_and_mrpc_as_they_are(tmp_path):
    assert read("sst2", write(tmp_path / "train.tsv", SST2)) == [
        TextExample("it 's a charming and often affecting journey . ", None, 1),
        TextExample("unflinchingly bleak and desperate ", None, 0),
    ]
    assert read("mrpc", write(tmp_path / "dev.tsv", MRPC)) == [
        TextExample(
            "He said the pie business doesn 't fit .", '" The pie business does not fit .', 1
        ),
        TextExample(
            "Magnarelli said so .", 'His wife said he was " 100 percent behind George Bush " .', 0
        ),
    ]


def test_cola_has_a_line_of_names_only_in_its_test_file(tmp_path):
    train = write(tmp_path / "train.tsv", "gj04\t0\t*\tThey drank the pub.\n")
    assert read("cola", train) == [TextExample("They drank the pub.", None, 0)]
    test = write(tmp_path / "test.tsv", "index\tsentence\n0\tBill whistled past the house.\n")
    assert read("cola", test, labelled=False) == [
        TextExample("Bill whistled past the house.", None, None)
    ]


def test_numbered_classes_of_the_hub_mean_the_same_as_the_names_of_the_official_files(tmp_path):
    official = write(
        tmp_path / "a.tsv", "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tnot_entailment\n"
    )
    row = {"question": "Who?", "sentence": "He.", "label": 1, "idx": 0}
    lines = write(tmp_path / "a.jsonl", json.dumps(row) + "\n")
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    assert read("qnli", official) == read("qnli", lines) == read("qnli", tmp_path / "a.parquet")
    # The order of the classes is the hub's, so that its numbers mean the same in a model's
    # config.json.
    assert GLUE["mnli"].labels == ("entailment", "neutral", "contradiction")


@needs_shared_data
@pytest.mark.parametrize(
    "name, folder",
    [
        ("cola", "CoLA"),
        ("sst2", "SST-2"),
        ("mrpc", "MRPC"),
        ("stsb", "STS-B"),
        ("rte", "RTE"),
        ("wnli", "WNLI"),
    ],
)
def test_every_line_of_the_official_files_is_an_example(name, folder):
    sizes = {
        "cola": (8551, 1043, 1063),
        "sst2": (67349, 872, 1821),
        "mrpc": (3667, 408, 1725),
        "stsb": (5749, 1500, 1379),
        "rte": (2490, 277, 3000),
        "wnli": (635, 71, 146),
    }
    splits = find_splits(GLUE_DATA / folder)
    train, dev, test = (
        read(name, splits[split][0], split != "test") for split in ("train", "dev", "test")
    )
    assert (len(train), len(dev), len(test)) == sizes[name]
    num_labels = len(GLUE[name].labels)
    assert {example.target for example in train} == set(range(num_labels)) or name == "stsb"
    assert all(
        0 <= (example.target or 0) <= (num_labels - 1 if num_labels else 5) for example in dev
    )
    assert all(
        example.text_pair if GLUE[name].text_pair else example.text_pair is None
        for example in train
    )


def test_csv_has_quotes_and_tsv_has_none(tmp_path):
    csv = write(
        tmp_path / "a.csv", '\ufeffsentence,label\r\n"two\nlines, ""quoted""",1\r\n\r\nplain,0\r\n'
    )
    assert [row.values["sentence"] for row in read_rows(csv)] == ['two\nlines, "quoted"', "plain"]
    assert [row.where for row in read_rows(csv)] == [f"{csv}, line 3", f"{csv}, line 5"]
    tsv = write(tmp_path / "a.tsv", 'sentence\tlabel\n"open\t1\nline\u2028separator\x85\t0\n')
    assert [row.values["sentence"] for row in read_rows(tsv)] == [
        '"open',
        "line\u2028separator\x85",
    ]


@pytest.mark.parametrize(
    "file, content, message",
    [
        (
            "a.tsv",
            "sentence\tlabel\nfine\t1\nshort\n",
            "a.tsv, line 3: the number of columns is 1, not 2 (se",
        ),
        (
            "a.tsv",
            "sentence\tlabel\nfine\t1\textra\n",
            "a.tsv, line 2: the number of columns is 3, not 2",
        ),
        (
            "a.tsv",
            "sentence\tlabel\nfine\tmaybe\n",
            "a.tsv, line 2: the label 'maybe' in label is not one of neg",
        ),
        ("a.tsv", "sentence\tlabel\nfine\t-1\n", "line 2: the label '-1'"),
        ("a.tsv", "sentence\tlabel\nfine\t\n", "a.tsv, line 2: the label in label is empty"),
        (
            "a.tsv",
            "sentence\tlabel\tlabel\nfine\t1\t0\n",
            "a.tsv, line 1 has two columns named 'label'",
        ),
        (
            "a.csv",
            "sentence,sentence,label\nfine,bad,1\n",
            "a.csv, line 1 has two columns named 'sentence'",
        ),
        (
            "a.jsonl",
            '{"sentence": "fine", "label": [1]}\n',
            "line 1: the label in label is [1], neither text nor",
        ),
        (
            "a.tsv",
            "text\tlabel\nfine\t1\n",
            "a.tsv, line 2: there is no column sentence, only text, label",
        ),
        ("a.tsv", "sentence\tlabel\n\udcff\t1\n", "a.tsv, line 2 is not UTF-8"),
        ("a.csv", 'sentence,label\nfine,1\n"open,1\n', "a.csv, line 3 is not valid CSV"),
        (
            "a.jsonl",
            '{"sentence": "fine", "label": 1}\n{"sentence": \n',
            "a.jsonl, line 2 is not valid JSON",
        ),
        (
            "a.jsonl",
            '{"sentence": 3, "label": 1}\n',
            "line 1: the column sentence holds 3, not text",
        ),
        ("a.jsonl", "[1]\n", "line 1 is not a JSON object"),
        (
            "a.jsonl",
            '{"sentence": "b", "label": true}\n',
            "line 1: the label 'True'",
        ),
        ("a.jsonl", '{"sentence": "a", "label": null}\n', "line 1: the label in label is empty"),
        ("a.jsonl", '{"sentence": "\\ud83d", "label": 1}\n', "line 1 is not valid JSON"),
        ("a.jsonl", '{"sentence": "a", "label": "\\ud83d"}\n', "line 1 is not valid JSON"),
        ("a.jsonl", "[" * 100_000, "a.jsonl, line 1 is not valid JSON: "),
        ("a.parquet", "nothing", "a.parquet is not a Parquet file"),
        ("a.xls", "nothing", "the suffix '.xls', but a table is one of"),
    ],
)
def test_bad_rows_are_named(tmp_path, file, content, message):
    path = tmp_path / file
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UserError) as error:
        read("sst2", path)
    assert message in str(error.value)


def test_damage_inside_a_parquet_file_is_reported(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"sentence": ["a", "b"] * 500, "label": [0, 1] * 500}), path)
    content = path.read_bytes()
    path.write_bytes(content[:20] + b"\xff" * 60 + content[80:])
    with pytest.raises(UserError, match=r"a\.parquet is not a Parquet file, or damaged"):
        read("sst2", path)


def test_long_values_do_not_fill_the_screen(tmp_path):
    long = "a" * 10_000
    tables = [
        f"sentence\tlabel\nfine\t{long}\n",
        f"{long}\tlabel\nfine\t1\n",
        f"sentence\t{long}\nfine\n",
    ]
    for content in tables:
        with pytest.raises(UserError, match=r"a\.tsv, line 2.*…") as error:
            read("sst2", write(tmp_path / "a.tsv", content))
        assert len(str(error.value)) < len(str(tmp_path)) + 300


def test_a_folder_instead_of_a_file(tmp_path):
    with pytest.raises(UserError, match="is a folder; give one of the files in it"):
        read("sst2", tmp_path)


def test_texts_of_one_kind_cannot_be_held_out():
    with pytest.raises(
        UserError, match=r"All examples in a\.csv share one text, so none can be held out"
    ):
        hold_out(["a", "a"], [0, 1], "a.csv")


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"task": "no"}', '{"task": "sst2"}', '{"task": "squad", "a": 1}']
)
def test_a_damaged_task_is_reported(tmp_path, content):
    with pytest.raises(UserError, match=r"task\.json is damaged.* Fine-tune again"):
        read_task(write(tmp_path / "task.json", content))


def test_a_few_short_lines_of_qqp_are_left_out_and_reported(tmp_path, capsys):
    lines = [
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        *(f"{i}\t1\t2\ta\tb\t{i % 2}" for i in range(2000)),
    ]
    lines[7] = "6\t1\t2\tonly one"
    path = write(tmp_path / "train.tsv", "\n".join(lines) + "\n")
    assert [example.target for example in read("qqp", path)] == [
        i % 2 for i in range(2000) if i != 6
    ]
    printed = capsys.readouterr().err
    found = f"Columns are missing in 1 of 2,001 lines of {path} (the first: {path}, line 8)"
    assert printed == f"{found}; these lines are left out.\n"
    with pytest.raises(UserError, match="line 8: the number of columns is 4, not 6"):
        read("qqp", path, labelled=False)
    write(path, "\n".join([*lines[:20], *lines[7:8] * 3]))
    with pytest.raises(
        UserError, match=r"missing in 4 of 23 lines of .* line 8\), more than 0\.1%; fix"
    ):
        read("qqp", path)


def test_the_words_of_a_file_sorted_by_class_are_a_baseline_too(monkeypatch):
    monkeypatch.setattr(word_baseline, "MAX_EXAMPLES", 9)
    task = GLUE["sst2"]
    train = [
        TextExample(f"it was {('bad', 'good')[label]}", None, label)
        for label in (0, 1)
        for _ in range(9)
    ]
    assert task.word_baseline(train, train) == {"accuracy": 1.0}


def test_scores_must_be_finite_numbers(tmp_path):
    path = write(tmp_path / "a.csv", "sentence1,sentence2,score\na,b,4.5\na,b,nan\n")
    with pytest.raises(UserError, match="line 3: the score in score is 'nan', not a number"):
        read("stsb", path)


def test_the_names_of_files_give_the_splits(tmp_path):
    for name in (
        "train.tsv",
        "dev.tsv",
        "dev_ids.tsv",
        "test.tsv",
        "msr_paraphrase_train.csv",
        "notes.md",
        "x.tsv",
    ):
        write(tmp_path / name, "")
    splits = find_splits(tmp_path)
    assert {split: [path.name for path in paths] for split, paths in splits.items()} == {
        "train": ["train.tsv"],
        "dev": ["dev.tsv"],
        "test": ["test.tsv"],
    }


def test_splits_in_several_files_and_words_that_hold_the_name(tmp_path):
    names = [
        "wnut17train.csv",
        "validation-00000-of-00002.parquet",
        "validation-00001-of-00002.parquet",
    ]
    for name in (
        *names,
        "trainset.csv",
        "evaluation.tsv",
        "values.tsv",
        "latest.tsv",
        "constraints.tsv",
    ):
        write(tmp_path / name, "")
    splits = find_splits(tmp_path)
    assert [path.name for path in splits["train"]] == names[:1]
    assert [path.name for path in splits["dev"]] == names[1:]
    assert splits.keys() == {"train", "dev"}
    write(tmp_path / "sets" / "trainset.csv", "")
    write(tmp_path / "sets" / "devset.csv", "")
    assert find_splits(tmp_path / "sets").keys() == {"train", "dev"}
    write(tmp_path / "train-dev.tsv", "")
    with pytest.raises(
        UserError, match=r"train-dev.tsv names more than one of train, dev and test"
    ):
        find_splits(tmp_path)
    (tmp_path / "train-dev.tsv").unlink()
    write(tmp_path / "wnut17train.tsv", "")
    with pytest.raises(
        UserError,
        match=r"/wnut17train\.csv and wnut17train\.tsv are both for train; remove or rename",
    ):
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
    for name in (
        "train.tsv",
        "dev_matched.tsv",
        "dev_mismatched.tsv",
        "test_matched.tsv",
        "test_mismatched.tsv",
    ):
        write(tmp_path / name, "")
    found = dev_sets(find_splits(tmp_path))
    assert {prefix: [path.name for path in paths] for prefix, paths in found.items()} == {
        "": ["dev_matched.tsv"],
        "mismatched_": ["dev_mismatched.tsv"],
    }


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


@pytest.mark.parametrize("limit", [2, 7, 8])
def test_pairs_are_cut_as_by_the_fast_tokenizer_of_transformers(checkpoint, limit):
    theirs = transformers.AutoTokenizer.from_pretrained(checkpoint)
    for length_a, length_b in product(range(12), range(1, 12)):  # "" is no pair for it
        encoded = theirs(
            "the " * length_a,
            "the " * length_b,
            truncation="longest_first",
            max_length=limit + 3,
        )
        types = encoded["token_type_ids"]
        expected = (types.count(0) - 2, types.count(1) - 1)
        assert cut_lengths(length_a, length_b, limit) == expected


def test_rows_equal_those_of_transformers(checkpoint):
    ours, theirs = TextTokenizer(checkpoint), transformers.AutoTokenizer.from_pretrained(checkpoint)
    for text, pair in [
        ("The film was good.", None),
        ("", None),
        ("very DULL, unknownword", "a book! b"),
        ("", "a"),
    ]:
        tokens_b = None if pair is None else ours.token_ids([pair])[0]
        ids, segment_b_start, _ = ours.row(ours.token_ids([text])[0], tokens_b, 40)
        expected = theirs(text, pair)
        assert ids.tolist() == expected["input_ids"]
        types = [int(position >= segment_b_start) for position in range(len(ids))]
        assert types == expected["token_type_ids"]
    assert ours.row(list(range(50)), None, 10)[0].tolist() == [2, *range(8), 3]
    assert len(ours.row(list(range(50)), list(range(50)), 11)[0]) == 11


def test_special_tokens_in_a_text_are_text(checkpoint):
    tokenizer = TextTokenizer(checkpoint)
    ids = tokenizer.token_ids(["was [MASK] [SEP] good"])[0]
    assert not {2, 3, 4} & set(ids)
    assert ids == [
        id
        for part in ("was [", "mask", "] [", "sep", "] good")
        for id in tokenizer.token_ids([part])[0]
    ]


def test_a_vocabulary_alone_makes_the_same_tokenizer(checkpoint, tmp_path):
    write(tmp_path / "vocab.txt", (checkpoint / "vocab.txt").read_text())
    texts = ["The films was good!", "[MASK]"]
    assert TextTokenizer(tmp_path).token_ids(texts) == TextTokenizer(checkpoint).token_ids(texts)
    files = tokenizer_files(tmp_path)
    assert files.keys() == {"vocab.txt", "tokenizer.json"}
    write(tmp_path / "tokenizer.json", files["tokenizer.json"].decode())
    assert transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json")
    ).encode("[MASK]")


def test_a_checkpoint_without_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(
        UserError, match=r"has no vocabulary: it contains neither tokenizer\.json nor vocab\.txt"
    ):
        TextTokenizer(tmp_path)
    write(tmp_path / "vocab.txt", "a\nb\n[UNK]\n")
    with pytest.raises(UserError, match=r"vocab\.txt lacks .*\[CLS\]"):
        TextTokenizer(tmp_path)


def classify(path: Path, **options):
    return read_classify([path], TaskOptions(**options))


def test_classes_of_a_table_of_the_users_own(tmp_path):
    words = write(tmp_path / "a.csv", "id,text,label\n1,x,no\n2,y,yes\n3,z,no\n4,z,no\n")
    task = classify(words)
    assert task.settings()["labels"] == ["no", "yes"]
    assert [example.target for example in task.read(words, True)] == [0, 1, 0, 0]
    named = write(tmp_path / "b.tsv", "q\ta\tkind\n1\tx\t10\n2\ty\t9\n3\tz\t10\n4\tz\t9\n")
    task = classify(named, text="q", text_pair="a", label="kind")
    assert task.settings()["labels"] == ["9", "10"]
    assert next(task.read(named, True)) == TextExample("1", "x", 1)
    assert restore_task(json.loads(json.dumps(task.settings()))) == task


def test_scores_of_a_table_of_the_users_own_are_a_regression(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nx,1\ny,2.5\nz,3\nz,3.0\n")
    task = classify(path)
    assert task.settings()["labels"] == []
    assert [example.target for example in task.read(path, True)] == [1, 2.5, 3, 3]
    whole = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": list("abcd"), "label": [1.0, 0.0, 1.0, 0.0]}), whole)
    assert classify(whole).settings()["labels"] == ["0", "1"]


@pytest.mark.parametrize(
    "content, message",
    [
        ("a,b\nx,1\n", "has the columns a, b; choose with `text` and `label`"),
        ("text,label\n", "contains no rows"),
        ("text,label\nx,\ny,\n", "label is empty in every row; is it the column of the label?"),
        (
            "text,label\nx,1\ny,0\nz,maybe\n",
            "line 4: the label 'maybe' in label follows '1'; give labels that are all words or "
            "all numbers",
        ),
        (
            "text,label\nx,yes\ny,no\nz,2\n",
            "line 4: the label '2' in label follows 'yes'; give labels that are all words or "
            "all numbers",
        ),
        (
            "text,label\na,1\nb,1\nx,1\ny,0\nz,01\n",
            "line 6: the label '01' in label is the same number as '1'; w",
        ),
        (
            "text, label\nx,1\n",
            "a.csv has the columns text, ' label'; choose with `text` and `label`",
        ),
        ("text,label\nx,1\ny,1\n", "a.csv: every row has '1' in label; training needs"),
        (
            "text,label\nx,p\ny,q\nz,r\n",
            "a.csv: label holds 3 labels in 3 rows; is it the column of the label?",
        ),
    ],
)
def test_tables_that_pose_no_task_are_refused(tmp_path, content, message):
    with pytest.raises(UserError) as error:
        classify(write(tmp_path / "a.csv", content))
    assert message in str(error.value)


def test_every_task_is_named_before_pytorch_is_loaded():
    assert list(TASK_OPTIONS) == list(TASKS)


def test_unknown_tasks_and_columns_of_fixed_tasks_are_refused():
    with pytest.raises(UserError, match="There is no task 'sst'; did you mean sst2"):
        find_entry("sst", TaskOptions())
    with pytest.raises(
        UserError,
        match="`text_pair` is for classify, multilabel, similarity; sst2 does not take it",
    ):
        find_entry("sst2", TaskOptions(text_pair="b"))


def features_of(lengths: list[int], vocab_size: int, num_classes: int) -> list[Feature]:
    rng = np.random.default_rng(len(lengths))
    rows = (rng.integers(1, vocab_size, length).astype(np.int32) for length in lengths)
    dtype = np.float32 if num_classes == 1 else np.int64
    return [
        Feature((TokenRow(row, len(row) // 2),), np.array(index % num_classes, dtype=dtype), index)
        for index, row in enumerate(rows)
    ]


@pytest.mark.parametrize("num_classes", [1, 2, 5])
def test_logits_loss_and_gradients_equal_transformers(num_classes):
    config = ModelConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
    )
    ours = SequenceClassifier(config, num_classes).eval()
    initialise(ours, config, torch.Generator().manual_seed(2))
    shape: dict[str, Any] = {
        **config.to_hf(),
        "num_labels": num_classes,
        "attn_implementation": "eager",
    }
    peer_config = transformers.BertConfig(**shape)
    theirs = transformers.BertForSequenceClassification(peer_config).eval()
    theirs.load_state_dict(ours.state_dict())
    batch = make_batch(features_of([3, 20, 11, 7], 60, num_classes))
    expected = theirs(
        batch.input_ids_BL, batch.attention_mask_BL, batch.token_type_ids_BL, labels=batch.target
    )
    logits = ours(batch)
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=1e-5)
    check_learning(ours, ours.loss(logits, batch), theirs, expected.loss)


def test_answers_are_probabilities(tmp_path):
    logits = [
        np.array([0.0, np.log(3)], dtype=np.float32),
        np.array([1000.0, 0.0], dtype=np.float32),
    ]
    first, second = GLUE["sst2"].answers(logits, [], [])
    assert first["label"] == "positive"
    assert first["probabilities"] == {
        "negative": pytest.approx(0.25),
        "positive": pytest.approx(0.75),
    }
    assert second["probabilities"]["negative"] == 1
    assert GLUE["stsb"].answers([np.array([2.5], dtype=np.float32)], [], []) == [{"score": 2.5}]


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
    assert (
        classify(write(tmp_path / "a.csv", "text,label\nx,a\ny,b\nz,b\n")).official(
            answers, [], "test"
        )
        == {}
    )


@pytest.fixture
def hub_folder(tmp_path) -> Path:
    """A folder in the layout of the hub: Parquet files whose names tell the splits."""
    folder = tmp_path / "set"
    folder.mkdir()
    for split, size in (("train", 12), ("validation", 4), ("test", 3)):
        rows = [
            {
                "sentence": f"text {i} of {split}",
                "label": i % 2 if split != "test" else -1,
                "idx": i,
            }
            for i in range(size)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_read_as_the_files_are(hub_folder):
    splits = find_splits(f"hf:{hub_folder}")
    assert {split: [path.name for path in paths] for split, paths in splits.items()} == {
        "train": ["set#train"], "dev": ["set#validation"], "test": ["set#test"],
    }  # fmt: skip
    files = find_splits(hub_folder)
    for split in ("train", "dev"):
        assert read("sst2", splits[split][0]) == read("sst2", files[split][0])
    assert read("sst2", splits["test"][0], labelled=False)[2] == TextExample(
        "text 2 of test", None, None
    )
    with pytest.raises(
        UserError, match=r"hf:.*, split test, row 1: the label '-1' in label is not one of"
    ):
        read("sst2", splits["test"][0])
    with pytest.raises(UserError, match=r"split train, row 1: there is no column sentence1"):
        read("rte", splits["train"][0])


def test_the_splits_of_a_data_set_of_the_hub_are_chosen_as_files_are(tmp_path):
    names = ("train", "train_small", "validation_r1", "validation_r2", "test")
    rows = datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [0, 1]})
    datasets.DatasetDict(dict.fromkeys(names, rows)).save_to_disk(tmp_path / "set")
    splits = find_splits(f"hf:{tmp_path / 'set'}")
    assert {split: [path.name for path in paths] for split, paths in splits.items()} == {
        "train": ["set#train"],
        "dev": ["set#validation_r1", "set#validation_r2"],
        "test": ["set#test"],
    }


@pytest.mark.slow
def test_a_split_in_the_name_of_a_data_set_is_like_a_single_file(hub_folder):
    single = single_file(Path(f"hf:{hub_folder}:validation"))
    assert single and find_splits(f"hf:{hub_folder}:validation") == {"train": [single]}
    assert [example.text for example in read("sst2", single)] == [
        f"text {i} of validation" for i in range(4)
    ]
    assert single_file(Path(f"hf:{hub_folder}")) is None
    with pytest.raises(UserError, match="has no split 'nonsense'; it has train, validation, test"):
        single_file(Path(f"hf:{hub_folder}:nonsense"))


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-u", "utf-16", "utf-8-sig"])
def test_tables_need_not_be_utf_8(encoding: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    sentences = [f"Це речення номер {i} про погоду, що змінюється." for i in range(40)]
    contents = {
        "a.tsv": "\n".join(["sentence\tlabel", *(f"{text}\t1" for text in sentences)]),
        "a.csv": "\n".join(["sentence,label", *(f'"{text}",1' for text in sentences)]),
        "a.jsonl": "\n".join(f'{{"sentence": "{text}", "label": "1"}}' for text in sentences),
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content.encode(encoding))
        assert [row.text("sentence") for row in read_rows(path)] == sentences
        assert [row.label("label") for row in read_rows(path)] == ["1"] * 40
    expected = 3 if encoding in ("cp1251", "koi8-u") else 0
    assert caplog.text.count(f"is not UTF-8: read as {encoding} (confidence 0.") == expected

    text = contents["a.tsv"]
    (tmp_path / "a.tsv").write_bytes(f"{text}\n".encode("cp1251") + text.encode("koi8-u"))
    with pytest.raises(UserError, match=r"cannot be told.* or convert it: iconv -f .*a\.tsv"):
        next(read_rows(tmp_path / "a.tsv"))


def test_csv_may_have_semicolons(tmp_path):
    path = write(tmp_path / "a.csv", 'sentence;label\n"one; two, three";1\nfour, five;0\n')
    assert [row.values for row in read_rows(path)] == [
        {"sentence": "one; two, three", "label": "1"},
        {"sentence": "four, five", "label": "0"},
    ]


def test_the_encoding_may_be_given(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("sentence;label\nСобака спит;1\nКошка;0\nРыба;1\nКот;0\n".encode("koi8-r"))
    options = TaskOptions(text="sentence", encoding="koi8-r")
    task = read_classify([path], options)
    assert [example.text for example in task.read(path, labelled=True)] == [
        "Собака спит",
        "Кошка",
        "Рыба",
        "Кот",
    ]
    assert "encoding" not in task_settings(task)
    with pytest.raises(UserError, match=r"`encoding` is for .*; squad does not take it"):
        check_task("squad", TaskOptions(encoding="koi8-r"))


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


def test_repeats_and_contradictions_are_counted():
    task = Classification(name="classify", text=("text",), labels=("no", "yes"))
    train = [
        TextExample("good", None, 1.0),
        TextExample("good", None, 1.0),
        TextExample("odd", None, 0.0),
        TextExample("odd", None, 1.0),
        TextExample("odd", None, 1.0),
        TextExample("bad", None, 0.0),
    ]
    dev = {"": [TextExample("bad", None, 0.0), TextExample("new", None, 0.0)]}
    assert find_repeats(task, train, dev) == Repeats(
        repeated=2, contradictory=3, example="odd", shared=1
    )
    # Of scores, sets of labels, and pairs without a label, too.
    scores = Classification(name="stsb", text=("text",))
    assert find_repeats(scores, train, dev) == Repeats(
        repeated=2, contradictory=3, example="odd", shared=1
    )
    labels = MultiLabel(text=("text",), labels=("a", "b"))
    tagged = [TextExample("good", None, cast(Any, (0, 1))) for _ in range(2)]
    tagged.append(TextExample("good", None, cast(Any, ())))
    assert find_repeats(labels, tagged, {}) == Repeats(
        repeated=1, contradictory=3, example="good", shared=0
    )
    pairs = [TextGroup(("a", "b"), None), TextGroup(("a", "b"), None), TextGroup(("a", "c"), None)]
    assert find_repeats(Similarity(), pairs, {"": pairs[:1]}) == Repeats(
        repeated=1, contradictory=0, example="", shared=1
    )


def test_texts_with_the_same_tokens_and_swapped_pairs_are_in_both(checkpoint):
    task = Classification(name="classify", text=("a",), text_pair=("b",), labels=("no", "yes"))
    train = [TextExample("a film", "the book", 0), TextExample("A  FILM", "the book", 1)]
    dev = {
        "": [
            TextExample("The book", "a  film", 0),
            TextExample("the book", "the book", 0),
            TextExample("a film", "bad", 0),
        ]
    }
    assert find_repeats(task, train, dev).shared == 0
    assert find_repeats(task, train, dev, TextTokenizer(checkpoint)) == Repeats(
        repeated=0, contradictory=2, example="a film", shared=1
    )


def test_classes_that_pandas_wrote_as_floats_are_those_without_a_point(tmp_path):
    # A gap in the column makes it one of floats; the dev file has none.
    train = write(tmp_path / "train.csv", "text,label\na,1.0\nb,0.0\nc,\nd,1.0\ne,0.0\n")
    dev = write(tmp_path / "dev.csv", "text,label\nx,0\ny,1\n")
    task = read_classify([train], TaskOptions())
    assert task.labels == ("0", "1")
    assert [example.target for example in task.read(dev, labelled=True)] == [0, 1]


def test_texts_of_other_case_and_swapped_pairs_are_held_out_together():
    single = Classification(name="classify", text=("text",), labels=("no", "yes"))
    examples = [TextExample(text, None, 0) for text in ("Good Film", "good  film", "bad")]
    assert group_keys(single, examples) == ["Good Film", "Good Film", "bad"]
    pairs = replace(single, text_pair=("other",))
    examples = [TextExample("a", "b", 0), TextExample("b", "A", 0), TextExample("b", "c", 0)]
    assert group_keys(pairs, examples) == ["a", "a", "b"]


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
    assert find_repeats(data.task, examples, {"": examples}) == Repeats(
        repeated=0, contradictory=0, example="", shared=0
    )


def test_a_tokenizer_that_cuts_and_pads_loses_that(tmp_path, checkpoint):
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    shutil.copytree(checkpoint, tmp_path / "cutting")
    path = tmp_path / "cutting" / "tokenizer.json"
    cutting = {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    padding = {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    path.write_text(json.dumps({**tokenizer, "truncation": cutting, "padding": padding}))
    written = json.loads(tokenizer_files(tmp_path / "cutting")["tokenizer.json"])
    assert written == tokenizer
    # One that does not is copied byte for byte.
    content = (checkpoint / "tokenizer.json").read_bytes()
    assert tokenizer_files(checkpoint)["tokenizer.json"] == content


def test_balanced_classes_weigh_as_in_scikit_learn(tmp_path, checkpoint):
    lines = ["text\tlabel", *["good\tyes"] * 6, *["bad\tno"] * 2, *["dull\tno"] * 1]
    path = write(tmp_path / "train.tsv", "\n".join(lines) + "\n")
    task = read_classify([path], TaskOptions(class_weights="balanced"))
    assert isinstance(task, Classification)
    labels = [line.split("\t")[1] for line in lines[1:]]
    expected = compute_class_weight("balanced", classes=np.array(["no", "yes"]), y=labels)
    assert task.class_weights == pytest.approx(tuple(expected))
    assert restore_task(json.loads(json.dumps(task.settings()))) == task
    # The loss is the weighted sum over the examples, divided by their number.
    examples = list(task.read(path, labelled=True))
    batch = make_batch(task.encode(examples, TextTokenizer(checkpoint)))
    config = ModelConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    model = task.model(config)
    logits = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor(task.class_weights)
    assert batch.target is not None
    summed = torch.nn.functional.cross_entropy(logits, batch.target, weights, reduction="sum")
    torch.testing.assert_close(model.loss(logits, batch), summed / 9)


def test_ratings_may_be_scores(tmp_path):
    path = write(tmp_path / "train.tsv", "text\tlabel\ngood\t5\nbad\t1\ndull\t1\nfine\t5\n")
    assert read_classify([path], TaskOptions()).labels == ("1", "5")
    task = read_classify([path], TaskOptions(regression=True))
    assert task.labels == ()
    assert [example.target for example in task.read(path, True)] == [5, 1, 1, 5]
    with pytest.raises(UserError, match="`class_weights` is balanced, but label holds scores"):
        read_classify([path], TaskOptions(regression=True, class_weights="balanced"))
    write(path, "text\tlabel\ngood\tyes\nbad\tno\n")
    with pytest.raises(UserError, match="line 2: the score in label is 'yes', not a number"):
        read_classify([path], TaskOptions(regression=True))


def test_rows_without_a_text_or_a_label_and_unknown_classes_are_left_out_and_counted(
    tmp_path, capsys
):
    train = write(tmp_path / "train.csv", "text,label\na,yes\nb,no\nc,yes\nd,no\ne,\n ,no\n")
    task = classify(train)
    assert task.labels == ("no", "yes")
    assert [example.target for example in task.read(train, True)] == [1, 0, 1, 0]
    told = capsys.readouterr().err
    assert "Left out 1 of 6 rows (without a label); the first: " in told
    assert "train.csv, line 6: the label in label is empty" in told
    assert "Left out 1 of 6 rows (without a text); the first: " in told
    dev = write(tmp_path / "dev.csv", "text,label\na,yes\nb,perhaps\n")
    assert [example.target for example in task.read(dev, True)] == [1]
    assert (
        "Left out 1 of 2 rows (of a class that is not in the training data); the first: "
        f"{dev}, line 3: the label 'perhaps' in label is not one of no, yes."
    ) in capsys.readouterr().err
    # Each row to predict needs an answer.
    assert len(list(task.read(train, False))) == 6


def test_long_texts_are_read_in_windows_whose_logits_are_averaged(tmp_path, checkpoint):
    path = write(tmp_path / "a.csv", "text,label\n" + "the film was very,1\nbad,0\n" * 2)
    task = read_classify([path], TaskOptions(max_length=8, stride=3))
    assert restore_task(json.loads(json.dumps(task.settings()))) == task
    tokenizer = TextTokenizer(checkpoint)
    words = "the film was very good the film was bad"
    examples = [TextExample(words, None, 1), TextExample("bad", None, 0)]
    features = task.encode(examples, tokenizer)
    assert [feature.example for feature in features] == [0, 0, 1]
    assert [feature.rows[0].num_cut for feature in features] == [0, 0, 0]
    inside = [feature.rows[0].input_ids[1:-1].tolist() for feature in features[:2]]
    expected = [word for (word,) in tokenizer.token_ids(words.split())]
    assert inside == [expected[:6], expected[3:9]]
    logits = [np.array(values, dtype=np.float32) for values in ([0, 4], [1, 0], [1, 0])]
    assert [answer["label"] for answer in task.answers(logits, features, examples)] == ["1", "0"]
    with pytest.raises(UserError, match="`stride` makes windows of single texts"):
        read_classify([path], TaskOptions(text_pair="label", stride=3))
