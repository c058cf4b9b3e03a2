"""Resolve the tags of wikitext: drop comments and whole elements, strip the other tags."""

import re

from ..fragments import resolve_entities
from ..sentence_rules import LOWER_CASE
from .formulas import formula_text, raised
from .repair import (
    GAP,
    MISSING,
    PARAGRAPH_BREAK,
    REMOVED,
    REMOVED_BLOCK,
    Dropped,
)

_DROPPED_ELEMENTS = {
    **dict.fromkeys(("ref", "templatestyles", "indicator", "includeonly", "rt", "rp"), REMOVED),
    **dict.fromkeys(("math", "chem", "ce", "hiero", "score", "graph"), GAP),
    # What is struck out is no longer said.
    **dict.fromkeys(("s", "strike", "del"), GAP),
    **dict.fromkeys(("gallery", "pre", "syntaxhighlight", "source", "timeline"), REMOVED_BLOCK),
    **dict.fromkeys(("mapframe", "imagemap", "templatedata", "inputbox"), REMOVED_BLOCK),
    **dict.fromkeys(("categorytree", "table", "ul", "ol", "dl"), REMOVED_BLOCK),
    "references": PARAGRAPH_BREAK,
    "maplink": MISSING,
}
_BLOCKS = frozenset(("p", "div", "center", "blockquote", "poem", "hr"))
_ITEMS = frozenset(("li", "dd", "dt", "tr", "td", "th"))
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_BREAKING_TAGS = _BLOCKS | _ITEMS | _HEADINGS
_STRIPPED_TAGS = (
    "abbr b bdi bdo big br caption cite code col colgroup data dfn em font i ins kbd link mark meta"
    " nobr nowiki q rb rtc ruby samp small span strong sub sup tbody tfoot thead time tt u var wbr"
    # The following are those of MediaWiki's extensions.
    " charinsert dynamicpagelist embedvideo languages listing noinclude nomobile onlyinclude"
    " pagelist pagequality pages phonos quiz rss section tab tabber tabs thread translate tvar"
    " ce ref"
)
TAG_NAMES = frozenset((*_DROPPED_ELEMENTS, *_BREAKING_TAGS, *_STRIPPED_TAGS.split()))
"""All that MediaWiki takes for a tag; another name in angle brackets is text, as in "List<T>"."""

# A comment, or a tag: "/" if it closes, its name, its attributes. "<" alone is text, as in "a < b".
_TAG = re.compile(
    r"<(?:!--|(/?)([a-zA-Z][a-zA-Z0-9]*+)"
    r"([^<>\"]{0,2000}+(?:\"[^\"\n]{0,300}\"(?=\s{0,9}/?>))?+[^<>]{0,2000}+)>)"
)
_CLOSING_TAGS = {
    name: re.compile(rf"</(?i:{name})\s{{0,50}}+>")
    for name in (*_DROPPED_ELEMENTS, "nowiki", "span", "sup")
}
_HIDDEN = re.compile(r"display\s{0,9}:\s{0,9}none", re.IGNORECASE)
_INLINE = re.compile(r"\binline\b")
_PLAIN_CHEMISTRY = re.compile(r"[A-Za-z0-9()\[\],]{1,80}")
_MATHEMATICAL = re.compile(r"[-−–]|\{\{(?:mvar|math|var|val)\|")
_MARKUP_CHARACTER = re.compile(r"[\[\]{}<>|*#=:;!'_&-]")
# What goes on behind a box in its midst lacks its beginning.
_TORN = re.compile(rf"(?:</[a-zA-Z]{{1,20}}>){{0,9}} ?[{LOWER_CASE}]")


def resolve_tags(text: str, dropped: Dropped) -> str:
    """Drop comments and whole elements, strip the other tags; text in ``<nowiki>`` comes back with
    entities for characters of markup.
    """
    if "<" not in text:
        return text
    out = []
    closing_tags = {}
    position = 0
    begins_line = False  # whether what follows is the beginning of a line in `out`
    while match := _TAG.search(text, position):
        start = match.start()
        if start > position:
            out.append(text[position:start])
            begins_line = text[start - 1] == "\n"
        name = match[2]
        if name is None:
            comment_end = text.find("-->", start)
            position = comment_end + len("-->") if comment_end >= 0 else len(text)
            # A comment alone on its line takes the line with it, as in MediaWiki.
            if text[start - 1] == "\n" and text[position : position + 1] == "\n":
                position += 1
            dropped["comments"].append(text[start:position])
            continue
        name = name.lower()
        if name not in TAG_NAMES:
            position = match.end()
            out.append(match[0])
            begins_line = False
            continue
        replacement, position = _tag(text, match, name, closing_tags)
        if position > match.end() and replacement == _DROPPED_ELEMENTS.get(name):
            reason = "formulas" if replacement is GAP else "elements"
            if name in ("ref", "references"):
                reason = "notes"
            dropped[reason].append(text[start:position])
        # A footnote directly after its word leaves nothing to repair.
        if replacement is not REMOVED or text[start - 1] in " \n(（":
            out.append(replacement)
            if replacement:
                begins_line = replacement.endswith("\n")
        # A line that begins with a blank is preformatted text. In "<br> It" or "<small> It" it does
        # not, but would once we have replaced the tag.
        while begins_line and text[position : position + 1] in (" ", "\t"):
            position += 1
    out.append(text[position:])
    return "".join(out)


_Found = dict[str, re.Match[str] | None]
"""The last search for each closing tag: a text of many tags that are never closed takes linear
time, as none searches the rest again.
"""


def _find_closing(name: str, text: str, start: int, found: _Found) -> re.Match[str] | None:
    """Return the first closing tag of `name` from `start` on."""
    closing = found.get(name)
    if name not in found or (closing and closing.start() < start):
        closing = found[name] = _CLOSING_TAGS[name].search(text, start)
    return closing


def _tag(text: str, match: re.Match[str], name: str, closing_tags: _Found) -> tuple[str, int]:
    """Return the replacement of a tag, or of its whole element, and the index after it."""
    end = match.end()
    if name == "br":
        return "\n", end
    if name == "q":
        return '"', end
    if name in _BREAKING_TAGS:
        is_torn = match[1] and _TORN.match(text, end)
        return PARAGRAPH_BREAK + (GAP if is_torn else ""), end
    attributes = match[3]
    opens = not match[1] and not attributes.endswith("/")
    if not opens and name in ("ref", "maplink"):
        return _DROPPED_ELEMENTS[name], end  # <ref name="a"/>, or a stray </ref>
    is_shown = name == "span" and not _HIDDEN.search(attributes)
    if not opens or is_shown or name not in _CLOSING_TAGS:
        return "", end
    closing = _find_closing(name, text, end, closing_tags)
    if closing is None:
        return "", end
    stop = closing.start()
    # The end of another one, in a paragraph below: this one was never closed.
    holds_another = name == "ref" and text.find("<ref", end, stop) >= 0
    if holds_another and text.find(PARAGRAPH_BREAK, end, min(stop, end + 10_000)) >= 0:
        return "", end
    # What is not an exponent is searched again for tags, so many "<sup>" before one "</sup>" would
    # take quadratic time.
    if name == "sup" and stop - end > 1000:
        return "", end
    content = text[end:stop]
    if name == "sup":
        exponent = raised(content)
        follows_digit = text[match.start() - 1].isdigit()
        if exponent is None and follows_digit and _MATHEMATICAL.match(content):
            exponent = f"^{content}"  # its markup is not resolved yet
        if exponent is None:  # "4<sup>th</sup>"
            return "", end
        return exponent, closing.end()
    return _element(name, attributes, content), closing.end()


def _element(name: str, attributes: str, content: str) -> str:
    """Return what is shown of an element that is not only its text."""
    if name == "span":
        return ""
    if name == "nowiki":
        return _as_entities(resolve_entities(content))
    if name == "math":
        return formula_text(content) or GAP
    if name in ("chem", "ce") and _PLAIN_CHEMISTRY.fullmatch(content):
        return content
    if name in ("syntaxhighlight", "source") and _INLINE.search(attributes):
        return _as_entities(content)
    return _DROPPED_ELEMENTS[name]


def _as_entities(text: str) -> str:
    """Return text with entities for characters of markup, which the other passes leave alone."""
    return _MARKUP_CHARACTER.sub(lambda match: f"&#{ord(match[0])};", text)
