"""Cards show what others wrote as text: no markup, no link and no metadata comes of it."""

import pytest
import yaml
from clozeworks.pipeline.cards import as_code, shown
from clozeworks.pipeline.data_card import data_card
from manifest_fixture import make_manifest, parsed

HOSTILE = (
    "<img src=x onerror=alert(1)></td><script>alert(1)</script>[c](javascript:alert(1))"
    "\n---\nlicense: mit\n\n# Heading | cell\n"
)


def test_only_code_keeps_its_marks():
    assert shown("a <b> & `c <d>` [e](f) | g\n# h") == r"a &lt;b&gt; &amp; `c <d>` \[e](f) g # h"
    assert shown(as_code("a`|\n<b>")) == "`a <b>`"
    assert shown("`<b>") == "`&lt;b&gt;"
    assert [shown(value) for value in (12345, True, (80, 10), [])] == [
        "12,345", "True", "80, 10", "none",
    ]  # fmt: skip


@pytest.mark.parametrize("stage", ["ingest", "build"])
def test_names_in_a_manifest_become_text_in_the_data_card(stage: str):
    group = {"source": HOSTILE, "language": HOSTILE, "documents": 1, "characters": 1}
    shard = {"name": "train-0.parquet", "split": "train", "rows": 1}
    if stage == "ingest":
        shard["groups"] = [group]
    else:
        shard["source_tokens"] = {HOSTILE: 3}
    manifest = make_manifest(
        stage, [shard], languages={HOSTILE: 1}, fingerprint=HOSTILE, versions={"x": HOSTILE}
    )
    card = data_card(parsed(manifest))
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head)["license"] == "unknown"
    assert "onerror" in body  # it is there, as text
    outside_code = "".join(body.split("`")[::2])
    assert "<" not in outside_code
    assert "](" not in outside_code.replace(r"\[c](", "")
    assert "\n# Heading" not in body
