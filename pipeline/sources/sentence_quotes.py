"""Read quotation marks: show them as sentencex knows them, and find long quotations."""

import re

from .sentence_rules import GERSHAYIM, MIRRORED_QUOTES

# Marks that sentencex takes for an opening quotation mark, behind which it finds no end.
_TYPED_GERESH = re.compile("(?<=[א-ת])['\"](?=[א-ת])")
_RIGHT_TO_LEFT_QUOTES = re.compile(r"(?<![^\s(])(?P<opening>[“”])(?=\S)|[“”]")

# What is shorter may be a title.
_LONGEST_TITLE = 60
_OPENS = re.compile(r"(?<![^\s(—–-])[\"'‘“„«]|[«„]")
_MOST_OPENERS = 4
_LONGEST_QUOTATION = 3000
_APOSTROPHE_OPENS = re.compile(r"(?:^|[\s(—–-])'(?=\w)")
_APOSTROPHE_CLOSES = re.compile(r"[\w.,!?]'(?!\w)")
# A quotation of several sentences: speech, as it begins a line or follows a comma.
# In Armenian a full stop is a colon. Two hyphens, or one between blanks, are a dash as typed.
_INTRODUCED = r"(?:(?<=\n.)|(?<=^.)|(?<=[,:;—–․՝] .)|(?<=[—–].)|(?<=--.)|(?<= - .)|(?<=[ա-և]\. .))"
_QUOTATION = re.compile(
    r"[\"“„«‘'](?:"
    rf"(?<=[\"“„«]){_INTRODUCED}([^\"“”„«»\n]{{60,}}+)[\"”“»]"
    # Single quotes are apostrophes, too, so that a quotation in them has to end with punctuation.
    rf"|(?<=[‘']){_INTRODUCED}(?P<single>[^\"“”\n]{{1,3000}}?[.,!?—])[’'](?!\w)"
    # A title has no full stop of these scripts, whatever precedes it.
    r"|(?<= [\"“«])([^\"“”„«»\n]{20,}[।॥৷۔։።။] [^\"“”„«»\n]{20,}+)[\"”»])"
)


def with_known_quotes(texts: list[str], code: str) -> list[str]:
    """Return paragraphs with quotation marks as sentencex knows them; their lengths stay."""
    if code in GERSHAYIM:
        return [_TYPED_GERESH.sub("״", text) for text in texts]
    if code in MIRRORED_QUOTES:
        return [_RIGHT_TO_LEFT_QUOTES.sub(_as_in_english, text) for text in texts]
    return texts


def _as_in_english(quote: re.Match[str]) -> str:
    return "“" if quote["opening"] else "”"


def may_quote(text: str) -> bool:
    """Return whether a text may have a quotation."""
    # Single characters are found faster.
    return any(quote in text for quote in "\"“«‘„'")


def is_open(line: str) -> bool:
    """Return whether a quotation or bracket that `line` opens is not closed in it."""
    # '… advise me." Accordingly' ends a quotation that an earlier line opened.
    if line.count('"') % 2 and line[-1] != '"':
        return True
    if "(" in line and line.count("(") > line.count(")"):
        return True
    if not line.isascii():
        num_opened = line.count("“") + line.count("«") + line.count("„")
        num_closed = line.count("”") + line.count("»")
        if "„" in line:  # „so“ or „so”
            num_opened -= line.count("“")
            num_closed += line.count("“")
        if num_opened > num_closed:
            return True
    if "'" not in line:
        return False
    return len(_APOSTROPHE_OPENS.findall(line)) > len(_APOSTROPHE_CLOSES.findall(line))


def quotation_around(lines: str, start: int, position: int) -> tuple[int, int] | None:
    """Return where the long quotation around a position begins and ends, without its marks.

    It begins at `start`, where the line does, or later.

    She said: "It is late. We must go." And went.
               ^                       ^
    """
    # The nearest first; further back are mostly quotations that are closed, and apostrophes.
    start = max(start, position - _LONGEST_QUOTATION)
    openers = [mark.start() for mark in _OPENS.finditer(lines, start, position)]
    for opener in openers[: -_MOST_OPENERS - 1 : -1]:
        quotation = _QUOTATION.match(lines, opener)
        if quotation is None or 0 < len(quotation["single"] or "") < _LONGEST_TITLE:
            continue
        group = quotation.lastindex or 0
        if quotation.end(group) > position:
            return quotation.span(group)
    return None
