"""Which columns of a table are read: inside others, in lists."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources.streams import RawDocument

from tests.fixtures.reading import Source

ROWS = [
    {
        "pmid": "p-1",
        "payload": {"body": "A body.", "lang": "fr"},
        "parts": [{"t": "One."}, {"t": None}, {"t": "Two."}],
        "headline": "A headline",
    },
    {"pmid": "p-2", "payload": {"body": None, "lang": "<b>"}, "parts": [], "headline": "Another"},
]


def write(folder: Path, form: str) -> Path:
    path = folder / f"part-0.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return path


def read(path: Path, counters: Counters | None = None, **columns: Any) -> list[RawDocument]:
    form = "parquet" if path.suffix == ".parquet" else "jsonl"
    source = Source(form, path, path.name)
    source.plan(config=IngestConfig(**columns))
    return list(source.read(counters or Counters(), config=IngestConfig(**columns)))


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_columns_lie_in_others_and_in_lists(form, tmp_path):
    path = write(tmp_path, form)
    documents = read(
        path, counters := Counters(), text_column="payload.body", id_column="pmid",
        title_column="headline", language_column="payload.lang", source_column="payload.lang",
    )  # fmt: skip
    (document,) = documents  # the other has no text, which is no damage
    assert (document.id, document.source) == ("p-1", "fr")
    assert (document.title, document.language) == ("A headline", "fr")
    assert document.paragraphs == ["A body."]
    assert not counters.bad and counters.counts["rows_without_text"] == 1

    both = read(path, text_column="headline,parts.t", language_column="payload.lang")
    assert [document.paragraphs for document in both] == [
        ["A headline", "One.", "Two."],
        ["Another"],
    ]
    # Markup is no code of a language; without --id-column, an id tells rows of one file apart.
    assert [document.language for document in both] == ["fr", ""]
    assert all(document.id.startswith("part-0#") for document in both)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_rows_without_a_value_in_a_named_column_are_counted(form, tmp_path):
    path = write(tmp_path, form)
    counters = Counters()
    read(path, counters, text_column="headline", id_column="pmdi", source_column="pmid")
    assert counters.counts == {"rows_with_empty_columns": 2}
    assert counters.examples["rows_with_empty_columns"][0].endswith(" 0: pmdi")
    read(path, counters := Counters(), text_column="headline,payload.body")
    assert counters.counts == {"rows_with_empty_columns": 1}
    assert counters.examples["rows_with_empty_columns"][0].endswith(": payload.body")
    read(path, counters := Counters(), text_column="headline")
    assert not counters.counts


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("payload.text", r"has no column 'payload.text'"),
        ("headline,none", r"has no column 'none'"),
        ("payload", r"column 'payload' holds .*, not text"),
        ("pmid,", r"`text_column` is pmid,, but must name columns"),
    ],
)
def test_a_column_that_is_not_there_or_no_text_is_named(column, message, tmp_path):
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, "parquet"), text_column=column)
