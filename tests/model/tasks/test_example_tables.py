"""How tables of examples are read, GLUE's files and others."""

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.model.tasks.catalogue import GLUE
from clozeworks.model.tasks.classify import TextExample, classify_task
from clozeworks.model.tasks.example_tables import read_rows
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.splits import find_splits, single_file
from clozeworks.pipeline.errors import UserError

from tests.fixtures.shared_data import DATA, needs_shared_data
from tests.fixtures.task_files import write

GLUE_DATA = DATA / "glue"

SST2 = (
    "sentence\tlabel\n"
    "it 's a charming and often affecting journey . \t1\n"
    "unflinchingly bleak and desperate \t0\n"
)
MRPC = (
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    "1\t1355540\t1355592\tHe said the pie doesn 't fit .\t\" The pie does not fit .\n"
    '0\t2029631\t2029565\tMagnarelli said so .\tHis wife was " 100 % behind Bush " .\r\n'
)


def read(name: str, path: Path, labelled: bool = True) -> list[TextExample]:
    return list(GLUE[name].read(path, labelled))


def test_sst2_and_mrpc_as_they_are(tmp_path):
    assert read("sst2", write(tmp_path / "train.tsv", SST2)) == [
        TextExample("it 's a charming and often affecting journey . ", None, 1),
        TextExample("unflinchingly bleak and desperate ", None, 0),
    ]
    first, second = '" The pie does not fit .', 'His wife was " 100 % behind Bush " .'
    assert read("mrpc", write(tmp_path / "dev.tsv", MRPC)) == [
        TextExample("He said the pie doesn 't fit .", first, 1),
        TextExample("Magnarelli said so .", second, 0),
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
    "name, folder, sizes",
    [
        ("cola", "CoLA", (8551, 1043, 1063)),
        ("mrpc", "MRPC", (3667, 408, 1725)),
        ("stsb", "STS-B", (5749, 1500, 1379)),
    ],
)
def test_every_line_of_the_official_files_is_an_example(name, folder, sizes):
    splits = find_splits(GLUE_DATA / folder)
    read_splits = [
        read(name, splits[split][0], split != "test") for split in ("train", "dev", "test")
    ]
    assert tuple(map(len, read_splits)) == sizes


def test_csv_has_quotes_or_semicolons_and_tsv_has_none(tmp_path):
    path = write(tmp_path / "b.csv", 'sentence;label\n"one; two, three";1\nfour, five;0\n')
    assert [row.values["sentence"] for row in read_rows(path)] == ["one; two, three", "four, five"]
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
        ("a.tsv", "sentence\tlabel\nfine\t1\nlong\t1\t2\n", "line 3: the number of columns is 3, "),
        ("a.tsv", "sentence\tlabel\nfine\tmaybe\n", "line 2: the label 'maybe' is not one of neg"),
        ("a.tsv", "sentence\tlabel\nfine\t\n", "a.tsv, line 2: the label is empty"),
        ("a.tsv", "sentence\tlabel\tlabel\nfine\t1\t0\n", "a.tsv, line 1 names a column twice"),
        ("a.jsonl", '{"sentence": "fine", "label": [1]}\n', "line 1: the label is [1], neither"),
        ("a.tsv", "text\tlabel\nfine\t1\n", "a.tsv, line 2: there is no column sentence, only"),
        ("a.tsv", "sentence\tlabel\n\udcff\t1\n", "a.tsv is not UTF-8: if it is "),
        ("a.csv", 'sentence,label\nfine,1\n"open,1\n', "a.csv, line 3 is not valid CSV"),
        ("a.jsonl", '{"sentence": 3, "label": 1}\n', "line 1: the text is 3."),
        ("a.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("a.tsv", "sentence\tlabel\rfine\t1\r", "a.tsv end in CR, not LF or CRLF"),
        ("a.jsonl", '{"sentence": "a", "label": null}\n', "line 1: label is empty"),
        ("a.jsonl", '{"sentence": "a", "label": "\\ud83d"}\n', "line 1 is not a JSON object"),
        ("a.jsonl", "[" * 100_000, "line 1 is not a JSON object"),
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


def test_short_lines_such_as_those_of_qqp_are_left_out_and_counted(tmp_path, capsys):
    lines = ["id\tquestion1\tquestion2\tis_duplicate", "1\ta\tb\t1", "2\tone", "3\tc\td\t0"]
    path = write(tmp_path / "train.tsv", "\n".join(lines) + "\n")
    assert [example.target for example in read("qqp", path)] == [1, 0]
    assert capsys.readouterr().err == (
        f"Left out 1 of 3 rows (without question2); the first: {path}, line 3: there is no column "
        "question2, only id, question1.\n"
    )
    with pytest.raises(UserError, match="line 3: there is no column question2"):
        read("qqp", path, labelled=False)


def test_nan_is_a_missing_label_however_it_is_written(tmp_path, capsys):
    path = tmp_path / "a.parquet"
    labels = [1.0, math.nan, 0.0, 1.0, 0.0]
    pq.write_table(pa.table({"text": ["a"] * 5, "label": labels}), path)
    assert classify(path).labels == ("0", "1")
    path = write(tmp_path / "a.csv", "text,label\na,x\nb,nan\nc,y\nd,NaN\n")
    task = classify(path)
    texts = [example.text for example in task.read(path, True)]
    assert (task.labels, texts) == (("x", "y"), ["a", "c"])
    assert "Left out 2 of 4 rows (without label)" in capsys.readouterr().err


def classify(path: Path, **options):
    return classify_task([path], TaskOptions(**options))


@pytest.fixture
def hub_folder(tmp_path) -> Path:
    """A folder in the layout of the hub: Parquet files whose names tell the splits."""
    folder = tmp_path / "set"
    folder.mkdir()
    for split, size in (("train", 12), ("validation", 4), ("test", 3)):
        labels = [i % 2 if split != "test" else -1 for i in range(size)]
        rows = [
            {"sentence": f"text {i} of {split}", "label": label, "idx": i}
            for i, label in enumerate(labels)
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
    with pytest.raises(UserError, match=r"hf:.*, split test, row 1: the label '-1' is not one of"):
        read("sst2", splits["test"][0])
    with pytest.raises(UserError, match=r"split train, row 1: there is no column sentence1"):
        read("rte", splits["train"][0])


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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_tables_are_utf_8_or_marked(encoding: str, tmp_path: Path):
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
    (tmp_path / "a.tsv").write_bytes(contents["a.tsv"].encode("cp1251"))
    with pytest.raises(UserError, match=r"a\.tsv is not UTF-8: .* convert it: iconv -f .*a\.tsv"):
        next(read_rows(tmp_path / "a.tsv"))


def test_rows_without_a_text_or_a_label_and_unknown_classes_are_left_out_and_counted(
    tmp_path, capsys
):
    train = write(tmp_path / "train.csv", "text,label\na,yes\nb,no\nc,yes\nd,no\ne,\n ,no\n")
    task = classify(train)
    assert task.labels == ("no", "yes")
    assert [example.target for example in task.read(train, True)] == [1, 0, 1, 0]
    told = capsys.readouterr().err
    assert "Left out 1 of 6 rows (without label); the first: " in told
    assert "train.csv, line 6: the label is empty" in told
    assert "Left out 1 of 6 rows (without text); the first: " in told
    dev = write(tmp_path / "dev.csv", "text,label\na,yes\nb,perhaps\n")
    assert [example.target for example in task.read(dev, True)] == [1]
    assert (
        "Left out 1 of 2 rows (of a class that is not in the training data); the first: "
        f"{dev}, line 3: the label 'perhaps' is not one of no, yes."
    ) in capsys.readouterr().err
    # Each row to predict needs an answer.
    assert len(list(task.read(train, False))) == 6
