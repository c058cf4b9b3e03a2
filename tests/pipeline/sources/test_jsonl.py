"""JSON Lines: rows of any form, bad ones counted and named, the same from any ranges."""

import gzip
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clozeworks.pipeline import storage
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources.formats import plan_input, read_opened
from clozeworks.pipeline.sources.streams import InputRange, RawDocument

from tests.fixtures.reading import Source

PROSE = "Almonds are a rich source of oil, as several studies have shown."


def entry_of(path: Path) -> InputRange:
    num_bytes = path.stat().st_size
    return InputRange(path=str(path), name=path.name, format="jsonl", num_bytes=num_bytes)


def read(
    path: Path, counters: Counters, range_bytes: int = 1 << 20, **options: Any
) -> list[RawDocument]:
    """Read ranges that are not planned by `plan_input`, which refuses some of these files."""
    config = IngestConfig(**options)
    ranges = entry_of(path).cut_evenly(range_bytes)
    return [document for part in ranges for document in _read_range(path, part, config, counters)]


def _read_range(
    path: Path, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    with path.open("rb") as file:
        yield from read_opened(file, part, config, counters)


def written(folder: Path, *lines: Any) -> Path:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    (folder / "part.jsonl").write_bytes(b"\n".join(raw) + b"\n")
    return folder / "part.jsonl"


def test_rows_become_documents(tmp_path: Path):
    wiki = {"id": "12", "url": "https://ko.wikipedia.org/wiki/A", "title": "A", "text": PROSE}
    path = written(tmp_path, wiki, {"text": PROSE}, b"", {"text": PROSE, "id": 3, "title": "B"})
    counters = Counters()
    found = [
        (document.source, document.id, document.title, document.language)
        for document in read(path, counters)
    ]
    second = len(json.dumps(wiki)) + 1
    assert found == [
        ("kowiki", "12", "A", "ko"),
        ("jsonl", f"part#{second}", "", ""),
        ("jsonl", "part/3", "B", ""),
    ]
    assert not counters.bad


def test_bad_lines_are_counted_and_named_and_cost_only_themselves(tmp_path: Path):
    bad = [
        (b"{not json}", "not_json"), (b"[1, 2]", "no_json_object"), (b'"text"', "no_json_object"),
        (b"[" * 100_000, "not_json"), (b'{"text": 1' + b"0" * 5000 + b"}", "not_json"),
        (b'{"body": "x"}', "no_text_column"), (b'{"text": 12}', "text_is_not_a_string"),
        (b'{"text": "cut off', "not_json"),
    ]  # fmt: skip
    good = {"text": PROSE}
    path = written(tmp_path, good, *(line for raw, _ in bad for line in (raw, good)))
    counters = Counters()
    documents = read(path, counters)
    assert [document.paragraphs for document in documents] == [[PROSE]] * (len(bad) + 1)
    assert counters.bad == {
        reason: [r for _, r in bad].count(reason) for reason in {r for _, r in bad}
    }
    assert counters.examples["not_json"][0] == f"part.jsonl, byte {len(json.dumps(good)) + 1}"


def test_invalid_utf8_is_kept_with_replacement(tmp_path: Path):
    path = written(tmp_path, b'{"text": "Caf\xe9 is a word, and so is this one."}', {"text": PROSE})
    counters = Counters()
    texts = [document.paragraphs for document in read(path, counters)]
    assert texts == [["Caf\ufffd is a word, and so is this one."], [PROSE]]
    assert counters.examples == {"invalid_utf8": ["part.jsonl, byte 0"]}


def test_what_pandas_writes_is_not_damage(tmp_path: Path):
    path = written(tmp_path, {"text": PROSE}, b'{"text": NaN, "n": -Infinity}')
    check(path)
    (document,) = read(path, counters := Counters())
    assert document.paragraphs == [PROSE]
    assert not counters.bad
    assert counters.counts == {"rows_without_text": 1}


def test_a_line_of_ten_megabytes_is_read(tmp_path: Path):
    (document,) = read(written(tmp_path, {"text": "x" * 10_000_000}), Counters())
    assert len(document.paragraphs[0]) == 10_000_000


def check(path: Path, text_column: str = "text") -> None:
    Source("jsonl", path, path.name).plan(config=IngestConfig(text_column=text_column))


def test_a_file_whose_first_objects_have_no_such_text_is_refused(tmp_path: Path):
    path = written(
        tmp_path, b"broken", {"content": PROSE, "meta": {}, "n": 1}, {"content": PROSE, "n": 2}
    )
    with pytest.raises(UserError, match=r"only content, meta, n: give `text_column`"):
        check(path)
    with pytest.raises(UserError, match="'n' does not hold text: give another `text_column`"):
        check(path, "n")
    check(path, "content")
    assert len(read(path, counters := Counters(), text_column="content")) == 2
    assert counters.bad == {"not_json": 1}


@pytest.mark.parametrize(
    "lines",
    [
        [b""],
        [b"Call me Ishmael.", b"[", b"12"],
        [{"text": None}],
        [{"text": None, "a": 1}, {"b": 2}],
        [{"a": 1}, [1], b"broken", {"text": 12}, {"text": PROSE}],
        [b'{"text": "' + b"x" * (1 << 24) + b'"}'],  # too long for a line, which is bad input
        [b'{"text": "' + b"x" * 100_000 + b'"}'],
    ],
)
def test_a_file_is_not_refused_if_its_first_lines_may_be_bad_input(
    tmp_path: Path, lines: list[Any]
):
    check(written(tmp_path, *lines))


def test_a_truncated_compressed_file_is_not_refused(tmp_path: Path):
    content = gzip.compress(json.dumps({"text": random.Random(0).randbytes(3000).hex()}).encode())
    (tmp_path / "part.jsonl.gz").write_bytes(content[: len(content) // 2])
    check(tmp_path / "part.jsonl.gz")


def test_only_the_beginning_of_a_file_is_read_to_check_it(tmp_path: Path, monkeypatch):
    path = written(tmp_path, *[{"text": PROSE}] * 10_000)
    num_read = 0

    class Counted(io.FileIO):
        def readinto(self, buffer: Any) -> int:
            nonlocal num_read
            num_bytes = super().readinto(buffer)
            num_read += num_bytes
            return num_bytes

    monkeypatch.setattr(storage, "open_input", lambda path: io.BufferedReader(Counted(path)))
    plan_input(entry_of(path), 1 << 20, IngestConfig())
    assert 0 < num_read < 200_000
