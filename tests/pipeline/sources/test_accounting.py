"""Nothing is lost uncounted: words in are words out and words left out by reason."""

import bz2
import html
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.documents.scatter import select_sentences
from clozeworks.pipeline.sources.formats import read_documents

from tests.fixtures.shared_data import DATA, needs_shared_data

CORPUS = Path(__file__).parents[3] / "examples" / "quickstart" / "corpus"
URL = "https://en.wikipedia.org/wiki?curid="


def account(source: Path) -> tuple[int, Counters]:
    """Return the words of all documents and of what was left out, and the counters."""
    counters = Counters()
    num_words = sum(
        num_words_of(paragraph) for document in read_documents(str(source), counters=counters)
        for paragraph in document.paragraphs
    )  # fmt: skip
    assert not counters.bad
    return num_words + num_left_out(counters), counters


def num_words_of(text: str) -> int:
    return len(text.encode().split())


def num_left_out(counters: Counters) -> int:
    return sum(
        count for name, count in counters.counts.items() if name.startswith("words_left_out_as_")
    )


def articles() -> list[tuple[str, str]]:
    """Return titles and texts as an extractor leaves them: headings, lists and holes in prose."""
    dump = bz2.decompress((CORPUS / "enwiki-excerpt.xml.bz2").read_bytes()).decode()
    pages = re.findall(r"<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", dump, re.DOTALL)
    texts = [re.sub(r"\{\{[^{}]*\}\}|&[a-z]+;|<[^>]*>|[][']{2,}", "", text) for _, text in pages]
    return [
        (title, f"{title}\n\n{text}")
        for (title, _), text in zip(pages, texts, strict=True)
        if len(text) > 2000
    ]


@pytest.mark.parametrize("name", sorted(path.name for path in (CORPUS / "books").glob("*.txt")))
def test_words_of_books(name: str) -> None:
    assert account(CORPUS / "books" / name)[0] == len(
        (CORPUS / "books" / name).read_bytes().split()
    )


@pytest.mark.slow
@pytest.mark.parametrize("url", ["", URL])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_words_of_rows(tmp_path: Path, form: str, url: str) -> None:
    rows = [
        {"id": str(number), "url": f"{url}{number}", "title": title, "text": text}
        for number, (title, text) in enumerate(articles())
    ]
    path = tmp_path / f"rows.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    num_words, counters = account(path)
    assert len(rows) > 20
    assert num_words == sum(num_words_of(row["text"]) for row in rows)
    assert bool(url) == (counters.counts["words_left_out_as_lines"] > 1000)


DUMPS = [
    CORPUS / "enwiki-excerpt.xml.bz2",
    pytest.param(
        DATA / "wikipedia" / "ltgwiki-pages-articles-multistream.xml.bz2", marks=needs_shared_data
    ),
    pytest.param(DATA / "wikipedia" / "bgwiki-utf16-excerpt.xml.bz2", marks=needs_shared_data),
]


def pages_of(path: Path) -> list[bytes]:
    content = bz2.decompress(path.read_bytes())
    content = (
        content.decode("utf-16").encode()
        if content.startswith((b"\xff\xfe", b"\xfe\xff"))
        else content
    )
    return re.findall(rb"<page>.*?</page>", content, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("path", DUMPS)
def test_words_of_a_dump(path: Path) -> None:
    """Those of its markup too, whether or not a page is an article; down to the sentences."""
    counters, config = Counters(), IngestConfig()
    documents = list(read_documents(str(path), counters=counters))
    num_kept = num_words_of(
        " ".join(paragraph for document in documents for paragraph in document.paragraphs)
    )
    pages = pages_of(path)
    assert num_kept + num_left_out(counters) == sum(len(page.split()) for page in pages)
    counts = counters.counts
    kinds = ("redirects", "other_namespaces", "disambiguation_pages", "other_models", "empty_pages")
    assert (
        len(documents) + sum(counts[kind] for kind in kinds)
        == counts["pages"]
        == len(pages)
        > len(documents)
    )

    sentences: list[str] = []
    for document in documents:
        sentences.extend(select_sentences(document, config, counters))
    num_kept = num_words_of(" ".join(sentences))
    # "word.Next" is a word of the source, and one of each of two sentences.
    assert num_kept + num_left_out(counters) == pytest.approx(
        sum(len(page.split()) for page in pages), rel=1e-4
    )


@pytest.mark.slow
def test_reasons_of_a_dump() -> None:
    """Notes and tables against regular expressions; little is left out as markup."""
    path = CORPUS / "enwiki-excerpt.xml.bz2"
    counters = Counters()
    titles = {document.title for document in read_documents(str(path), counters=counters)}
    counts = counters.counts
    assert (
        min(counts[name] for name in ("lines_left_out", "tables_left_out", "labels_left_out")) > 5
    )
    pages = [html.unescape(page.decode()) for page in pages_of(path)]
    articles = [page for page in pages if re.findall("<title>(.*)</title>", page)[0] in titles]
    notes = " ".join(
        " ".join(re.findall(r"(?s)<ref(?:\s[^<>]*)?(?<!/)>.*?</ref>", page)) for page in articles
    )
    assert counts["words_left_out_as_notes"] == pytest.approx(num_words_of(notes), rel=0.03)
    headings = " ".join(" ".join(re.findall(r"(?m)^==.*==\s*$", page)) for page in articles)
    assert counts["words_left_out_as_headings"] == pytest.approx(num_words_of(headings), rel=0.03)
    for kind in ("templates", "tables", "lists", "comments", "files_and_categories", "labels"):
        assert counts[f"words_left_out_as_{kind}"] > 100
    assert counts["words_left_out_as_markup"] < 0.05 * sum(map(num_words_of, articles))
