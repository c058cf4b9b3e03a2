"""Nothing is lost uncounted: of real inputs of each kind, words in are words out and words left out by reason."""

import bz2
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.execution.counters import Counters
from clozeworks.pipeline.sources.documents import read_documents

CORPUS = Path(__file__).parents[3] / "examples" / "quickstart" / "corpus"
URL = "https://en.wikipedia.org/wiki?curid="


def account(source: Path) -> tuple[int, Counters]:
    """Return the words of all documents and of what was left out, and the counters."""
    counters = Counters()
    num_words = sum(
        len(paragraph.split()) for document in read_documents(str(source), counters=counters)
        for paragraph in document.paragraphs
    )  # fmt: skip
    assert not counters.bad
    return num_words + sum(n for name, n in counters.counts.items() if name.startswith("words_left_out")), counters


def articles() -> list[tuple[str, str]]:
    """Return titles and texts as an extractor leaves them: headings, lists and holes among the prose."""
    dump = bz2.decompress((CORPUS / "enwiki-excerpt.xml.bz2").read_bytes()).decode()
    pages = re.findall(r"<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", dump, re.DOTALL)
    texts = [re.sub(r"\{\{[^{}]*\}\}|&[a-z]+;|<[^>]*>|[][']{2,}", "", text) for _, text in pages]
    return [(title, f"{title}\n\n{text}") for (title, _), text in zip(pages, texts, strict=True) if len(text) > 2000]


@pytest.mark.parametrize("name", sorted(path.name for path in (CORPUS / "books").glob("*.txt")))
def test_words_of_books(name: str) -> None:
    assert account(CORPUS / "books" / name)[0] == len((CORPUS / "books" / name).read_text("utf-8-sig").split())


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
    assert num_words == sum(len(row["text"].split()) for row in rows)
    assert bool(url) == (counters.counts["words_left_out_as_lines"] > 1000)


def test_words_of_extracted_articles(tmp_path: Path) -> None:
    path = tmp_path / "wiki_00"
    path.write_text(
        "".join(
            f'<doc id="{number}" url="{URL}{number}" title="{title}">\n{text}\n\n</doc>\n'
            for number, (title, text) in enumerate(articles())
        )
    )
    assert account(path)[0] == sum(len(text.split()) for _, text in articles())


def test_pages_of_a_dump() -> None:
    """Its words are markup too: only pages can be accounted for."""
    counters = Counters()
    documents = sum(1 for _ in read_documents(str(CORPUS / "enwiki-excerpt.xml.bz2"), counters=counters))
    counts = counters.counts
    kinds = ("redirects", "other_namespaces", "disambiguation_pages", "other_models", "empty_pages")
    assert documents + sum(counts[kind] for kind in kinds) == counts["pages"] > documents > 20
    assert min(counts[name] for name in ("lines_left_out", "tables_left_out", "labels_left_out")) > 5
