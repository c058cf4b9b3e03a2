"""Extracted articles: which lines are prose, and how holes in them are mended."""

import pytest
from clozeworks.pipeline.execution.counters import Counters
from clozeworks.pipeline.sources.extracted import article_paragraphs, is_prose_line, repair_line
from clozeworks.pipeline.sources.wikitext.repair import GAP
from hypothesis import given
from hypothesis import strategies as st

PROSE = "Almonds are a rich source of oil, as several studies have shown."


def test_the_title_above_an_article_is_left_out():
    counters = Counters()
    assert article_paragraphs(["Almond", PROSE, "History."], "Almond", counters) == [PROSE]
    assert counters.counts == {"lines_left_out": 1, "words_left_out_as_lines": 1, "words_left_out_as_titles": 1}


@pytest.mark.parametrize(
    ("line", "prose"),
    [
        ("History.", False),
        ("Private schools", False),
        (PROSE, True),
        ("한국어는 대한민국의 공용어이다.", True),
        ("개요.", False),
        ("Applications of anthroposophy include:", False),
        ("| align=right | 12 || 13 || and so on, until the row of this table is long enough to be kept." * 2, False),
        ('He said: "I have never seen anything like it in my life."', True),
        ("A line of more than a hundred and twenty bytes that does not end as a sentence does, " * 2, True),
    ],
)
def test_prose_lines(line: str, prose: bool) -> None:
    assert is_prose_line(line) is prose


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # Real first sentences of English and Korean articles.
        (
            "Albert Einstein (; ]; 14 March 1879 – 18 April 1955) was",
            "Albert Einstein (14 March 1879 – 18 April 1955) was",
        ),
        ("Attila ( or ; fl. 434–453), frequently", "Attila (fl. 434–453), frequently"),
        ('Augustine of Hippo ( or ; Latin: "Aurelius")', 'Augustine of Hippo (Latin: "Aurelius")'),
        ("A carbine ( or ), from French", "A carbine, from French"),
        ("Nauru ( , , or ), officially", "Nauru, officially"),
        ("Albedo (), or", "Albedo, or"),
        ("대한민국을 간단히 한국(, , )이라 부른다.", "대한민국을 간단히 한국이라 부른다."),
        ("미합중국(美合衆國, , USA), 약칭", "미합중국(美合衆國, USA), 약칭"),
        ("쿼크()는 경입자와", "쿼크는 경입자와"),
        ("문학(文學, )은 언어를", "문학(文學)은 언어를"),
        ("quantum mechanics).:274 Einstein is", "quantum mechanics). Einstein is"),
        ("the discovery.:4–5 Its", "the discovery. Its"),
        ("[[서구권]] 과학자들의 [[입자 가속기|가속기]]", "서구권 과학자들의 가속기"),
        ("잡지 &lt;사상계&gt;에", "잡지 <사상계>에"),
        ("Actinopterygii , or the ray-finned fishes", "Actinopterygii, or the ray-finned fishes"),
        # What the authors wrote stays.
        ("the call PEEK() returns", "the call PEEK() returns"),
        ("(or, in some versions, Peleus) hid", "(or, in some versions, Peleus) hid"),
        ("(red, or, rarely, blue)", "(red, or, rarely, blue)"),
        ("at 12:30 he said: 5", "at 12:30 he said: 5"),
        ("the operators (+, -, *)", "the operators (+, -, *)"),
    ],
)
def test_holes_are_mended(line: str, expected: str):
    assert repair_line(line) == expected


@pytest.mark.parametrize(
    "line",
    ["where formula_19 is the mass.", "They are: Romans , , , and others.", "transcribed into the .", "Graham's , a"],
)
def test_a_gap_marks_missing_words(line: str):
    assert GAP in repair_line(line)


@given(st.text(alphabet="ab ()（);,；.&'\"\n–"))
def test_mending_takes_no_words_away(line: str):
    assert [char for char in repair_line(line) if char.isalnum()] == [char for char in line if char.isalnum()]


@pytest.mark.parametrize("part", ["(", "( ", "[[a|", "(a, ", " ,", ":1", "( or ", "formula_"])
def test_a_hostile_line_takes_linear_time(part: str):
    # Quadratic time would be minutes.
    assert repair_line(part * 200_000)
