import bz2
import errno
import gzip
import io
import lzma
import random
import tracemalloc
import zlib
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.sources import dump_pages
from clozeworks.pipeline.sources.streams import InputRange, RawDocument
from clozeworks.pipeline.sources.wikipedia import is_disambiguation, parse_siteinfo, read_dump
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.reading import Source
from tests.fixtures.shared_data import DATA, needs_shared_data

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo><sitename>Wikipedia</sitename><dbname>testwiki</dbname><namespaces>
    <namespace key="0" case="first-letter" />
    <namespace key="1" case="first-letter">Talk</namespace>
    <namespace key="14" case="first-letter">Category</namespace>
  </namespaces></siteinfo>
"""
FOOT = "</mediawiki>\n"


def page(
    number: int, text: str = "", *, title: str = "", ns: int | None = 0, extra: str = ""
) -> str:
    namespace = "" if ns is None else f"<ns>{ns}</ns>"
    return (
        f"  <page>\n    <title>{escape(title or f'Page {number}')}</title>"
        f"{namespace}<id>{number}</id>{extra}\n"
        "    <revision><id>7</id><text xml:space='preserve'>"
        f"{escape(text or f'Text {number} is prose.')}</text></revision>\n  </page>\n"
    )


def multistream(texts: list[str]) -> bytes:
    return b"".join(bz2.compress(text.encode()) for text in texts)


def read(
    content: bytes, name: str = "dump.xml", num_ranges: int = 1, counters: Counters | None = None
) -> tuple[list[RawDocument], Counters]:
    counters = counters or Counters()
    return list(
        Source("wikipedia", content, name).read(counters, -(-len(content) // num_ranges))
    ), counters


def ids(documents: list[RawDocument]) -> list[int]:
    return [int(document.id) for document in documents]


def test_reads_an_article() -> None:
    documents, counters = read(
        (HEAD + page(12, "'''Ada''' & [[Bob]].", title="A & B") + FOOT).encode()
    )
    assert documents == [
        RawDocument(
            id="12", source="testwiki", title="A & B", language="en", paragraphs=["Ada & Bob."]
        )
    ]
    assert +counters.counts == {"pages": 1, "words_left_out_as_markup": 6}


@pytest.mark.parametrize("num_ranges", [1, 2, 3, 7, 40, 400])
@pytest.mark.parametrize(
    "compression", ["plain", "multistream", "page tags across streams", "gz", "xz"]
)
def test_any_split_gives_every_page_once(num_ranges: int, compression: str, monkeypatch):
    monkeypatch.setattr(dump_pages, "READ_BYTES", 64)
    texts = [
        HEAD,
        *("".join(page(3 * part + index) for index in range(3)) for part in range(12)),
        FOOT,
    ]
    whole = "".join(texts)
    parts = [whole[start : start + 173] for start in range(0, len(whole), 173)]
    content, name = {
        "plain": (whole.encode(), "dump.xml"),
        "multistream": (multistream(texts), "dump.xml.bz2"),
        # As pbzip2 writes: a stream for every so many bytes, in the middle of tags.
        "page tags across streams": (multistream(parts), "dump.xml.bz2"),
        "gz": (gzip.compress(whole.encode()), "dump.xml.gz"),
        "xz": (lzma.compress(whole.encode()), "dump.xml.xz"),
    }[compression]
    documents, counters = read(content, name, num_ranges)
    assert ids(documents) == list(range(36))
    assert {document.source for document in documents} == {"testwiki"}
    assert counters.counts["pages"] == 36 and not counters.bad


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=30),
    st.lists(st.integers(0, 5000), max_size=6),
)
def test_random_streams_and_cuts_lose_no_page(stream_sizes: list[int], cuts: list[int]) -> None:
    whole = HEAD + "".join(page(number) for number in range(8)) + FOOT
    texts, begin = [], 0
    for size in stream_sizes:
        texts.append(whole[begin : begin + size])
        begin += size
    content = multistream([text for text in [*texts, whole[begin:]] if text])
    bounds = sorted({0, *(min(cut, len(content)) for cut in cuts), len(content)})
    found: list[int] = []
    for start, stop in pairwise(bounds):
        part = InputRange(
            path="d.xml.bz2", name="d.xml.bz2", format="wikipedia", start=start, stop=stop
        )
        found += ids(list(read_dump(io.BytesIO(content), part, IngestConfig(), Counters())))
    assert found == list(range(8))


def test_numbers_that_are_none_or_endless_cost_no_other_page() -> None:
    odd = ["--5", endless := "9" * 5000, "²", ""]
    pages = [page(n).replace("<ns>0<", f"<ns>{odd[n]}<") for n in range(4)]
    talk = page(4, title="Talk:Page").replace("<ns>0<", "<ns>--5<")
    dates = [f"{{{{{name}}}}}" for name in (f"date|1|{endless}|1900", f"date|{endless}|5|12345")]
    last = page(5, f"Of {{{{NBA Year|{endless}}}}} and {' or '.join(dates)} is prose.")
    documents, counters = read((HEAD + "".join([*pages, talk, last]) + FOOT).encode())
    assert ids(documents) == [0, 1, 2, 3, 5]
    assert counters.counts["other_namespaces"] == 1


def test_a_single_stream_is_read_by_its_first_range() -> None:
    rng = random.Random(0)
    noise = "".join(chr(rng.randrange(97, 123)) for _ in range(20_000))
    content = multistream(
        [HEAD + "".join(page(number, f"Text {noise}") for number in range(5)) + FOOT]
    )
    documents, counters = read(content, "dump.xml.bz2", 4)
    assert ids(documents) == list(range(5))
    assert counters.counts["single_stream_files"] == 1
    _, counters = read(multistream([HEAD, page(1), FOOT]), "dump.xml.bz2")
    assert "single_stream_files" not in counters.counts


def test_what_is_left_out_is_counted() -> None:
    pages = [
        page(1),
        page(2, ns=1, title="Talk:Page"),
        page(3, "Text", extra='<redirect title="Page 1" />'),
        page(4, "#перенаправление [[Page 1]]"),
        page(5, "'''X''' may be:\n* y\n{{Human name disambiguation}}"),
        page(6, " "),
        page(7, "* only\n* a list"),
        page(8, "#REDIRECT: [[Page 1]]"),
        page(9).replace("<revision>", "<revision><model>json</model>"),
        "<page></page>",
        "<page><ns>0</ns><revision><text /></revision></page>",
    ]
    documents, counters = read((HEAD + "".join(pages) + FOOT).encode())
    assert ids(documents) == [1]
    assert +counters.counts == {
        "pages": 11, "lines_left_out": 2, "other_namespaces": 1, "redirects": 3,
        "disambiguation_pages": 1, "empty_pages": 4, "other_models": 1,
        "words_left_out_as_disambiguation_pages": 8, "words_left_out_as_lists": 5,
        "words_left_out_as_markup": 52, "words_left_out_as_other_models": 4,
        "words_left_out_as_other_namespaces": 4, "words_left_out_as_redirects": 7,
    }  # fmt: skip
    assert not counters.bad


TEMPLATES = (
    "disambig| Geodis |Begriffsklärung|aimai|Homonymie|Personnes homonymes|desambiguación|"
    "Disambigua|dp|Ujednoznacznienie|Desambiguação|неоднозначность|багатозначність|Пояснение|"
    "Gren|Rozcestník|消歧义|동음이의|توضيح|anlam ayrımı|人名の曖昧さ回避"
)
QUALIFIERS = "disambiguation|동음이의|曖昧さ回避|Begriffsklärung|значения|desambiguación|homonymie"


def test_disambiguation_pages() -> None:
    assert is_disambiguation("Mercury", "__DISAMBIG__")
    for template in TEMPLATES.split("|"):
        assert is_disambiguation("Mercury", f"x\n{{{{{template}|тип=имя}}}}"), template
    for qualifier in QUALIFIERS.split("|"):
        assert is_disambiguation(f"Mercury ({qualifier})", "x"), qualifier
    assert not is_disambiguation("Mercury (planet)", "x {{dates}} y")
    for template in ("disambiguation needed|date=x", "other uses|Mercury (disambiguation)"):
        assert not is_disambiguation("Mercury", f"A {{{{{template}}}}} planet {{{{convert|5}}}}")


def test_old_schema_takes_namespace_and_database_from_the_head() -> None:
    head = (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.3/" version="0.3" '
        'xml:lang="zh-min-nan"><siteinfo><namespaces><namespace key="0" />'
        '<namespace key="1">Thó-lūn &amp; x</namespace></namespaces></siteinfo>'
    )
    pages = (
        page(1, ns=None)
        + page(2, ns=None, title="Thó-lūn & x:Page")
        + page(3, ns=None, title="Re: Title")
    )
    documents, counters = read((head + pages + FOOT).encode())
    assert [(document.source, document.language) for document in documents] == [
        ("zh_min_nanwiki", "zh-min-nan")
    ] * 2
    assert ids(documents) == [1, 3] and counters.counts["other_namespaces"] == 1


def test_a_damaged_or_hostile_head_has_defaults() -> None:
    site = parse_siteinfo("<mediawi")
    assert (site.database, site.language) == ("wikipedia", "en")
    head = '<mediawiki xml:lang="&lt;img onerror=x&gt;"><siteinfo><dbname>\x1b[31mwiki</dbname>'
    site = parse_siteinfo(head)
    assert (site.database, site.language) == ("wikipedia", "en")
    site = parse_siteinfo(head.replace("\x1b[31m", "de"))
    assert (site.database, site.language) == ("dewiki", "de")


def test_a_page_of_nothing_but_structures_is_left_out() -> None:
    pages = [page(1), page(2, "{{a|" * 600_000), page(3)]
    documents, counters = read((HEAD + "".join(pages) + FOOT).encode())
    assert ids(documents) == [1, 3] and counters.bad == {"oversized_page": 1}
    assert counters.examples["oversized_page"] == ["testwiki:2"]


def test_a_corrupt_stream_costs_only_itself() -> None:
    streams = [multistream([HEAD])] + [multistream([page(number)]) for number in range(6)]
    streams[3] = (
        streams[3][:40] + bytes(value ^ 0xFF for value in streams[3][40:80]) + streams[3][80:]
    )
    for num_ranges in (1, 2, 5):
        documents, counters = read(b"".join(streams), "dump.xml.bz2", num_ranges)
        assert ids(documents) == [0, 1, 3, 4, 5]
        assert counters.bad == {"corrupt_bz2_stream": 1}
    assert f"byte {sum(map(len, streams[:3]))}" in counters.examples["corrupt_bz2_stream"][0]


def test_empty_streams_of_a_dump_are_valid() -> None:
    empty = bz2.compress(b"")
    streams = [multistream([HEAD]), multistream([page(1)]), empty, multistream([page(2)]), empty]
    for num_ranges in (1, 3):
        documents, counters = read(b"".join(streams), "dump.xml.bz2", num_ranges)
        assert ids(documents) == [1, 2] and not counters.bad


def test_a_file_that_ends_early() -> None:
    whole = (HEAD + page(1) + page(2)).encode()
    documents, counters = read(whole[:-40])
    assert ids(documents) == [1] and counters.bad == {"cut_off_page": 1}
    documents, counters = read(gzip.compress(whole)[:-60], "dump.xml.gz")
    assert counters.bad["corrupt_file"] == 1
    documents, counters = read(multistream([HEAD + page(1), page(2)])[:-20], "dump.xml.bz2")
    assert ids(documents) == [1] and counters.bad["corrupt_bz2_stream"] == 1


def test_a_broken_page_costs_only_itself() -> None:
    pages = [page(1), page(2).replace("</title>", ""), page(3)[:60], page(4)]
    pages.append(page(5, "Bad ?? bytes."))
    documents, counters = read((HEAD + "".join(pages) + FOOT).encode().replace(b"??", b"\xff\xc3"))
    assert ids(documents) == [1, 4, 5]
    assert documents[-1].paragraphs == ["Bad \ufffd\ufffd bytes."]
    assert counters.bad == {"malformed_page": 1, "cut_off_page": 1, "invalid_utf8": 1}


@pytest.mark.parametrize("num_ranges", range(1, 12))
def test_a_page_that_is_never_closed_gives_no_page_twice(num_ranges: int, monkeypatch):
    monkeypatch.setattr(dump_pages, "MAX_PAGE_BYTES", 5000)
    monkeypatch.setattr(dump_pages, "READ_BYTES", 1000)
    whole = HEAD + page(1) + "<page>" + "x" * 6000 + page(2) + page(3) + FOOT
    documents, counters = read(whole.encode(), num_ranges=num_ranges)
    assert ids(documents) == [1, 2, 3] and counters.bad == {"oversized_page": 1}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_encodings_that_a_byte_order_mark_states(encoding: str) -> None:
    content = (HEAD + page(1, "Это текст.") + page(2) + FOOT).encode(encoding)
    for num_ranges in (1, 3):
        documents, counters = read(content, "dump.xml", num_ranges)
        assert ids(documents) == [1, 2] and not counters.bad
        assert documents[0].paragraphs == ["Это текст."]


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["bz2", "gz", "xz"])
def test_what_expands_beyond_reason_takes_little_memory(compression: str, monkeypatch):
    monkeypatch.setattr(dump_pages, "MAX_PAGE_BYTES", 1 << 22)
    compressor = {
        "bz2": bz2.BZ2Compressor(),
        "gz": zlib.compressobj(wbits=31),
        "xz": lzma.LZMACompressor(preset=0),
    }[compression]
    parts = [compressor.compress((HEAD + page(1) + "<page>").encode())]
    parts += [compressor.compress(b"x" * 1_000_000) for _ in range(50)]
    parts += [compressor.compress((page(2) + FOOT).encode()), compressor.flush()]
    content = b"".join(parts)
    tracemalloc.start()
    documents, counters = read(content, f"dump.xml.{compression}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(content) < 300_000 and peak < 16e6
    assert ids(documents) == [1, 2] and set(counters.bad) == {"oversized_page"}


@pytest.mark.parametrize(
    "content", [b" ", b"\0" * 3000, b"BZh9", b"</page><page>", b"\xff\xfe<", b"{}"]
)
@pytest.mark.parametrize("suffix", ["", ".bz2", ".gz", ".xz"])
def test_a_file_that_is_not_a_dump_has_no_documents(content: bytes, suffix: str) -> None:
    documents, counters = read(content, f"dump.xml{suffix}", 2)
    assert not documents and counters.bad["no_dump"] == 1


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=8), st.integers(1, 4)
)
def test_no_damage_raises_or_makes_a_page_of_another(
    damage: list[tuple[int, int]], num_ranges: int
) -> None:
    for suffix, whole in [
        ("", (HEAD + "".join(map(page, range(9))) + FOOT).encode()),
        (".bz2", multistream([HEAD, *map(page, range(9)), FOOT])),
    ]:
        content = bytearray(whole)
        for offset, value in damage:
            content[offset % len(content)] = value
        documents, _ = read(bytes(content), f"dump.xml{suffix}", num_ranges)
        assert len(documents) <= 9
        if not damage:
            assert ids(documents) == list(range(9))


def test_damaged_dumps_on_the_command_line(tmp_path: Path, capsys):
    prose = "This is the text of page {}, of which there is enough to be kept as a document. " * 4
    pages = [page(number, prose.replace("{}", str(number))) for number in range(6)]
    corrupt = bytearray(multistream([pages[0]]))
    corrupt[40:60] = bytes(20)
    stream = multistream([HEAD]) + corrupt + multistream([pages[1]])
    (tmp_path / "xwiki-1.xml.bz2").write_bytes(stream)
    (tmp_path / "xwiki-2.xml.bz2").write_bytes(multistream([HEAD + pages[2] + FOOT]))
    cut = (HEAD + pages[3] + pages[4] + pages[5][:-30]).encode().replace(b"enough", b"\xe9nough", 4)
    (tmp_path / "xwiki-3.xml").write_bytes(cut)
    options = ["--workers=1", "--max-bad=0.7"]
    main(["ingest", f"{tmp_path}/xwiki-*", f"--output={tmp_path / 'out'}", *options])
    warnings = capsys.readouterr().err.splitlines()
    assert "1 x corrupt bz2 stream, 1 x cut off page, 1 x invalid utf8" in warnings[0]
    assert "xwiki-1.xml.bz2: stream at byte" in warnings[0]
    assert warnings[1].startswith(
        "Warning: 1 single-stream .bz2 file can be read by only one worker each; "
        "use multistream dumps"
    )
    shards = [pq.read_table(path) for path in (tmp_path / "out").glob("*.parquet")]
    found = sorted(doc_id for shard in shards for doc_id in shard["doc_id"].to_pylist())
    assert found == [f"testwiki:{number}" for number in (1, 2, 3, 4)]


class Failing(io.BytesIO):
    """A file on a disk that fails after its first block."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 0:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(size)


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2"])
def test_a_failing_disk_is_not_damage_of_the_dump(suffix: str) -> None:
    noise = "".join(random.Random(0).choices("abcdefghij", k=400_000))
    content = {"gz": gzip, "xz": lzma, "bz2": bz2}[suffix].compress(
        (HEAD + page(1, noise) + FOOT).encode()
    )
    part = InputRange(path="x", name=f"x.xml.{suffix}", format="wikipedia")
    counters = Counters()
    with pytest.raises(OSError, match="Input/output"):
        list(dump_pages.read_pages(Failing(content), part, "utf-8", counters))
    assert not counters.bad


def read_file(name: str, num_ranges: int) -> tuple[list[RawDocument], Counters]:
    return read((DATA / "wikipedia" / name).read_bytes(), name, num_ranges)


@pytest.mark.slow
@needs_shared_data
def test_a_real_wiki_is_the_same_in_any_split() -> None:
    name = "ltgwiki-pages-articles-multistream.xml.bz2"
    whole, counters = read_file(name, 1)
    assert (
        counters.counts["pages"] == 2004
        and counters.counts["other_namespaces"] == 2004 - 1050
        and not counters.bad
    )
    assert whole == read_file(name, 2)[0] == read_file(name, 7)[0]


@pytest.mark.slow
@needs_shared_data
@pytest.mark.parametrize(
    ("name", "source", "bad"),
    [
        ("jawiki-truncated-100k.xml.xz", "jawiki", {"cut_off_page": 1}),
        ("bgwiki-utf16-excerpt.xml.bz2", "bgwiki", {}),
        ("enwiki-20090902-pages-articles-sample.xml", "enwiki", {}),
    ],
)
def test_real_files_with_a_difficulty(name: str, source: str, bad: dict[str, int]) -> None:
    documents, counters = read_file(name, 3)
    assert documents and {document.source for document in documents} == {source}
    assert counters.bad == bad


def test_a_damaged_header_of_a_stream_is_counted() -> None:
    texts = [HEAD, *map(page, range(6)), FOOT]
    for damaged in (0, 3):
        content = bytearray(multistream(texts))
        content[len(multistream(texts[:damaged])) + 5] ^= 1
        for num_ranges in (1, 5):
            documents, counters = read(bytes(content), "dump.xml.bz2", num_ranges)
            assert ids(documents) == [number for number in range(6) if number != damaged - 1]
            assert counters.bad["corrupt_bz2_stream"] == 1
