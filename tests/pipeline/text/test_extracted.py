"""Extracted articles: which lines are prose, and how holes in them are closed."""

import pytest
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.text.extracted import (
    article_paragraphs,
    find_remains,
    is_prose_line,
    repair_line,
)
from clozeworks.pipeline.text.fragments import is_navigation
from clozeworks.pipeline.text.wikitext.repair import GAP
from hypothesis import given
from hypothesis import strategies as st

PROSE = "Almonds are a rich source of oil, as several studies have shown."


def paragraphs_of(lines: list[str], title: str, counters: Counters) -> list[str]:
    return article_paragraphs(lines, title, counters, "en", find_remains(lines))


def test_the_title_above_an_article_is_left_out():
    counters = Counters()
    assert paragraphs_of(["Almond", PROSE, "History."], "Almond", counters) == [PROSE]
    assert counters.counts == {
        "lines_left_out": 1,
        "words_left_out_as_lines": 1,
        "words_left_out_as_titles": 1,
    }


def test_an_introduction_without_its_list_has_a_gap():
    introduction = f"{PROSE} {PROSE} In two elections the parties had these seats:"
    quoted = 'Gandhi said: "I was there."'

    def paragraphs(*lines: str) -> list[str]:
        return paragraphs_of(list(lines), "", Counters())

    gap = f"{introduction[:-1]}{GAP}:"
    assert paragraphs(introduction, "Labour", PROSE) == [gap, PROSE]
    assert paragraphs(introduction, PROSE) == [gap, PROSE]
    assert paragraphs(introduction) == [gap]
    assert paragraphs(introduction, f'"{PROSE}"') == [introduction, f'"{PROSE}"']
    assert paragraphs(f"{quoted} {PROSE}") == [f"{quoted} {PROSE}"]


def test_a_row_of_links_is_no_prose():
    counters = Counters()
    row = " • ".join(str(year) for year in range(1900, 1930))
    assert paragraphs_of([row, PROSE], "", counters) == [PROSE]
    assert counters.counts["words_left_out_as_lines"] == 59


@pytest.mark.parametrize(
    ("line", "prose"),
    [
        ("History.", False),
        ("Private schools", False),
        ("!Kung is a language of Namibia with many click consonants.", True),
        ("#1 Record is the debut album of an American rock band.", True),
        ("|x| is the absolute value of a number in most books.", True),
        ("|10||20|| is the rest of a row of a table of numbers.", False),
        ("# an item of a list that ends as a sentence does, with a stop.", False),
        (f"BULLET::::- {PROSE}", False),
        ("Section::::Applications of anthroposophy in the world.", False),
        (f"mini|hochkant=1.2|{PROSE} {PROSE} {PROSE}", False),
        (f"thumb|200px|{PROSE} {PROSE}", False),
        (PROSE, True),
        ("한국어는 대한민국의 공용어이다.", True),
        ("개요.", False),
        ("1997년 대선 당시 신한국당의 전두환 사면에 대한 논란.", False),
        ("상하이 광밍 유베이 (2017년~2018년).", False),
        ("상하이는 중국에서 가장 큰 도시이다 (2018년).", True),
        ("자세한 내용은 영어 위키백과의 문서를 참고하라.", True),
        ("Applications of anthroposophy include:", False),
        (
            "| align=right | 12 || 13 || and so on, until the row of this table is long enough "
            "to be kept." * 2,
            False,
        ),
        ('He said: "I have never seen anything like it in my life."', True),
        (
            "A line of more than a hundred and twenty bytes that does not end as a sentence does, "
            * 2,
            True,
        ),
    ],
)
def test_prose_lines(line: str, prose: bool) -> None:
    assert is_prose_line(line) is prose


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # Real first sentences of English and Korean articles.
        (
            "Albert Einstein (; ]; 14 March 1879 – 18) was",
            "Albert Einstein (14 March 1879 – 18) was",
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
        ("모토타다(, 덴분 17년 ~ 1600년)는", "모토타다(덴분 17년 ~ 1600년)는"),
        ("배정자(, 田山貞子(다야마), 1870년)는", "배정자(田山貞子(다야마), 1870년)는"),
        ('Abalone ( or ; via "abulón", from (a) is', 'Abalone (via "abulón", from (a) is'),
        ("니콘 D2X()는 사진기이다", "니콘 D2X는 사진기이다"),
        ("'코스모스'()등이", "'코스모스'등이"),
        ('《닥터 후》("") 이후', "《닥터 후》 이후"),
        ("make a<br>bed of <dfn id=>slate</dfn><ref name=x>y</ref>.", "make a bed of slate."),
        ("as of 2009[ [update]], of 23.91 km2", "as of 2009, of 23.91 km2"),
        ('titled ""Zum Problem"" ("About it")', 'titled "Zum Problem" ("About it")'),
        ('of "the "ugab" and the "kinnor""', 'of "the "ugab" and the "kinnor""'),
        ('the label ""the Lion" was', 'the label ""the Lion" was'),
        ('the equation "J""n"("x") = "g""ij"', 'the equation "Jn"("x") = "gij"'),
        ("in The Art Book [http://a.org/b?c=1] (February", "in The Art Book (February"),
        ("see [https://a.org the site of it] for", "see the site of it for"),
        ("on its channel (http://www.youtube.com/a).", "on its channel."),
        ("[[File:A b.jpg|250px|thumb|right|The [[town|place]] by day.]]", ""),
        ("[[파일:T-34-85.jpg|섬네일|왼쪽|왜관에서 [[미군]]이 살펴보고 있다.", ""),
        ("It is left-to-right.[3] It is", "It is left-to-right. It is"),
        ("증상이 나타난다.[29][32]", "증상이 나타난다."),
        # What the authors wrote stays.
        ("defining the pair as {a,{a,b}}.", "defining the pair as {a,{a,b}}."),
        ("the address http://a.org/b is", "the address http://a.org/b is"),
        ("n[0] is the bit", "n[0] is the bit"),
        ("앨범 <Ocean Avenue>의 인기", "앨범 <Ocean Avenue>의 인기"),
        ("the man looked for, and from whom, it", "the man looked for, and from whom, it"),
        ("see page 1500. The area was large.", "see page 1500. The area was large."),
        (
            "south London, approximately north-east, and",
            "south London, approximately north-east, and",
        ),
        ("printf()는 함수이다", "printf()는 함수이다"),
        ("the call PEEK() returns", "the call PEEK() returns"),
        ("(or, in some versions, Peleus) hid", "(or, in some versions, Peleus) hid"),
        ("(red, or, rarely, blue)", "(red, or, rarely, blue)"),
        ("at 12:30 he said: 5", "at 12:30 he said: 5"),
        ("the operators (+, -, *)", "the operators (+, -, *)"),
    ],
)
def test_holes_are_closed(line: str, expected: str):
    assert repair_line(line) == expected
    assert find_remains([line]) == [True] or line == expected


@pytest.mark.parametrize(
    "line",
    [
        "where formula_19 is the mass.",
        "최소 단면 2차 반경 r과의 비formula_1이다.",
        "The option codice_21 was treated so.",
        "They are: Romans , , , and others.",
        "transcribed into the .",
        "Graham's , a",
        "It was opened by .",
        "About , the town",
        "Over four decades, {{convert|269000|ha}} of forest went.",
        "Furongian ({{}}: Error! the period you specified has not been recognised!) is",
        'the release of "", a new album.',
        'The film ""',
        "‘박쥐’는 15세기 문헌에 ‘’로 나온다.",
        "연평균 강수량은 이고 높다.",
        "태양으로부터 약 떨어져 있다.",
    ],
)
def test_a_gap_marks_missing_words(line: str):
    assert GAP in repair_line(line)
    assert find_remains([line]) == [True]


@given(
    st.lists(
        st.sampled_from(
            [
                *'&<>[](){}（）_/:;,.、|•·"“”‘’《》1 \u3000\xa0\x85é은는약',
                *(" of", " the", " at", " by", "near", "and", "approximately", " east of "),
                *("formula_", " 이다"),
            ]
        )
    ).map("".join)
)
def test_lines_without_remains_are_repaired_to_themselves(line: str):
    if find_remains([line]) == [False]:
        assert repair_line(line) == line
        assert not is_navigation(line)


def test_entities_need_their_semicolon_and_labels_may_have_brackets():
    assert (
        repair_line("Black&section &amp; 3&times as &eacute;.") == "Black&section & 3&times as é."
    )
    assert repair_line("See [https://x.org The [old] report] here.") == "See The [old] report here."
    raised = "The 4<sup>th</sup> is 10<sup>6</sup> m<sup>2</sup>."
    assert repair_line(raised) == "The 4th is 10⁶ m²."


def test_halves_of_surrogate_pairs_are_no_reason_to_fail():
    assert find_remains(["\ud800", PROSE]) == [True, True]
    assert find_remains([]) == []


@given(st.text(alphabet="ab ()（);,；.&'\"\n–"))
def test_closing_holes_removes_no_words(line: str):
    assert [char for char in repair_line(line) if char.isalnum()] == [
        char for char in line if char.isalnum()
    ]


@pytest.mark.parametrize(
    "part",
    ["(", "( ", "[[a|", "(a, ", " ,", ":1", "( or ", "formula_", " ,)", '""', "<ref ", "a of"],
)
def test_a_hostile_line_takes_linear_time(part: str):
    # Quadratic time would be minutes.
    assert repair_line(part * 200_000)
