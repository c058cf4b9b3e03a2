"""``ingest --explain``: what is kept and left out of one document, of every kind of source."""

import json
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.documents.explain import Explanation, explain
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources.formats import read_documents

CORPUS = Path(__file__).parents[3] / "examples" / "quickstart" / "corpus"
DUMP = str(CORPUS / "enwiki-excerpt.xml.bz2")
# From WikiExtractor's output of the English Wikipedia.
ARTICLE = """Anarchism

Anarchism is a political philosophy that advocates stateless societies often defined as \
self-governed institutions.

Etymology and terminology.
The term "anarchism" is a compound word composed from the word "anarchy" and the suffix \
"-ism" (; ; ), in turn.
"""


def texts_of(explanation: Explanation, reason: str) -> list[str]:
    return [entry.text for entry in explanation.left_out if entry.reason == reason]


def test_a_page_of_a_dump() -> None:
    found = explain([DUMP], "Animal Farm", IngestConfig())
    assert (found.doc_id, found.title) == ("enwiki:620", "Animal Farm")
    assert found.sentences[0].startswith(
        "Animal Farm is an allegorical and dystopian novella by George Orwell"
    )
    assert any(text.startswith("<ref>Orwell, George.") for text in texts_of(found, "notes"))
    assert any(text.startswith("{{Infobox book") for text in texts_of(found, "templates"))
    assert any(text.startswith("*") for text in texts_of(found, "lists"))
    assert "Books:" in texts_of(found, "labels") and "==Analysis==" in texts_of(found, "headings")
    assert not any(set(entry.text) & set("\x01\x02\x03") for entry in found.left_out)
    assert explain([DUMP], "enwiki:620", IngestConfig()) == found
    assert {document.id for document in read_documents(DUMP)} > {"620"}


def test_pages_that_are_not_articles() -> None:
    redirect = explain([DUMP], "AccessibleComputing", IngestConfig())
    assert not redirect.sentences and texts_of(redirect, "redirects")[0].startswith(
        "#REDIRECT [[Computer accessibility]]"
    )
    assert {entry.reason for entry in redirect.left_out} == {"redirects", "markup"}


def test_a_book() -> None:
    found = explain([str(CORPUS / "books")], "text:books/chekhov-gusev", IngestConfig())
    assert texts_of(found, "headings") == ["GUSEV", "I", "II", "III", "IV", "V"]
    assert texts_of(found, "marks") == ["_Gazette,_"]
    assert found.sentences[0] == "IT was getting dark; it would soon be night."


def test_a_book_of_project_gutenberg() -> None:
    path = next(
        path
        for path in sorted((CORPUS / "books").iterdir())
        if "Gutenberg" in path.read_text()[:500]
    )
    document = next(iter(read_documents(str(path))))
    found = explain(
        [str(CORPUS / "books")], f"gutenberg:books/{document.id.rpartition('/')[2]}", IngestConfig()
    )
    assert (
        "Project Gutenberg" in texts_of(found, "boilerplate")[0]
        and len(texts_of(found, "boilerplate")) == 2
    )


@pytest.mark.parametrize("form", ["wiki_00", "rows.jsonl", "rows.parquet"])
def test_extracted_articles_and_rows(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    others = [
        (str(number), f"Other {number}", f"A sentence of {number}.\n" * 9) for number in range(9)
    ]
    rows = [
        {
            "id": row_id,
            "url": f"https://en.wikipedia.org/wiki?curid={row_id}",
            "title": title,
            "text": text,
        }
        for row_id, title, text in [*others[:5], ("12", "Anarchism", ARTICLE), *others[5:]]
    ]
    if form == "wiki_00":
        page = '<doc id="{id}" url="{url}" title="{title}">\n{text}\n</doc>\n'
        path.write_text("".join(page.format(**row) for row in rows))
    elif form == "rows.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    found = explain([str(tmp_path)], "Anarchism", IngestConfig())
    assert found.doc_id == "enwiki:12" and len(found.sentences) == 2
    assert [(entry.reason, entry.num_words, entry.text) for entry in found.left_out] == [
        ("titles", 1, "Anarchism"),
        ("marks", 3, '"-ism" (; ; ),'),
        ("lines", 3, "Etymology and terminology."),
    ]


@pytest.mark.parametrize("in_archive", [False, True])
def test_what_another_file_leaves_out_is_not_named(tmp_path: Path, in_archive: bool) -> None:
    texts = {
        "a.txt": "CHAPTER I\n",
        "b.txt": f"CHAPTER II\n\n{'It was a bright cold day in April. ' * 9}\n",
    }
    (tmp_path / "books").mkdir()
    with ZipFile(tmp_path / "books.zip", "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
            (tmp_path / "books" / name).write_text(text)
    source = tmp_path / ("books.zip" if in_archive else "books")
    found = explain([str(source)], "text:books/b", IngestConfig())
    assert [(entry.reason, entry.text) for entry in found.left_out] == [("headings", "CHAPTER II")]


def test_a_document_that_is_too_short() -> None:
    config = IngestConfig(min_characters=10**9)
    found = explain([str(CORPUS / "books")], "text:books/chekhov-gusev", config)
    assert not found.sentences
    assert Counter(entry.reason for entry in found.left_out)["documents_too_short"] > 100


def test_a_document_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(
        UserError,
        match=r"^No document has the id or title 'Emma'\. An id is, for example, '\w+:books/\S+'"
        r"\. Bad input: 1 x empty file\.$",
    ):
        explain([str(CORPUS / "books"), str(tmp_path)], "Emma", IngestConfig())


def test_the_command_prints_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["ingest", str(CORPUS / "books"), "--explain", "text:books/chekhov-gusev"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "text:books/chekhov-gusev",
        "",
        "kept:",
        "  IT was getting dark; it would soon be night.",
    ]
    assert lines[-3:] == [
        "   5,304 kept",
        "       6 left out as headings",
        "       0 left out as marks",
    ]
    assert "       1 headings: GUSEV" in lines and not list(tmp_path.iterdir())
    with pytest.raises(SystemExit, match="2"):
        main(["ingest", str(CORPUS / "books")])
    assert capsys.readouterr().err.startswith("Error: Missing option '--output'.")
