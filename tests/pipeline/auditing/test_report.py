"""The report: one page of well-formed HTML that loads nothing, says what failed, and shows
originals below masks.
"""

import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
from clozeworks.pipeline.auditing.decode import Example, decode_rows
from clozeworks.pipeline.auditing.documents import Counted, DocumentsAudit, OriginSizes
from clozeworks.pipeline.auditing.report import render_documents, render_instances
from clozeworks.pipeline.auditing.signs import Sign
from clozeworks.pipeline.auditing.verdict import Audit, Check
from clozeworks.pipeline.config import BuildConfig, IngestConfig
from clozeworks.pipeline.instances.rows import rows_of
from clozeworks.pipeline.schemas import instances_schema
from clozeworks.pipeline.vocabulary.tokenize import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENS = (*SPECIAL_TOKENS, "a", "cloze", "##work", "</script>", "&")
VOCABULARY = Vocabulary(TOKENS, Normalization(True, True))
CLS, SEP, MASK = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.mask_id

AUDIT = Audit(
    config=asdict(BuildConfig()),
    checks=[
        Check("rows", "1,200", "1,200", "ok", 1200),
        Check("IsNext", "50.00% (47% to 53%)", "50%", "ok", 0.5, (0.47, 0.53)),
        Check(
            "AUC of row length for the label",
            "0.501",
            "0.500 ± 0.020",
            "ok",
            0.501,
            (0.48, 0.52),
            0.02,
        ),
        Check("tokens", "9,000", "", "info", 9000),
    ],
    lengths=[[0, 0, 5, 10] * 33, [0, 0, 6, 9] * 33],
    segment_lengths=[[0, 8, 8, 4], [0, 6, 6, 8]],
    mask_positions=[0, 4, 4, 3] * 32,
    top_masked=[("</script>", 12), ("a", 3)],
    shares_read={("books", "en"): 0.25, ("enwiki", "en"): 0.75},
)

DOCUMENTS = DocumentsAudit(
    directory="corpus/documents",
    config=asdict(IngestConfig()),
    origins=[
        OriginSizes(
            source="enwiki",
            language="en",
            documents=4,
            sentences=50,
            characters=6000,
            words=1000,
            tokens=1250,
            unknown_tokens=5,
        )
    ],
    document_lengths=[0] * 20 + [1, 0, 3],
    sentence_lengths=[0] * 8 + [20, 20, 10],
    signs=[
        Sign("HTML tags", 2, 50, [("enwiki:7", "a <b>bold</b> text")]),
        Sign("web addresses", 0, 50),
    ],
    counted=[Counted(name="empty file", count=3, examples=["texts/none.txt"])],
    words_left_out=[Counted(name="tables", count=20752, examples=[])],
    words_kept=1000,
)

ROW = {
    "input_ids": [CLS, MASK, 7, 8, SEP, 5, 9, SEP],
    "segment_b_start": 5,
    "masked_lm_positions": [1, 3, 5],
    "masked_lm_ids": [6, 9, 5],
    "next_sentence_label": 1,
    "document_a": 3,
    "document_b": 8,
    "duplicate": 0,
}


def example(row: dict[str, Any], title_a: str = "", title_b: str = "") -> Example:
    table = pa.Table.from_pylist([row], instances_schema(len(VOCABULARY)))
    (instance,) = decode_rows(rows_of(table), VOCABULARY)
    return Example(instance, title_a, title_b)


class Page(HTMLParser):
    """Collect the text, and fail if a tag is not closed, or anything would be loaded or run."""

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


def test_the_page_is_self_contained_and_escapes_tokens():
    html = render_instances("new", AUDIT, [example(ROW)])
    text = " ".join(Page(html).text)
    assert "</script>" in text
    assert "url(" not in html
    assert "prefers-color-scheme: dark" in html
    assert "All 3 checks hold." in text


def test_failures_are_in_the_headline():
    failing = replace(AUDIT, checks=[replace(AUDIT.checks[0], verdict="bad"), *AUDIT.checks[1:]])
    text = "".join(Page(render_instances("new", failing, [])).text)
    assert failing.sentence in text


def test_examples_show_what_was_masked():
    html = render_instances("new", AUDIT, [example(ROW)])
    assert '<span class="mask" title="cloze">[MASK]</span><small>cloze</small>' in html
    assert '<span class="random" title="&amp;">&lt;/script&gt;</span><small>&amp;</small>' in html
    assert '<span class="kept" title="a">a</span></bdi>' in html
    assert "NotNext" in html


def test_a_row_without_segment_b():
    row = {**ROW, "input_ids": [CLS, 5, 6, 7, SEP], "segment_b_start": 5, "next_sentence_label": 0}
    row |= {"masked_lm_positions": [1], "masked_lm_ids": [5]}
    html = render_instances("new", AUDIT, [example(row)])
    Page(html)
    assert html.count("[SEP]") == 1
    assert 'class="seg-b"' not in html


@pytest.mark.parametrize("pairing", ["balanced", "none"])
def test_row_lengths_are_mirrored_only_if_there_are_two_labels(pairing):
    audit = replace(AUDIT, config=asdict(BuildConfig(pairing=pairing)))
    html = render_instances("new", audit, [])
    text = text_of(html)
    assert ("should mirror each other" in text) == ("label 1" in text) == (pairing == "balanced")


def test_two_histograms_share_their_axis():
    """The highest bar of both labels is full height; the same share has the same height in both."""
    audit = replace(AUDIT, lengths=[[0, 0, 60, 20], [0, 0, 0, 20]])
    html = render_instances("new", audit, [])
    heights = re.findall(r'height: ([\d.]+)%"\n? +title="row length, \w+ (\d): ([\d.]+)%', html)
    assert ("100.00", "2", "60.00") in heights
    assert heights.count(("33.33", "3", "20.00")) == 2


def text_of(html: str) -> str:
    return " ".join(" ".join(Page(html).text).split())


def test_the_corpus_is_shown_with_its_sources_and_titles():
    audit = replace(AUDIT, documents=DOCUMENTS, shares_read={("enwiki", "en"): 0.75})
    text = text_of(render_instances("new", audit, [example(ROW, "Cloze test", "Mask")]))
    for shown in (
        "corpus/documents",
        "enwiki en 4 50 6,000 12.5 120 1.25 0.400% 75.00%",
        "2 HTML tags (4.000% of 50) a <b>bold</b> text enwiki:7",
        "None: web addresses.",
        "empty file 3",
        "texts/none.txt",
        "Words kept: 4.60% of 21,752",
        "left out: tables 95.40%",
        "A: Cloze test B: Mask",
    ):
        assert shown in text


def test_without_documents_the_sources_come_from_the_manifest():
    text = text_of(render_instances("new", AUDIT, [example(ROW)]))
    assert "give their directory as --documents." in text
    assert "books en 25.00% enwiki en 75.00%" in text
    assert "A: document 3 B: document 8" in text


def test_documents_have_a_page_of_their_own():
    text = text_of(render_documents("documents", DOCUMENTS))
    assert text.startswith("Audit of documents")
    assert "4 documents, 50 sentences, 1 sign of bad text." in text
    # Options that are off or empty are not shown; a seed of 0 is.
    assert "seed 0" in text and "keep lines" not in text and "abbreviations" not in text
    empty = replace(
        DOCUMENTS, origins=[], document_lengths=[], sentence_lengths=[], signs=[], counted=[]
    )
    Page(render_documents("documents", empty))


@pytest.mark.parametrize("max_length", [8, 128, 512, 4096])
def test_any_length_and_no_rows_at_all(max_length):
    empty = replace(
        AUDIT, lengths=[[0] * (max_length + 1)] * 2, mask_positions=[0] * max_length, top_masked=[]
    )
    Page(render_instances("new", empty, []))


def test_the_direction_of_a_row_is_that_of_its_text():
    html = render_instances("new", AUDIT, [example(ROW)])
    (row,) = re.findall(r'<p dir="auto">(.*?)</p>', html, re.DOTALL)
    # `dir` looks at the first letter outside of what is isolated.
    counting = re.sub(r"<bdi.*?</bdi>", "", row, flags=re.DOTALL)
    assert "[CLS]" in row and "[CLS]" not in counting
    assert "[MASK]" in row and "[MASK]" not in counting
