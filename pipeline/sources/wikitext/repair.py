"""Marks for what was removed from a text, and the repair of the text at these marks.

Punctuation elsewhere stays as the authors wrote it. "Berlin (<removed>; born 1237)" becomes "Berlin
(born 1237)", and a `GAP` marks missing words that the sentence needs.
"""

import re

REMOVED = "\x01"
"""Mark of a removal that the sentence does without: a footnote, a box."""
PRONUNCIATION = "\x03"
"""Mark of a removal like `REMOVED`, whose introduction ("locally", "or") goes with it."""
MISSING = "\x02"
"""Mark of a removal that may have been words of the sentence: an unknown template."""
GAP = "\ufffc"
"""Marks missing words in clean text (OBJECT REPLACEMENT CHARACTER): their sentence should be left
out.
"""

PARAGRAPH_BREAK = "\n\n"

_LEFTOVER = re.compile(
    r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|</?[a-zA-Z][^<>]{0,300}+>|</?ref\b", re.IGNORECASE
)
_HOLE = re.compile(r"[\x01-\x03\ufffc]")
_SILENT_MARK = re.compile(f"[{REMOVED}{PRONUNCIATION}]")
_MISSING_MARK = re.compile(MISSING)
_MARKS_BY_NEED = (MISSING, PRONUNCIATION, REMOVED)
_ADJACENT_MARKS = re.compile(r"[\x01-\x03](?: ?[\x01-\x03])++")
# German "[{{IPA|...}}]" and "/{{IPA|...}}/".
_BRACKETED_MARK = re.compile(r"\[ ?([\x01\x03]) ?\]|/ ?([\x01\x03]) ?/")
_PARENTHESIS = re.compile(r"( ?[(（])([^()（）]{0,600}+)([)）])")
_SILENT_HOLE = re.compile(r" ?[\x01\x03]\Z|[\x01\x03]")
_SEPARATOR = re.compile(r"([;,；，、])")
_EMPTY_START = re.compile(r"([(（]) ?[\x01-\x03][ ;,:；，、：]*+(?:(?:or|and) )?")
_EMPTY_ITEM = re.compile(r"[;,；，、] ?[\x01-\x03](?= ?[;,)；，、）]| ?\.(?: |$))")
_BEFORE_PUNCTUATION = re.compile(r" ?[\x01\x03] ?(?=[,.;:!?)])")
# "the sound /p/ is": a pronunciation that no name precedes is what the sentence is about.
_SPOKEN_OF = re.compile(f"(?<=[a-z] ){PRONUNCIATION}(?= [a-z])(?<=.{{60}})")
_LABEL = re.compile(
    r"(?:pronounced|named|pronunciation|ipa|or|and|also|in)?\W*|.{0,60}:", re.IGNORECASE
)
_DASHES = "–—-"
_OPENING_QUOTES = '「『“„«‘"'


def repair_paragraph(block: str) -> str:
    """Return the block as one line of clean text, which may be empty."""
    paragraph = " ".join(block.split())
    if _HOLE.search(paragraph):
        paragraph = " ".join(_close_holes(paragraph).split())
    if _LEFTOVER.search(paragraph):
        paragraph = " ".join(_LEFTOVER.sub(" ", paragraph).split())
    return paragraph


def _close_holes(text: str) -> str:
    """Close the holes at the marks of removals, or put a `GAP` for missing words; `text` is
    single-spaced.
    """
    # Of adjacent marks the one with the greatest need counts.
    text = _ADJACENT_MARKS.sub(
        lambda match: next(mark for mark in _MARKS_BY_NEED if mark in match[0]), text
    )
    text = _BRACKETED_MARK.sub(lambda match: match[1] or match[2], text)
    # From the inside out; prose has no deeper nesting.
    for _ in range(2):
        text = _PARENTHESIS.sub(_repair_parenthesis, text)
    text = _EMPTY_START.sub(r"\1", text)
    text = _EMPTY_ITEM.sub("", text)
    text = text.replace(f".{REMOVED}.", ".")
    text = _BEFORE_PUNCTUATION.sub("", text)
    text = _SPOKEN_OF.sub(GAP, text)
    return _MISSING_MARK.sub(_gap, _SILENT_MARK.sub("", text))


def _repair_parenthesis(match: re.Match[str]) -> str:
    """Drop the items of a parenthesis that a removal emptied: "(IPA: ; born 1950)" becomes "(born
    1950)".
    """
    before, inside, after = match.groups()
    if not _HOLE.search(inside):
        return match[0]
    kept = ""
    parts = ["", *_SEPARATOR.split(inside)]
    for separator, item in zip(parts[::2], parts[1::2], strict=True):
        if not _is_emptied(item):
            kept += (separator if kept else "") + _SILENT_HOLE.sub("", item)
    return f"{before}{kept.strip()}{after}" if kept.strip() else REMOVED


def _is_emptied(item: str) -> bool:
    """Return whether an item of a parenthesis lost its content."""
    rest = _HOLE.sub("", item).strip()
    if len(rest) == len(item.strip()):
        return not rest
    if MISSING in item and (rest[:1] in _DASHES or rest[-1:] in _DASHES or len(rest.split()) <= 2):
        return True
    if PRONUNCIATION in item and rest.islower() and len(rest.split()) <= 2:
        return True
    return _LABEL.fullmatch(rest) is not None


def _gap(match: re.Match[str]) -> str:
    """Return a `GAP` if the sentence needs the words, unless it is a footnote (after a word or full
    stop) or a box (first).
    """
    text, start, end = match.string, match.start(), match.end()
    before, after = text[max(start - 3, 0) : start], text[end : end + 3]
    begins = not before.strip() or before.rstrip()[-1] in ".!?:"
    if begins:
        return GAP if after.strip()[:1].islower() else ""
    if (
        before[-1].isspace()
        or before[-1] in _OPENING_QUOTES
        or (_is_unspaced(before[-1]) and _is_unspaced(after[:1]))
    ):
        return GAP
    return ""


def _is_unspaced(character: str) -> bool:
    """Return whether it is a letter of a script without spaces: Chinese, Japanese, Thai and their
    neighbours.
    """
    return character.isalpha() and (
        "\u0e00" <= character <= "\u0fff" or "\u2e80" <= character <= "\u9fff"
    )
