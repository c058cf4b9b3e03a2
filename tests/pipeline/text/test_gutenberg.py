"""What Project Gutenberg and printers put around a book, and marks in its text."""

from typing import Any

import pytest
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.sources.streams import RawDocument
from clozeworks.pipeline.text.gutenberg import is_gutenberg, plain, read_header

from tests.fixtures.reading import Source
from tests.fixtures.shared_data import DATA, needs_shared_data
from tests.fixtures.text_files import BOOK, PROSE, paragraphs_of, read_text


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_gutenberg_book_is_its_prose(newline: str) -> None:
    head: Any = {"id": "shelf/book", "source": "gutenberg"}
    head["title"] = "The Bear A Story for the Young"
    assert read_text(BOOK.replace("\n", newline)) == [
        RawDocument(**head, language="en", paragraphs=PROSE)
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
    assert paragraphs_of(text) == PROSE
    text = text.replace("End of Project Gutenberg's", "End of the Project Gutenberg Etext of")
    assert paragraphs_of(text) == PROSE


@pytest.mark.parametrize(
    "end",
    [
        "*END*THE SMALL PRINT! FOR COPYRIGHT PROTECTED ETEXTS*Ver.04.29.93*END*",
        "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93\n*END*",
    ],
)
def test_the_small_print_ends_where_it_says_whatever_the_first_line(end: str) -> None:
    story = BOOK[BOOK.index("CHAPTER I.") : BOOK.index("THE END")]
    head = "**This is a COPYRIGHTED Project Gutenberg Etext, Details Below**\n\nOnce upon a time.\n"
    foot = "End of this COPYRIGHTED Project Gutenberg Etext of The Bear\n\nCreating it is done.\n"
    (document,) = read_text(f"{head}\nTitle: The Bear\n\n{end}\n\n{story}\n\n{foot}")
    assert (document.source, document.title) == ("gutenberg", "The Bear")
    assert document.paragraphs == PROSE


def test_a_book_without_marks_is_a_book_all_the_same() -> None:
    text = BOOK.partition("pgdp.net\n")[2].partition("Transcriber's Note:\n\nObvious")[0]
    (document,) = read_text(text)
    assert (document.source, document.title, document.language) == ("text", "", "")
    assert [paragraph for paragraph in document.paragraphs if paragraph in PROSE] == PROSE


def test_a_text_about_gutenberg_is_not_a_gutenberg_file() -> None:
    assert not is_gutenberg("I found it at Project Gutenberg.\nThe eBook of it is free.")
    assert is_gutenberg("Project Gutenberg's The Bear, by A. Writer\n")
    assert is_gutenberg("***This is the Project Gutenberg Etext of The Bear***\n")


@pytest.mark.parametrize(
    "end",
    [
        'Ende dieses Projekt Gutenberg Etextes "The Bear"',
        "Fin de Project Gutenberg's The Bear",
        "End of Project Gutenberg's Bear\n\n***START**THE SMALL PRINT!**START***\nWhy is it?\n"
        "*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02/11/02*END*",
    ],
)
def test_other_ends_of_a_book(end: str) -> None:
    head = "Project Gutenberg's The Bear, by A. Writer\n\n"
    story = BOOK[BOOK.index("CHAPTER I.") : BOOK.index("THE END")]
    assert paragraphs_of(f"{head}{story}\n\n{end}\n\nCreating the works is done.\n") == PROSE


def test_advertisements_behind_the_end_are_left_out() -> None:
    shop = (
        "\n\nBY A. WRITER\n\nThe Bear. 12mo, Cloth, $1 50; Paper, 75 cents.\n\n"
        "Sent postpaid on receipt of price.\n"
    )
    assert paragraphs_of(BOOK.replace("THE END\n", "THE END\n" + shop)) == PROSE
    note = "A note of the author follows here, which is no advertisement at all."
    assert paragraphs_of(BOOK.replace("THE END\n", f"THE END\n\n{note}\n")) == [*PROSE, note]
    story = BOOK.replace("CHAPTER II.", f"THE END\n{shop}\nCHAPTER II.")
    assert len(paragraphs_of(story)) > len(PROSE)


def test_a_publishers_list_without_the_end_before_it_is_left_out() -> None:
    book = f"=The Bear.= By A. WRITER. 12mo, cloth,\nillustrated, price $1.00.\n\n{PRAISE}\n\n"
    shop = f"=The Wolf.= 12mo, cloth, price 75 cents.\n\nBOOKS FOR GIRLS.\n\n{book * 30}"
    counters = Counters()
    assert paragraphs_of(BOOK.replace("THE END\n", shop), counters) == PROSE
    assert counters.counts["words_left_out_as_advertisements"] == len(shop.split())
    # A list in a story.
    story = shop + f"\n{PRAISE}\n" * 700 + "\nCHAPTER II."
    assert len(paragraphs_of(BOOK.replace("CHAPTER II.", story))) > 700


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
    assert paragraphs_of(BOOK.replace("CHAPTER II.", persons)) == PROSE


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
            "the _Carême de Pâques_,[C] and consequently[D]",
            "the Carême de Pâques, and consequently",
        ),
        ("[A] We must read it.", " We must read it."),
        ("It was [a] great day, and [I] went on.", "It was [a] great day, and [I] went on."),
        ("[A] great day came for h[i]m.", "[A] great day came for h[i]m."),
        ("He set a=1 and b=2, or =twice=; a = b.", "He set a=1 and b=2, or twice; a = b."),
        ("For what other[6a] family[12] is it?", "For what other family is it?"),
        ("The code is a[0] = b[i];", "The code is a[0] = b[i];"),
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
        (document,) = read_text(marked + "\n\n" + printed + "\n")
        assert document.paragraphs == PROSE[:1]


def test_the_body_does_not_change_title_and_language() -> None:
    text = BOOK.replace(
        "He went\naway.\n", "He read:\n\nTitle: Sir Thomas\n\nLanguage: French\n\nHe went\naway.\n"
    )
    (document,) = read_text(text)
    assert (document.title, document.language) == ("The Bear A Story for the Young", "en")
    (document,) = read_text(text.replace("*** START OF", "Far from the start of"))
    assert document.title == "The Bear A Story for the Young"


def test_contents_end_at_prose_in_a_narrow_book() -> None:
    head = BOOK.partition("Produced by")[0]
    line = "the wind went on over the grey and empty fields, her"
    paragraphs = "\n\n".join([f"{line}\n{line}\n{line}\nand went away."] * 9)
    assert len(paragraphs_of(f"{head}CONTENTS\n\nThe Wind\n\n{paragraphs}\n")) == 9
    long = f"{' '.join([line] * 4)}."
    assert len(paragraphs_of(f"{head}CONTENTS\n\n1 The Wind\n\n{long}\n\n{long}\n")) == 2


def test_a_long_text_with_prices_is_not_a_publishers_list() -> None:
    said = [
        f"It was so in the year {year}, as they said." + " They paid $ 500." * (year % 10 == 0)
        for year in range(3000)
    ]
    text = BOOK.replace(
        "THE END\n", "\n\n".join(["So say the publications of the Treasury.", *said])
    )
    assert len(paragraphs_of(text)) > 1700


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *("\n", "* * *\n", "[Illustration: ", "_=[{", "x" + " " * 50, "chapter ", "Contents - - "),
        *("a 1\n", "text of ", "*", "=a"),
    ],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = (
        "Project Gutenberg's Book, by A. Writer\n\n"
        + unit * (400_000 // len(unit))
        + "\nIt is the end.\n"
    )
    assert {document.source for document in read_text(text)} <= {"gutenberg"}


def test_header_fields() -> None:
    assert read_header("Title: Faust\r\nLanguage: German\r\n") == {
        "title": "Faust",
        "language": "de",
    }
    assert read_header("Language: Norwegian and Danish") == {"language": "no"}
    assert read_header("Language: Klingon") == {"language": ""}
    assert read_header("no header") == {}


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("Austen - Pride and Prejudice", "It is a truth universally", "With the Gardiners, they"),
        ("Chekhov - The Witch, and Other Stories", "IT was approaching", "“Good Christian folk,”"),
        ("Chesterton - Creatures That Once Were Men", "It is certainly", "And all around seemed"),
        ("Emshwiller - The Unlearned", "The Chief Officer of Scientific", "Silvers shook his head"),
        ("Poe - The Works of Edgar Allan Poe — Volume 2", "At Paris, just after dark", ""),
    ],
)
def test_real_gutenberg_books(name: str, first: str, last: str) -> None:
    path = DATA / "books" / "gutenberg" / f"{name}.txt"
    (document,) = Source("text", path, path.name).read()
    assert document.source == "gutenberg"
    assert document.paragraphs[0].startswith(first)
    assert document.paragraphs[-1].startswith(last)
    assert "Gutenberg-tm" not in " ".join(document.paragraphs)


def test_books_joined_in_one_file_are_all_read() -> None:
    second = BOOK.replace("The Bear", "The Wolf").replace("I am a bear", "I am a wolf")
    counters = Counters()
    found = read_text("\n".join([BOOK, second, "Nothing follows.", BOOK]), counters)
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
