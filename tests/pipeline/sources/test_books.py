import bz2
import gzip
import io
import lzma
import re
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.counters import Counters
from clozeworks.pipeline.sources import books
from clozeworks.pipeline.sources.books import read_book
from clozeworks.pipeline.sources.gutenberg import is_gutenberg, plain, read_header
from clozeworks.pipeline.sources.records import InputRange, RawDocument
from hypothesis import given
from hypothesis import strategies as st
from reading import Source
from shared_data import DATA, needs_shared_data

BOOK = """\
\ufeffThe Project Gutenberg EBook of The Bear, by A. Writer

This eBook is for the use of anyone anywhere at no cost.

Title: The Bear
       A Story for the Young

Author: A. Writer

Language: English

*** START OF THIS PROJECT GUTENBERG EBOOK THE BEAR ***

Produced by Someone and the Online
Distributed Proofreading Team at http://www.pgdp.net


THE BEAR

By A. Writer


CONTENTS

I. How the Bear came      1
II. How he went           9



CHAPTER I.

HOW THE BEAR CAME


There was once a _bear_ who lived in a wood, and who was known[3] to all
the people for miles around as the _kindest_ of beasts.

[Illustration: The bear
at home]

"I am a bear," he said.

       *       *       *       *       *

[Transcriber's Note: the spelling
is the author's.]



CHAPTER II. HOW HE WENT

He went
away.

THE END




Transcriber's Note:

Obvious errors were mended.

End of Project Gutenberg's The Bear, by A. Writer

*** END OF THIS PROJECT GUTENBERG EBOOK THE BEAR ***

Updated editions will replace the previous one.
"""
PROSE = [
    "There was once a bear who lived in a wood, and who was known to all the people for miles "
    "around as the kindest of beasts.",
    '"I am a bear," he said.',
    "He went away.",
]


def read(
    content: bytes | str,
    counters: Counters | None = None,
    name: str = "shelf/book.txt",
    documents: Any = "auto",
) -> list[RawDocument]:
    raw = content if isinstance(content, bytes) else content.encode()
    return list(Source("text", raw, name).read(counters, config=IngestConfig(documents=documents)))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_gutenberg_book_is_its_prose(newline: str) -> None:
    assert read(BOOK.replace("\n", newline)) == [
        RawDocument(
            id="shelf/book",
            source="gutenberg",
            title="The Bear A Story for the Young",
            language="en",
            paragraphs=PROSE,
        )
    ]


@pytest.mark.parametrize(
    "start",
    [
        "***START OF THE PROJECT GUTENBERG EBOOK THE BEAR***",
        "*END*THE SMALL PRINT! FOR ETEXTS*Ver.04.29.93*END*",
    ],
)
def test_older_marks_around_a_book(start: str) -> None:
    text = BOOK.replace("*** START OF THIS PROJECT GUTENBERG EBOOK THE BEAR ***", start)
    text = text.replace("*** END OF THIS PROJECT GUTENBERG EBOOK THE BEAR ***\n", "")
    assert read(text)[0].paragraphs == PROSE
    assert (
        read(text.replace("End of Project Gutenberg's", "End of the Project Gutenberg Etext of"))[
            0
        ].paragraphs
        == PROSE
    )


def test_a_book_without_marks_is_a_book_all_the_same() -> None:
    text = BOOK.partition("pgdp.net\n")[2].partition("Transcriber's Note:\n\nObvious")[0]
    (document,) = read(text)
    assert (document.source, document.title, document.language) == ("text", "", "")
    assert [paragraph for paragraph in document.paragraphs if paragraph in PROSE] == PROSE


def test_a_text_about_gutenberg_is_not_a_gutenberg_file() -> None:
    assert not is_gutenberg("I found it at Project Gutenberg.\nThe eBook of it is free.")
    assert is_gutenberg("Project Gutenberg's The Bear, by A. Writer\n")


def test_headings_and_rulers_are_left_out_and_counted() -> None:
    counters = Counters()
    text = "\n\n".join(
        [
            "CHAPTER IV.",
            "Chapter the First",
            "XII",
            "Down the River",
            "* * *",
            "He came.",
            '"HELP!"',
            "12",
        ]
    )
    assert read(text, counters)[0].paragraphs == ["He came.", '"HELP!"']
    assert counters.counts["headings_left_out"] == 5


def test_a_book_without_blank_lines_has_paragraphs() -> None:
    line = "the wind went on and on over the grey and empty fields of the north,"
    paragraph = [line] * 3 + ["and was gone."]
    text = "\n".join(["Chapter I", *paragraph, "Chapter II", *paragraph, *paragraph])
    assert read(text)[0].paragraphs == [" ".join(paragraph)] * 3


@pytest.mark.parametrize("last", ["letter.", 'book?"', "part I did with great vigour."])
def test_the_last_line_of_a_paragraph_is_not_a_heading(last: str) -> None:
    line = "the wind went on and on over the grey and empty fields of the north, her"
    assert read(f"{line}\n{line}\n{last}\n\nChapter II\n{line}\n{last}\n")[0].paragraphs == [
        f"{line} {line} {last}",
        f"{line} {last}",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "그는 1990년에 NASA에서 일했다. 그 뒤에 돌아왔다.",
        "他在NASA工作了十年。",
        "वह NASA में काम करता था।",
    ],
)
def test_an_acronym_is_no_heading_in_a_script_without_capitals(text: str) -> None:
    assert read(f"{text}\n\nTHE END OF NASA\n\n{text}\n")[0].paragraphs == [text, text]


def test_a_paragraph_a_line_stays_so() -> None:
    paragraphs = [
        f"Paragraph {number}. " + "It goes on for a while, as paragraphs do. " * 5
        for number in range(9)
    ]
    assert read("\n".join(paragraphs))[0].paragraphs == [
        paragraph.strip() for paragraph in paragraphs
    ]


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
    assert read(text, counters)[0].paragraphs == [" ".join(UNEVEN_LINES)] * 20
    assert not counters.counts["words_left_out_as_headings"]


def test_parts_of_a_book_are_wrapped_in_their_own_way() -> None:
    sentence = "The wind went on over the grey and empty fields of the north, and it was cold. "
    whole = [(sentence * 4).strip()] * 400
    assert read("\n".join([*UNEVEN_LINES * 80, "", *whole]))[0].paragraphs[-200:] == whole[:200]
    wrapped = [*UNEVEN_LINES, ""] * 100
    paragraphs = read("\n".join([*whole, *wrapped]))[0].paragraphs
    assert paragraphs == whole + [" ".join(UNEVEN_LINES)] * 100


def test_a_book_of_which_much_is_left_out_as_headings_is_noted() -> None:
    prose = "The wind went on over the grey and empty fields of the north. " * 4
    counters = Counters()
    read("\n\n".join([prose, "Down the Grey River"] * 200), counters, "shelf/torn.txt")
    assert counters.examples["books_with_many_headings"] == ["shelf/torn"]
    counters = Counters()
    read("\n\n".join([prose] * 10 + ["Down the Grey River"]), counters)
    assert not counters.counts["books_with_many_headings"]


def test_one_sentence_a_line_and_a_blank_line_between_documents() -> None:
    blocks = [
        [f"This is sentence {number} of document {block}." for number in range(4)]
        for block in range(3)
    ]
    text = "\n\n\n".join("\n".join(block) for block in blocks)
    documents = read(text)
    assert [(document.id, document.paragraphs) for document in documents] == [
        (f"shelf/book#{number}", block) for number, block in enumerate(blocks)
    ]
    assert [document.id for document in read(text, documents="file")] == ["shelf/book"]


def test_a_document_a_line_only_when_asked_for() -> None:
    text = "One document here.\n\nAnother one there.\nTHE THIRD\n"
    assert [document.paragraphs for document in read(text, documents="line")] == [
        ["One document here."],
        ["Another one there."],
        ["THE THIRD"],
    ]
    assert len(read(text)) == 1


def test_blank_line_documents_of_wrapped_lines_are_one_paragraph_each() -> None:
    text = "A line that is cut off\nin the middle of it.\n\nAnother that is cut\noff as well here."
    assert [document.paragraphs for document in read(text, documents="blank-line")] == [
        ["A line that is cut off in the middle of it."],
        ["Another that is cut off as well here."],
    ]


def test_a_few_bad_bytes_become_replacement_characters() -> None:
    counters = Counters()
    text = b"The caf\xe9 was open at last.\n\n" + "“Café”, it said.".encode()
    assert read(text, counters)[0].paragraphs == [
        "The caf\ufffd was open at last.",
        "“Café”, it said.",
    ]
    assert counters.counts["text_lines_with_invalid_utf8"] == 1


def test_the_rest_of_a_text_that_changes_its_encoding_is_left_out() -> None:
    counters = Counters()
    russian = "Все счастливые семьи похожи друг на друга.\n\n"
    # Of a compressed text only the first megabyte is in the sample.
    text = gzip.compress(30_000 * russian.encode() + 50_000 * russian.encode("cp1251"))
    documents = read(text, counters, "book.txt.gz")
    paragraphs = [line for document in documents for line in document.paragraphs]
    assert set(paragraphs) == {russian.strip()}
    assert counters.bad == {"unknown_encoding": 1}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no_text"),
        (b"\n\n \n", "no_text"),
        (b"CHAPTER I\n", "no_text"),
        (b"PK\x03\x04\x00\x00", "not_text"),
    ],
)
def test_a_file_that_is_not_text_is_counted(content: bytes, reason: str) -> None:
    counters = Counters()
    assert read(content, counters) == []
    assert counters.examples == {reason: ["shelf/book.txt"]}


def test_a_giant_file_is_cut_into_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "LONGEST_DOCUMENT", 2000)
    monkeypatch.setattr(books, "BOOK_CHARACTERS", 500)
    paragraphs = [f"This is paragraph {number} of a file that is no book." for number in range(100)]
    documents = read("\n\n".join(paragraphs))
    assert [paragraph for document in documents for paragraph in document.paragraphs] == paragraphs
    sizes = [sum(map(len, document.paragraphs)) for document in documents]
    assert all(500 <= size <= 1000 for size in sizes)
    assert sum(size < 560 for size in sizes) >= len(sizes) - 1
    assert [document.id for document in documents][:3] == [
        "shelf/book",
        "shelf/book#1",
        "shelf/book#2",
    ]


@pytest.mark.parametrize("documents", ["auto", "file", "blank-line"])
def test_sentences_without_blank_lines_make_documents_of_the_size_of_books(documents: str) -> None:
    """The form of bookcorpus/bookcorpus."""
    sentences = [
        "usually , he would be tearing around the living room , playing with his toys .",
        "`` what do you think ? '' she asked , and number {} looked up .",
        "`` no ! ''",
        "it was the {}th time ... and the last .",
    ]
    lines = [sentences[number % 4].format(number) for number in range(100_000)]
    found = read("\n".join(lines), documents=documents)
    assert [line for document in found for line in document.paragraphs] == lines
    sizes = [sum(map(len, document.paragraphs)) for document in found]
    assert len(sizes) > 10
    assert all(books.BOOK_CHARACTERS <= size <= 2 * books.BOOK_CHARACTERS for size in sizes)


def test_a_book_of_one_sentence_a_line_is_one_document() -> None:
    lines = [f"it was the {number}th time , and the last ." for number in range(20_000)]
    assert [document.paragraphs for document in read("\n".join(lines))] == [lines]


def test_books_of_one_sentence_a_line_with_blank_lines_between_them() -> None:
    shelf = [
        [f"It was the {number}th time in book {book}." for number in range(4000)]
        for book in range(3)
    ]
    text = "\n\n".join("\n".join(book) for book in shelf)
    assert [document.paragraphs for document in read(text)] == shelf


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_compressed_books(suffix: str) -> None:
    compress: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
    }
    for encoding in ("utf-8-sig", "utf-16"):
        raw = compress[suffix](BOOK.removeprefix("\ufeff").encode(encoding))
        (document,) = read(raw, name=f"shelf/book.txt.{suffix}")
        assert (document.id, document.paragraphs) == ("shelf/book", PROSE)
    counters = Counters()
    assert read(raw[:-9], counters, name=f"shelf/book.txt.{suffix}") or suffix in ("bz2", "zst")
    assert counters.bad["corrupt_file"] == 1


def test_a_compressed_text_that_expands_beyond_measure() -> None:
    counters = Counters()
    (document,) = read(
        gzip.compress(b"It is here.\n\n" + b" " * 40_000_000), counters, name="bomb.txt.gz"
    )
    assert document.paragraphs == ["It is here."]
    assert counters.bad == {"compression_bomb": 1}
    assert counters.examples["compression_bomb"][0].startswith("bomb.txt.gz, beyond byte ")


@pytest.mark.slow
def test_lines_of_any_length_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"LONGEST_DOCUMENT": 400_000, "BOOK_CHARACTERS": 40_000, "LONGEST_PARAGRAPH": 100_000}
    for name, size in {**sizes, "LONGEST_LINE_BYTES": 1 << 14, "CHUNK_BYTES": 1 << 14}.items():
        monkeypatch.setattr(books, name, size)
    content = b"it goes on and on and on,\n" * 5000 + b"it goes on and on and on, " * 150_000
    for documents in ("file", "blank-line"):
        tracemalloc.start()
        found = Source("text", content, "giant.txt").read(config=IngestConfig(documents=documents))
        assert sum(1 for _ in found) > 30
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * books.LONGEST_DOCUMENT


def test_advertisements_behind_the_end_are_left_out() -> None:
    shop = (
        "\n\nBY A. WRITER\n\nThe Bear. 12mo, Cloth, $1 50; Paper, 75 cents.\n\n"
        "Sent postpaid on receipt of price.\n"
    )
    assert read(BOOK.replace("THE END\n", "THE END\n" + shop))[0].paragraphs == PROSE
    note = "A note of the author follows here, which is no advertisement at all."
    assert read(BOOK.replace("THE END\n", f"THE END\n\n{note}\n"))[0].paragraphs == [*PROSE, note]
    story = BOOK.replace("CHAPTER II.", f"THE END\n{shop}\nCHAPTER II.")
    assert len(read(story)[0].paragraphs) > len(PROSE)


@pytest.mark.parametrize(
    "heading",
    [
        "A. L. Burt's Catalogue of Books for\nYoung People",
        "=The Wolf.= 12mo, cloth, price 75 cents.",
    ],
)
def test_a_publishers_list_without_the_end_before_it_is_left_out(heading: str) -> None:
    book = f"=The Bear.= By A. WRITER. 12mo, cloth,\nillustrated, price $1.00.\n\n{PRAISE}\n\n"
    shop = f"{heading}\n\nBOOKS FOR GIRLS.\n\n{book * 30}"
    counters = Counters()
    assert read(BOOK.replace("THE END\n", shop), counters)[0].paragraphs == PROSE
    assert counters.counts["words_left_out_as_advertisements"] == len(shop.split())
    # A list in a story, and a heading without prices.
    story = shop + f"\n{PRAISE}\n" * 700 + "\nCHAPTER II."
    assert len(read(BOOK.replace("CHAPTER II.", story))[0].paragraphs) > 700
    assert (
        PRAISE
        in read(BOOK.replace("THE END\n", f"Published by A. Smith in London.\n\n{PRAISE}\n"))[
            0
        ].paragraphs
    )


PRAISE = (
    '"It is unique among tales intended for children, '
    'alike for pleasant instruction and gentle pathos."'
)


@pytest.mark.parametrize(
    "heading",
    ["DRAMATIS PERSONÆ.", "THE PERSONS OF THE PLAY", "PERSONS REPRESENTED.", "Characters"],
)
def test_a_cast_of_characters_is_left_out(heading: str) -> None:
    persons = (
        f"{heading}\n\n  LAURENCE, the friend of the Bear.\n\n"
        "  ISABINDA, betrothed to Laurence.\n\n\n\nCHAPTER II."
    )
    assert read(BOOK.replace("CHAPTER II.", persons))[0].paragraphs == PROSE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She was excited and half- frightened.", "She was excited and half-frightened."),
        ("first- and second-class, pre- or post-war", "first- and second-class, pre- or post-war"),
        ("It came to £88 10_s._ and 6_d._ in all.", "It came to £88 10s. and 6d. in all."),
        ("I do not dis_trust_ it, _h_inside of him.", "I do not distrust it, hinside of him."),
        ("the file my_long_name.txt", "the file my_long_name.txt"),
        ("Malvoisie, [Footnote: Preserved grapes.] and wine.", "Malvoisie, and wine."),
        ("north of El-Wijh [Footnote 3: Ahmed's observation", "north of El-Wijh"),
        ("[Footnote 1: The letter was lost.]", "The letter was lost."),
        ("Nigra [Greek: melichroos] est", "Nigra melichroos est"),
        (
            "the _Carême de l'Assomption_,[C] and consequently[D]",
            "the Carême de l'Assomption, and consequently",
        ),
        ("[A] We must read it.", " We must read it."),
        ("It was [a] great day, and [I] went on.", "It was [a] great day, and [I] went on."),
        ("[A] great day came for h[i]m.", "[A] great day came for h[i]m."),
        ("He set a=1 and b=2, or =twice=.", "He set a=1 and b=2, or twice."),
        ("For what other[6a] family[12] is it?", "For what other family is it?"),
        # Signatures of notes.
        (
            "[27] Read _pathon_ with cod. Hav. See Dindorf. B.",
            " Read pathon with cod. Hav. See Dindorf.",
        ),
        ('[28] "Quod correxit Hermannus." DINDORF.', ' "Quod correxit Hermannus."'),
        ("[29] It fell in 480 B. C.", " It fell in 480 B. C."),
        ("[30] See vol. II.", " See vol. II."),
        ("[31] See the note. It is long.", " See the note. It is long."),
        ("It is on p. 714, ed. B.", "It is on p. 714, ed. B."),
    ],
)
def test_footnotes_emphasis_and_hyphens_within_sentences(text: str, expected: str) -> None:
    assert plain(text) == expected


FRONT = """\
THE MASQUERADE

Entered according to act of Congress, in the year 1857, by A. WRITER, in
the Clerk's Office of the District Court of the United States for the
Southern District of New York.

CONTENTS

I. In which the story of the unfortunate man is told, from which may be
gathered whether or no he has been justly so entitled by his friends.

II. An old miser, upon suitable representations, is prevailed upon to
venture an investment of which the reader will hear more in its place.



CHAPTER I

"""


def test_a_title_page_with_an_imprint_and_long_contents_is_left_out() -> None:
    prose = BOOK[BOOK.index("There was once") : BOOK.index("[Illus")]
    marked = "*** START OF THE PROJECT GUTENBERG EBOOK THE BEAR ***\n\n" + FRONT + prose
    for printed in (
        "Edinburgh:\nPrinted by J. Ballantyne & Co.",
        "LONDON:--Printed by G. BARCLAY, Castle St.",
    ):
        (document,) = read(marked + "\n\n" + printed + "\n")
        assert document.paragraphs == PROSE[:1]


def test_the_body_does_not_change_title_and_language() -> None:
    text = BOOK.replace(
        "He went\naway.\n", "He read:\n\nTitle: Sir Thomas\n\nLanguage: French\n\nHe went\naway.\n"
    )
    (document,) = read(text)
    assert (document.title, document.language) == ("The Bear A Story for the Young", "en")
    assert (
        read(text.replace("*** START OF", "Far from the start of"))[0].title
        == "The Bear A Story for the Young"
    )


def test_contents_end_at_prose_in_a_narrow_book() -> None:
    line = "the wind went on over the grey and empty fields, her"
    paragraphs = "\n\n".join([f"{line}\n{line}\n{line}\nand went away."] * 9)
    assert (
        len(
            read(f"{BOOK.partition('Produced by')[0]}CONTENTS\n\nThe Wind\n\n{paragraphs}\n")[
                0
            ].paragraphs
        )
        == 9
    )
    long = f"{' '.join([line] * 4)}."
    assert (
        len(
            read(f"{BOOK.partition('Produced by')[0]}CONTENTS\n\n1 The Wind\n\n{long}\n\n{long}\n")[
                0
            ].paragraphs
        )
        == 2
    )


def test_a_long_text_with_prices_is_not_a_publishers_list() -> None:
    said = [
        f"It was so in the year {year}, as they said." + " They paid $ 500." * (year % 10 == 0)
        for year in range(3000)
    ]
    text = BOOK.replace(
        "THE END\n", "\n\n".join(["So say the publications of the Treasury.", *said])
    )
    assert len(read(text)[0].paragraphs) > 1700


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
    (document,) = read(
        f"{PROSE[0]}\n\n{text}\n\nThe copyright was hers, and all rights reserved to her.\n",
        counters,
    )
    assert document.paragraphs == [
        PROSE[0],
        "The copyright was hers, and all rights reserved to her.",
    ]
    assert counters.counts["headings_left_out"] == 1


def test_a_giant_file_is_read_as_it_is_needed() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = (b"A document of one line.\n\n" * (len(buffer) // 25 + 1))[: len(buffer)]
            return len(buffer)

    part = InputRange(path="anywhere", name="endless", format="text")
    config = IngestConfig(documents="blank-line")
    documents = read_book(cast(BinaryIO, io.BufferedReader(Endless())), part, config, Counters())
    assert [next(documents).id for _ in range(3)] == ["endless#0", "endless#1", "endless#2"]


@given(st.binary(max_size=300), st.sampled_from(["auto", "file", "blank-line", "line"]))
def test_any_bytes_are_read_or_counted(content: bytes, documents: str) -> None:
    counters = Counters()
    try:
        found = read(content, counters, documents=documents)
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
        for document in read("\n".join(lines))
        for text in document.paragraphs
        for word in text.split()
    ]
    source = iter(" ".join(lines).replace("_x_", "x").split())
    assert all(word.strip("_") in source for word in words)


@pytest.mark.parametrize(
    "unit",
    [
        "\n",
        "* * *\n",
        "[Illustration: ",
        "_=[{",
        "x" + " " * 50,
        "chapter ",
        "Contents - - ",
        "a 1\n",
        "text of ",
        "*",
        "=a",
    ],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = (
        "Project Gutenberg's Book, by A. Writer\n\n"
        + unit * (400_000 // len(unit))
        + "\nIt is the end.\n"
    )
    assert {document.source for document in read(text)} <= {"gutenberg"}


def test_marks_of_plain_text() -> None:
    assert plain("He _was_ there,[12] =indeed=, in snake_case; a = b. [Picture: him]") == (
        "He was there, indeed, in snake_case; a = b. "
    )
    assert plain("[Footnote 3: He was not.]") == "He was not."


def test_header_fields() -> None:
    assert read_header("Title: Faust\r\nLanguage: German\r\n") == {
        "title": "Faust",
        "language": "de",
    }
    assert read_header("Language: Klingon") == {"language": ""}
    assert read_header("no header") == {}


def test_a_paragraph_in_a_script_without_full_stops_is_prose() -> None:
    thai = "ประเทศไทยเป็นรัฐชาติอันตั้งอยู่ในภูมิภาคเอเชียตะวันออกเฉียงใต้ " * 3
    assert read(f"{thai}\n\nบทที่หนึ่ง\n\n{thai}")[0].paragraphs == [thai.strip()] * 2


def test_the_books_of_the_quickstart_are_prose() -> None:
    folder = Path(__file__).resolve().parents[3] / "examples" / "quickstart" / "corpus" / "books"
    files = sorted(folder.iterdir())
    assert len(files) > 10
    for file in files:
        (document,) = read(file.read_bytes(), name=file.name)
        assert document.source == (
            "gutenberg" if "Project Gutenberg" in file.read_text("utf-8-sig")[:200] else "text"
        )
        assert 15_000 < sum(map(len, document.paragraphs)) < 120_000
        assert not [
            text
            for text in document.paragraphs
            if re.search(r"Gutenberg|\[Illustration|_|CHAPTER", text)
        ]


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        (
            "Austen - Pride and Prejudice.txt",
            "It is a truth universally acknowledged",
            "With the Gardiners, they were",
        ),
        (
            "Chekhov - The Witch, and Other Stories.txt",
            "IT was approaching nightfall.",
            "“Good Christian folk,” Sasha",
        ),
        (
            "Chesterton - Creatures That Once Were Men.txt",
            "It is certainly a curious fact",
            "And all around seemed to",
        ),
        (
            "Emshwiller - The Unlearned.txt",
            "The Chief Officer of Scientific",
            "Silvers shook his head",
        ),
        ("Poe - The Works of Edgar Allan Poe — Volume 2.txt", "At Paris, just after dark", ""),
    ],
)
def test_real_gutenberg_books(name: str, first: str, last: str) -> None:
    (document,) = Source("text", DATA / "books" / "gutenberg" / name, name).read()
    assert document.source == "gutenberg"
    assert document.paragraphs[0].startswith(first)
    assert document.paragraphs[-1].startswith(last)
    assert not [
        paragraph
        for paragraph in document.paragraphs
        if "Gutenberg" in paragraph and "tm" in paragraph
    ]


@needs_shared_data
def test_the_sample_text_of_bert_is_three_documents() -> None:
    documents = Source("text", DATA / "bert" / "sample_text.txt", "sample_text.txt").read()
    assert [len(document.paragraphs) for document in documents] == [3, 13, 15]


@needs_shared_data
def test_novels_keep_their_words() -> None:
    with tarfile.open(fileobj=gzip.open(DATA / "books" / "novels.tar.gz")) as archive:
        for _ in range(6):
            member = archive.next()
            if member is None or not member.isfile():
                continue
            stream = archive.extractfile(member)
            assert stream is not None
            content = stream.read()
            (document,) = read(content, name=member.name)
            words = sum(len(paragraph.split()) for paragraph in document.paragraphs)
            assert 0.98 < words / len(content.split()) <= 1


@pytest.mark.slow
def test_a_line_is_cut_between_words_and_never_within_a_character() -> None:
    size = books.CHUNK_BYTES + books.LONGEST_LINE_BYTES
    for word in ("слово ", "слово", "x слово "):
        for shift in range(3):
            counters = Counters()
            text = "y" * shift + word * (2 * size // len(word.encode())) + "."
            paragraphs = [
                paragraph for document in read(text, counters) for paragraph in document.paragraphs
            ]
            assert "".join(paragraphs).replace(" ", "") == text.replace(" ", "")
            assert not counters.counts["text_lines_with_invalid_utf8"]
            assert 1 <= counters.counts["long_lines_cut"] <= 4
            assert max(map(len, paragraphs)) <= 2 * size
            if " " in word:
                assert set(" ".join(paragraphs).split()[1:-1]) == set(word.split())


def test_books_joined_in_one_file_are_all_read() -> None:
    second = BOOK.replace("The Bear", "The Wolf").replace("I am a bear", "I am a wolf")
    counters = Counters()
    found = read("\n".join([BOOK, second, "Nothing follows.", BOOK]), counters)
    assert [(document.id, document.title) for document in found] == [
        ("shelf/book", "The Bear A Story for the Young"),
        ("shelf/book#1", "The Wolf A Story for the Young"),
        ("shelf/book#2", "The Bear A Story for the Young"),
    ]
    assert [document.paragraphs for document in found] == [
        PROSE,
        [PROSE[0], '"I am a wolf," he said.', PROSE[2]],
        PROSE,
    ]


def test_every_word_of_a_book_is_kept_or_counted() -> None:
    shop = (
        "THE END\n\n\nBY A. WRITER\n\nThe Bear. 12mo, Cloth, $1 50; Paper, 75 cents.\n\n"
        "Sent postpaid, $2.\n"
    )
    counters = Counters()
    text = BOOK.replace("THE END\n", shop)
    kept = sum(
        len(paragraph.split())
        for document in read(text, counters)
        for paragraph in document.paragraphs
    )
    left_out = {
        name.removeprefix("words_left_out_as_"): count for name, count in counters.counts.items()
    }
    del left_out["headings_left_out"]
    assert kept + sum(left_out.values()) == len(text.split())
    assert all(
        left_out[kind] > 2
        for kind in ("boilerplate", "notes", "contents", "title_pages", "advertisements")
    )


@pytest.mark.slow
def test_the_words_of_two_large_books_in_one_file_are_kept_or_counted() -> None:
    line = "There was once a bear who lived in a wood, and was known to all the people.\n"
    text = BOOK.replace("He went\naway.\n", line * 30_000) * 2
    counters = Counters()
    documents = read(text, counters)
    kept = sum(
        len(paragraph.split()) for document in documents for paragraph in document.paragraphs
    )
    assert kept > 2 * 30_000 * len(line.split())
    left_out = sum(
        count for name, count in counters.counts.items() if name.startswith("words_left_out_as_")
    )
    assert kept + left_out == len(text.split())


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
    (document,) = read(BOOK.replace("He went\naway.\n", f"He went\naway.\n\n{table}\n"), counters)
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
    (document,) = read(BOOK.replace("He went\naway.\n", f"He went\naway.\n\n{line}\n"))
    assert " ".join(document.paragraphs[-1].split()) == " ".join(line.split())


def test_nothing_is_left_out_of_notes_that_are_kept_whole() -> None:
    note = b"""Service: MEDICINE

Labs:
WBC-7.5   RBC-3.29   Hgb-9.7
Na 137   K 4.1   Cl 107

Pt is a 56 y/o M who presented with shortness of breath and chest pain.
"""

    def read_note(*, keep_lines: bool) -> tuple[list[str], Counters]:
        counters = Counters()
        config = IngestConfig(documents="file", keep_lines=keep_lines)
        (document,) = Source("text", note, "note.txt").read(counters, config=config)
        return document.paragraphs, counters

    kept, counters = read_note(keep_lines=True)
    assert " ".join(kept).split() == note.decode().split() and not counters.counts
    _, counters = read_note(keep_lines=False)
    assert counters.counts["headings_left_out"]
