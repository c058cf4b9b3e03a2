"""The report: one page of well-formed HTML that loads nothing, says what failed, and shows originals over masks."""

from dataclasses import asdict, replace
from html.parser import HTMLParser

import pytest
from clozeworks.pipeline.audit.report import render_report
from clozeworks.pipeline.audit.verdict import Audit, Check
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.vocab.tokenize import Normalization
from clozeworks.pipeline.vocab.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENS = (*SPECIAL_TOKENS, "a", "cloze", "##work", "</script>", "&")
VOCABULARY = Vocabulary(TOKENS, Normalization(True, True))
CLS, SEP, MASK = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.mask_id

AUDIT = Audit(
    config=asdict(BuildConfig()),
    checks=[
        Check("rows", "1,200", "1,200", "ok", 1200),
        Check("IsNext", "50.00% (47% to 53%)", "50%", "ok", 0.5, (0.47, 0.53)),
        Check("AUC of row length for the label", "0.501", "0.50 ± 0.02", "ok", 0.501, (0.48, 0.52), 0.02),
        Check("tokens", "9,000", "", "info", 9000),
    ],
    lengths=[[0, 0, 5, 10] * 33, [0, 0, 6, 9] * 33],
    segment_lengths=[[0, 8, 8, 4], [0, 6, 6, 8]],
    mask_positions=[0, 4, 4, 3] * 32,
    top_masked=[("</script>", 12), ("a", 3)],
)

ROW = {
    "input_ids": [CLS, MASK, 7, 8, SEP, 5, 9, SEP],
    "segment_b_start": 5,
    "masked_lm_positions": [1, 3, 5],
    "masked_lm_ids": [6, 9, 5],
    "next_sentence_label": 1,
    "document_a": 3,
    "document_b": 8,
}


class Page(HTMLParser):
    """Collect the text, and fail where tags do not close or something would be loaded or run."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href"} & dict(attrs).keys()
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def test_the_page_stands_alone_and_escapes_tokens():
    html = render_report({"new": AUDIT}, [ROW], VOCABULARY)
    text = " ".join(Page(html).text)
    assert "</script>" in text
    assert "url(" not in html
    assert "prefers-color-scheme: dark" in html
    assert "All 3 checks hold." in text


def test_failures_are_in_the_headline():
    failing = replace(AUDIT, checks=[replace(AUDIT.checks[0], verdict="bad"), *AUDIT.checks[1:]])
    text = "".join(Page(render_report({"new": failing}, [], VOCABULARY)).text)
    assert failing.sentence in text


def test_examples_show_what_was_masked():
    html = render_report({"new": AUDIT}, [ROW], VOCABULARY)
    assert '<span class="mask" title="cloze">[MASK]</span><rt>cloze</rt>' in html
    assert '<span class="random" title="&amp;">&lt;/script&gt;</span><rt>&amp;</rt>' in html
    assert '<span class="kept" title="a">a</span></ruby>' in html
    assert "NotNext" in html


def test_a_row_without_segment_b():
    row = {**ROW, "input_ids": [CLS, 5, 6, 7, SEP], "segment_b_start": 5, "next_sentence_label": 0}
    row |= {"masked_lm_positions": [1], "masked_lm_ids": [5]}
    html = render_report({"new": AUDIT}, [row], VOCABULARY)
    Page(html)
    assert html.count("[SEP]") == 1
    assert 'class="seg-b"' not in html


def test_two_corpora_stand_side_by_side():
    other = replace(AUDIT, checks=[replace(AUDIT.checks[0], measured="777"), AUDIT.checks[3]])
    text = " ".join(Page(render_report({"new": AUDIT, "old": other}, [ROW], VOCABULARY)).text)
    assert "1,200" in text
    assert "777" in text
    assert "Row lengths · old" in text
    assert "What gives the label away · new" in text
    assert "What gives the label away · old" not in text


@pytest.mark.parametrize("max_length", [8, 128, 512, 4096])
def test_any_length_and_no_rows_at_all(max_length):
    empty = replace(AUDIT, lengths=[[0] * (max_length + 1)] * 2, mask_positions=[0] * max_length, top_masked=[])
    Page(render_report({"new": empty}, [], VOCABULARY))
