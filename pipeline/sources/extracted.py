"""The prose of articles that another program extracted from a wiki (WikiExtractor, ``wikimedia/wikipedia``).

In such text a line is a paragraph, a heading, or what is left of a list or a table (a third of the lines, with 2 % of
the words). Removed templates leave holes, as in "Apollo (; Greek: …)", in one English article of seven.
"""

import html
import re

from ..execution.counters import Counters
from .sentences import ends_sentence
from .wikitext.repair import GAP

# In bytes of UTF-8: a Chinese character or a Korean syllable counts as three letters, about what it is worth.
SHORTEST_LINE_BYTES = 40
SHORTEST_UNENDED_LINE_BYTES = 120

_MARKUP_STARTS = tuple("|!{}<#*=")
_LINK = re.compile(r"\[\[(?:[^][|\n]{0,200}+\|)?([^][|\n]{0,200}+)\]\]")
_PAGE_OF_FOOTNOTE = re.compile(r":(?<=[.,;!?)\"”’]:)\d{1,4}(?:[–,-] ?\d{1,4})*+(?=\s|$)")
_PARENTHESIS = re.compile(r"( ?)([(（])([^()（）]{0,600}+)([)）])")
_HOLLOW = re.compile(r"[(（;,；，、](?:\s*+]?\s*+[)）;,:；，、]| (?:or|and) ?[)）;,])")
_HOLLOW_START = re.compile(r"\((?=[]\s),;:])")
_HOLLOW_END = re.compile(r"\)(?<=[]\s(,;]\))")
_SEPARATOR = re.compile(r"([;,；，、])")
_EMPTY_FIRST_ITEM = re.compile(r"\s+(?:or|and)\s*")
_EMPTY_LAST_ITEM = re.compile(r"\s*(?:or|and)\s+")
_FORMULA = re.compile(r"\bformula_\d+")
_MISSING_WORD = re.compile(r"((?:\b(?:the|an?|of|in|as|or|and|to)|'s) |[,、] ?)(?=[,、.;](?:\s|$))")
_SPACE_BEFORE_PUNCTUATION = re.compile(r" (?=[,;.](?:\s|$))")


def article_paragraphs(lines: list[str], title: str, counters: Counters) -> list[str]:
    """Return the lines of an extracted article that are prose, repaired, without the title above them.

    A `GAP` marks missing words. `counters` gets the neutral counters ``lines_left_out`` and
    ``words_left_out_as_lines``, ``…_titles`` and ``…_marks`` (in `repair_line`).
    """
    if lines and html.unescape(lines[0]).strip() == title:
        counters.leave_out("titles", lines[:1])
        lines = lines[1:]
    paragraphs: list[str] = []
    for line in lines:
        if is_prose_line(line):
            paragraphs.append(repaired := repair_line(line))
            if repaired != line:
                counters.leave_out("marks", [line], kept=repaired)
        else:
            counters.count("lines_left_out")
            counters.leave_out("lines", [line])
    return paragraphs


def is_prose_line(line: str) -> bool:
    """Return whether a line of extracted Wikipedia text is a paragraph, not a heading, list entry or rest of markup.

    A paragraph has at least 40 bytes, and three times as many if it does not end a sentence.

    >>> is_prose_line("History."), is_prose_line("Almonds are a rich source of oil, as studies show.")
    (False, True)
    """
    line = line.strip()
    if len(line) < SHORTEST_UNENDED_LINE_BYTES:
        size = len(line.encode("utf-8", "surrogatepass"))
        if size < (SHORTEST_LINE_BYTES if ends_sentence(line) else SHORTEST_UNENDED_LINE_BYTES):
            return False
    return not line.startswith(_MARKUP_STARTS)


def repair_line(line: str) -> str:
    """Return a line without what extraction leaves behind: entities, links, holes in parentheses, pages of footnotes.

    A `GAP` marks words that the sentence lacks: a formula, or the items of an empty enumeration.

    >>> repair_line("Apollo ( or ; Greek: Apollon, ) is a god.:12 He plays the lyre ().")
    'Apollo (Greek: Apollon) is a god. He plays the lyre.'
    """
    if "&" in line:
        line = html.unescape(line)
    if "[[" in line:
        line = _LINK.sub(r"\1", line)
    if ":" in line:
        line = _PAGE_OF_FOOTNOTE.sub("", line)
    if _may_be_hollow(line):
        line = _PARENTHESIS.sub(_repair_parenthesis, line)
    if "formula_" in line:
        line = _FORMULA.sub(GAP, line)
    if " ," in line or " ." in line:
        line = _SPACE_BEFORE_PUNCTUATION.sub("", _MISSING_WORD.sub(rf"\1{GAP}", line))
    return line


def _may_be_hollow(line: str) -> bool:
    """Return whether `_HOLLOW` may match in a line; four times as fast, since most lines are whole."""
    if _HOLLOW_START.search(line) or _HOLLOW_END.search(line) or ", ," in line or "; ]" in line:
        return True
    return "（" in line and _HOLLOW.search(line) is not None


def _repair_parenthesis(match: re.Match[str]) -> str:
    """Drop the empty items of a parenthesis, and the parenthesis if it has no others."""
    space, opening, inside, closing = match.groups()
    if not _HOLLOW.search(match[0]):
        return match[0]
    if not inside and not space and match.string[match.start() - 1 : match.start()].isascii():
        return match[0]  # the call of a function
    kept = ""
    parts = ["", *_SEPARATOR.split(inside)]
    items = parts[1::2]
    for index, (separator, item) in enumerate(zip(parts[::2], items, strict=True)):
        emptied = _EMPTY_FIRST_ITEM if index == 0 else _EMPTY_LAST_ITEM if index == len(items) - 1 else None
        if item.strip(" \u00a0\t]:") and not (emptied and emptied.fullmatch(item)):
            kept += (separator if kept else "") + item
    return f"{space}{opening}{kept.strip()}{closing}" if kept.strip() else ""
