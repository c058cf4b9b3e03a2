"""JSON Lines: rows of any form, bad ones counted and named, the same from any ranges."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources.jsonl import json_table, read_json_lines
from clozeworks.pipeline.sources.lines import plan_line_ranges
from clozeworks.pipeline.sources.records import RawDocument
from clozeworks.pipeline.tally import Tally

PROSE = "Almonds are a rich source of oil, as several studies have shown."


def opened(path: str) -> io.BufferedReader:
    return Path(path).open("rb")


def read(path: Path, tally: Tally, text_column: str = "text", range_bytes: int = 1 << 20) -> list[RawDocument]:
    ranges = plan_line_ranges(str(path), path.name, "jsonl", path.stat().st_size, range_bytes)
    table = json_table(path.name, text_column)
    return [document for part in ranges for document in read_json_lines(part, opened, tally, table)]


def written(folder: Path, *lines: Any) -> Path:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    (folder / "part.jsonl").write_bytes(b"\n".join(raw) + b"\n")
    return folder / "part.jsonl"


def test_rows_become_documents(tmp_path: Path):
    wiki = {"id": "12", "url": "https://ko.wikipedia.org/wiki/A", "title": "A", "text": PROSE}
    path = written(tmp_path, wiki, {"text": PROSE}, b"", {"text": PROSE, "id": 3, "title": "B"})
    tally = Tally()
    found = [(document.source, document.id, document.title, document.language) for document in read(path, tally)]
    second = len(json.dumps(wiki)) + 1
    assert found == [("kowiki", "12", "A", "ko"), ("jsonl", f"part#{second}", "", ""), ("jsonl", "part/3", "B", "")]
    assert not tally.bad


@pytest.mark.parametrize("range_bytes", [1, 50, 137, 1000])
def test_every_range_gives_the_same_documents(tmp_path: Path, range_bytes: int):
    path = written(tmp_path, *({"text": f"{PROSE} {i} " * (i % 7 + 1)} for i in range(40)))
    assert len(read(path, Tally())) == 40
    assert read(path, Tally(), range_bytes=range_bytes) == read(path, Tally())


def test_bad_lines_are_counted_and_named_and_cost_only_themselves(tmp_path: Path):
    bad = [
        (b"{not json}", "not_json"),
        (b"[1, 2]", "no_json_object"),
        (b'"text"', "no_json_object"),
        (b"[" * 100_000, "not_json"),
        (b'{"text": 1' + b"0" * 5000 + b"}", "not_json"),
        (b'{"body": "x"}', "no_text_column"),
        (b'{"text": 12}', "text_is_no_string"),
        (b'{"text": null}', "no_text"),
        (b'{"text": "cut off', "not_json"),
    ]
    good = {"text": PROSE}
    path = written(tmp_path, good, *(line for raw, _ in bad for line in (raw, good)))
    tally = Tally()
    documents = read(path, tally)
    assert [document.paragraphs for document in documents] == [[PROSE]] * (len(bad) + 1)
    assert tally.bad == {reason: [r for _, r in bad].count(reason) for reason in {r for _, r in bad}}
    assert tally.examples["not_json"][0] == f"part.jsonl, byte {len(json.dumps(good)) + 1}"


def test_text_that_is_no_utf8_is_kept_with_replacement(tmp_path: Path):
    path = written(tmp_path, b'{"text": "Caf\xe9 is a word, and so is this one."}', {"text": PROSE})
    tally = Tally()
    texts = [document.paragraphs for document in read(path, tally)]
    assert texts == [["Caf\ufffd is a word, and so is this one."], [PROSE]]
    assert tally.examples == {"invalid_utf8": ["part.jsonl, byte 0"]}


def test_a_line_of_ten_megabytes_is_read(tmp_path: Path):
    (document,) = read(written(tmp_path, {"text": "x" * 10_000_000}), Tally())
    assert len(document.paragraphs[0]) == 10_000_000


def test_a_first_object_without_the_column_is_told(tmp_path: Path):
    path = written(tmp_path, b"broken", {"content": PROSE, "meta": {}}, {"text": PROSE})
    with pytest.raises(UserError, match=r"no column 'text' but content, meta: give --text-column"):
        read(path, Tally())
    assert len(read(path, tally := Tally(), "content")) == 1
    assert tally.bad == {"not_json": 1, "no_text_column": 1}
