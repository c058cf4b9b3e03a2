"""Read quotation marks: show them as sentencex knows them, and find long quotations."""

import re

from .sentence_rules import UPPER_CASE, WORDS, compiled

# Marks that sentencex takes for an opening quotation mark, after which it finds no end.
_TYPED_GERESH = "(?<=[א-ת])['\"](?=[א-ת])"
ORPHAN = "¤"
"""Shown for a mark without a partner."""
_NO_BRACKETS = str.maketrans("()", ORPHAN * 2)
# How a quotation is shown, by the mark that opens it.
_PAIRS = {
    "„": "„“",
    "“": "“”",
    "«": "«»",
    "»": "„“",
    '"': '""',
    "”": "“”",
    ",,": "„“",
}
_SINGLE_PAIR = r"[›‹](?=\S)([^›‹]*)[›‹](?!\w)"
# The Swedish ’so’; with a blank before it ’ is no apostrophe.
_NORDIC_PAIR = r"(?<![^\s(—–-])’(?=[^\W\d_])([^’\n]*)’(?!\w)"
_MARK = r"``|''|,,(?=\w)|[\"“”„«»]"
_TYPED_PAIRS = re.compile(
    r"[^\"]*+(?:(?<![^\s(\[{—–/¿¡-])\"(?=[^\s\"])[^\"]*+\"(?![^\W가-힣])[^\"]*+)*+"
)
_PRINTED_MARK = "[“”„«»]"
# A single mark that opens a quotation or an elision ("'em"), introduced as a speech is or not, or
# that may close a quotation.
_SINGLE = (
    r"'(?:(?P<opening>(?<!\w')(?=\w))(?P<introduced>(?<![^,:;.!?…(—–-] ')(?<=[ (—–-]')|(?<=^'))?"
    r"|(?<=[\w.,!?…—–-]')(?!\w))"
)
# Between what sentencex takes for single quotes: "'l bogħod. Il- … ta' ".
_END_WITHIN = f"[.!?] [{UPPER_CASE}]"
_RIGHT_TO_LEFT_QUOTES = r"(?<![^\s(])(?P<opening>[“”])(?=\S)|[“”]"

# It begins with a character, which makes the search fast.
_OPENS = re.compile(r"[\"'‘“„«](?:(?<=[«„])|(?<![^\s(—–-].))")
_APOSTROPHE_OPENS = r"(?:^|[\s(—–-])'(?=\w)"
_APOSTROPHE_CLOSES = r"[\w.,!?]'(?!\w)"
# A quotation of several sentences: speech, as it begins a line or follows a comma or a sentence.
# In Armenian a full stop is a colon. Two hyphens, or one between blanks, are a dash as typed.
_INTRODUCED = (
    r"(?:(?<=\n.)|(?<=^.)|(?<=[,:;.!?…—–․՝] .)|(?<=[—–].)|(?<=--.)|(?<= - .)|(?<=[ա-և]\. .))"
)
_QUOTATION = (
    r"[\"“„«‘'](?:"
    rf"(?<=\"){_INTRODUCED}([^\"\n]{{60,}}+)\""
    rf"|(?<=[“„«]){_INTRODUCED}([^\"“”„«»\n]{{60,}}+)[\"”“»]"
    # Single quotes are apostrophes, too, so that a quotation in them has to end with punctuation.
    rf"|(?<=[‘']){_INTRODUCED}(?P<single>[^\"“”\n]{{1,3000}}?[.,!?—])[’'](?!\w)"
    # A title has no full stop of these scripts, whatever precedes it.
    r"|(?<= [\"“«])([^\"“”„«»\n]{20,}(?:[।॥৷۔։።။]|[가-힣]\.) [^\"“”„«»\n]{20,}+)[\"”»])"
)


def with_known_quotes(texts: list[str], code: str) -> list[str]:
    """Return paragraphs with quotation marks as sentencex knows them; their lengths stay.

    It pairs marks as they come. One that is typed without its partner must not pair with the next,
    which opens or closes another quotation: no sentence would end between them.
    """
    if "›" in "\n".join(texts):
        texts = [compiled(_SINGLE_PAIR).sub(r"‘\1’", text) for text in texts]
    if code in WORDS.nordic_quotes.split():
        texts = [compiled(_NORDIC_PAIR).sub(r"‘\1’", text) for text in texts]
    if code in WORDS.gershayim.split():
        texts = [compiled(_TYPED_GERESH).sub("״", text) for text in texts]
    if code not in WORDS.mirrored_quotes.split():
        return [text if _is_well_paired(text) else _paired(text) for text in texts]
    shown = []
    for text in texts:
        if 0 <= text.find(")") < text.find("("):  # typed in the order in which they are seen
            text = text.translate(_NO_BRACKETS)
        shown.append(
            compiled(_RIGHT_TO_LEFT_QUOTES).sub(
                lambda quote: "“" if quote["opening"] else "”", text
            )
        )
    return shown


def _is_well_paired(text: str) -> bool:
    """Return whether sentencex pairs all marks of a text as its writer did; nearly always so."""
    # The cheapest first. Marks between blanks do not tell which of them open.
    if '"' in text and ' " ' not in text and not _TYPED_PAIRS.fullmatch(text):
        return False
    if "''" in text or "``" in text or ",," in text:
        return False
    if (" '" in text or text[0] == "'") and _apostrophes(text):
        return False
    if text.isascii() or not (
        "“" in text or "„" in text or "«" in text or "”" in text or "»" in text
    ):
        return True
    marks = "".join(compiled(_PRINTED_MARK).findall(text))
    return not marks.replace("“”", "").replace("„“", "").replace("«»", "")


def _paired(text: str) -> str:
    """Return a text whose marks pair up; one without a partner is shown as `ORPHAN`."""
    shown = list(text)
    opened: re.Match[str] | None = None
    for mark in compiled(_MARK).finditer(text):
        if _opens(mark, opened):
            if opened:
                _hide(opened, shown)
            opened = mark
            continue
        if not opened:
            shown[mark.start() : mark.end()] = ["”", ORPHAN][: len(mark[0])]
            continue
        # „so", “so", »so«: as a pair that sentencex knows.
        if opened[0] == ",,":
            _hide(opened, shown)
        if len(mark[0]) == 1 and opened[0] in _PAIRS:
            shown[opened.end() - 1], shown[mark.start()] = _PAIRS[opened[0]]
        opened = None
    for mark in _apostrophes(text):
        _hide(mark, shown)
    if opened:
        _hide(opened, shown)
    return "".join(shown)


def _apostrophes(text: str) -> list[re.Match[str]]:
    """Return the marks that look like an opening single quote, but close at none: another one
    opens before, or sentences end before what is the apostrophe of a plural or breaks off.
    """
    found = []
    opened: re.Match[str] | None = None
    for mark in compiled(_SINGLE).finditer(text):
        if mark["opening"] is not None:
            # "'Let's get near 'em. Run!'"
            if opened and opened["introduced"] is not None and mark["introduced"] is None:
                found.append(mark)
                continue
            if opened:
                found.append(opened)
            opened = mark
        elif opened:
            ends_speech = text[mark.start() - 1] in ".,!?…"
            if not ends_speech and compiled(_END_WITHIN).search(text, opened.end(), mark.start()):
                found.append(opened)
            opened = None
    return found


def _hide(mark: re.Match[str], shown: list[str]) -> None:
    shown[mark.start() : mark.end()] = ORPHAN * len(mark[0])


def _opens(mark: re.Match[str], opened: re.Match[str] | None) -> bool:
    """Return whether a mark opens a quotation; `opened` is the one that is not closed yet."""
    if mark[0] in ("„", "``", ",,"):
        return True
    if mark[0] == "''":
        return False
    if mark[0] == "“":
        return opened is None or opened[0] not in ("„", ",,")
    text = mark.string
    before = text[max(0, mark.start() - 2) : mark.start()]
    after = text[mark.end() : mark.end() + 1]
    may_open = not before or before[-1] in " ([{—–-/¿¡"
    if mark[0] == "”":
        return opened is None and may_open and (after.isalnum() or after in ("¿", "¡"))
    # A Korean particle follows it at once.
    may_close = not after.isalnum() or "가" <= after <= "힣"
    if may_open == may_close:  # as between blanks
        return mark[0] == "«" or (mark[0] == '"' and opened is None)
    # "I saw it, "he said: a closing one that is misplaced.
    is_misplaced = opened is not None and before[:1] in (*",.?!…",) and after.islower()
    return may_open and not is_misplaced


def is_open(line: str) -> bool:
    """Return whether a quotation or bracket that `line` opens is not closed in it."""
    line = line[-2000:]  # what is open longer was not closed; so that the time is linear
    # '… advise me." Accordingly' ends a quotation that an earlier line opened.
    if line.count('"') % 2 and line[-1] != '"':
        return True
    if "(" in line and line.count("(") > line.count(")"):
        return True
    if not line.isascii():
        num_opened = line.count("“") + line.count("«") + line.count("„")
        num_closed = line.count("”") + line.count("»")
        if num_opened > num_closed:
            return True
    if "'" not in line:
        return False
    return len(compiled(_APOSTROPHE_OPENS).findall(line)) > len(
        compiled(_APOSTROPHE_CLOSES).findall(line)
    )


class Quotations:
    """Find the long quotations of a text, in order; each mark once, so that the time is linear."""

    def __init__(self, lines: str) -> None:
        self._lines = lines
        self._may_quote = any(mark in lines for mark in "\"'“‘«„")
        self._openers: list[int] = []
        self._num_read = 0
        self._spans: dict[int, tuple[int, int] | None] = {}

    def around(self, start: int, position: int) -> tuple[int, int] | None:
        """Return where the long quotation around a position begins and ends, without its marks.

        It begins at `start`, where the line does, or later; the next position is further on.

        She said: "It is late. We must go." And went.
                   ^                       ^
        """
        if not self._may_quote:
            return None
        marks = _OPENS.finditer(self._lines, max(start, self._num_read), position)
        self._openers += [mark.start() for mark in marks]
        self._num_read = position
        # The nearest four; further back are mostly quotations that are closed, and apostrophes.
        for opener in self._openers[:-5:-1]:
            if opener < max(start, position - 3000):
                break
            if opener not in self._spans:
                self._spans[opener] = self._span(opener)
            span = self._spans[opener]
            if span and span[1] > position:
                return span
        return None

    def _span(self, opener: int) -> tuple[int, int] | None:
        quotation = compiled(_QUOTATION).match(self._lines, opener)
        # What is shorter may be a title.
        if quotation is None or 0 < len(quotation["single"] or "") < 60:
            return None
        return quotation.span(quotation.lastindex or 0)
