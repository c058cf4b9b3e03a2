import pytest
from clozeworks.pipeline.text.fragments import (
    introduction_gap,
    is_navigation,
    without_reference_marks,
)
from clozeworks.pipeline.text.wikitext.passages import wikitext_to_paragraphs
from clozeworks.pipeline.text.wikitext.repair import GAP


@pytest.mark.parametrize(
    ("language", "introduction", "kept"),
    [
        ("en", "Some of the basic strikes in boxing include:", False),
        ("uk", "До складу команди тоді входили такі гравці:", False),
        ("el", "Στην ομάδα συμμετείχαν οι παρακάτω παίκτες:", False),
        ("bn", "এই দলের সদস্যদের নাম নিচে দেওয়া হলো সবার জন্য:", False),
        (
            "ja",
            "その国の歴史をとおしてよく知られている重要な政治家や作家の名前は以下のとおりである：",
            False,
        ),
        ("hy", "Խմբի անդամներն այդ ժամանակ հետևյալներն են", False),
        ("hy", "Խմբի անդամներն այդ ժամանակ հետևյալներն էին․", False),
        ("hy", "Խմբի անդամներն այդ ժամանակ շատ հայտնի էին:", True),
        ("en", "Some of the basic strikes are listed in the article.", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "dropped",
    ["\n* one\n* two", "\n\n# one", "\n{|\n| one\n|}", "\n<gallery>\none\n</gallery>", "\n== H =="],
)
def test_introductions_of_dropped_lists(language: str, introduction: str, kept: bool, dropped: str):
    paragraphs = wikitext_to_paragraphs(f"{introduction}{dropped}\nText goes on.", language)
    assert paragraphs[-1].endswith("Text goes on.")
    assert (GAP not in paragraphs[0]) is kept


def test_the_introduction_of_a_kept_paragraph_stays() -> None:
    text = (
        "Biographer Bob Colacello provides some details:\n\nVictor was a pisser on the Oxidations."
    )
    assert wikitext_to_paragraphs(text) == text.split("\n\n")
    assert introduction_gap("These are:", "en") == f"These are{GAP}:"
    assert introduction_gap(f"These are{GAP}:", "en") == f"These are{GAP}:"


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ("1916 • 1917 • 1918 • 1919", True),
        ("Січень • Лютий • Березень", True),
        ("A | B | C", True),
        ("Cheju · Ulsan", False),
        ("인진쑥·신령버섯·청결고춧가루·정든고추장 등이 유명하다", False),
        ("1782년 정조는 성삼문 · 박팽년 · 이개의 신도비를 세워주었다.", False),
        ("최초의 관념은 민달팽이 · 개구리 · 쥐 등이 나타나는 것이다.", False),
        ("The band had one member more than we knew at the time of its history • B • C", False),
    ],
)  # fmt: skip
def test_rows_of_links(paragraph: str, expected: bool) -> None:
    assert is_navigation(paragraph) is expected


def test_a_row_of_links_is_left_out_of_an_article() -> None:
    text = "[[1916]]{{•}}[[1917]]{{•}}[[1918]] {{•}} '''1919''' • [[1920]]\n\nУкраїна була тоді."
    assert wikitext_to_paragraphs(text, "uk") == ["Україна була тоді."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # From English and Korean articles.
        ("It is horizontal left-to-right.[3]", "It is horizontal left-to-right."),
        ("in 1998–2007.[12][13] They", "in 1998–2007. They"),
        ("of coronary heart disease[2][3]", "of coronary heart disease"),
        ("more than 900 mm[13] of rain", "more than 900 mm of rain"),
        ("the same way[11], making", "the same way, making"),
        ("Brian Learmount[2]가 말하기를", "Brian Learmount가 말하기를"),
        ("읽기와 쓰기 능력도 상실된다.[29][33]", "읽기와 쓰기 능력도 상실된다."),
        ("Η πόλη είναι παλιά. [3] Μετά", "Η πόλη είναι παλιά.  Μετά"),
        ("শহরটি পুরানো। [১২] তারপর", "শহরটি পুরানো।  তারপর"),
        ("He asked why? [4][5]", "He asked why? "),
        ("see the same [3], making", "see the same [3], making"),
        ("n[0] is the rightmost bit, E[1] the next.", "n[0] is the rightmost bit, E[1] the next."),
        ("document.forms[1].elements[0]", "document.forms[1].elements[0]"),
        ("It sets names[2] = 5.", "It sets names[2] = 5."),
        ('"written" as [100] [10] [4]', '"written" as [100] [10] [4]'),
        ("[2] 실제임금 자료가 있다.", "[2] 실제임금 자료가 있다."),
    ],
)
def test_pasted_reference_marks_go(text: str, expected: str) -> None:
    assert without_reference_marks(text) == expected
