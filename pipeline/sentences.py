"""From paragraphs to sentences: normalised text, split by sentencex in the document's language.

sentencex (MIT, by Wikimedia) cuts too often at a few places that are frequent in real text. A small table, `JOINS`,
says what belongs together there; it only ever joins, so nothing is lost. Measured on one core of an AMD EPYC:
English 50 MB/s, Korean 33 MB/s from paragraphs to sentences (sentencex alone: 95 and 69).
"""

import re
from typing import NamedTuple

import sentencex

# One call costs more than linear time where quotes are opened and never closed, so no call gets more than this.
LONGEST_CALL = 20_000

# Not whitespace, and never wanted: control characters, lone halves of surrogate pairs (Arrow refuses them), soft
# hyphens, zero-width spaces, byte order marks and marks of writing direction. The joiners U+200C and U+200D stay:
# Persian and the Indic scripts are misspelt without them.
_JUNK = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
                   "\ud800-\udfff\ufeff\ufff9-\ufffb]")  # fmt: skip
SENTENCE_ENDS = tuple(".?!…。！？।॥۔؟։።។။")
_CLOSERS = " '\"”’»)]}_*」』）】"
_SENTENCE_END = re.compile(r"[.?!。！？।]['\"”’)\]」』]* ?")

# Wikimedia's codes for projects that sentencex does not know by that name.
_LANGUAGE_OF_CODE = {
    "": "en",
    "auto": "en",
    "simple": "en",
    "als": "de",
    "bat-smg": "lt",
    "be-x-old": "be",
    "fiu-vro": "et",
    "nds-nl": "nl",
    "roa-rup": "ro",
    "zh-classical": "zh",
    "zh-min-nan": "zh",
    "zh-yue": "zh",
}


class Join(NamedTuple):
    """Two pieces are one sentence where the end of the first matches `before` and the start of the next `after`."""

    language: str
    """Language code the rule is for, or ``*`` for all."""
    before: str
    after: str
    example: str
    """Real text; ``|`` marks where sentencex cuts."""


_QUOTE_END = r"[\"'”’」』》)）]"
_JA_NEW_SENTENCE = (
    "ところ|とても|とにかく|とくに|とはいえ|なお|なぜ|なんと|ならば|でも|では、|のち|はじめ|もし|もちろん|もっと|"
    "にもかか|かつて|かれ|やがて|やっと|やはり"
)

_LOWER_CASE = "".join(char for char in map(chr, range(0x590)) if char.islower())

JOINS = (
    Join("*", "", r"\W+$", "Isn't it grand any more.'|\""),
    Join("*", "", r"[,;:)\]}、，；：」』）】]", "the entries 2 −2 8 −92...|, is the double of the first"),
    Join("*", r"^\W*\d+\W*", "", "2.|Only a number is no sentence."),
    Join("*", r"(?:[?!]|\.\.|…)['\"”’)\]]*", f"[{_LOWER_CASE}]", "CERN's site info.cern.ch!|shows it."),
    Join("en", r"\b(?:approx|vols?|Vols?|bd|Bd|chs?|Chs?|cols?|avg|deg|resp|Deut|Gal|Cor|Lev|Phil|Cir)\.", r"\d",
         "Duration approx.|24 mins."),
    Join("ja", _QUOTE_END, f"(?!{_JA_NEW_SENTENCE})[とのなはをにでもがやへか（]|って", "彼は「そうだ。」|と言った。"),
    Join("ko", r"(?:^|[\s(~-])\d{1,4}\.", "", "그는 1990.|10.|3.|에 태어났다."),
    Join("ko", rf"(?:[?!]|{_QUOTE_END})",
         r"(?:(?:이?라(?:고|는|며|면서|던)?|이?란|고|는|며|면서|하고|하며|등|와|과|을|를|의)[\s,.도만]|했|한다|하였|하여)",
         "전권을 맡겨 달라.\"|고 요청하였다."),
)  # fmt: skip

# sentencex leaves a quotation mark that opens a sentence at the end of the one before.
_LOST_QUOTES = frozenset(f" {quote}" for quote in "\"'“‘«„")


def normalise(text: str) -> str:
    """Return `text` on one line: any Unicode whitespace becomes a single space, and characters that print nothing
    (controls, soft hyphens, zero-width spaces, marks of direction, lone surrogates) are removed.

    >>> normalise(" Ber\\u00adlin\\u2028is\\ta\\x00  city ")
    'Berlin is a city'
    """
    if text.isprintable():
        return " ".join(text.split()) if "  " in text else text.strip()
    return " ".join(_JUNK.sub("", text).split())


def ends_sentence(line: str) -> bool:
    """Whether `line` ends with the punctuation of a sentence, in any script, closing quotes and brackets aside.

    >>> ends_sentence('"Is it?" '), ends_sentence("그렇다."), ends_sentence("Contents")
    (True, True, False)
    """
    return line.rstrip(_CLOSERS).endswith(SENTENCE_ENDS)


def split_sentences(paragraphs: list[str], language: str) -> list[str]:
    """Return the sentences of `paragraphs` in order, normalised; a sentence never spans two paragraphs.

    `language` is a language code or the code of a Wikimedia project (``ko``, ``en-GB``, ``simple``); an unknown one
    is split by English rules without English abbreviations. No sentence is empty, long ones are kept, and all
    characters but whitespace and what `normalise` removes are there, in order.

    >>> split_sentences(["It weighs approx. 3 kg. Mr. Low said so.", "Yes!"], "en")
    ['It weighs approx. 3 kg.', 'Mr. Low said so.', 'Yes!']
    """
    code = language_code(language)
    pattern = _PATTERNS.get(code, _PATTERNS["*"])
    sentences: list[str] = []
    for paragraph in paragraphs:
        for text in _calls(normalise(paragraph)):
            pieces: list[str] = sentencex.segment(code, text)  # pyright: ignore[reportAttributeAccessIssue]
            if len(pieces) > 1:
                pieces = _join(pieces, pattern)
            sentences.extend([piece.strip() for piece in pieces])
    return [sentence for sentence in sentences if sentence]


def language_code(language: str) -> str:
    """Return the code under which sentencex knows `language`: lower case, without region or script.

    >>> [language_code(code) for code in ("en_GB", "simple", "zh-yue", "ko")]
    ['en', 'en', 'zh', 'ko']
    """
    code = language.lower().replace("_", "-")
    return _LANGUAGE_OF_CODE.get(code) or code.split("-")[0] or "en"


def _calls(text: str) -> list[str]:
    """Cut a very long paragraph at ends of sentences (at a space, where none comes) into what one call may get."""
    parts = []
    start = 0
    while len(text) - start > LONGEST_CALL:
        end = _SENTENCE_END.search(text, start + LONGEST_CALL // 2, start + LONGEST_CALL)
        space = text.rfind(" ", start, start + LONGEST_CALL)
        stop = end.end() if end else space + 1 if space >= start else start + LONGEST_CALL
        parts.append(text[start:stop])
        start = stop
    parts.append(text[start:])
    return parts


def _join(pieces: list[str], pattern: re.Pattern[str]) -> list[str]:
    """Put together the neighbours that `pattern` says are one sentence, and give an opening quote to what it opens."""
    joined = [pieces[0]]
    for piece in pieces[1:]:
        before = joined[-1]
        # Nearly all boundaries end here, without the regular expression: a capital letter starts a sentence.
        if piece[0].isupper() and before[-1] == " " and len(before) > 8 and not before[-3].isdigit():
            joined.append(piece)
        elif before[-2:] in _LOST_QUOTES:
            joined[-1] = before[:-1]
            joined.append(before[-1] + piece)
        elif pattern.search(f"{before[-20:].rstrip()}\n{piece[:20]}"):
            joined[-1] = before + piece
        else:
            joined.append(piece)
    return joined


def _pattern(language: str) -> re.Pattern[str]:
    rules = [rule for rule in JOINS if rule.language in ("*", language)]
    return re.compile("|".join(f"(?:{rule.before})\n(?:{rule.after})" for rule in rules))


_PATTERNS = {language: _pattern(language) for language in {rule.language for rule in JOINS}}
