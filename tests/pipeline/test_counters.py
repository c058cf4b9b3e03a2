"""Sums of counters over units, and how much bad input is too much."""

import json
import re

import pytest
from clozeworks.pipeline.counters import CounterRecord, Counters, count_words, sum_counters
from clozeworks.pipeline.errors import UserError
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(alphabet="aé \t\n\x01\xa0", max_size=9))
def test_words_are_what_ascii_blanks_separate_in_short_and_long_texts(text: str):
    num_words = len(re.findall("[^\x00-\x20]+", text))
    assert [count_words(text + " " * number) for number in (0, 500)] == [num_words, num_words]


def test_too_much_bad_input_fails_the_stage():
    record: CounterRecord = {
        "counts": {"documents_read": 8},
        "bad": {"torn": 2},
        "examples": {"torn": ["dump: page 3"]},
    }
    assert sum_counters([record], 0.2).bad["torn"] == 2
    with pytest.raises(UserError, match=r"2 x torn.*torn at dump: page 3.*raise `max_bad`"):
        sum_counters([record], 0.1)


def test_lines_left_out_are_examples_once():
    counters = Counters()
    for number, text in enumerate(["Home.", "Home.", "About us.", "Home.", "Contact.", "Search."]):
        counters.leave_out_line("menu", text, f"web:{number}")
    assert counters.counts == {"menu": 6, "words_left_out_as_menu": 7}
    assert counters.examples == {"menu": ["web:0: Home.", "web:2: About us.", "web:4: Contact."]}


def test_bad_input_is_listed_without_what_terminals_obey():
    controls = "\x1b\x7f\x9b\u202e\u2066\u2028\u2029\u200f\ufeff\U000e0041"
    row = {"text": f"a{controls}b", "other": "ab\u200cc é 中"}
    counters = Counters()
    counters.file = f"x{controls}.jsonl"
    counters.skip("text_is_not_a_string", f"{counters.file}, row 1", record=row)
    [line] = counters.listed
    assert not set(controls) & set(line)
    assert "é 中" in line and "\\u202e" in line and "\\udb40\\udc41" in line
    listed = json.loads(line)
    assert listed["file"] == counters.file and json.loads(listed["record"]) == row


def test_bad_input_is_listed_up_to_a_megabyte():
    counters = Counters()
    for number in [*[1 << 14] * 99, 5]:
        counters.skip("not_csv", "a.csv", "no quote", '"' * number)
    assert 0.9 * (1 << 20) < sum(map(len, counters.listed)) < 1 << 20
    assert '"""' in counters.listed[-1].replace("\\", "")  # not the short one
