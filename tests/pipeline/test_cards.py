"""Cards show what others wrote as text: no markup, no link and no metadata comes of it."""

from clozeworks.pipeline.cards import as_code, shown


def test_only_code_keeps_its_marks():
    assert shown("a <b> & `c <d>` [e](f) | g\n# h") == r"a &lt;b&gt; &amp; `c <d>` \[e](f) g # h"
    assert shown(as_code("a`|\n<b>")) == "`a <b>`"
    assert shown("`<b>") == "`&lt;b&gt;"
    assert [shown(value) for value in (12345, True, (80, 10), [])] == [
        "12,345", "True", "80, 10", "none",
    ]  # fmt: skip
