"""Markdown, of which only the prose stays."""

import time

import pytest
from clozeworks.pipeline.counters import Counters, count_words
from clozeworks.pipeline.text.markdown import looks_like_markdown, markdown_paragraphs
from clozeworks.pipeline.text.wikitext.repair import GAP

END = "This makes it a passage of the text."


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("It is **bold *and* italic**, __so__ and _so_, 2 * 3 * 4 and my_long_name.",
         "It is bold and italic, so and so, 2 * 3 * 4 and my_long_name."),
        ("See [the *old* river](https://x.org/a_(b) \"t\") and [it][1] and [a [b] c](d).",
         "See the old river and it and a [b] c."),
        ("![mill](a.png) It stands ([![x](b.png)](c)) in the ![mill](a.png) north.[^1]",
         "It stands in the north."),
        ("It cost $5 and $6, with $5{,}000$ people, $x^2$ and $\\begin{matrix}1\\end{matrix}$.",
         f"It cost $5 and $6, with 5,000 people, x² and {GAP}."),
        ("It is `a*b*c`, \\*so\\*, &amp; so, {{x}} and ''y'', ~~old~~ new.",
         f"It is a*b*c, *so*, & so, {{{{x}}}} and ''y'', {GAP} new."),
        ("It was in\n1840. A long\nyear.", "It was in 1840. A long year."),
        ("> It is a quotation\n> of two lines.", "It is a quotation of two lines."),
        ("| is a bar\n\n\\# is a mark of it.", "# is a mark of it."),
    ],
)  # fmt: skip
def test_a_paragraph_is_what_a_reader_sees(markdown: str, text: str) -> None:
    assert markdown_paragraphs(f"{markdown} {END}", "en", Counters()) == [f"{text} {END}"]


@pytest.mark.parametrize(
    "block",
    [
        "# A heading of the text that is long enough to be read.",
        "- An item. It goes on.\n  And on.\n\n  It has a second paragraph here.",
        "1. An item of a list, which is whole.\n2) Another item.\nIt goes on.",
        "| a | b |\n|---|---|\n| A sentence in a cell. It is whole. | c |",
        "a | b\n--- | ---\nA sentence in a cell. It is whole. | c",
        "```python\n# A comment. It is whole.\n\nprint(1)\n```",
        "~~~\nIt is code.\n```\nIt is code.\n~~~",
        "* * *",
        "![A mill in the north. It is old.](a.png)",
    ],
)
def test_what_is_no_prose_is_left_out_and_counted(block: str) -> None:
    counters = Counters()
    text = f"Before it. {END}\n\n{block}\n\nAfter it. {END}"
    paragraphs = markdown_paragraphs(text, "en", counters)
    assert paragraphs == [f"Before it. {END}", f"After it. {END}"]
    num_kept = count_words("\n".join(paragraphs))
    assert counters.num_words_left_out == count_words(text) - num_kept


def test_an_introduction_lacks_its_list() -> None:
    text = f"{END} The members of it were:\n\n- Ann\n- Bob"
    assert markdown_paragraphs(text, "en", Counters()) == [f"{END} The members of it were{GAP}:"]


def test_plain_text_does_not_look_like_markdown() -> None:
    assert looks_like_markdown("It is **old**.\n\n- one\n- two")
    assert looks_like_markdown("It is.\n\n## History\n\nIt was.")
    assert not looks_like_markdown("It is a * b ** c.\n#1 is here.\n-- and there [1] (2).")


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["[", "![a](", "*a ", "_a ", "`a", "$a", "> ", "|", "| -", "~~a", "- ", "**"]
)
def test_hostile_markdown_ends(piece: str) -> None:
    start = time.process_time()
    markdown_paragraphs(piece * (200_000 // len(piece)), "en", Counters())
    assert time.process_time() - start < 5
