import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources import parquet
from clozeworks.pipeline.sources.formats import read_documents
from clozeworks.pipeline.sources.streams import RawDocument

from tests.fixtures.reading import Source

PROSE = "Almonds are a rich source of oil, as several studies have shown."


def written(folder: Path, columns: dict[str, Any], row_group_size: int = 1000) -> Path:
    path = folder / "part.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def read(path: Path, counters: Counters, **options: Any) -> Iterator[RawDocument]:
    return Source("parquet", path, "data/part.parquet").read(
        counters, config=IngestConfig(**options)
    )


def test_the_columns_of_wikimedia_wikipedia(tmp_path: Path) -> None:
    url = "https://simple.wikipedia.org/wiki/Almond"
    text = f"{PROSE}\n\nHistory.\n\nCitrus fruits\n{PROSE}"
    path = written(tmp_path, {"id": ["12"], "url": [url], "title": ["Almond"], "text": [text]})
    counters = Counters()
    assert list(read(path, counters)) == [
        RawDocument(
            id="12",
            source="simplewiki",
            title="Almond",
            language="simple",
            paragraphs=[PROSE, PROSE],
        )
    ]
    assert counters.counts == {"lines_left_out": 2, "words_left_out_as_lines": 3}
    assert not counters.bad


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_dictionary_of_one_long_text_is_a_bomb(tmp_path: Path, kind: pa.DataType) -> None:
    numbers = pa.array([0] * 5000, pa.int32())
    texts = pa.DictionaryArray.from_arrays(numbers, [PROSE * 1000])
    path = written(tmp_path, {"text": texts.cast(kind)}, row_group_size=10_000)
    assert path.stat().st_size < 10_000
    counters = Counters()
    num_read = sum(1 for _ in read(path, counters))
    assert num_read < 1000
    assert counters.bad == {"compression_bomb": 1}


def test_a_row_is_a_document_and_sentences_are_advised_to_be_joined(tmp_path: Path) -> None:
    sentences = [f"This is sentence {number}." for number in range(100)]
    reviews = [f"Review {number}. The kettle leaks. I sent it back." for number in range(100)]
    for documents in ("auto", "line", "blank-line", "file"):
        for texts in (sentences, reviews, [["One.", "Two."]] * 100):
            counters = Counters()
            path = written(tmp_path, {"text": texts})
            assert len(list(read(path, counters, documents=documents))) == 100
            is_advised = counters.counts["tables_of_sentences"] == 1
            assert is_advised == (texts is sentences and documents == "auto")


def test_rows_are_joined_up_to_another_id_or_a_blank_one(tmp_path: Path, monkeypatch):
    rows = [
        ("a", "One."), ("a", "Two."), ("b", "Three."), ("b", None), ("b", "Four."), ("b", "Five."),
    ]  # fmt: skip
    columns = {"id": [row_id for row_id, _ in rows], "text": [text for _, text in rows]}
    path = written(tmp_path, columns)
    lines = [f"{row_id},{text}" if text else "" for row_id, text in rows]
    csv = "\n".join(["id,text", *lines]).encode()
    monkeypatch.setattr("clozeworks.pipeline.sources.row_documents.LONGEST_JOINED", 9)
    config = IngestConfig(documents="sentence")
    for documents in (
        read(path, Counters(), documents="sentence"),
        Source("csv", csv, "data/part.csv").read(config=config),
    ):
        assert [document.paragraphs for document in documents] == [
            ["One.", "Two."],
            ["Three."],
            ["Four.", "Five."],
        ]
    ids = [document.id for document in read(path, Counters(), documents="sentence")]
    assert ids == ["data/part/a", "data/part/b", "data/part/b#4"]
    # A document that goes on in another row group, or range of bytes, is there as another one.
    path = written(tmp_path, columns, row_group_size=1)
    ids = [document.id for document in read(path, Counters(), documents="sentence")]
    assert ids == [
        "data/part/a",
        *(f"data/part/{row_id}" for row_id in ("a#1", "b#2", "b#4", "b#5")),
    ]
    lines = b'{"id": "a", "text": "One."}\n' * 9
    found = Source("jsonl", lines, "part.jsonl").read(range_bytes=100, config=config)
    assert [document.id for document in found] == ["part/a", "part/a#84", "part/a#168"]


def test_an_id_that_comes_back_is_a_mistake_where_rows_are_joined(tmp_path: Path) -> None:
    path = written(tmp_path, {"id": ["a", "b", "a"], "text": ["One.", "Two.", "Three."]})
    with pytest.raises(UserError, match="row 2: the id 'a' comes back after others: sort the rows"):
        list(read(path, Counters(), documents="sentence"))


def test_ids_are_without_the_suffix_in_any_case(tmp_path: Path) -> None:
    path = written(tmp_path, {"id": ["7"], "text": [PROSE]})
    stems = {"a.parquet": "a", "A.PARQUET": "A", "a.gz.parquet": "a.gz"}
    for name, stem in stems.items():
        assert [document.id for document in Source("parquet", path, name).read()] == [f"{stem}/7"]


def test_a_table_without_row_groups_has_no_documents(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    pq.ParquetWriter(path, pa.schema({"text": pa.string()})).close()
    assert pq.read_metadata(path).num_row_groups == 0
    counters = Counters()
    assert not list(read(path, counters))
    assert not counters.bad


def test_ranges_cover_every_row_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(
        tmp_path, {"text": [f"{PROSE}\n{row}." for row in range(100)]}, row_group_size=10
    )
    monkeypatch.setattr("clozeworks.pipeline.sources.parquet.RANGE_BYTES", 2000)
    ranges = Source("parquet", path, "part").plan()
    assert len(ranges) > 1
    assert [part.start for part in ranges] == [0, *(part.stop for part in ranges[:-1])]
    assert [document.id for document in read(path, Counters())] == [
        f"data/part#{row}" for row in range(100)
    ]


def test_an_unreadable_row_group_does_not_hide_the_others(tmp_path: Path) -> None:
    path = written(tmp_path, {"text": [f"{PROSE}\n{row}." for row in range(30)]}, row_group_size=10)
    start = pq.read_metadata(path).row_group(1).column(0).dictionary_page_offset
    raw = bytearray(path.read_bytes())
    raw[start : start + 40] = b"\xff" * 40
    path.write_bytes(raw)
    counters = Counters()
    assert [document.id for document in read(path, counters)] == [
        f"data/part#{row}" for row in range(30) if not 10 <= row < 20
    ]
    assert counters.examples["unreadable_row_group"][0].startswith(
        "data/part.parquet, row group 1: "
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), "nested"])
def test_a_row_with_invalid_utf8_is_bad_input(tmp_path: Path, kind: Any) -> None:
    raw = pa.array([b"Caf\xe9 " + PROSE.encode(), PROSE.encode()]).view(pa.string())
    if kind == "nested":
        bodies = pa.StructArray.from_arrays([raw], ["body"])
        texts = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), bodies)
    else:
        texts = raw.cast(kind)
    path = written(tmp_path, {"parts": texts, "label": [1, 2]})
    column = "parts.body" if kind == "nested" else "parts"
    (document,) = read(path, counters := Counters(), text_column=column)
    assert document.paragraphs == [PROSE]
    assert counters.examples == {"invalid_utf8": ["data/part.parquet, row 0"]}


def test_texts_that_are_categories_of_pandas(tmp_path: Path) -> None:
    texts = pa.array([PROSE, None, PROSE]).dictionary_encode()
    path = written(tmp_path, {"text": texts, "label": [1, 2, 3]})
    assert [document.paragraphs for document in read(path, Counters())] == [[PROSE], [PROSE]]


def test_a_damaged_file_costs_only_itself(tmp_path: Path) -> None:
    path = written(tmp_path, {"text": [PROSE] * 3, "label": [1, 2, 3]})
    content = path.read_bytes()
    for damaged in (
        content[:-20],
        content[:-8] + b"\xff" * 4 + b"PAR1",
        content[:-60] + b"\xff" * 52 + content[-8:],
        b"no Parquet",
    ):
        path.write_bytes(damaged)
        counters = Counters()
        assert list(read_documents(str(path), counters=counters)) == []
        assert counters.bad == {"damaged_parquet_file": 1}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_row_that_is_too_long_is_left_out(tmp_path: Path, monkeypatch, kind: pa.DataType):
    monkeypatch.setattr("clozeworks.pipeline.sources.parquet.LONGEST_LINE_BYTES", 200)
    texts = pa.array([PROSE, PROSE * 4, None, PROSE], kind)
    path = written(tmp_path, {"text": texts, "id": pa.array(["a", "b", "c", "d"], kind)})
    counters = Counters()
    assert [document.id for document in read(path, counters)] == ["data/part/a", "data/part/d"]
    assert counters.bad == {"oversized_row": 1}
    assert counters.examples["oversized_row"] == ["data/part.parquet, row 1"]
    assert counters.examples["rows_without_text"] == ["data/part.parquet, row 2"]


@pytest.mark.slow
def test_batches_of_long_rows_are_small(tmp_path: Path) -> None:
    text = "It goes on and on. " * 50_000
    path = written(tmp_path, {"text": [f"{row} {text}" for row in range(60)], "label": range(60)})
    tracemalloc.start()
    assert sum(1 for _ in read(path, Counters())) == 60
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 45_000_000


def test_long_texts_of_many_rows_are_read_in_parts(tmp_path: Path, monkeypatch):
    texts = pa.array([f"{number} {PROSE}" for number in range(5)])
    numbers = pa.array([row % 5 for row in range(100)], pa.int32())
    path = written(
        tmp_path, {"text": pa.DictionaryArray.from_arrays(numbers, texts).cast("string")}
    )
    expected = [document.paragraphs for document in read(path, Counters())]
    assert len(expected) == 100
    monkeypatch.setattr(parquet, "BATCH_BYTES", 1000)
    assert [document.paragraphs for document in read(path, Counters())] == expected


def test_a_part_in_which_all_texts_are_missing_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path, {"text": pa.nulls(3), "id": [1, 2, 3]})
    counters = Counters()
    assert list(read(path, counters)) == [] and not counters.bad
    assert counters.counts["rows_without_text"] == 3
