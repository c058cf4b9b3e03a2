"""The prose of articles that another program extracted from a wiki (WikiExtractor,
``wikimedia/wikipedia``).

In such text a line is a paragraph, a heading, or what is left of a list or a table (a third of the
lines, with 2 % of the words). Removed templates leave holes, as in "Apollo (; Greek: …)", in one
English article of seven.
"""

import html
import re

from ..execution.counters import Counters
from .sentences import ends_sentence
from .wikitext.repair import GAP

# In bytes of UTF-8: a Chinese character or a Korean syllable counts as three letters, about what it
# is worth.
SHORTEST_LINE_BYTES = 40
SHORTEST_UNENDED_LINE_BYTES = 120

# A Korean heading ends in a noun: WikiExtractor puts a full stop behind it, as behind the verb of a
# sentence.
_LONGEST_KOREAN_HEADING = 60
_KOREAN_HEADING = re.compile(r"[가-힣](?<![다요까라오죠음함임됨것네])\s?(?:\([^()]*\))?\.$")
_MARKUP_STARTS = tuple("|!{}<#*=")
_LINK = re.compile(r"\[\[(?:[^][|\n]{0,200}+\|)?([^][|\n]{0,200}+)\]\]")
# What is left of {{as of}}.
_UPDATE = re.compile(r"\s?\[\s?\[update\]\]")
_PAGE_OF_FOOTNOTE = re.compile(r":(?<=[.,;!?)\"”’]:)\d{1,4}(?:[–,-] ?\d{1,4})*+(?=\s|$)")
_PARENTHESIS = re.compile(r"( ?)([(（])([^()（）]{0,600}+)([)）])")
_HOLLOW = re.compile(r"[(（;,；，、](?:\s*+]?\s*+[)）;,:；，、]| (?:or|and) ?[)）;,])")
_HOLLOW_START = re.compile(r"\((?=[]\s),;:])")
_HOLLOW_END = re.compile(r"\)(?<=[]\s(,;]\))")
_SEPARATOR = re.compile(r"([;,；，、])")
_EMPTY_FIRST_ITEM = re.compile(r"\s+(?:or|and)\s*")
_EMPTY_LAST_ITEM = re.compile(r"\s*(?:or|and)\s+")
# Of nested parentheses only the edges are repaired: "(, 田山貞子(다야마 사다코), 1870년)".
_EMPTY_START = re.compile(r"([(（])(?:[\s,;:，；、：]++(?:(?:or|and)(?=[\s,;)]))?+)++")
_EMPTY_END = re.compile(r"[,;，；、][\s,;，；、]{0,20}+(?=[)）])")
# A Korean particle follows "D2X()", a call of a function has spaces around it.
_EMPTY_BRACKETS = re.compile(r"(?<=[^\sa-z(（])[(（]\s?[)）](?=[가-힣])")
_HTML = re.compile(
    r"<ref\b[^<>\n]{0,300}>[^<>\n]{0,500}</ref>|</?(?:ref|dfn|su[bp]|small|big|span|div|center|font|p|i|b|u|s|em|strong|"
    r"nowiki|code|tt|blockquote|poem|abbr|cite|li|ul|ol|references)(?![\w-])[^<>\n]{0,300}>",
    re.IGNORECASE,
)
_LINE_BREAK = re.compile(r"\s?<br\b[^<>\n]{0,100}>\s?", re.IGNORECASE)
_SPACE_BEFORE_PUNCTUATION = re.compile(r" (?=[,;.](?:\s|$))")

_FORMULA = re.compile(r"(?<![A-Za-z])(?:formula|codice)_\d+")
_MISSING_WORD = re.compile(
    r"((?:\b(?:the|an?|of|in|as|or|and|to|at|is|are|was|were|with|about|by|from|for|on|near|between|than|into|called"
    r"|approximately)|'s) |[,、] ?)(?=[,、.;](?:\s|$))",
    re.IGNORECASE,
)
_EMPTY_PAIR = re.compile("[“‘《〈「『][”’》〉」』]")
_EMPTY_QUOTES = (
    re.compile(r'(?<![^\s(《])""(?=[\s,.;:)]|$)|(?<![^\s(])(?:""|“”|‘’|《》|〈〉|「」|『』)'
               r"(?=(?:이?라는|이?란|은|는|이|가|을|를|와|과|로|으로|의|에|에서)[\s,.)])")
)  # fmt: skip
# Some versions of the extractor leave no space for the words that it removed ("opened from,
# including a station at."). Before a comma or full stop these words are rare in whole sentences: of
# 290,000 in English articles, they end 60.
_NOUNS = "area|length|width|height|depth|elevation|altitude|distance|population|capacity"
_ENDINGS = (
    ("at|an|than|approximately", ",."),
    ("the|its", ","),
    ("and", "."),
    *((f"{noun} {verb}", ",.") for noun in _NOUNS.split("|") for verb in ("of", "is", "was")),
)
_BY_WIDTH = {
    (len(words), marks): "|".join(
        word
        for other, same in _ENDINGS
        for word in other.split("|")
        if (len(word), same) == (len(words), marks)
    )
    for group, marks in _ENDINGS
    for words in group.split("|")
}
_LOST_BEFORE = re.compile(
    r"[,.](?=\s|$)(?:"
    + "|".join(f"(?<= (?:{words})[{marks}])" for (_, marks), words in _BY_WIDTH.items())
    + r"|(?<=\d (?:to|by)[,.])|(?<= (?:from|near),)(?= (?:including|which|where|who|when|located|situated)\b))"
)
_LOST_AFTER = re.compile(
    r" (?:(?:approximately|about|around|some|roughly|nearly) (?:north|south|east|west)[a-z-]* of\b"
    r"|approximately (?:long|wide|high|tall|deep|above|below|away|from|and|in)\b"
    rf"|(?:{_NOUNS}) of (?:and|above|below|at|with|from|is|was)\b)"
)
# Where the patterns above may match. Each begins with a character, which makes the search ten times
# as fast.
_OF = re.compile(
    r" of (?:(?<=(?:orth|outh|east|west) of )|(?:and|above|below|at|with|from|is|was) )"
)
_COMMA = re.compile(
    r",(?=\s|$)(?:(?<= (?:at|an|is|of|to|by),)|(?<= (?:the|its|was),)|(?<= (?:than|from|near),)|(?<=ately,)|(?<= ,))"
)
_FULL_STOP = re.compile(
    r"\.(?=\s|$)(?:(?<= (?:at|an|is|of|to|by).)|(?<= (?:and|was).)|(?<= than.)|(?<=ately.)|(?<= \.))"
)
_LOST_IN_KOREAN = re.compile(
    r"[은는약] (?:(?<![은는] )|(?=이))(?<![가-힣]약 )(?:이다|이며|이고|에|의|떨어[가-힣]{1,2})(?=[\s,.])"
)


def article_paragraphs(lines: list[str], title: str, counters: Counters) -> list[str]:
    """Return the lines of an extracted article that are prose, repaired, without the title above
    them.

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
    """Return whether a line of extracted Wikipedia text is a paragraph, not a heading, list entry
    or rest of markup.

    A paragraph has at least 40 bytes, and three times as many if it does not end a sentence; a
    short Korean one ends in a verb.

    >>> is_prose_line("History."), is_prose_line("Almonds are a rich source of oil, as studies show.")
    (False, True)
    """
    line = line.strip()
    if len(line) < SHORTEST_UNENDED_LINE_BYTES:
        size = len(line.encode("utf-8", "surrogatepass"))
        if size < (SHORTEST_LINE_BYTES if ends_sentence(line) else SHORTEST_UNENDED_LINE_BYTES):
            return False
        if (
            len(line) < _LONGEST_KOREAN_HEADING
            and _KOREAN_HEADING.search(line)
            and ". " not in line
        ):
            return False
    return not line.startswith(_MARKUP_STARTS)


def repair_line(line: str) -> str:
    """Return a line without what extraction leaves behind: entities, links, holes in parentheses,
    pages of footnotes.

    A `GAP` marks words that the sentence lacks: a formula, or the items of an empty enumeration.

    >>> repair_line("Apollo ( or ; Greek: Apollon, ) is a god.:12 He plays the lyre ().")
    'Apollo (Greek: Apollon) is a god. He plays the lyre.'
    """
    if "&" in line:
        line = html.unescape(line).replace(GAP, "")
    if "<" in line:
        line = _HTML.sub("", _LINE_BREAK.sub(" ", line))
    if "[" in line and "[[" in line:
        line = _LINK.sub(r"\1", line)
    if "[update]" in line:
        line = _UPDATE.sub("", line)
    if ":" in line:
        line = _PAGE_OF_FOOTNOTE.sub("", line)
    if _may_be_hollow(line):
        line = _EMPTY_BRACKETS.sub("", _PARENTHESIS.sub(_repair_parenthesis, line))
        line = _EMPTY_END.sub("", _EMPTY_START.sub(r"\1", line))
    return _with_gaps(line)


def _with_gaps(line: str) -> str:
    """Put a `GAP` where words were lost: formulas, code, templates."""
    if "_" in line:
        line = _FORMULA.sub(GAP, line)
    if ends_badly := _COMMA.search(line) or _FULL_STOP.search(line):
        line = _SPACE_BEFORE_PUNCTUATION.sub("", _MISSING_WORD.sub(rf"\1{GAP}", line))
        line = _LOST_BEFORE.sub(rf"{GAP}\g<0>", line)
    if ends_badly or "approximately" in line or _OF.search(line):
        line = _LOST_AFTER.sub(rf"{GAP}\g<0>", line)
    if '"' in line and '""' in line:  # a single character is found faster
        line = _EMPTY_QUOTES.sub(GAP, line.replace('("")', ""))
    if line.isascii():
        return line
    if "은 " in line or "는 " in line or "약 " in line:
        line = _LOST_IN_KOREAN.sub(rf"\g<0>{GAP}", line)
    return _EMPTY_QUOTES.sub(GAP, line) if _EMPTY_PAIR.search(line) else line


def _may_be_hollow(line: str) -> bool:
    """Return whether `_HOLLOW` may match in a line; four times as fast, since most lines are whole."""
    if "(" in line and (
        _HOLLOW_START.search(line)
        or _HOLLOW_END.search(line)
        or ", ," in line
        or ("]" in line and "; ]" in line)
    ):
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
        emptied = (
            _EMPTY_FIRST_ITEM
            if index == 0
            else _EMPTY_LAST_ITEM
            if index == len(items) - 1
            else None
        )
        if item.strip(" \u00a0\t]:") and not (emptied and emptied.fullmatch(item)):
            kept += (separator if kept else "") + item
    return f"{space}{opening}{kept.strip()}{closing}" if kept.strip() else ""
