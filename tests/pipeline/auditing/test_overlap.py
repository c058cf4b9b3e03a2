"""Texts of task files are found in documents whatever their case; a regex is the oracle."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.auditing.overlap import NUM_WORDS, find_overlaps, rows_of_file, words_of
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.command_fixture import error_of
from tests.fixtures.documents_fixture import TRAIN, write_documents

LONG = "The quick brown fox — “so they say” — can't jump over 13 lazy dogs in one night, he said."
SHORT = "Nine words are enough for a text to count."
SENTENCES = [
    "«Niemand» said: THE QUICK BROWN fox so they.",
    "Say can’t jump over 13 lazy dogs",
    "in",
]


def test_texts_are_found_across_sentences_and_not_across_documents(tmp_path: Path, capsys):
    halves = SHORT.split(" for ")
    shard = [
        ("w", "en", SENTENCES),
        ("w", "en", [halves[0]]),
        ("w", "en", ["for " + halves[1], "吾輩は猫である。名前はまだ無い。"]),
        ("w", "en", ["They said that", f"{SHORT.upper()}!"]),
    ]
    documents = write_documents(tmp_path / "documents", {TRAIN: shard})
    table = tmp_path / "dev.tsv"
    rows = [
        "label\ttext",
        f"0\t{LONG}",
        f"1\t{SHORT}",
        "1\ttoo short",
        f"0\tNot {LONG[4:30]}, nor it",
    ]
    table.write_text("\n".join(rows) + "\n")
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"a": [{"b": "吾輩は、猫である 名前はまだ"}], "c": 3}) + "\n")
    main(["audit", documents, "--against", str(table), "--against", str(texts), "--json"])
    of_table, of_texts = json.loads(capsys.readouterr().out)
    assert of_table["found"] == {"2": [f"{TRAIN}:0"], "3": [f"{TRAIN}:3"]}
    assert (of_table["num_rows"], of_table["num_judged"]) == (5, 3)
    assert of_texts["found"] == {"1": [f"{TRAIN}:2"]}


def test_the_table_says_how_much_is_found_and_a_bad_file_is_refused(tmp_path: Path, capsys):
    documents = write_documents(tmp_path / "documents", {TRAIN: [("w", "en", [SHORT])]})
    (tmp_path / "test.txt").write_text(f"{SHORT}\n")
    main(["audit", documents, "--against", str(tmp_path / "test.txt")])
    assert "1 of 1 rows found (100.00%)" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "bad.jsonl").write_text("{\n")
    error = error_of(capsys, "audit", documents, "--against", str(tmp_path / "bad.jsonl"))
    assert "bad.jsonl cannot be read as a table of texts" in error
    for path, fault in ((tmp_path / "nothere", "No such file"), (tmp_path, "Is a directory")):
        assert f"{path} cannot be read: {fault}" in error_of(
            capsys, "audit", documents, "--against", str(path)
        )


@given(st.lists(st.text(st.sampled_from("abAB9 .-’“é"), max_size=30), max_size=5))
def test_words_are_those_of_a_regular_expression(strings: list[str]):
    expected = [word for text in strings for word in re.findall(r"[^\W_]+", text.lower())]
    words = words_of(pa.array([strings], pa.list_(pa.string())))
    assert len(words.starts) - 1 == len(expected)
    alone = words_of(pa.array([expected], pa.list_(pa.string())))
    for length in (1, 2, NUM_WORDS):
        ours = words.hashes(words.stretches(length), length).tolist()
        assert ours == alone.hashes(alone.stretches(length), length).tolist()
        stretches = [tuple(expected[i : i + length]) for i in range(len(ours))]
        assert len(set(ours)) <= len(set(stretches))


def test_three_documents_are_named_and_two_rows_are_not_one_text(tmp_path: Path):
    texts = [LONG, LONG, LONG.removesuffix(" he said."), LONG.removeprefix("The ")]
    documents = [("w", "en", [text]) for text in texts]
    documents.append(("w", "en", ["a b c d e f", "g h i j k l m"]))
    folder = write_documents(tmp_path / "documents", {TRAIN: documents})
    (tmp_path / "a.txt").write_text(f"{LONG}\na b c d e f\ng h i j k l m\n")
    [overlap] = find_overlaps(folder, [str(tmp_path / "a.txt")])
    assert overlap.found == {1: [f"{TRAIN}:{index}" for index in range(3)]}


@pytest.mark.parametrize("documents", [[], [("w", "en", [""])]])
def test_nothing_is_found_in_nothing(documents: list, tmp_path: Path):
    folder = write_documents(tmp_path / "documents", {TRAIN: documents})
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "a.txt").write_text(f"{LONG}\n")
    files = [str(tmp_path / "empty.txt"), str(tmp_path / "a.txt")]
    assert [overlap.found for overlap in find_overlaps(folder, files)] == [{}, {}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_a_row_ends_at_a_line_feed_alone(name: str, tmp_path: Path):
    (tmp_path / name).write_text('"A \u2028 B \x85 C"\n"D"\n')
    assert len(list(rows_of_file(str(tmp_path / name)))) == 2


@pytest.mark.parametrize(
    ("name", "content", "row"),
    [
        ("a.jsonl", f'{{"a": "\\ud83d {SHORT}"}}\n', 1),
        ("a.jsonl", f'\n{{"a": "{SHORT}"}}\n\n', 2),
        ("a.csv", f"{'x' * (1 << 18)},{SHORT}\n", 1),
    ],
)
def test_files_are_read_as_ingest_reads_them(name: str, content: str, row: int, tmp_path: Path):
    documents = write_documents(tmp_path / "documents", {TRAIN: [("w", "en", [LONG, SHORT])]})
    (tmp_path / name).write_text(content)
    [overlap] = find_overlaps(documents, [str(tmp_path / name)])
    assert list(overlap.found) == [row]
