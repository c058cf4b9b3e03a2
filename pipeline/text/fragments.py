"""Tell prose from what dropped lists, templates and notes leave in the text of a wiki."""

import re
from html import unescape
from html.entities import html5

from .sentence_ends import ends_sentence
from .wikitext.repair import CONTROLS, GAP

INTRODUCTIONS = {
    "*": (":", "："),
    # A colon is typed for the Armenian full stop ։ too.
    **dict.fromkeys(("hy", "hyw"), ("․", "՝", " են")),
    "km": (":", "៖"),
}
"""How a paragraph ends that introduces a list, by language; ``*`` for those not listed.

The marks are those that Unicode's charts call colon or "used as colon"; "են" is Armenian for "are".
"""

# "The parts are as follows:", "The following types are in use:" are whole without what follows.
_WHOLE_INTRODUCTION = re.compile(
    r"\b(?:follows|following|below|folgend\w*|suivante?s?|siguientes?|seguent[ei]|seguintes?|volgende)"
    r"\b[^.!?]*:\Z",
    re.IGNORECASE,
)
# Without blanks, "·" is within sentences, as in Korean ("정치·경제·사회").
_BULLET = re.compile(r"\s+·\s+|\s*[•|]\s*")

# "as was known.[174]", pasted from another page with its number; not the index of a list in a
# program ("names[0]", "names[2] = 5") nor of a variable ("E[1]").
_REFERENCE_MARK = re.compile(
    r"\[(?:(?<=[^\W\d_]{2}\[)|(?<=[.,;:!?)\]”\"’»。、，！？։՝।॥۔؟]\[)|(?<=[.!?»”।॥۔؟։] \[))"
    r"(?!0\])\d{1,3}\](?:\[(?!0\])\d{1,3}\])*(?![A-Za-z0-9_]|\.\w| ?[-=+*/<>])"
)


# Only with its semicolon, as in MediaWiki: "Black&section" is a name.
_ENTITY = re.compile(r"&(?:#[0-9]{1,40}+;|#[xX][0-9a-fA-F]{1,40}+;|[A-Za-z][A-Za-z0-9]{1,32}+;)")


def resolve_entities(text: str) -> str:
    """Return `text` with the characters of HTML's entities in their place, without controls.

    >>> resolve_entities("Fish &amp; chips, Black&section")
    'Fish & chips, Black&section'
    """
    return _ENTITY.sub(_character_of, text) if "&" in text else text


def _character_of(entity: re.Match[str]) -> str:
    character = entity[0]
    if character.startswith("&#"):
        character = unescape(character)
    else:
        character = html5.get(character[1:], character)
    return "" if character in CONTROLS else character


def introduction_gap(text: str, language: str) -> str:
    """Return a paragraph whose list is dropped, with a `GAP` before the mark that introduces it.

    >>> introduction_gap("The Beatles were: ", "en")
    'The Beatles were\ufffc: '
    """
    endings = INTRODUCTIONS.get(language, INTRODUCTIONS["*"])
    stripped = text.rstrip()
    if not stripped.endswith(endings) or _WHOLE_INTRODUCTION.search(stripped[-150:]):
        return text
    ending = next(filter(stripped.endswith, endings))
    if stripped.endswith(GAP + ending):
        return text
    position = len(stripped) - len(ending)
    return text[:position] + GAP + text[position:]


def is_navigation(paragraph: str) -> bool:
    """Return whether a paragraph is only names between bullets: "1916 • 1917 • 1918 • 1919"."""
    # Single characters first, because most texts have none.
    if "•" not in paragraph and "·" not in paragraph and "|" not in paragraph:
        return False
    items = _BULLET.split(paragraph)
    if len(items) <= 2 or ends_sentence(paragraph):  # one bullet may be within a sentence
        return False
    return max(map(len, items)) <= 60  # as long as a name may be


def without_reference_marks(text: str) -> str:
    """Return `text` without the numbers of references that somebody pasted."""
    # A single character is found faster, and most texts have none.
    if "[" not in text:
        return text
    return _REFERENCE_MARK.sub("", text)
