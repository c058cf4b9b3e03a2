import pytest
from clozeworks.pipeline.text.sentence_ends import SENTENCE_ENDS, ends_sentence
from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]


def test_the_table_is_that_of_unicode() -> None:
    regex = pytest.importorskip("regex")
    listed = regex.compile(r"\p{Sentence_Terminal}").findall("".join(map(chr, range(0x1E000))))
    assert SENTENCE_ENDS - set(listed) == set("…৷།༎༏༐༑༔")
    assert len(listed) > 150 and set(listed) <= SENTENCE_ENDS


def test_what_the_splitter_cuts_at_ends_a_sentence() -> None:
    marks = {
        mark
        for mark in map(chr, [*range(0x21, 0xD800), *range(0xE000, 0x12000)])
        if len(segment("en", f"Abcde{mark} Bcdef")) > 1
    }
    assert len(marks) > 100 and marks <= SENTENCE_ENDS


@pytest.mark.parametrize(
    "line",
    ["ᱥᱟᱱᱛᱟᱲᱤ ᱾", "ភាសាខ្មែរ៕", "ꯃꯩꯇꯩ ꯂꯣꯟ꯫", "བོད་ཡིག།", "ሕዝቧ ብዙ ነው፡፡", "ሕዝቧ ብዙ ነው::", "Is it?”)"],
)
def test_a_sentence_of_any_script_is_no_heading(line: str) -> None:
    assert ends_sentence(line)
    assert not ends_sentence(f"{line} x")
