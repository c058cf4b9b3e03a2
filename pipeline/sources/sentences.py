"""From paragraphs to sentences: normalised text, split by sentencex (by Wikimedia) in the document's language.

sentencex splits a few constructions that are frequent in real text too eagerly. Two small tables, `JOINS` and
`ABBREVIATIONS`, rejoin them; and Chinese and Japanese are split before a number. No text is lost. One core splits 50 MB
of English a second (sentencex alone: 95).
"""

import re
from typing import NamedTuple

import sentencex

from ..schemas import SENTENCE_ENDS

# A call takes more than linear time if quotes are opened and never closed, so no call gets more than this.
LONGEST_CALL = 20_000

# Not whitespace, and never wanted: control characters, lone halves of surrogate pairs (Arrow refuses them), soft
# hyphens, zero-width spaces, byte order marks and marks of writing direction. The joiners U+200C and U+200D stay:
# Persian and the Indic scripts are misspelt without them.
_JUNK = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
                   "\ud800-\udfff\ufeff\ufff9-\ufffb]")  # fmt: skip
_CLOSERS = " '\"”’»)]}_*」』）】"
# An ellipsis is as often within a sentence as at its end.
_SENTENCE_END = re.compile(rf"[{''.join(SENTENCE_ENDS).replace('…', '')}]['\"”’)\]」』]* ?")

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
    """Two pieces are one sentence if the end of the first matches `before` and the start of the next `after`."""

    languages: str
    """Codes of the languages of the rule, or ``*`` for all."""
    before: str
    after: str
    example: str
    """Real text; ``|`` marks where sentencex splits."""


_QUOTE_END = r"[\"'”’」』》)）]"
_JA_NEW_SENTENCE = (
    "ところ|とても|とにかく|とくに|とはいえ|なお|なぜ|なんと|ならば|でも|では、|のち|はじめ|もし|もちろん|もっと|"
    "にもかか|かつて|かれ|やがて|やっと|やはり"
)

_LAST_CASED = "\u058f"
_LOWER_CASE = "".join(char for char in map(chr, range(0x590)) if char.islower())
_UPPER_CASE = "".join(char for char in map(chr, range(0x590)) if char.isupper())
_SMALL_LETTER = f"[{_LOWER_CASE}]"
_DE_NEW_SENTENCE = (
    r"(?:D(?:er|ie|as|em|en|ort|ann|a|anach|abei|amit|iese\w*)|E[rs]|Sie|I[mn]|A[mnb]|Auf|Aus|Mit|Nach|Bei|Beim|"
    r"Seit\w*|Ein\w*|Vo[mnr]|Zu[mr]?|Auch|Für|Als|Ab|Unter|Über|Während|Sein\w*|Ihre?\w*|So|Wegen|Heute|Später|Hier)\b"
)

JOINS = (
    Join("*", "", r"\W+$", "Isn't it grand any more.'|\""),
    Join("*", "", r"[,;:)\]}/、，；：」』）】]", "the entries 2 −2 8 −92...| , is the double of the first"),
    Join("*", r"^\W*\d+\W*", "", "2.| A number alone is not a sentence."),
    Join("*", rf"(?:[?!…]|\.\.|[\d{_UPPER_CASE}{_LOWER_CASE}]\.)['\"”“’)\]»]*", _SMALL_LETTER,
         "Още през 1 век пр.| н.| е.| от римляните."),
    Join("*", rf"(?:^|[\s(.-])[{_UPPER_CASE}{_LOWER_CASE}]\.", rf"(?<! \n)[{_UPPER_CASE}º-]", "Nel 44 a.|C.| e poi."),
    Join("en", r"\b(?:approx|vols?|Vols?|bd|Bd|chs?|Chs?|cols?|avg|deg|resp|Deut|Gal|Cor|Lev|Phil|Cir)\.", r"\d",
         "Duration approx.| 24 mins."),
    Join("de", r"(?:^|[\s(])\d{1,2}\.", f"(?!{_DE_NEW_SENTENCE})[A-ZÄÖÜ]", "Im 19.| Jahrhundert war es so."),
    Join("ja", _QUOTE_END, f"(?!{_JA_NEW_SENTENCE})[とのなはをにでもがやへか（]|って", "彼は「そうだ。」|と言った。"),
    Join("ja zh", r"[「『][^」』\n]*", r"[^「『\n]*[」』]", "『Dr.|スランプ』の連載を開始。"),
    Join("ja zh", r"[A-Za-z](?:\.|!)|\d\.", r"[^「『（\s]", "日本のYahoo!|カテゴリに登録される。"),
    Join("ko", r"(?:^|[\s(~-])\d{1,4}\.", "", "그는 1990.| 10.| 3.| 에 태어났다."),
    Join("ko", rf"(?:[?!]|{_QUOTE_END})",
         r"['\"’”]?(?:(?:이?라(?:고|는|며|면서|던)?|이?란|고|는|며|면서|하고|하며|등|와|과|을|를|의|이다)[\s,.도만]|했|한다|하였|하여)",
         "전권을 맡겨 달라.\"|고 요청하였다."),
)  # fmt: skip

ABBREVIATIONS = {
    language: frozenset(words.split())
    for language, words in {
        "bg": "бл ген гр д-р инж кап кн ок пл полк пр проф род св сл стр ул",
        "cs": "arch bl č dr gen ing kpt mjr např nar odst plk prof př sv tj tzv ul",
        "de": "bl dt engl frz geb gen gest griech hl hrsg ital lat russ span türk",
        "es": "arz av avda cap fig gral hnos núm pág págs sta sto st vol",
        "fr": "av bd boul chap coll dr éd env fig lt mgr mlle mm mme mmes p pp pr prof st ste vol "
              "janv févr juil sept oct nov déc",
        "hu": "dr gr id ifj özv prof st szt",
        "it": "avv brig ca cap card cfr col dr fig gen geom ing n nn on pag pagg prof sen sig st ten vol",
        "nl": "bijv blz ca dhr dr drs gem gen ing ir jhr kap mevr mgr mr nr o.a prof sint st vnl zgn",
        "pl": "abp bp gen hr im inż kard kpt ks lit łac m.in mjr np ok płk pow ppłk prof pseud rtm str św śp tab tzw "
              "ul ur woj",
        "pt": "alm av cap cel dr dra eng fig gen núm p pág págs pe prof profa séc sr sra st sta sto vol",
        "ru": "ак акад архиеп архим вел вып ген губ дер еп изд им инж кн митр наб о о-в оз ок оп пер пл полк пос прот "
              "проф ред род рис св свящ см сост стр табл ул",
        "uk": "акад вип вул ген ім ін кн оз ок пл пос прот проф рис св см стор табл",
    }.items()
}  # fmt: skip
"""Words of Wikipedia text, in lower case, whose full stop does not end a sentence although sentencex splits there."""

# sentencex does not split after 。 if a digit follows: "…がある。2003年には…" stays one piece.
_UNCUT = re.compile("(?<=[。！？])(?=[0-9０-９])|[「『（(“」』）)”]")
_UNCUT_LANGUAGES = ("ja", "zh")
_OPENERS = "「『（(“"

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
    """Return whether `line` ends with the punctuation of a sentence, in any script, closing quotes and brackets aside.

    >>> ends_sentence('"Is it?" '), ends_sentence("그렇다."), ends_sentence("Contents")
    (True, True, False)
    """
    return line.rstrip(_CLOSERS).endswith(SENTENCE_ENDS)


def split_sentences(paragraphs: list[str], language: str) -> list[str]:
    """Return the sentences of `paragraphs` in order, normalised; a sentence never spans two paragraphs.

    `language` is a language code or the code of a Wikimedia project (``ko``, ``en-GB``, ``simple``); text in an unknown
    one is split by English rules without English abbreviations. No sentence is empty, long ones are kept, and all
    characters except whitespace and what `normalise` removes are there, in order.

    >>> split_sentences(["It weighs approx. 3 kg. Mr. Low said so.", "Yes!"], "en")
    ['It weighs approx. 3 kg.', 'Mr. Low said so.', 'Yes!']
    """
    code = language_code(language)
    patterns, abbreviations = _PATTERNS.get(code, _PATTERNS["*"]), ABBREVIATIONS.get(code, frozenset())
    sentences: list[str] = []
    for paragraph in paragraphs:
        whole = normalise(paragraph)
        for text in _calls(whole) if len(whole) > LONGEST_CALL else (whole,):
            pieces: list[str] = sentencex.segment(code, text)  # pyright: ignore[reportAttributeAccessIssue]
            if len(pieces) > 1:
                pieces = _join(pieces, patterns[text.islower()], abbreviations)
            if code in _UNCUT_LANGUAGES:
                pieces = [part for piece in pieces for part in _cut(piece)]
            sentences.extend([piece.strip() for piece in pieces])
    return [sentence for sentence in sentences if sentence]


def language_code(language: str) -> str:
    """Return sentencex's code of `language`: lower case, without region or script.

    >>> [language_code(code) for code in ("en_GB", "simple", "zh-yue", "ko")]
    ['en', 'en', 'zh', 'ko']
    """
    code = language.lower().replace("_", "-")
    return _LANGUAGE_OF_CODE.get(code) or code.split("-")[0] or "en"


def _calls(text: str) -> list[str]:
    """Cut a very long paragraph at ends of sentences (or else at a space) into what one call may get."""
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


def _cut(piece: str) -> list[str]:
    """Cut between 。 and a number, outside quotes and brackets."""
    parts = []
    start = depth = 0
    for mark in _UNCUT.finditer(piece):
        if mark[0]:
            depth = depth + 1 if mark[0] in _OPENERS else max(depth - 1, 0)
        elif depth == 0:
            parts.append(piece[start : mark.start()])
            start = mark.start()
    parts.append(piece[start:])
    return parts


def _join(pieces: list[str], pattern: re.Pattern[str], abbreviations: frozenset[str]) -> list[str]:
    """Join neighbours that `pattern` or an abbreviation makes one sentence; move an opening quote to what it opens."""
    joined = [pieces[0]]
    for piece in pieces[1:]:
        before = joined[-1]
        if abbreviations and _ends_abbreviated(before, abbreviations):
            joined[-1] = before + piece
        elif _is_plain(before, piece[0]):
            joined.append(piece)
        elif before[-2:] in _LOST_QUOTES:
            joined[-1] = before[:-1]
            joined.append(before[-1] + piece)
        elif pattern.search(f"{before[-20:]}\n{piece[:20]}"):
            joined[-1] = before + piece
        else:
            joined.append(piece)
    return joined


def _ends_abbreviated(before: str, abbreviations: frozenset[str]) -> bool:
    """Return whether a text ends with an initial or a known abbreviation."""
    if before[-2:] != ". ":
        return False
    word = before[max(before.rfind(" ", 0, -2), before.rfind("(", 0, -2)) + 1 : -2]
    return word.lower() in abbreviations or (word[-1:].isupper() and (len(word) == 1 or word[-2] in ".-"))


def _is_plain(before: str, first: str) -> bool:
    """Return whether no rule can apply between two pieces, as is nearly always so: "... word. Next ..."."""
    if before[-1] != " " or len(before) < 9 or before[-3].isdigit():
        return False
    return first.isupper() or (first > _LAST_CASED and first.isalpha() and before[-3].isalpha())


def _pattern(language: str, uncased: bool) -> re.Pattern[str]:
    """Compile the rules of a language; in text without capitals those about small letters do not apply."""
    found = [rule for rule in JOINS if rule.languages == "*" or language in rule.languages.split()]
    rules = [rule for rule in found if not (uncased and rule.after == _SMALL_LETTER)]
    return re.compile("|".join(f"(?:{rule.before}) ?\n(?:{rule.after})" for rule in rules))


_PATTERNS = {
    language: (_pattern(language, uncased=False), _pattern(language, uncased=True))
    for rule in JOINS
    for language in rule.languages.split()
}
