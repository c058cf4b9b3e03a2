"""Rows with a text as documents: ids, sources and titles, of wikis and of anything else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.sources.formats import read_documents
from clozeworks.pipeline.sources.row_documents import Columns, Table, row_documents, wiki_of
from clozeworks.pipeline.sources.streams import RawDocument

PROSE = "Almonds are a rich source of oil, as several studies have shown."
NAMES: Any = {"name": "c4/part-0.jsonl", "stem": "c4/part-0", "source": "jsonl"}
TABLE = Table(**NAMES, columns=Columns(IngestConfig()), config=IngestConfig())


def read(
    row: dict[str, Any], counters: Counters | None = None, table: Table = TABLE
) -> RawDocument | None:
    return next(row_documents([(17, row)], table, counters or Counters()), None)


def test_ids_of_other_tables_are_those_of_one_file():
    found = [
        read(row)
        for row in ({"text": PROSE}, {"text": PROSE, "id": 17}, {"text": PROSE, "id": None})
    ]
    assert [document.id for document in found if document] == [
        "c4/part-0#17",
        "c4/part-0/17",
        "c4/part-0#17",
    ]
    assert {
        (document.source, document.title, document.language) for document in found if document
    } == {("jsonl", "", "")}


def test_only_the_text_of_wikis_loses_its_short_lines():
    text = '"Yes," he said.\n\n"No."\n'
    document = read({"text": text})
    assert document and document.paragraphs == ['"Yes," he said.', '"No."']
    counters = Counters()
    assert read({"text": text, "url": "https://en.wikipedia.org/wiki/Yes"}, counters) is None
    assert counters.to_record()["counts"] == {
        "lines_left_out": 2,
        "words_left_out_as_lines": 4,
        "rows_without_prose": 1,
    }


def test_windows_ends_of_lines_are_no_part_of_paragraphs():
    document = read({"text": f"{PROSE}\r\n\r\n{PROSE}"})
    assert document and document.paragraphs == [PROSE, PROSE]


@pytest.mark.parametrize(
    ("value", "language"),
    [
        ("deu", "de"), ("deu_Latn", "de-latn"), ("pt_BR", "pt-br"), ("simple", "en"),
        ("nds", "nds"), ("german", ""), ("jp", ""), ("und", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_column_holds_codes_as_the_option_takes_them(value: str, language: str):
    table = replace(TABLE, columns=Columns(IngestConfig(language_column="lang")))
    document = read({"text": PROSE, "lang": value}, table=table)
    assert document and document.language == language


def test_hard_wrapped_text_is_read_as_a_book():
    words = (
        "CHAPTER I\r\n\r\n"
        + "It was a bright cold day in April, and the clocks were striking\r\n" * 30
    )
    document = read({"text": f"{words}thirteen.\r\n\r\nNobody heard\r\nthem."})
    assert document and len(document.paragraphs) == 2
    assert document.paragraphs[0].startswith(
        "It was a bright cold day in April, and the clocks were striking It was"
    )
    assert document.paragraphs[1] == "Nobody heard them."
    verse = [f"A line of verse, the number {'very ' * (i % 9)}{i}." for i in range(40)]
    document = read({"text": "\n".join(verse)})
    assert document and document.paragraphs == verse


def test_a_gutenberg_header_in_a_row_names_language_and_title():
    text = (
        "The Project Gutenberg EBook of Candide, by Voltaire\n\n"
        "Title: Candide\n\nAuthor: Voltaire\n\nLanguage: French\n\n"
        "*** START OF THIS PROJECT GUTENBERG EBOOK CANDIDE ***\n\n"
        "Il y avait en Vestphalie un jeune garçon.\n\nLanguage: no field of the header.\n"
    )
    document = read({"text": text})
    assert document and (document.title, document.language) == ("Candide", "fr")
    assert document.paragraphs[0] == "Il y avait en Vestphalie un jeune garçon."
    document = read({"text": text, "title": "Candide, ou l'Optimisme"})
    assert document and document.title == "Candide, ou l'Optimisme"
    document = read({"text": text.replace("Language: French\n\n", "")})
    assert document and (document.title, document.language) == ("Candide", "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "rows_without_text"), ("", "rows_without_text"), (7, "text_is_not_a_string"),
        ([7], "text_is_not_a_string"), ([], "rows_without_text"), ([None, ""], "rows_without_text"),
    ],
)  # fmt: skip
def test_rows_without_text_are_counted_and_named(text: Any, reason: str):
    counters = Counters()
    assert read({"id": 1, "text": text}, counters) is None
    # An empty text is not damage.
    assert bool(counters.bad) == (reason != "rows_without_text")
    assert counters.to_record()["examples"] == {reason: ["c4/part-0.jsonl, row 17"]}


def test_fields_of_any_type_become_clean_text():
    document = read({"text": PROSE, "id": {"a": [1]}, "url": 5, "title": "Al\ud800mond\n\x00s"})
    assert document and (document.id, document.title) == ("c4/part-0/{'a': [1]}", "Almond s")


MARKDOWN = f"# Almond\n\n![nut](a.png) {PROSE}\n\n- An item of a list. It is one.\n\n**So** it is."


def test_rows_of_finewiki_are_markdown_and_have_the_ids_of_the_dump():
    row = {"text": MARKDOWN, "id": "enwiki/12", "wikiname": "enwiki", "title": "Almond"}
    row["url"] = "https://en.wikipedia.org/wiki/Almond"
    counters = Counters()
    assert read(row, counters) == RawDocument(
        id="12", source="enwiki", title="Almond", language="en", paragraphs=[PROSE, "So it is."]
    )
    assert "rows_that_look_like_markdown" not in counters.counts
    plain = read(row, table=replace(TABLE, columns=Columns(IngestConfig(text_column="title"))))
    assert plain is None  # a column of another name is not Markdown, but the line of a wiki


def test_other_tables_are_markdown_only_if_that_is_said():
    counters = Counters()
    document = read({"text": MARKDOWN}, counters)
    assert document and document.paragraphs[-1] == "**So** it is."
    assert counters.examples["rows_that_look_like_markdown"] == ["c4/part-0.jsonl, row 17"]
    document = read(
        {"text": MARKDOWN}, table=replace(TABLE, config=IngestConfig(documents="markdown"))
    )
    assert document and document.paragraphs == [PROSE, "So it is."]


def test_sections_of_structured_articles_are_read_at_any_depth():
    deep = {"type": "section", "has_parts": [{"type": "paragraph", "value": "Three."}]}
    item = {"type": "list", "has_parts": [{"type": "list_item", "value": "An item."}]}
    section = {"type": "section", "has_parts": [{"type": "paragraph", "value": "Two."}, deep, item]}
    parts = [{"type": "paragraph", "value": "One."}, section, {"type": "paragraph", "value": "4."}]
    table = replace(TABLE, columns=Columns(IngestConfig(text_column="sections.has_parts.value")))
    document = read({"sections": [{"type": "section", "has_parts": parts}]}, table=table)
    assert document and document.paragraphs == ["One.", "Two.", "Three.", "4."]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://en.wikipedia.org/wiki/A", ("enwiki", "en")),
        ("http://en.m.wikipedia.org/wiki?curid=290", ("enwiki", "en")),
        ("https://zh-min-nan.wikipedia.org/wiki/A", ("zh_min_nanwiki", "zh-min-nan")),
        ("https://be-tarask.wikipedia.org/wiki/A", ("be_x_oldwiki", "be-tarask")),
        ("https://fr.wiktionary.org/wiki/a", ("frwiktionary", "fr")),
        ("https://example.org/en.wikipedia.org", None),
        ("https://en.wikipedia.org.example.com/wiki/A", None),
        ("http://[bad", None),
        ("", None),
    ],
)
def test_wiki_of_an_address(url: str, expected: tuple[str, str] | None) -> None:
    assert wiki_of(url) == expected


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "saved"])
def test_lines_of_hard_wrapped_rows_are_kept_on_request(form: str, tmp_path: Path):
    labs = "Labs: WBC 7.5"
    line = "He was brought in by his wife after he had been complaining of pain,\n"
    rows = datasets.Dataset.from_list([{"text": f"{labs}\n\n{line * 30}and went."}])
    path = str(tmp_path / f"notes.{form}")
    if form == "jsonl":
        rows.to_json(path)
    elif form == "csv":
        rows.to_csv(path)
    elif form == "parquet":
        rows.to_parquet(path)
    else:
        rows.save_to_disk(path)
    (without,) = read_documents(path)
    assert labs not in without.paragraphs
    (kept,) = read_documents(path, IngestConfig(keep_lines=True))
    assert kept.paragraphs == [labs, *without.paragraphs]
