"""Text files as documents: lines, paragraphs, headings, and files of any size and form."""

import gzip
import re
import tracemalloc
from pathlib import Path

import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources import books, texts
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.reading import Source
from tests.fixtures.text_files import BOOK, PROSE, paragraphs_of, read_text


def test_headings_and_rulers_are_left_out_and_counted() -> None:
    counters = Counters()
    text = 'CHAPTER IV.|Chapter the First|XII|Down the River|* * *|He came.|"HELP!"|12'
    assert paragraphs_of(text.replace("|", "\n\n"), counters) == ["He came.", '"HELP!"']
    assert counters.counts["headings_left_out"] == 5


def test_a_book_without_blank_lines_has_paragraphs() -> None:
    line = "the wind went on and on over the grey and empty fields of the north,"
    paragraph = [line] * 3 + ["and was gone."]
    text = "\n".join(["Chapter I", *paragraph, "Chapter II", *paragraph, *paragraph])
    assert paragraphs_of(text) == [" ".join(paragraph)] * 3


FIRST = "Then she came to the other end of the village and knocked at the"
SECOND = "door of the smith in the evening, when the wind had gone to sleep."
SENTENCE = f"{FIRST} {SECOND}"


@pytest.mark.parametrize(
    "mark",
    [
        *("12", "- 12 -", "[Pg 45]", "xiv", "Page 12", "14    THE MILL", "THE MILL    15"),
        *("[Illustration]", "[Illustration: The mill]", "*     *     *", ""),
    ],
)
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_sentence_goes_on_behind_the_mark_of_a_page(mark: str, is_wrapped: bool) -> None:
    whole = f"{SENTENCE} Nobody was there."
    others = f"{FIRST}\n{SECOND} Nobody was there.\n\n" if is_wrapped else f"{whole}\n"
    text = f"{FIRST}\n\n{mark}\n\n{SECOND}\n\n" + others * 20
    assert paragraphs_of(text) == [SENTENCE, *[whole] * 20]


def test_a_line_that_begins_in_small_letters_continues_the_one_before() -> None:
    torn = "„Żaba poszła,” rzekł, „a za nią\nżółta kaczka i\nśledź.”\n"
    long_line = "The wind went on over the grey and empty fields of the north. " * 4
    assert paragraphs_of(f"{long_line}\n{torn}" * 20)[1::2] == [torn.replace("\n", " ")[:-1]] * 20


def test_items_of_lists_and_headings_are_not_joined() -> None:
    long_line = ("The wind went on over the grey and empty fields of the north. " * 4).strip()
    lists = (
        "Things to buy\napples\npears\n\nHe had:\nsix eggs.\na) one,\nb) two.\nPeter\nyes, he did."
    )
    text = "\n".join([long_line] * 40 + lists.split("\n"))
    assert paragraphs_of(text)[40:] == [
        "He had:", "six eggs.", "a) one,", "b) two.", "yes, he did.",
    ]  # fmt: skip


@pytest.mark.parametrize("between", ["", "\n"])
def test_a_speaker_on_a_line_of_his_own_does_not_hide_how_lines_are_wrapped(between: str) -> None:
    speech = "Went down the old road by the mill at night, and kept the bread of old\nAnn Lee. No!"
    text = f"PETER.\n{between}{speech}\n\nANNA.\n{between}Yes. It is.\n\n" * 30
    assert speech.replace("\n", " ") in paragraphs_of(text)


def test_every_second_line_blank_is_spacing() -> None:
    lines = [FIRST, SECOND, f"{FIRST},", "Ann Lee, who was late,", "and sat down."]
    lines.append("Down the River")
    paragraphs = paragraphs_of("\n\n".join(lines * 20))
    assert set(paragraphs) == {SENTENCE, f"{FIRST}, Ann Lee, who was late, and sat down."}
    items = "\n\n".join(["A thing with a name as long as most lines of the text", "Another"] * 20)
    assert "Another" not in " ".join(paragraphs_of(items))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the sol¬\ndiers and the vil\xad\nlage", "the soldiers and the village"),
        ("the Sol‐\ndaten und die Häu‐\nser", "the Soldaten und die Häuser"),
        ("die Sol=\ndaten und die Häu=\nser", "die Soldaten und die Häuser"),
        ("we set a=\nB and c=\nD and so on", "we set a= B and c= D and so on"),
        ("not ¬ p or\n¬ q", "not ¬ p or ¬ q"),
    ],
)
def test_words_that_a_line_breaks(text: str, expected: str) -> None:
    assert paragraphs_of(f"{text} were old.\n\n{FIRST}\n{SECOND}") == [
        f"{expected} were old.",
        SENTENCE,
    ]


def test_what_stays_torn_is_noted() -> None:
    counters = Counters()
    long_line = "The wind went on over the grey and empty fields of the north. " * 4
    read_text(f"{long_line}\nHe said, and I heard him:\nand went {'on ' * 40}.\n" * 20, counters)
    assert not counters.counts["books_with_torn_sentences"]
    torn = f"{long_line}\nHe had seen it,\nand went {'on ' * 40}\n"
    read_text(torn * 20, counters)
    assert counters.examples["books_with_torn_sentences"] == ["shelf/book"]


@pytest.mark.parametrize("last", ["letter.", 'book?"', "part I did with great vigour."])
def test_the_last_line_of_a_paragraph_is_not_a_heading(last: str) -> None:
    line = "the wind went on and on over the grey and empty fields of the north, her"
    text = f"{line}\n{line}\n{last}\n\nChapter II\n{line}\n{last}\n"
    assert paragraphs_of(text) == [f"{line} {line} {last}", f"{line} {last}"]


@pytest.mark.parametrize(
    "text", ["그는 1990년에 NASA에서 일했다.", "他在NASA工作了十年。", "वह NASA में काम करता था।"]
)
def test_an_acronym_is_no_heading_in_a_script_without_capitals(text: str) -> None:
    assert paragraphs_of(f"{text}\n\nTHE END OF NASA\n\n{text}\n") == [text, text]


@pytest.mark.parametrize(
    "speech",
    [
        "„Ja, so ist es.“",
        "»So ist es.«",
        "‚Nein.‘",
        "„HALT!“",
        "《对。》",
        "『そうだ。』",
        "何⁉",
        "はい．",
    ],
)
def test_a_short_speech_is_prose_whatever_its_marks(speech: str) -> None:
    assert paragraphs_of(f"He came.\n\n{speech}\n\nHe left.") == ["He came.", speech, "He left."]


def test_line_ends_of_windows_written_twice_are_one_each() -> None:
    line = "the wind went on and on over the grey and empty fields of the north,"
    text = "\r\r\n".join([line, line, "and was gone.", "", line, "and was there."])
    assert paragraphs_of(text) == [f"{line} {line} and was gone.", f"{line} and was there."]


def test_a_paragraph_a_line_stays_so() -> None:
    rest = " It goes on for a while, as paragraphs do." * 5
    paragraphs = [f"Paragraph {number}.{rest}" for number in range(9)]
    assert paragraphs_of("\n".join(paragraphs)) == paragraphs


UNEVEN_LINES = [
    "When the old man came back from the town in the",
    "evening, he was in quite another mood, for he had been at the table "
    "of the great merchant, who had given",
    "him wine from Greece and the promise that his Son",
    "Anton Wohlfart should have a place in the Office of",
    "the House of Schroeter, as soon as he was old enough for it and had learnt what",
    "a young Merchant of the Town of Ostrau has to know.",
]


def test_lines_of_uneven_length_are_wrapped_all_the_same() -> None:
    # Long lines as where two pages were joined: the 95th percentile is above a hundred.
    text = "\n".join([*UNEVEN_LINES, ""] * 20)
    counters = Counters()
    assert paragraphs_of(text, counters) == [" ".join(UNEVEN_LINES)] * 20
    assert not counters.counts["words_left_out_as_headings"]


def test_a_part_of_a_wrapped_book_may_have_a_paragraph_a_line() -> None:
    sentence = "The wind went on over the grey and empty fields of the north, and it was cold. "
    whole = [(sentence * 4).strip()] * 400
    assert paragraphs_of("\n".join([*UNEVEN_LINES * 80, "", *whole]))[-400:] == whole


def test_one_sentence_a_line_and_a_blank_line_between_documents() -> None:
    blocks = [
        [f"This is sentence {number} of document {block}." for number in range(4)]
        for block in range(3)
    ]
    text = "\n\n\n".join("\n".join(block) for block in blocks)
    expected = [(f"shelf/book#{number}", block) for number, block in enumerate(blocks)]
    assert [(document.id, document.paragraphs) for document in read_text(text)] == expected
    assert [document.id for document in read_text(text, documents="file")] == ["shelf/book"]


def test_a_document_a_line_only_when_asked_for() -> None:
    text = "One document here.\n\nAnother one there.\nTHE THIRD\n"
    paragraphs = [document.paragraphs for document in read_text(text, documents="line")]
    assert paragraphs == [["One document here."], ["Another one there."], ["THE THIRD"]]
    assert len(read_text(text)) == 1


def test_blank_line_documents_of_wrapped_lines_are_one_paragraph_each() -> None:
    text = "A line that is cut off\nin the middle of it.\n\nAnother that is cut\noff as well here."
    items = [f"item {number} of a list in small letters" for number in range(100, 160)]
    documents = read_text("\n\n".join([text, *items]), documents="blank-line")
    wrapped = [
        "A line that is cut off in the middle of it.",
        "Another that is cut off as well here.",
    ]
    assert [document.paragraphs for document in documents] == [[one] for one in wrapped + items]


def test_a_file_of_markdown_is_a_document_without_its_marks() -> None:
    text = f"# Ulm\n\n**{FIRST}**\n{SECOND}\n\n- An item. It is one.\n\n" * 3000
    (document,) = read_text(text, documents="markdown")
    assert document.id == "shelf/book" and document.paragraphs == [SENTENCE] * 3000


def test_code_in_markdown_that_is_longer_than_a_piece_ends_where_its_fence_is() -> None:
    code = "> x = 1\n\n" * 30_000
    text = f"{SENTENCE}\n\n> ```py\n{code}> ```\n\n{SENTENCE}\n\n{SENTENCE}"
    assert [d.paragraphs for d in read_text(text, documents="markdown")] == [[SENTENCE] * 3]


def test_a_few_bad_bytes_become_replacement_characters() -> None:
    counters = Counters()
    text = b"The caf\xe9 was open at last.\n\n" + "“Café”, it said.".encode()
    assert paragraphs_of(text, counters) == ["The caf\ufffd was open at last.", "“Café”, it said."]
    assert counters.counts["text_lines_with_invalid_utf8"] == 1


@pytest.mark.slow
def test_the_rest_of_a_text_that_changes_its_encoding_is_left_out() -> None:
    counters = Counters()
    russian = "Все счастливые семьи похожи друг на друга.\n\n"
    # Of a compressed text only the first megabyte is in the sample.
    text = gzip.compress(30_000 * russian.encode() + 50_000 * russian.encode("cp1251"))
    documents = read_text(text, counters, "book.txt.gz")
    paragraphs = [line for document in documents for line in document.paragraphs]
    assert set(paragraphs) == {russian.strip()}
    assert counters.bad == {"unknown_encoding": 1}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no_text"),
        (b"\n \n", "no_text"),
        (b"CHAPTER I\n", "no_text"),
        (b"PK\3\4\0", "not_text"),
    ],
)
def test_a_file_that_is_not_text_is_counted(content: bytes, reason: str) -> None:
    counters = Counters()
    assert read_text(content, counters) == []
    assert counters.examples == {reason: ["shelf/book.txt"]}


def test_zeros_after_a_power_failure_are_counted_and_go() -> None:
    text = b"It is here.\n\n" * 6000
    counters = Counters()
    paragraphs = paragraphs_of(text + (bytes(3_000_000) + b"\n\nIt was.\n") * 2, counters)
    assert set(paragraphs) == {"It is here.", "It was."}
    assert counters.bad == {"nul_bytes": 1}
    assert counters.examples["nul_bytes"] == ["shelf/book.txt, from about byte 78000 on"]


def test_heads_of_pages_after_form_feeds_are_left_out() -> None:
    page = "The wind went on over the grey and empty fields of the north, and it was so cold\n" * 9
    text = f"{page}that he\n\fTHE ISLAND     {{0}}\n\nlooked at the chart again, and at what he "
    text += "had drawn on it in the long days of the autumn.\n"
    text += "\fTHE MAP     {0}\n\nIt was torn.\n\fNot a head.\n\n"
    counters = Counters()
    documents = read_text("".join(text.format(i) for i in range(9)), counters, "pg11.txt.utf-8")
    assert [document.id for document in documents] == ["pg11"]
    paragraphs = documents[0].paragraphs
    assert len(paragraphs) == 27 and paragraphs[1:3] == ["It was torn.", "Not a head."]
    assert paragraphs[0].endswith("the long days of the autumn.")
    assert "so cold that he looked at the chart" in paragraphs[0]
    assert counters.counts["headings_left_out"] == 18


def test_a_giant_file_is_cut_into_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "LONGEST_DOCUMENT", 2000)
    monkeypatch.setattr(books, "BOOK_CHARACTERS", 500)
    paragraphs = [f"This is paragraph {number} of a file that is no book." for number in range(100)]
    documents = read_text("\n\n".join(paragraphs))
    assert [paragraph for document in documents for paragraph in document.paragraphs] == paragraphs
    sizes = [sum(map(len, document.paragraphs)) for document in documents]
    assert all(500 <= size <= 1000 for size in sizes)
    assert sum(size < 560 for size in sizes) >= len(sizes) - 1
    ids = [document.id for document in documents]
    assert ids[:3] == ["shelf/book", "shelf/book#1", "shelf/book#2"]


@pytest.mark.slow
def test_lines_of_any_length_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clozeworks.pipeline.text.books.LONGEST_PARAGRAPH", 100_000)
    monkeypatch.setattr(books, "LONGEST_DOCUMENT", 400_000)
    monkeypatch.setattr(books, "BOOK_CHARACTERS", 40_000)
    monkeypatch.setattr(texts, "LONGEST_LINE_BYTES", 1 << 14)
    monkeypatch.setattr(texts, "CHUNK_BYTES", 1 << 14)
    content = b"it goes on and on and on,\n" * 5000 + b"it goes on and on and on, " * 150_000
    for documents in ("file", "blank-line"):
        tracemalloc.start()
        found = Source("text", content, "giant.txt").read(config=IngestConfig(documents=documents))
        assert sum(1 for _ in found) > 30
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * books.LONGEST_DOCUMENT


@pytest.mark.parametrize(
    "text",
    [
        "Copyright, 1916, by Harper & Brothers.",
        "[All Rights Reserved.]",
        "London:--Printed by G. BARCLAY, Castle St. Leicester Sq.",
        "Entered, according to Act of Congress, in the year 1857, by A. Writer.",
    ],
)
def test_imprints_are_not_prose(text: str) -> None:
    counters = Counters()
    (document,) = read_text(
        f"{PROSE[0]}\n\n{text}\n\nThe copyright was hers, and all rights reserved to her.\n",
        counters,
    )
    assert document.paragraphs == [
        PROSE[0],
        "The copyright was hers, and all rights reserved to her.",
    ]
    assert counters.counts["headings_left_out"] == 1


@pytest.mark.slow
@given(st.binary(max_size=300), st.sampled_from(["auto", "file", "blank-line", "line"]))
def test_any_bytes_are_read_or_counted(content: bytes, documents: str) -> None:
    counters = Counters()
    try:
        found = read_text(content, counters, documents=documents)
    except UserError as error:
        assert "is not UTF-8" in str(error)
        return
    assert bool(found) != bool(counters.bad)
    assert all(document.paragraphs for document in found)
    assert len({document.id for document in found}) == len(found)


@given(
    st.lists(
        st.sampled_from(
            ["", "CHAPTER II", "The bear went home.", "and then", "[Illustration", "_x_", "IV"]
        )
    )
)
def test_no_line_is_found_twice_and_the_order_stays(lines: list[str]) -> None:
    words = [
        word
        for document in read_text("\n".join(lines))
        for text in document.paragraphs
        for word in text.split()
    ]
    source = iter(" ".join(lines).replace("_x_", "x").split())
    assert all(word.strip("_") in source for word in words)


def test_a_paragraph_in_a_script_without_full_stops_is_prose() -> None:
    thai = "ประเทศไทยเป็นรัฐชาติอันตั้งอยู่ในภูมิภาคเอเชียตะวันออกเฉียงใต้ " * 3
    assert paragraphs_of(f"{thai}\n\nบทที่หนึ่ง\n\n{thai}") == [thai.strip()] * 2


def test_the_books_of_the_quickstart_are_prose() -> None:
    folder = Path(__file__).resolve().parents[3] / "examples" / "quickstart" / "corpus" / "books"
    files = sorted(folder.iterdir())
    assert len(files) > 10
    for file in files:
        (document,) = read_text(file.read_bytes(), name=file.name)
        assert document.source == (
            "gutenberg" if "Project Gutenberg" in file.read_text("utf-8-sig")[:200] else "text"
        )
        assert 15_000 < sum(map(len, document.paragraphs)) < 120_000
        assert not [
            text
            for text in document.paragraphs
            if re.search(r"Gutenberg|\[Illustration|_|CHAPTER", text)
        ]


@pytest.mark.slow
def test_a_line_is_cut_between_words_and_never_within_a_character() -> None:
    size = texts.CHUNK_BYTES + texts.LONGEST_LINE_BYTES
    for word in ("слово ", "слово", "x слово "):
        for shift in range(3):
            counters = Counters()
            text = "y" * shift + word * (2 * size // len(word.encode())) + "."
            paragraphs = [
                paragraph
                for document in read_text(text, counters)
                for paragraph in document.paragraphs
            ]
            assert "".join(paragraphs).replace(" ", "") == text.replace(" ", "")
            assert not counters.counts["text_lines_with_invalid_utf8"]
            assert 1 <= counters.counts["long_lines_cut"] <= 4
            assert max(map(len, paragraphs)) <= 2 * size
            if " " in word:
                assert set(" ".join(paragraphs).split()[1:-1]) == set(word.split())


@pytest.mark.parametrize(
    "table",
    [
        # From Burton's The Land of Midian.
        "Dec. 25. 7a.m.    29.10 739    50    50    45   29    Morning cool and clear.\n\n"
        "         Noon.    29.20 -      72    68    55   21     Very clear, still, and\n"
        "                                                       hot. Slight breeze from\n"
        "                                                       sea (west). Sun strong.\n"
        "                                                       Swarms of flies. Dry\n"
        "                                                       bulb in sun, 73 degrees.\n",
        "PLAY               DATE         THEATER\n"
        "The Unforeseen     January      Empire, it was said.\n",
    ],
)
def test_a_table_is_left_out(table: str) -> None:
    counters = Counters()
    (document,) = read_text(
        BOOK.replace("He went\naway.\n", f"He went\naway.\n\n{table}\n"), counters
    )
    assert document.paragraphs == PROSE
    assert counters.counts["words_left_out_as_tables"] == len(table.split())


@pytest.mark.parametrize(
    "line",
    [
        # Three spaces stand for a dash; old typists put two behind a full stop.
        "I have found rooms   a quaint little hole   used to be an antique shop, in a mews.",
        "He went.  He came.  He saw it all.",
        "     Come,   ye bears of the wood.",
    ],
)
def test_wide_spaces_do_not_make_a_table(line: str) -> None:
    (document,) = read_text(BOOK.replace("He went\naway.\n", f"He went\naway.\n\n{line}\n"))
    assert " ".join(document.paragraphs[-1].split()) == " ".join(line.split())


def test_notes_that_are_kept_whole() -> None:
    note = b"""Service: MEDICINE

Labs:
WBC-7.5   RBC-3.29   Hgb-9.7
- Metoprolol 5 mg by mouth every six hours if the heart rate is above one hundred
- Aspirin

He was brought in by his wife after he had been complaining of shortness of
breath for three days, and denies pain.
"""

    def read_note(*, keep_lines: bool) -> tuple[list[str], Counters]:
        counters = Counters()
        config = IngestConfig(documents="file", keep_lines=keep_lines)
        (document,) = Source("text", note, "note.txt").read(counters, config=config)
        return document.paragraphs, counters

    kept, counters = read_note(keep_lines=True)
    assert kept[:-1] == [line for line in note.decode().splitlines()[:-2] if line]
    assert kept[-1].endswith("shortness of breath for three days, and denies pain.")
    assert not counters.counts
    _, counters = read_note(keep_lines=False)
    assert counters.counts["headings_left_out"]
