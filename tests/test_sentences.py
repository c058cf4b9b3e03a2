import re
import unicodedata

import pytest
from clozeworks.pipeline.sentences import JOINS, LONGEST_CALL, Join, language_code, normalise, split_sentences
from hypothesis import given
from hypothesis import strategies as st

MARKS = "abc XYZ 12.,;:!?…\"'“”‘’()[]「」。、？！ 다고 は\u3000\u00a0\t\n\r\x00\x85\u2028\u00ad\u200b\u200d\ufeff\ud800"
LANGUAGES = ["en", "ko", "ja", "zh", "de", "simple", "xx", "", "zh-min-nan", "EN_us"]


def kept(text: str) -> str:
    """What must survive, by Unicode's own classes: all but whitespace, controls, surrogates and invisible marks."""
    invisible = "\u00ad\u180e\u200b\u200e\u200f\ufeff"
    return "".join(
        char
        for char in text
        if not char.isspace() and unicodedata.category(char) not in ("Cc", "Cs") and char not in invisible
    )


@given(st.lists(st.text(MARKS, max_size=60), max_size=4), st.sampled_from(LANGUAGES))
def test_no_character_is_lost_and_every_sentence_is_normalised(paragraphs: list[str], language: str) -> None:
    sentences = split_sentences(paragraphs, language)
    assert kept("".join(sentences)) == kept("".join(paragraphs))
    for sentence in sentences:
        assert sentence == " ".join(sentence.split()) != ""
        assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in sentence)
        sentence.encode("utf-8")


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


@pytest.mark.parametrize("rule", JOINS, ids=lambda rule: rule.example)
def test_each_rule_joins_its_example(rule: Join) -> None:
    language = "en" if rule.language == "*" else rule.language
    text = re.sub(r"(?<=[A-Za-z\d.,!?])\|(?=[\w,])", " ", rule.example).replace("|", "")
    assert split_sentences([text], language) == [text]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Mr. Smith went to the U.S. Army.", "He came back in 1990.", "Then he left."]),
        ("en", ["It weighs approx. 3 kg.", "That is all."]),
        ("en", ['"Is it so?" he asked.', '"It is!"', "They left."]),
        ("en", ["“You know nothing,” I interrupted.", "“You never did.”"]),
        ("en", ["'Go!' said he.", "'Tis late."]),
        ("ru", ["Да!", "Нет."]),
        ("hi", ["वाह!", "यह अच्छा है।"]),
        ("ko", ["그는 1990. 10. 3. 에 태어났다.", "그리고 갔다."]),
        ("ko", ["그는 “나는 모른다.”라고 말했다.", "이는 사실이다."]),
        ("ja", ["彼は「そうだ。」と言った。", "それから行った。"]),
        ("ja", ["「雨が降る。」", "「本が多い。」"]),
        ("ja", ["彼は「さようなら。」", "ところが、彼は帰らなかった。"]),
        ("zh-classical", ["孔子曰。", "學而時習之。"]),
    ],
)
def test_boundaries(language: str, sentences: list[str]) -> None:
    separator = "" if language in ("ja", "zh-classical") else " "
    assert split_sentences([separator.join(sentences)], language) == sentences


def test_a_sentence_never_spans_two_paragraphs() -> None:
    assert split_sentences(["No full stop", "here", "", " \x00 "], "en") == ["No full stop", "here"]


def test_a_long_sentence_is_kept_and_unclosed_quotes_take_linear_time() -> None:
    long = "word " * 3000 + "end."
    assert split_sentences([long + " Next."], "en") == [long, "Next."]
    hostile = "“ a. " * (4 * LONGEST_CALL)  # In one call this takes half a minute.
    assert kept("".join(split_sentences([hostile], "en"))) == kept(hostile)


def test_a_paragraph_of_many_calls_is_cut_only_between_sentences() -> None:
    sentences = [f"This is sentence number {number} of a very long paragraph." for number in range(2000)]
    assert split_sentences([" ".join(sentences)], "en") == sentences


def test_language_codes_of_projects() -> None:
    codes = [language_code(code) for code in ("en", "EN-gb", "zh_min_nan", "be-x-old", "simple", "auto", "", "ltg")]
    assert codes == ["en", "en", "zh", "be", "en", "en", "en", "ltg"]
