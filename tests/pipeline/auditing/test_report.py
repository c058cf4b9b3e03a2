"""The report is one self-contained page: nothing is loaded, and foreign text is text."""

import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
from clozeworks.pipeline.auditing.decode import Instance, decode_rows
from clozeworks.pipeline.auditing.report import render_report
from clozeworks.pipeline.auditing.verdict import Audit, Check
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.instances.rows import rows_of
from clozeworks.pipeline.schemas import instances_schema
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENS = (*SPECIAL_TOKENS, "a", "cloze", "##work", "</script>", "&")
VOCABULARY = Vocabulary(TOKENS, Normalization(True, True))
CLS, SEP, MASK = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.mask_id
AUDIT = Audit(
    config=asdict(BuildConfig()),
    checks=[
        Check("rows", "1,200", "1,200", "ok", 1200),
        Check("IsNext", "50.00% (47% to 53%)", "50%", "ok", 0.5, (0.47, 0.53)),
        Check("tokens from <b>", "</b> 9%", "", "info", 0.09),
    ],
    lengths=[[0, 0, 5, 10] * 33, [0, 0, 6, 9] * 33],
    segment_lengths=[[0, 8, 8, 4], [0, 6, 6, 8]],
    mask_positions=[0, 4, 4, 3] * 32,
)
ROW = {
    "input_ids": [CLS, MASK, 7, 8, SEP, 5, 9, SEP], "segment_b_start": 5,
    "masked_lm_positions": [1, 3, 5], "masked_lm_ids": [6, 9, 5], "next_sentence_label": 1,
    "document_a": 3, "document_b": 8, "duplicate": 0,
}  # fmt: skip


def example(row: dict[str, Any] = ROW) -> Instance:
    table = pa.Table.from_pylist([row], instances_schema(len(VOCABULARY)))
    [instance] = decode_rows(rows_of(table), VOCABULARY)
    return instance


class Page(HTMLParser):
    """Collect the text, and fail if a tag is not closed, or anything would be loaded or run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        assert self.open == []
        assert not re.search(r"url\((?!#)", html)

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe")
        for name, value in attrs:
            assert name not in ("src", "href", "xlink:href") or (value or "").startswith("#")
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def text_of(html: str) -> str:
    return " ".join(" ".join(Page(html).text).split())


def test_the_page_is_self_contained_and_shows_foreign_text_as_text():
    html = render_report("<i>new", AUDIT, [example()])
    text = text_of(html)
    assert "Audit of pre-training instances <i>new All 2 checks hold." in text
    assert "</script>" in text and "tokens from <b> </b> 9%" in text
    assert "prefers-color-scheme: dark" in html
    assert html == render_report("<i>new", AUDIT, [example()])


def test_failures_are_in_the_headline():
    failing = replace(AUDIT, checks=[replace(AUDIT.checks[0], verdict="bad"), *AUDIT.checks[1:]])
    html = render_report("new", failing, [])
    assert f'<h1 class="bad">{failing.sentence}</h1>' in html


def test_examples_show_what_was_masked():
    html = render_report("new", AUDIT, [example()])
    assert '<span class="mask" title="cloze">[MASK]</span><small>cloze</small>' in html
    assert '<span class="random" title="&amp;">&lt;/script&gt;</span><small>&amp;</small>' in html
    assert '<span class="kept" title="a">a</span></bdi>' in html
    assert "NotNext , documents 3 and 8, 8 tokens, 3 to predict" in text_of(html)


def test_a_row_without_segment_b():
    row = {**ROW, "input_ids": [CLS, 5, 6, 7, SEP], "segment_b_start": 5, "next_sentence_label": 0}
    row |= {"masked_lm_positions": [1], "masked_lm_ids": [5]}
    html = render_report("new", AUDIT, [example(row)])
    text_of(html)
    assert html.count("[SEP]") == 1


@pytest.mark.parametrize("pairing", ["balanced", "none"])
def test_labels_are_drawn_only_if_there_are_two(pairing):
    audit = replace(AUDIT, config=asdict(BuildConfig(pairing=pairing)))
    text = text_of(render_report("new", audit, []))
    drawn = ["NotNext" in text, "Segments by length in tokens A B 0 4" in text]
    assert drawn == [pairing == "balanced"] * 2


@pytest.mark.parametrize("max_length", [8, 4096])
def test_any_length_and_no_rows_at_all(max_length):
    empty = replace(AUDIT, lengths=[[0] * (max_length + 1)] * 2, mask_positions=[0] * max_length)
    html = render_report("new", empty, [])
    text_of(html)
    assert len(html) < 100_000


def test_the_direction_of_a_row_is_that_of_its_text():
    html = render_report("new", AUDIT, [example()])
    (row,) = re.findall(r'<p dir="auto">(.*?)</p>', html, re.DOTALL)
    # `dir` looks at the first letter outside of what is isolated.
    counting = re.sub(r"<bdi.*?</bdi>", "", row, flags=re.DOTALL)
    assert "[CLS]" in row and "[CLS]" not in counting
    assert "[MASK]" in row and "[MASK]" not in counting
