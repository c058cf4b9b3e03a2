import re
import unicodedata
from copy import copy
from itertools import product
from pathlib import Path
from unittest.mock import patch

import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.text import sentences
from clozeworks.pipeline.text.sentence_joins import join, join_rules_of
from clozeworks.pipeline.text.sentence_quotes import Quotations
from clozeworks.pipeline.text.sentence_rules import (
    WORDS,
    Rule,
    language_code,
    months_of,
    with_parts,
    words_of,
)
from clozeworks.pipeline.text.sentences import (
    LONGEST_CALL,
    compose,
    normalise,
    split_sentences,
    stops_of,
)
from hypothesis import given
from hypothesis import strategies as st
from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

from tests.fixtures.sentence_patterns import PATTERNS, count_mis_splits

MARKS = (
    "abc XYZ 12.,;:!?…\"'“”‘’()[]「」。、？！ 다고 は"
    "\u3000\u00a0\t\n\r\x00\x85\u2028\u00ad\u200b\u200d\ufeff\ud800"
)
FIXTURES = Path(__file__).parents[2] / "fixtures"
GOLD = [
    line.split(": ", 1)
    for line in (FIXTURES / "sentence_gold.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
LANGUAGES = ["en", "ko", "ja", "zh", "de", "simple", "xx", "", "zh-min-nan", "EN_us"]


def kept(text: str) -> str:
    """By Unicode's own classes: all but whitespace, controls, surrogates and invisible marks."""
    invisible = "\u00ad\u180e\u200b\u200e\u200f\ufeff"
    shown = (char for char in text if not char.isspace() and char not in invisible)
    return "".join(char for char in shown if unicodedata.category(char) not in ("Cc", "Cs"))


@given(st.lists(st.text(MARKS, max_size=60), max_size=4), st.sampled_from(LANGUAGES))
def test_no_character_is_lost_and_every_sentence_is_normalised(
    paragraphs: list[str], language: str
) -> None:
    sentences = split_sentences(paragraphs, language)
    assert kept("".join(sentences)) == kept("".join(paragraphs))
    for sentence in sentences:
        assert sentence == " ".join(sentence.split()) != ""
        assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in sentence)
        sentence.encode("utf-8")


LISTED = [
    *sorted(words_of(WORDS.before_capitals, "en")),
    *sorted(words_of(WORDS.abbreviations, "ru")),
]
# How pieces begin and end where rules join them, and where none does.
BEGINNINGS = st.sampled_from(
    [*"AÉa1(,;)」のとが我고를", "The ", '"', '" ', "“I ", "II", "—", "-3.", "I asked.", "...", "১"]
)
ENDINGS = st.one_of(
    st.sampled_from(
        [
            *(" word.", " end?", " No!", " it”.", " 12.", " 2.", " 1990.", " in 1990.", " 9,000."),
            *('?"', "!”", "...", " A.", " C.", " approx.", ' "', " “", "。", "다.", "」", " ১."),
        ]
    ),
    st.sampled_from([f" {word}." for word in LISTED]),
)
BODIES = st.sampled_from(["", "b", "bc bc bc bc", "가 가가 가가가가"])
# Two only, because the search has to see each place at which anything changes.
PIECES = st.tuples(
    st.builds("{}{}{}".format, BODIES, ENDINGS, st.sampled_from([" ", " ", ""])),
    st.builds("{}{}".format, BEGINNINGS, BODIES),
).map(list)


@pytest.mark.parametrize("language", WORDS.months)
def test_the_listed_months_are_those_of_cldr(language: str, monkeypatch: pytest.MonkeyPatch):
    months_of("ja")  # what is read before makes no difference
    listed = months_of(language)
    monkeypatch.delitem(WORDS.months, language)
    assert months_of(language) == listed


# Not in Chinese and Japanese, whose patterns are for what the search sees.
@given(PIECES, st.sampled_from(["en", "ko", "de", "ru", "hi"]))
def test_one_search_sees_all_that_is_to_be_joined(pieces: list[str], language: str) -> None:
    rules = join_rules_of(language)
    every_break = r"\n(?<!\n\n)(?!\n)"
    thorough = copy(rules)
    thorough.candidates = thorough.uncased_candidates = every_break
    lines = "\n".join(pieces)
    assert join(lines, rules, is_cased=True) == join(lines, thorough, is_cased=True)
    lines = lines.lower()
    assert join(lines, rules, is_cased=False) == join(lines, thorough, is_cased=False)


@pytest.mark.parametrize("language", ["en", "fr", "ru"])
def test_text_without_capitals_takes_no_more_work(language: str) -> None:
    text = "Il fait beau à Paris. Nous y sommes. " * 20
    lines = "\n".join(segment(language, text))
    rules = join_rules_of(language)
    in_lower_case = re.findall(rules.uncased_candidates, lines.lower())
    assert len(in_lower_case) <= len(re.findall(rules.candidates, lines)) <= 1
    assert len(split_sentences([text.lower()], language)) == 40


def test_each_quotation_mark_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    span = Quotations._span
    monkeypatch.setattr(
        Quotations, "_span", lambda self, opener: (read.append(opener), span(self, opener))[1]
    )
    split_sentences([' " a. B' * 1000], "en")
    assert 100 < len(read) == len(set(read))


@pytest.mark.slow
@given(st.text())
def test_normalise_agrees_with_the_unicode_classes_on_any_text(text: str) -> None:
    line = normalise(text)
    assert line == " ".join(line.split())
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in line)
    assert normalise(line) == line


def test_whitespace_and_invisible_characters() -> None:
    assert (
        normalise("\ufeffBer\u00adlin\u3000is\u2028a\r\n\t\x0bcity\x85of\x00 \u200btrees ")
        == "Berlin is a city of trees"
    )
    assert normalise("می\u200cخواهم") == "می\u200cخواهم"
    assert normalise("two  spaces") == "two spaces"
    assert normalise("a hy\u00ad\nphen at a line's end") == "a hyphen at a line's end"


@pytest.mark.parametrize("rule", WORDS.joins, ids=lambda rule: rule.example)
def test_each_rule_joins_its_example(rule: Rule) -> None:
    for language in ["bg", "ru", "it", "en"] if rule.languages == "*" else rule.languages.split():
        text = rule.example.replace("|", "")
        assert split_sentences([text], language) == [text]


@pytest.mark.parametrize("rule", WORDS.joins, ids=lambda rule: rule.example)
def test_no_rule_is_there_for_what_sentencex_does(rule: Rule) -> None:
    languages = ["bg", "ru", "it", "en"] if rule.languages == "*" else rule.languages.split()
    pieces = [
        [piece.strip() for piece in segment(language, rule.example.replace("|", ""))]
        for language in languages
    ]
    assert [piece.strip() for piece in rule.example.split("|")] in pieces


@pytest.mark.parametrize("rule", WORDS.missed_ends, ids=lambda rule: rule.example)
def test_each_rule_cuts_its_example(rule: Rule) -> None:
    sentences = [sentence.strip() for sentence in rule.example.split("|")]
    languages = ["lv", "es", "en"] if rule.languages == "*" else rule.languages.split()
    for language in languages:
        assert split_sentences([" ".join(sentences)], language) == sentences
    assert any(len(segment(language, " ".join(sentences))) == 1 for language in languages)


@pytest.mark.parametrize(("language", "text"), GOLD)
def test_gold(language: str, text: str) -> None:
    sentences = text.split("|")
    separator = "" if language in ("ja", "zh", "zh-classical") else " "
    assert split_sentences([separator.join(sentences)], language) == sentences


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ru", "Поэты М. Ю. Лермонтов и А. С. Пушкин. Оба писали."),
        ("fr", "Le roi et M. Dupont virent Mme. Foo av. Jean. Puis ils partirent."),
        ("ru", "Завод им. Кирова и пос. Ленино. Он вырос там."),
        ("pl", "Kościół św. Jana i ul. Długa. Potem wrócił."),
        ("de", "Das hl. Land und die geb. Müller. Danach kam er."),
        ("pt", "No séc. XX, na pág. 5. Depois voltou."),
    ],
)
def test_abbreviations_end_no_sentence(language: str, text: str) -> None:
    assert len(split_sentences([text], language)) == 2


def test_text_without_capitals_is_cut_where_sentencex_cuts_it() -> None:
    assert split_sentences(["he left . she stayed . who knows ?"], "en") == [
        "he left .",
        "she stayed .",
        "who knows ?",
    ]


def test_a_sentence_never_spans_two_paragraphs() -> None:
    assert split_sentences(["No full stop", "here", "", " \x00 "], "en") == ["No full stop", "here"]


@pytest.mark.slow
def test_a_long_sentence_is_kept_and_unclosed_quotes_take_linear_time() -> None:
    long = "word " * 3000 + "end."
    assert split_sentences([long + " Next."], "en") == [long, "Next."]
    hostile = "“ a. " * (4 * LONGEST_CALL)  # In one call this takes half a minute.
    assert kept("".join(split_sentences([hostile], "en"))) == kept(hostile)


def test_a_paragraph_of_many_calls_is_cut_only_between_sentences() -> None:
    sentences = [
        f"This is sentence number {number} of a very long paragraph." for number in range(2000)
    ]
    assert split_sentences([" ".join(sentences)], "en") == sentences


@pytest.mark.parametrize("language", PATTERNS)
def test_at_most_three_of_a_thousand_ends_are_wrong_in_any_language(language: str) -> None:
    counts = [
        count_mis_splits(lambda text, code: split_sentences([text], code), language, pattern)
        for pattern in PATTERNS[language]
    ]
    assert 1000 * sum(wrong for _, wrong, _ in counts) <= 3 * sum(
        number for number, _, _ in counts
    ), counts


@pytest.mark.parametrize(
    "text", ["그는 한국어를 썼다.", "Ё́жик в тума́не.", "À l'été, Noël.", "Τι έγινε;", "ড়াকা শহর।"]
)
def test_decomposed_text_is_composed(text: str) -> None:
    decomposed = unicodedata.normalize("NFD", text)
    assert split_sentences([decomposed], "ko") == [unicodedata.normalize("NFC", text)]


def test_a_run_of_combining_marks_is_cut_off() -> None:
    # At once if the time is linear in the length; otherwise it takes minutes.
    text = compose("e" + "\u0301\u0316" * 150_000 + " ende " + "\U0001d165" * 300_000)
    assert text == unicodedata.normalize(
        "NFC", "e" + "\u0301\u0316" * 15 + " ende " + "\U0001d165" * 30
    )
    for num_marks, start in product((29, 30, 31), range(10)):
        marks = compose("x" * start + "\u0316" * num_marks)
        assert marks == "x" * start + "\u0316" * min(num_marks, 30)


def test_each_language_code_of_the_tables_is_reached_and_stands_once() -> None:
    lists = (WORDS.own_initials, WORDS.syllabic, WORDS.gershayim, WORDS.mirrored_quotes)
    rows = [
        *lists,
        WORDS.years_end,
        *(rule.languages for rule in (*WORDS.joins, *WORDS.missed_ends)),
    ]
    for name in WORDS.__struct_fields__:
        table = getattr(WORDS, name)
        if isinstance(table, dict) and name not in ("parts", "rules_of"):
            rows.append(" ".join(table))
    for row in rows:
        codes = [code for code in row.split() if code != "*"]
        assert len(codes) == len(set(codes)), row
        assert [language_code(code) for code in codes] == codes


def test_language_codes_of_projects() -> None:
    codes = [
        language_code(code)
        for code in ("en", "EN-gb", "zh_min_nan", "be-x-old", "simple", "auto", "", "ltg")
    ]
    assert codes == ["en", "en", "zh", "be", "en", "en", "en", "ltg"]
    codes = ["yue", "lzh", "nan-Latn", "wuu", "gan", "hak", "gsw", "sgs", "vro", "rup"]
    assert [language_code(code) for code in codes] == [*["zh"] * 6, "de", "lt", "et", "ro"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "piece"),
    [
        ("ru", "М. "), ("ja", "『a."), ("ja", "。1（"), ("ko", "Ab?' "), ("de", "19. Ab "),
        ("en", ", 'a. B"), ("en", ', "A b. '), ("mr", "क. "),
    ],
)  # fmt: skip
def test_hostile_text_is_split_without_loss(language: str, piece: str) -> None:
    # Seconds if the time is linear in the length; a quadratic rule would take many minutes.
    text = piece * (300_000 // len(piece))
    assert kept("".join(split_sentences([text], language))) == kept(text)


def test_speech_within_speech_ends_between_its_sentences() -> None:
    speech = ["“‘And be laughed at for my pains.", "Nothing of the sort.’"]
    assert split_sentences([" ".join(speech)], "en") == speech


@pytest.mark.parametrize("language", ["de", "fr", "ru"])
@pytest.mark.parametrize("piece", ["a. a. a. ", "1. ", "A.) ", "Mr. ", "м. "])
def test_text_that_repeats_is_split_once(language: str, piece: str) -> None:
    for size in (LONGEST_CALL, 30 * LONGEST_CALL):
        text = piece * (size // len(piece))
        with patch.object(sentences, "segment", wraps=segment) as calls:
            assert kept("".join(split_sentences([text], language))) == kept(text)
        assert sum(len(call.args[1]) for call in calls.call_args_list) < LONGEST_CALL / 4


def test_a_users_abbreviations_end_no_sentence():
    file = '[abbreviations]\nlb = "här lëtz. z.b"\n"*" = "zzyx"'
    text = "Den Här. Weber ass do. Et ass Lëtz. Land z.B. Esch. Zzyx. Muller och. Gutt."
    assert len(split_sentences([text], "lb")) > 4
    expected = [
        "Den Här. Weber ass do.", "Et ass Lëtz. Land z.B. Esch.", "Zzyx. Muller och.", "Gutt.",
    ]  # fmt: skip
    assert split_sentences([text], "lb", file) == expected
    assert split_sentences(["A Zzyx. Muller."], "en", file) == ["A Zzyx. Muller."]
    assert split_sentences(["Den Här. Weber."], "en", file) == ["Den Här.", "Weber."]
    assert split_sentences(["A prozzyx. Muller."], "en", file) == ["A prozzyx.", "Muller."]


def test_all_codes_of_a_language_give_their_abbreviations():
    file = '[abbreviations]\nno = "zzx"\nnb = "zzy"\n"pt-BR" = "zzz"'
    assert split_sentences(["Han Zzx. Ola og Zzy. Kari."], "nb", file) == [
        "Han Zzx. Ola og Zzy. Kari."
    ]
    assert split_sentences(["O Zzz. Maria."], "pt", file) == ["O Zzz. Maria."]


@pytest.mark.parametrize("code", ["no", "nb", "nn"])
def test_norwegian_has_its_rules_by_any_of_its_codes(code: str):
    sentences = ["Han bodde i Oslo, Bergen osv.", "De andre dro.", "Det var 300 f. Kr.", "Han dro."]
    assert split_sentences([" ".join(sentences)], code) == sentences


@pytest.mark.parametrize("file", ["abbreviations = 3", "[other]\nde = 'z'", "[abbreviations"])
def test_a_wrong_file_of_abbreviations_is_named(file: str):
    with pytest.raises(UserError, match="`abbreviations` is not a TOML file of words by language"):
        stops_of(file, "de")


def test_the_listed_letters_are_those_of_unicode():
    def characters(part: str) -> list[str]:
        pattern = re.compile(with_parts(f"[{{{part}}}]"))
        return [char for char in map(chr, range(0x61, 0x2000)) if pattern.match(char)]

    assert all(
        unicodedata.category(char) == "Lo" or "ა" <= char <= "ჰ" for char in characters("uncased")
    )
    assert {unicodedata.category(char) for char in characters("signs")} == {"Mn", "Mc"}
    assert {unicodedata.combining(char) for char in characters("viramas")} == {9}
    assert not set("aeiouyäöüéèıɔɛʊаеиоуыэюяәөүұαειουω") & set(characters("consonants"))
    assert set("bcdfghßñбвгджзклмρσ") <= set(characters("consonants"))
