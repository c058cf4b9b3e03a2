import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.sources.drama import without_drama
from clozeworks.pipeline.sources.formats import read_documents

from tests.fixtures.reading import Source
from tests.fixtures.shared_data import DATA, needs_shared_data

# From Henry VI, A Woman of No Importance, Dryden's Amboyna, Theocritus, Euripides, Chekhov.
SCENES = [
    (
        "  YORK. Richard, enough; I will be King, or die.\n    Brother, thou shalt to London.\n"
        "  EDWARD. No quarrel, but a slight contention.\n\n"
        "                     Enter the DUKE OF YORK\n\n"
        "  KING EDWARD. [Aside] Where is the Queen?                 Exeunt\n",
        [
            "Richard, enough; I will be King, or die.",
            "Brother, thou shalt to London.",
            "No quarrel, but a slight contention.",
            "Where is the Queen?",
        ],
    ),
    (
        "LORD ILLINGWORTH.  I do.  Nowadays it is only the unreadable that occurs.\n"
        "[_Rises with_ MRS. ALLONBY.]\n\n"
        "MRS. ALLONBY [_in a low voice_]  I had completely forgotten that.\n\n"
        "[_Exit_ MRS. ALLONBY _and_ LORD\nILLINGWORTH.]\n\n",
        [
            "I do. Nowadays it is only the unreadable that occurs.",
            "I had completely forgotten that.",
        ],
    ),
    (
        "_Fisc._ The devil give him joy of both!   [_Aside._\n\n"
        "_Har. Jun._ O mercy, mercy, heaven!                           [_Dies._\n\n"
        "_Van Her._ Beamont and Collins, merchants both.\n"
        "                 [_Catches hold of_ COLLINS, _and\n                 falls by him._\n\n",
        [
            "The devil give him joy of both!",
            "O mercy, mercy, heaven!",
            "Beamont and Collins, merchants both.",
        ],
    ),
    (
        "_Corydon_.  They say he is a match for Heracles.\n\n"
        "_Battus_.  And I, they say, am better.\n\n",
        ["They say he is a match for Heracles.", "And I, they say, am better."],
    ),
    (
        "CHOR. Alas! alas! how [truly] wretched is the state.\n\n"
        "HEC. O daughter, thy words are vanished. [To the Greeks,] hear!\n\n",
        [
            "Alas! alas! how [truly] wretched is the state.",
            "O daughter, thy words are vanished. [To the Greeks,] hear!",
        ],
    ),
    (
        "ТРЕПЛЕВ. Вот тебе и театр. Занавес, потом первая кулиса.\n\n"
        "СОРИН (смеётся). Отчего ты не в духе, мой друг?\n\n",
        ["Вот тебе и театр. Занавес, потом первая кулиса.", "Отчего ты не в духе, мой друг?"],
    ),
]


def paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


@pytest.mark.parametrize(("scene", "speeches"), SCENES)
def test_speakers_and_directions_are_left_out(scene: str, speeches: list[str]) -> None:
    counters = Counters()
    text = without_drama(scene * 20, counters)
    assert " ".join(text.split()) == " ".join(speeches * 20)
    num_left_out = sum(counters.counts.values())
    assert num_left_out == len((scene * 20).split()) - len(text.split())
    assert counters.counts["words_left_out_as_speakers"] >= 40


def test_each_speech_is_a_paragraph() -> None:
    scene = SCENES[0][0].replace("    Brother, thou shalt to London.\n", "")
    assert paragraphs(without_drama(scene * 20, Counters()))[:3] == [
        "Richard, enough; I will be King, or die.",
        "No quarrel, but a slight contention.",
        "Where is the Queen?",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "CHAPTER I. There was once a bear.\n\nCHAPTER II. He went away.\n\n",
        "SECT. I. Of Ideas in general.\n\nSECT. II. Of Space.\n\n",
        "MR. SMITH went to London with\nMRS. Brown and MR. Smith, and MR. Low.\n\n",
        "I. How he came to the house.\n\nV. How he left it.\n\nX. How he died.\n\n",
        "NORA: No, that I did not say.\n\nHELMER: What is it then?\n\n",
        "He wrote to\nJ. Smith and A. Low; to J. Smith, A. Low, and\nA. Smith. To J. Low.\n\n",
        "HOW HE CAME\n\nThere was once a bear.\n\nTHE END.\n\nA bear it was.\n\n",
        "[It was] a great day, and [he went.]                    Exit\n\n",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert without_drama(text * 50, Counters()) == text * 50


def test_a_scene_in_a_novel_loses_only_its_names() -> None:
    prose = "There was once a bear who lived in a wood. [He was known to all.]\n\n" * 1000
    scene = 'PARSON. - "You are very good."\n\nTRAVELLER. - "On horseback!"\n\n' * 20
    scene += "NOTE. It was so.\n\n"
    text = without_drama(prose + scene, Counters())
    assert text.startswith(prose)
    assert paragraphs(text[len(prose) :]) == [
        '- "You are very good."',
        '- "On horseback!"',
    ] * 20 + ["NOTE. It was so."]


@pytest.mark.parametrize(
    "unit", ["A", "A. ", "\n A.", "\n_A._ b ", "[A\n", "A B. (", "\n A'-", "     A"]
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    hostile = unit * 100_000
    without_drama(hostile, Counters())
    without_drama(SCENES[2][0] * 20 + hostile, Counters())


def test_a_play_is_read_as_a_book() -> None:
    counters = Counters()
    raw = (SCENES[1][0] * 20).encode()
    (document,) = Source("text", raw, "play.txt").read(counters, config=IngestConfig())
    assert [" ".join(text.split()) for text in document.paragraphs] == SCENES[1][1] * 20
    assert counters.counts["words_left_out_as_directions"] == 20 * 10


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "num_speeches"),
    [
        ("Buckley - The Tragedies of Euripides, Volume I..txt", 3400),
        ("Shakespeare - The Third Part of King Henry the Sixth.txt", 750),
        ("Wilde - A Woman of No Importance.txt", 870),
    ],
)
def test_plays_have_no_names_as_sentences(name: str, num_speeches: int) -> None:
    counters = Counters()
    (document,) = read_documents(str(DATA / "books" / "gutenberg" / name), None, counters)
    assert counters.counts["words_left_out_as_speakers"] >= num_speeches
    names = [text for text in document.paragraphs if text.partition(". ")[0].isupper()]
    assert len(names) < 0.01 * len(document.paragraphs)
