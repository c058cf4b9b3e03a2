"""Read Markdown by way of wikitext: what is no prose in the one is none in the other."""

import html
import re
from collections.abc import Iterator
from itertools import chain, groupby, pairwise
from operator import itemgetter

from ..counters import Counters, count_words

_QUOTE = re.compile(r"(?:\s{0,3}>\s?){1,9}")
_FENCE = re.compile(r"```|~~~")
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_RULER = re.compile(r"(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,}|=+)$")
# Within a paragraph only the number 1 begins a list: not "in the year\n1840. It was".
_ITEM = re.compile(r"\s*(?:[-+*•]|\d{1,9}[.)])\s")
_FIRST_ITEM = re.compile(r"\s*(?:[-+*•]|1[.)])\s")
# Nothing within code and formulas is markup.
_VERBATIM = re.compile(
    r"(`+)(?!`)(?P<code>[^\n]{1,500}?)(?<!`)\1(?!`)"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|\$\$(?P<display>[^$\n]{1,1000})\$\$|\$(?=\S)(?P<formula>[^$\n]{1,500})(?<=[^\s\\])\$(?!\d)"
)
_LINK = re.compile(
    r"(!?)\[((?:[^\[\]\n]|\[[^\[\]\n]{0,200}\]){0,1000}+)\]"
    r"(?:\((?:[^()\n]|\([^()\n]{0,500}\)){0,2000}+\)|\[[^\[\]\n]{0,200}\])|\[\^[^\[\]\s]{1,100}\]"
)
_EMPHASIS = re.compile(
    r"(?<!\*)(\*{1,3})(?![\s*])([^*\n]{1,2000}?)(?<!\s)\1(?!\*)"
    r"|(?<![\w_])(_{1,3})(?![\s_])([^_\n]{1,2000}?)(?<!\s)\3(?![\w_])"
)
_STRUCK_OUT = re.compile(r"~~(?!\s)([^~\n]{1,2000})~~")


def open_fence(text: str) -> str:
    """Return the mark of the code that goes on behind a text; "" if there is none."""
    fence = ""
    for mark in re.findall(r"^[\s>]*(```|~~~)", text, re.MULTILINE):
        if fence in ("", mark):
            fence = "" if fence else mark
    return fence


def looks_like_markdown(text: str) -> bool:
    """Return whether a text has several of the usual marks of Markdown."""
    marks = ("\n# ", "**", "](", "\n- ", "\n* ", "\n```", "\n|")
    return "\n## " in text or sum(mark in text for mark in marks) >= 2


def markdown_paragraphs(text: str, language: str, counters: Counters) -> list[str]:
    """Return the prose of a text in Markdown, one paragraph an item, as
    `passages.wikitext_to_paragraphs` does; what its counters lack is counted as ``markup``.
    """
    from .wikitext.passages import wikitext_to_paragraphs  # late: other texts do without

    num_before = counters.num_words_left_out
    paragraphs = wikitext_to_paragraphs(markdown_to_wikitext(text), language, counters=counters)
    num_words = count_words(text) - count_words("\n".join(paragraphs))
    counters.count_left_out("markup", num_words - (counters.num_words_left_out - num_before))
    return paragraphs


def markdown_to_wikitext(text: str) -> str:
    r"""Return the wikitext that shows what a text in Markdown does.

    >>> markdown_to_wikitext("# Ulm\n\nThe *old*\ntown, see [it](a.md):\n\n- one\n- two")
    '=Ulm=\n\nThe old town, see it:\n\n*one\n*two'
    """
    blocks = []
    for is_prose, group in groupby(_lines(text), itemgetter(0)):
        lines = [line for _, line in group]
        blocks += [_inline(" ".join(lines))] if is_prose else lines
    return "\n".join(blocks)


def _lines(text: str) -> Iterator[tuple[bool, str]]:
    """Yield whether each line is one of a paragraph, and the line; all others as wikitext."""
    fence = ""
    kind = ""  # of the lines before: prose, item, gap (behind an item), table
    for line, following in pairwise(chain(text.split("\n"), [""])):
        line = _QUOTE.sub("", line, 1) if line.lstrip().startswith(">") else line
        stripped = line.strip()
        opening = _FENCE.match(stripped)
        if fence or opening:
            yield False, f"*{html.escape(line)}"
            if opening and fence in ("", opening[0]):
                fence = "" if fence else opening[0]
            kind = ""
        elif not stripped:
            yield False, ""
            kind = "gap" if kind in ("item", "gap") else ""
        elif _HEADING.match(stripped):
            yield False, f"={stripped.strip('# ')}="
            kind = ""
        elif _RULER.match(stripped):
            yield False, ""
            kind = ""
        elif stripped.startswith("|") or kind == "table" or _is_table_head(line, following):
            yield False, f"|{stripped.strip('|')}"
            kind = "table"
        elif (
            (_FIRST_ITEM if kind == "prose" else _ITEM).match(line)
            or kind == "item"
            or (kind == "gap" and line[:2].isspace())
        ):
            yield False, f"*{_ITEM.sub('', line).strip()}"
            kind = "item"
        else:
            yield True, stripped
            kind = "prose"


def _is_table_head(line: str, following: str) -> bool:
    """Return whether a line with bars stands above one of bars and dashes only."""
    return "|" in line and "|" in following and "-" in following and not following.strip("|:- ")


def _inline(text: str) -> str:
    """Return a paragraph with what its links show, without pictures, notes and marks."""
    for mark in ("{{", "}}", "''"):  # of wikitext
        text = text.replace(mark, 2 * f"&#{ord(mark[0])};")
    text = _VERBATIM.sub(_verbatim, text)
    for _ in range(2):  # a picture may be in a link, and italics in bold
        text = _EMPHASIS.sub(r"\2\4", _LINK.sub(_link, text))
    text = _STRUCK_OUT.sub(r"<s>\1</s>", text)
    if text.startswith(tuple("*#:;|!=")):  # would begin a list in wikitext
        text = f"&#{ord(text[0])};{text[1:]}"
    return text


def _link(match: re.Match[str]) -> str:
    is_shown = match[2] is not None and not match[1]
    return match[2] if is_shown else f"<ref>{match[2] or ''}</ref>"


def _verbatim(match: re.Match[str]) -> str:
    shown = match["code"] or match["escaped"]
    if shown is None:
        from .wikitext.formulas import formula_text

        shown = formula_text(match["display"] or match["formula"])
    if shown is None:
        return r"<math>\?</math>"  # has no plain form, either
    return re.sub(r"[^\w\s]|_", lambda mark: f"&#{ord(mark[0])};", shown)
