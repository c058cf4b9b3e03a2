"""WikiExtractor's output in both of its forms, whole whatever the ranges, bad ones counted."""

import bz2
import json
from pathlib import Path

import pytest
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.sources.streams import RawDocument

from tests.fixtures.reading import Source

PROSE = "Almonds are a rich source of oil, as several studies have shown."


def read(path: Path, counters: Counters, range_bytes: int = 1 << 24) -> list[RawDocument]:
    return list(Source("wikiextractor", path, f"AA/{path.name}").read(counters, range_bytes))


def article(
    number: int, title: str = "Almond", url: str = "https://en.wikipedia.org/wiki?curid=1"
) -> str:
    header = f'<doc id="{number}" url="{url}" title="{title}">'
    return f"{header}\n{title}\n\n{PROSE}\nHistory.\n{PROSE}\n\n</doc>\n"


def written(folder: Path, content: str | bytes) -> Path:
    (folder / "wiki_00").write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / "wiki_00"


def expected(number: int, title: str = "Almond") -> RawDocument:
    return RawDocument(
        id=str(number), source="enwiki", title=title, language="en", paragraphs=[PROSE, PROSE]
    )


def test_articles_become_documents(tmp_path: Path):
    titles = ["Almond", '"Weird Al" Yankovic', "Tom &amp; Jerry"]
    path = written(tmp_path, "".join(article(i, title) for i, title in enumerate(titles)))
    counters = Counters()
    assert read(path, counters) == [expected(0), expected(1, titles[1]), expected(2, "Tom & Jerry")]
    assert counters.counts["lines_left_out"] == 3
    assert not counters.bad


def test_compressed_files_and_json_give_the_same_documents(tmp_path: Path):
    content = "".join(article(i) for i in range(3))
    (tmp_path / "wiki_00.bz2").write_bytes(bz2.compress(content.encode()))
    fields = {
        "url": "https://en.wikipedia.org/wiki?curid=1",
        "title": "Almond",
        "text": f"{PROSE}\nHistory.\n{PROSE}",
    }
    rows = "".join(json.dumps({"id": str(i), "revid": "5", **fields}) + "\n" for i in range(3))
    (tmp_path / "wiki_01").write_text(rows)
    assert (
        read(tmp_path / "wiki_00.bz2", Counters())
        == read(tmp_path / "wiki_01", Counters())
        == [*map(expected, range(3))]
    )


def test_articles_of_an_unknown_wiki_have_the_ids_of_their_file(tmp_path: Path):
    (document,) = read(
        written(tmp_path, article(7, url="http://wiki.example.org/?curid=7")), Counters()
    )
    assert (document.source, document.id, document.paragraphs) == (
        "wikiextractor",
        "AA/wiki_00/7",
        [PROSE, PROSE],
    )


@pytest.mark.parametrize("range_bytes", [1, 60, 333, 1000])
def test_every_range_gives_the_same_articles(tmp_path: Path, range_bytes: int):
    path = written(tmp_path, "".join(article(i) for i in range(12)))
    counters = Counters()
    assert read(path, counters, range_bytes) == [*map(expected, range(12))]
    assert counters.counts["lines_left_out"] == 12


def test_bad_articles_are_counted_and_cost_only_themselves(tmp_path: Path):
    unclosed = article(1).removesuffix("</doc>\n")
    header = '<doc title="x">\n' + PROSE + "\n</doc>\n"
    path = written(
        tmp_path,
        f"stray\nlines\n{unclosed}{article(2)}{header}stray\n{article(3)}{article(4)[:-30]}",
    )
    counters = Counters()
    found = read(path, counters)
    assert [document.id for document in found] == ["1", "2", "3", "4"]
    assert found[:3] == [expected(1), expected(2), expected(3)]
    assert counters.bad == {"text_outside_articles": 2, "cut_off_article": 2, "malformed_header": 1}
    assert counters.examples["cut_off_article"][0] == "AA/wiki_00, byte 12"


def test_an_article_without_end_does_not_fill_the_memory(tmp_path: Path):
    line = b"x" * (1 << 22) + b"\n"
    path = written(
        tmp_path, article(1).removesuffix("</doc>\n").encode() + line * 6 + article(2).encode()
    )
    counters = Counters()
    assert read(path, counters) == [expected(2)]
    assert counters.bad == {"oversized_article": 1}
