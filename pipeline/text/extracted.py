"""Find the prose in articles that another program extracted from a wiki, and repair it.

WikiExtractor is one, the builder of ``wikimedia/wikipedia`` another. In their text a line is a
paragraph, a heading, or the rest of a list or a table (a third of the lines, with 2% of the words).
Removed templates leave holes, as in "Apollo (; Greek: …)", in one English article of seven.
"""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..counters import Counters
from .fragments import (
    introduction_gap,
    is_navigation,
    resolve_entities,
    without_reference_marks,
)
from .sentence_ends import ends_sentence
from .wikitext.formulas import raised
from .wikitext.names import NAMES
from .wikitext.repair import GAP, items_of

# In bytes of UTF-8: a Chinese character or a Korean syllable counts as three letters, about as much
# as it says.
SHORTEST_UNENDED_LINE_BYTES = 120

# A Korean heading ends in a noun: WikiExtractor puts a full stop after it, as after the verb of a
# sentence.
_KOREAN_HEADING = re.compile(r"[가-힣](?<![다요까라오죠음함임됨것네])\s?(?:\([^()]*\))?\.$")
_QUOTES = tuple("\"“”„«»‘'「『《")
# The last two are how WikiExtractor before 3.0 writes items of lists, and headings.
_MARKUP_STARTS = (*"|!{}<#*=", "BULLET::::", "Section::::")
# "!Kung is …", "#1 Record is …", "|x| is …": the mark belongs to a word.
_MARKED_WORD = re.compile(r"[!#*]{1,2}\w|\|[^\W_]{1,20}\|\s")
# "mini|hochkant=1.2|Die Familie …": the options and the caption of a picture.
_CAPTION = re.compile(
    rf"\s*+(?:{'|'.join(NAMES.picture_options)}|\d{{1,4}}px)\s?(?:=[^|]{{0,60}}+)?\|", re.IGNORECASE
)
# "[[File:A.jpg|thumb|A [[town]].]]" whose other links are text by now; the end may be lost.
_PICTURE = re.compile(
    r"\[\[[^][|\n]{1,200}\.(?:jpe?g|png|gif|svg|tiff?|webp|og[gvam]|webm|pdf|djvu?)\s*+\|[^][\n]*+"
    r"(?:\]\]|$)",
    re.IGNORECASE,
)
# "{{convert|5|km}}", "{{#if: …", and "{{}}: Error!" are what a sentence lacks.
_TEMPLATE = re.compile(r"\{\{[\w#][^{}\n]{0,300}+(?:\}\}|$)|\{\{\}\}(?:: Error![^.!\n]{0,200}+!?)?")
# "[http://…]" is a footnote; "[http://… the label]" has a label.
_EXTERNAL_LINK = re.compile(
    r"( ?)\[(?:https?:)?//[^\s\[\]<>]{0,2000}+"
    r"([^\[\]\n]{0,1000}+(?:\[[^\[\]\n]{0,200}+\][^\[\]\n]{0,1000}+){0,4}+)\]"
)
_BARE_LINK = re.compile(r" ?(?:\((?:https?://|www\.)[^\s()]{1,500}+\)|<https?://[^\s<>]{1,500}+>)")
_LINK = re.compile(r"\[\[(?:[^][|\n]{0,200}+\|)?([^][|\n]{0,200}+)\]\]")
# The rest of {{as of}}.
_UPDATE = re.compile(r"\s?\[\s?\[update\]\]")
_PAGE_OF_FOOTNOTE = re.compile(r":(?<=[.,;!?)\"”’]:)\d{1,4}(?:[–,-] ?\d{1,4})*+(?=\s|$)")
_PARENTHESIS = re.compile(r"( ?)([(（])([^()（）]{0,600}+)([)）])")
_HOLLOW = re.compile(r"[(（;,；，、](?:\s*+]?\s*+[)）;,:；，、]| (?:or|and) ?[)）;,])")
_EMPTY_FIRST_ITEM = re.compile(r"\s+(?:or|and)\s*")
_EMPTY_LAST_ITEM = re.compile(r"\s*(?:or|and)\s+")
# In nested parentheses only the edges are repaired: "(, 田山貞子(다야마 사다코), 1870년)".
_EMPTY_START = re.compile(r"([(（])(?:[\s,;:，；、：]++(?:(?:or|and)(?=[\s,;)]))?+)++")
# A Korean particle follows "D2X()", a call of a function has spaces around it.
_EMPTY_BRACKETS = re.compile(r"(?<=[^\sa-z(（])[(（]\s?[)）](?=[가-힣])")
_HTML = re.compile(
    r"<ref\b[^<>\n]{0,300}>[^<>\n]{0,500}</ref>"
    r"|</?(?:ref|dfn|su[bp]|small|big|span|div|center|font|p|i|b|u|s|em|strong"
    r"|nowiki|code|tt|blockquote|poem|abbr|cite|li|ul|ol|references)(?![\w-])[^<>\n]{0,300}>",
    re.IGNORECASE,
)
_RAISED = re.compile(r"<sup>([^<>\n]{1,20})</sup>", re.IGNORECASE)
_LINE_BREAK = re.compile(r"\s?<br\b[^<>\n]{0,100}>\s?", re.IGNORECASE)
_SPACE_BEFORE_PUNCTUATION = re.compile(r" (?=[,;.](?:\s|$))")

_FORMULA = re.compile(r"(?<![A-Za-z])(?:formula|codice)_\d+")
# Where a word is lost: a comma, a genitive or a small word stands before a mark.
_MISSING_WORD = re.compile(
    r"(?:[,、] ?|(?:'s|\b(?:the|an?|of|in|as|or|and|to|at|is|are|was|were|with|about|by|from|for|on"
    r"|near|between|than|into|called|approximately)) )(?=[,、.;](?:\s|$))",
    re.IGNORECASE,
)
_EMPTY_PAIR = re.compile("[“‘《〈「『][”’》〉」』]")
# A title in italics within quotation marks: both are written as quotes, "the film ""X"" was".
_DOUBLED_QUOTES = re.compile(r'""([^"\s](?:[^"\n]{0,300}+(?<!\s))?)""')
# Two italics, a variable and its index: "the equation "J""n"("x") = 0".
_ITALIC_INDEX = re.compile(r'(?<=\w)""(?=\w{1,3}")')
_EMPTY_QUOTES = (
    re.compile(r'(?<![^\s(《])""(?=[\s,.;:)]|$)|(?<![^\s(])(?:""|“”|‘’|《》|〈〉|「」|『』)'
               r"(?=(?:이?라는|이?란|은|는|이|가|을|를|와|과|로|으로|의|에|에서)[\s,.)])")
)  # fmt: skip
# As `\s` of Python, which RE2 takes for ASCII.
_WHITE_SPACE = r"[\s\x0b\x1c-\x1f\x85\p{Z}]"
_REMAINS = "|".join(
    (
        r"[&<\[（•|]|//|\{\{|\"\"|[“‘《〈「『][”’》〉」』]|(?:formula|codice)_|[.,;!?)\"”’]:\p{Nd}",
        rf"\((?:[\]),;:]|{_WHITE_SPACE})|(?:[\](,;]|{_WHITE_SPACE})\)|, ,|; \]|{_WHITE_SPACE}·",
        rf"[ ,、][,、.;](?:{_WHITE_SPACE}|$)",
        "[은는] 이[다며고]|약 (?:이[다며고]|에|의|떨어)",
    )
)
"""In the syntax of RE2: all that `is_navigation` and `repair_line` look for first."""
_REMAINS_OPTIONS = pc.MatchSubstringOptions(_REMAINS)
_LOST_IN_KOREAN = re.compile(
    r"[은는약] (?:(?<![은는] )|(?=이))(?<![가-힣]약 )"
    r"(?:이다|이며|이고|에|의|떨어[가-힣]{1,2})(?=[\s,.])"
)


def find_remains(lines: Sequence[str]) -> list[bool]:
    """Return for each line whether it may hold remains of markup; most hold none.

    One search of RE2 sees all of them in linear time, ten times as fast as the rules of
    `repair_line`. It costs as much for one line as for a hundred: give it those of many articles.
    """
    try:
        array = pa.array(lines, pa.string())
    except UnicodeEncodeError:  # halves of surrogate pairs, in JSON
        return [True] * len(lines)
    return pc.call_function("match_substring_regex", [array], _REMAINS_OPTIONS).to_pylist()


def article_paragraphs(
    lines: Sequence[str],
    title: str,
    counters: Counters,
    language: str,
    remains: Sequence[bool],
) -> list[str]:
    """Return the lines of an extracted article that are prose, repaired, without its title.

    A `GAP` marks missing words, and the end of a paragraph whose list is not there. `language` is
    the wiki's, `remains` what `find_remains` returns.
    """
    paragraphs = []
    left_out = []
    rows = list(zip(lines, (*lines[1:], ""), remains, strict=True))
    if rows and resolve_entities(lines[0]).strip() == title:
        counters.leave_out("titles", lines[:1])
        del rows[0]
    for line, following, has_remains in rows:
        if not is_prose_line(line) or (has_remains and is_navigation(line)):
            left_out.append(line)
            continue
        repaired = line
        if has_remains:
            repaired = repair_line(line)
            if repaired != line:
                counters.leave_out("marks", [line], kept=repaired)
        # A quotation may follow that says what its introduction promises; a list never does. Most
        # lines end with a full stop.
        if repaired[-1:] != "." and not following.startswith(_QUOTES):
            repaired = introduction_gap(repaired, language)
        paragraphs.append(repaired)
    if left_out:  # together, because counting the words of each line takes three times as long
        counters.count("lines_left_out", len(left_out))
        counters.leave_out("lines", left_out)
    return paragraphs


def is_prose_line(line: str) -> bool:
    """Return whether a line is a paragraph, not a heading, list entry or rest of markup.

    A paragraph has at least 40 bytes, and three times as many if it does not end a sentence; a
    short Korean one ends in a verb.

    >>> is_prose_line("History.")
    False
    >>> is_prose_line("Almonds are a rich source of oil, as studies show.")
    True
    """
    line = line.strip()
    if line.startswith(_MARKUP_STARTS):
        # A paragraph may begin with a mark nevertheless, if it belongs to a word.
        is_word = _MARKED_WORD.match(line) is not None and ends_sentence(line)
        if not is_word or "||" in line or "!!" in line:
            return False
    if "|" in line and _CAPTION.match(line):
        return False
    if len(line) >= SHORTEST_UNENDED_LINE_BYTES:
        return True
    num_bytes = len(line.encode("utf-8", "surrogatepass"))
    if num_bytes < 40:
        return False
    if num_bytes < SHORTEST_UNENDED_LINE_BYTES and not ends_sentence(line):
        return False
    if len(line) >= 60 or ". " in line:  # too long for a Korean heading, or two sentences
        return True
    return _KOREAN_HEADING.search(line) is None


def repair_line(line: str) -> str:
    """Return a line without the remains of markup.

    These are entities, links, holes in parentheses, pages of footnotes. A `GAP` marks words that
    the sentence lacks: a formula, or the items of an empty enumeration.

    >>> repair_line("Apollo ( or ; Greek: Apollon, ) is a god.:12 He plays the lyre ().")
    'Apollo (Greek: Apollon) is a god. He plays the lyre.'
    """
    if "&" in line:
        line = resolve_entities(line)
    if "<" in line:
        line = _RAISED.sub(lambda match: raised(match[1]) or match[0], line)
        line = _HTML.sub("", _LINE_BREAK.sub(" ", line))
    if "[" in line:
        if "[[" in line:
            line = _LINK.sub(r"\1", line)
            line = _PICTURE.sub("", line)
        if "[update]" in line:
            line = _UPDATE.sub("", line)
        if "//" in line:
            line = _EXTERNAL_LINK.sub(
                lambda link: link[1] + link[2].strip() if link[2].strip() else "", line
            )
        line = without_reference_marks(line)
    if "//" in line:
        line = _BARE_LINK.sub("", line)
    if "{{" in line:
        line = _TEMPLATE.sub(GAP, line)
    if ":" in line:
        line = _PAGE_OF_FOOTNOTE.sub("", line)
    if "(" in line or "（" in line:
        line = _PARENTHESIS.sub(_repair_parenthesis, line)
        line = _EMPTY_BRACKETS.sub("", line)
        line = _EMPTY_START.sub(r"\1", line)
    return _with_gaps(line)


def _with_gaps(line: str) -> str:
    """Put a `GAP` where words were lost: formulas, code, templates."""
    if "_" in line:
        line = _FORMULA.sub(GAP, line)
    line = _MISSING_WORD.sub(rf"\g<0>{GAP}", line)
    line = _SPACE_BEFORE_PUNCTUATION.sub("", line)
    if '"' in line and '""' in line:  # a single character is found faster
        line = _DOUBLED_QUOTES.sub(r'"\1"', _ITALIC_INDEX.sub("", line))
        line = _EMPTY_QUOTES.sub(GAP, line.replace('("")', ""))
    if line.isascii():
        return line
    if "은 이" in line or "는 이" in line or "약 " in line:
        line = _LOST_IN_KOREAN.sub(rf"\g<0>{GAP}", line)
    if _EMPTY_PAIR.search(line):
        line = _EMPTY_QUOTES.sub(GAP, line)
    return line


def _repair_parenthesis(match: re.Match[str]) -> str:
    """Drop the empty items of a parenthesis, and the parenthesis if all are empty."""
    space, opening, inside, closing = match.groups()
    if not _HOLLOW.search(match[0]):
        return match[0]
    character_before = match.string[match.start() - 1 : match.start()]
    if not inside and not space and character_before.isascii():
        return match[0]  # the call of a function
    repaired = ""
    items = items_of(inside)
    for index, (separator, item) in enumerate(items):
        conjunction = None
        if index == 0:
            conjunction = _EMPTY_FIRST_ITEM
        elif index == len(items) - 1:
            conjunction = _EMPTY_LAST_ITEM
        # It has no words, or only the one that joined it to another.
        if not item.strip(" \u00a0\t]:") or (conjunction and conjunction.fullmatch(item)):
            continue
        if repaired:
            repaired += separator
        repaired += item
    repaired = repaired.strip()
    return f"{space}{opening}{repaired}{closing}" if repaired else ""
