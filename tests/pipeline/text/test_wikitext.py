import random
import re
import time
from itertools import chain
from pathlib import Path

import pytest
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.text.wikitext.names import NAMES
from clozeworks.pipeline.text.wikitext.passages import GAP, wikitext_to_paragraphs
from clozeworks.pipeline.text.wikitext.repair import (
    LOST_TO_TEMPLATE,
    drop_rare_templates,
    most_costly_templates,
)
from clozeworks.pipeline.text.wikitext.templates import parse_arguments, template_name
from hypothesis import given, settings
from hypothesis import strategies as st

GOLD = [
    re.split("(?<=^..): | => ", line.replace("⏎", "\n").replace("□", GAP))
    for line in (Path(__file__).parents[2] / "fixtures" / "wikitext_gold.txt")
    .read_text("utf-8")
    .splitlines()
    if line and not line.startswith("#")
]


def clean(markup: str, language: str = "en") -> str:
    """Return the paragraphs, one a line; the last may be short of a sentence."""
    sentence = "This makes it a passage."
    return (
        "\n".join(wikitext_to_paragraphs(f"{markup} {sentence}", language))
        .replace(sentence, "")
        .strip()
    )


@pytest.mark.parametrize(("language", "markup", "text"), GOLD)
def test_markup_is_shown_as_its_wiki_shows_it(language: str, markup: str, text: str) -> None:
    assert clean(markup, language) == text


@pytest.mark.parametrize(
    "text", ["!Kung is a language of Namibia.", "|x| is the absolute value of a number."]
)
def test_a_first_character_does_not_cost_a_paragraph(text: str) -> None:
    assert wikitext_to_paragraphs(f"One is here.\n\n{text}") == ["One is here.", text]


OWN_TEMPLATES = """
[templates]
"*" = [{ shows = ["{1} of {2}", "{1}"], names = ["Odd"] }, { shows = [""], names = ["box"] }]
en = [{ rule = "convert", names = ["metres"] }]
"""


def test_a_user_adds_templates() -> None:
    markup = "The {{odd|town|old}} is {{metres|5|km}} {{box|a|b}} away from {{HMS|Victory}}."
    assert wikitext_to_paragraphs(markup, templates=OWN_TEMPLATES) == [
        "The town of old is 5 km away from HMS Victory."
    ]
    assert GAP in wikitext_to_paragraphs(markup, "de", templates=OWN_TEMPLATES)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[templates", "is not a TOML file"),
        ("[other]", "is not a TOML file"),
        ('[templates]\nen = [{ show = ["x"], names = ["y"] }]', "contains unknown field `show`"),
        ('[templates]\nen = [{ rule = "x", names = ["y"] }]', "names the rule x"),
    ],
)
def test_wrong_templates_of_a_user_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        wikitext_to_paragraphs("Text.", templates=text)


def test_unknown_templates_are_listed_with_the_words_that_they_cost() -> None:
    markup = (
        "One is here. The {{odd|a}} town is [[old]] now. It was {{odd|b}} big.\n"
        "* Item {{listed|a}} here.\nTwo is here.{{footnote}} Three.\n"
    )
    counters = Counters()
    assert wikitext_to_paragraphs(markup, counters=counters)
    costs = {
        name.removeprefix(LOST_TO_TEMPLATE): counters.counts[name]
        for name in most_costly_templates(counters.counts)
    }
    assert costs == {"odd": 8}


def test_a_record_holds_only_the_most_costly_templates() -> None:
    counters = Counters()
    for number in range(500):
        counters.count(f"{LOST_TO_TEMPLATE}{number}", number)
    drop_rare_templates(counters.counts)
    counts = counters.counts
    assert len(counts) == 200 and counts[f"{LOST_TO_TEMPLATE}499"] == 499


def test_the_name_of_the_page() -> None:
    markup = "'''{{PAGENAME}}''' is near {{SEITENNAME}}."
    assert wikitext_to_paragraphs(markup, title="Ulm") == ["Ulm is near Ulm."]
    assert wikitext_to_paragraphs(markup) == [f"{GAP} is near {GAP}."]


@pytest.mark.parametrize(
    "block",
    [
        "== Heading ==",
        "==Heading== <!-- note -->",
        "* item [[a|b]]\n# other\n; term : meaning\n: indented",
        "{| class=x\n! a || b\n|-\n| c\n{|\n| nested\n|}\n|}",
        "{{Infobox person\n| name = {{nowrap|Ada}}\n| born = [[London]]\n}}",
        "[[File:a.jpg|thumb|200px|A [[town]] with {{lang|fr|ville}}]]",
        "[[Datei:a.jpg|mini|Ein Dorf]]",
        "[[Unbekannt:Foto.JPG|mini|Ein Dorf]]",
        "[[Category:Towns|x]]",
        "[[de:Dorf]]",
        "<gallery>\nFile:a.jpg|caption\n</gallery>",
        "<ref>note</ref>",
        ":<math>x^2</math>",
        " preformatted",
        "----",
        "<syntaxhighlight lang=c>int x;</syntaxhighlight>",
        "<table><tr><td>cell</td></tr></table>",
        "{{Main|History}}",
        "| row of a broken table",
        "{{unclosed box",
        "[[File:a.jpg|thumb|unclosed",
        "{{DEFAULTSORT:Town}}",
    ],
)
def test_drops_what_is_not_prose(block: str) -> None:
    assert clean(f"Before it.\n{block}\nAfter it.").split("\n") in (
        ["Before it.", "After it."],
        ["Before it. After it."],
    )


SAID = "I have seen the whole of the land, and it is good. We shall go there in spring."


@pytest.mark.parametrize(
    ("block", "kept"),
    [
        (f':: "{SAID}"', [f'"{SAID}"']),
        (f": {SAID}<ref>note</ref>\n:{SAID}", [SAID, SAID]),
        (f":''{SAID}''", []),  # leads to another article
        (":<math>x</math> " + "a + b = c, d - e = f, " * 8 + "as it was.", []),
    ],
)
def test_indented_sentences_are_paragraphs(block, kept):
    paragraphs = clean(f"Before it.\n{block}\nAfter it.").split("\n")
    assert paragraphs == ["Before it.", *kept, "After it."]


def test_names_are_spelled_as_they_are_looked_up() -> None:
    groups = [group.names for language in NAMES.templates.values() for group in language]
    for name in chain(
        NAMES.silent_templates, NAMES.pronunciations, NAMES.ships, NAMES.languages, *groups
    ):
        assert template_name(name) == name


def test_parse_arguments_numbers_the_unnamed_ones() -> None:
    assert parse_arguments(" Some_name |a| b = c |d") == (
        "some name",
        {"1": "a", "b": "c", "2": "d"},
    )


def test_wiki_namespaces_come_from_the_dump() -> None:
    assert wikitext_to_paragraphs("[[Pildid:a|b]] Tekst.", "xx", ["pildid"]) == ["Tekst."]


def test_labels_are_not_passages() -> None:
    assert wikitext_to_paragraphs("Novels:\n* One\n\nConnecticut\n\nIt is one. ") == ["It is one."]


MARKUP = (
    "{{ }} [[ ]] {| |} | <ref> </ref> <!-- --> ''' '' = * ( ) ; , . word Ünï 漢字 <math>"
    " </math> File: ] &lt; {{convert| {{lang| {{date| {{unité| {{s2| {{citation| {{bd| {{{ }}}"
    " {{x}} &#91;&#91; &#123;{ < > -{ }- __TOC__ <nowiki> </nowiki> # <br> <table> </table> 1"
    " [ { } <sup> </sup> ref : thumb px"
)
PIECES = [
    *MARKUP.split(),
    *("\n", "\n\n", " ", "<ref name=a/>", "[http://a ", "\x01", "\x02", "\ufffc"),
]


@pytest.mark.slow
@settings(max_examples=400)
@given(
    st.one_of(st.text(max_size=80), st.lists(st.sampled_from(PIECES), max_size=40).map("".join)),
    st.sampled_from(["en", "de", "fr", "es", "it", "pt", "pl", "ru", "ja", "zh", "ko", "xx", ""]),
)
def test_never_raises_and_leaves_no_markup(markup: str, language: str) -> None:
    for paragraph in wikitext_to_paragraphs(markup, language):
        assert not re.search(r"[\x00-\x1f]", paragraph)
        # What is written as an entity is text.
        if "&" not in markup and "nowiki" not in markup and "{{!}}" not in markup:
            markup_left = r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|</?ref\b"
            assert not re.search(markup_left, paragraph, re.IGNORECASE)
        assert paragraph == " ".join(paragraph.split())
        assert any(map(str.isalpha, paragraph))


HOSTILE_MARKUP = (
    "{{ [[ <ref> <!-- ( {{[[}} <sup> {{nowrap| [[a| {{convert|1|to| -{a: &# = <nowiki> _"
    " {{template: [[File: {{lang-de| {{formatnum:1 }} ]] {{{{ {{{a| ''''' <ref [[[[ |}} {{#if:"
    " {{unité|1|a|2| -{a;b: <table> &lt;ref&gt; 「{{x}}、"
)
HOSTILE = [
    *HOSTILE_MARKUP.split(),
    *("<ref name=a ", "\n{|", "\n|}", "[http://a ", "'''a ", "({{x}}; ", "\n", " \n", "word "),
    *("{{x}} ", "\n{{a\n", "(a; {{IPA}}, ", "<a ", "a '' ", "{{x}}\n \n", " ", "{{sfn}} , "),
    *("(" + "x" * 70 + "{{x}}", "\n{|\n|-\n| a\n", "\n{|\n|}", "{{citation|a}} "),
    *("{{XIXe siècle}}", "<!-- a", "http://a "),
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_markup_ends(piece: str) -> None:
    start = time.process_time()
    wikitext_to_paragraphs(piece * (200_000 // len(piece)) + "}}]]</ref></sup>", "fr")
    # Half a second if the time is linear in the length; quadratic rules take 5 seconds and more.
    assert time.process_time() - start < 2.5


def test_deep_nesting_and_long_arguments_are_bounded() -> None:
    rng = random.Random(0)
    wikitext_to_paragraphs("{{nowrap|" + " " * 200_000 + "é=}}")
    for opening, closing in [("{{nowrap|x", "}}"), ("[[a|", "]]"), ("{{lang|fr|", "}}")]:
        depth = 20_000 + rng.randrange(10)
        wikitext_to_paragraphs("Text " + opening * depth + closing * depth)
