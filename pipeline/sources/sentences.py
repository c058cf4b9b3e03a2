"""Split paragraphs into sentences by sentencex (by Wikimedia), in the document's language.

sentencex splits constructions that are frequent in real text too eagerly, and does not know all
ends of sentences. The tables of `sentence_rules` join and cut what it returns, and long quotations
are cut between their sentences. No text is lost. One core splits 40 to 50 MB of English a second
(sentencex alone: 95).
"""

import re
import unicodedata
from functools import cache
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

import sentencex

from ..schemas import SENTENCE_ENDS
from .sentence_cuts import (
    STOP_AND_CAPITAL,
    Document,
    cut_after_words,
    may_cut_after_words,
    number_what_follows,
)
from .sentence_rules import (
    ABBREVIATIONS,
    BEFORE_CAPITALS,
    CUTS,
    FINAL_WORDS,
    GERSHAYIM,
    JOINS,
    LAST_CASED,
    LOWER_CASE,
    MIRRORED_QUOTES,
    NO_ENDS,
    OWN_INITIALS,
    SMALL_LETTER,
    SPEECH_TAGS,
    UPPER_CASE,
    YEARS_END,
)

# A call of sentencex takes more than linear time if quotes are opened and never closed, so no call
# gets more characters.
LONGEST_CALL = 20_000

# Not whitespace, and never wanted: control characters, lone halves of surrogate pairs (Arrow
# refuses them), soft hyphens, zero-width spaces, byte order marks and marks of writing direction.
# The joiners U+200C and U+200D stay: Persian and the Indic scripts are misspelt without them.
_JUNK = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)

# Composing a run of combining marks takes quadratic time. No language needs more than 30 in a row
# (UAX #15, stream-safe text). Every tenth character shows whether there is a longer run: three of
# them lie in it. To look at all characters takes longer than composing.
_COMBINING = "".join(
    char for char in map(chr, range(0x300, 0x1F000)) if unicodedata.combining(char)
)
_LONG_RUN = re.compile(f"([{_COMBINING}]{{30}})[{_COMBINING}]++")
# Beyond the BMP one range: `re` is slow to tell many apart.
_MAY_COMBINE = (
    f"[{''.join(char for char in _COMBINING if char < chr(0x10000))}\U000101fd-\U0001efff]"
)
_SAMPLED_RUN = re.compile(_MAY_COMBINE * 3)

_CLOSERS = " '\"”’»)]}_*」』）】"
# An ellipsis is as often within a sentence as at its end.
_SENTENCE_END = re.compile(rf"[{''.join(SENTENCE_ENDS).replace('…', '')}]['\"”’)\]」』]* ?")

# Codes that sentencex does not know: Wikimedia's names of projects, and the languages that their
# dumps name instead.
_LANGUAGE_OF_CODE = {
    "": "en",
    "auto": "en",
    "simple": "en",
    "als": "de",
    "bat-smg": "lt",
    "be-x-old": "be",
    "fiu-vro": "et",
    "gan": "zh",
    "gsw": "de",
    "hak": "zh",
    "lzh": "zh",
    "nan": "zh",
    "nds-nl": "nl",
    "roa-rup": "ro",
    "rup": "ro",
    "sgs": "lt",
    "vro": "et",
    "wuu": "zh",
    "yue": "zh",
    "zh-classical": "zh",
    "zh-min-nan": "zh",
    "zh-yue": "zh",
}

_OPENERS = "「『（(“«"

# No rule joins "… a word. Next" or "… (an aside). Next": `_may_join` passes over ends of pieces
# with one of these characters before the last mark ("d" and ")" here).
_EASTERN_LETTERS = "ぁ-ゖァ-ヺ一-鿿가-힣"
_PLAIN_LETTERS = f"{UPPER_CASE}{LOWER_CASE}{_EASTERN_LETTERS}"
_PLAIN_MARKS = r".,;:)\]%/'\"’”»"

_CLOSING_QUOTES = frozenset("\"'”’")
_EXCLAIMING = frozenset("?!")

# sentencex leaves a quotation mark that opens a sentence at the end of the one before.
_LOST_QUOTES = frozenset(f" {quote}" for quote in "\"'“‘«„")

# Marks that sentencex takes for an opening quotation mark, behind which it finds no end.
_TYPED_GERESH = re.compile("(?<=[א-ת])['\"](?=[א-ת])")
_RIGHT_TO_LEFT_QUOTES = re.compile(r"(?<![^\s(])(?P<opening>[“”])(?=\S)|[“”]")

# Scripts without capitals from Hebrew to Georgian; an initial in them is a letter, or a consonant
# with its vowel signs.
_UNCASED = [chr(code) for code in range(0x590, 0x2000) if not 0x1100 <= code < 0x1200]
_LETTER = "".join(
    char for char in _UNCASED if unicodedata.category(char) == "Lo" or "ა" <= char <= "ჰ"
)
_JOINER = "".join(char for char in _UNCASED if unicodedata.combining(char) == 9)
_SIGN = "".join(
    char for char in _UNCASED if unicodedata.category(char) in ("Mn", "Mc") and char not in _JOINER
)
_SYLLABLE = (
    f"[{_LETTER}][{_SIGN}ـ\u200c\u200d׳']*"
    f"(?:[{_JOINER}][\u200c\u200d]?[{_LETTER}][{_SIGN}\u200c\u200d]*)*"
)
# "A", "Дж", "Sz": a capital, or one with a consonant.
_INITIAL = re.compile(
    f"[{UPPER_CASE}][bcdfghjklmnpqrstvwxzčšžбвгджзклмнпрстфхцчшщβγδζθκλμνξπρστφχψ]?|{_SYLLABLE}"
)
_NEXT_INITIAL = re.compile(rf"(?:[{UPPER_CASE}]|{_SYLLABLE})[.۔]")
_BEHIND_INITIAL = re.compile(rf"(?:^|[\s(]){_SYLLABLE}\. ?$")
_OPENING = "[«„“\"'‘"
_PARTS = re.compile("[-.–'’]")
_NUMERAL = re.compile(r"(?:\d|\b[IVXLC]+)\.? $")
_ABBREVIATING = (".", "․", "۔")
_LONGEST_INITIAL = 12
# Abbreviations of years and centuries.
_MAY_END = frozenset(("ст", "st"))

# Both begin with a character, as does all that is searched in each text, because that is fast.
# A number of up to three digits, as `number_what_follows` knows it.
_NUMBER_AT_END = re.compile(r"\n(?:(?<=\d..\n)(?<!\d{4}..\n)|(?<=\s\d.\n))")
_STOP_WITHIN = re.compile(r"\.[\"'”’»)]? (?!\n)")

# A quotation of several sentences: speech, as it begins a piece or follows a comma. What is shorter
# may be a title.
_LONGEST_TITLE = 60
_SENTENCE_WITHIN = re.compile(
    rf"[.!?।॥৷۔։؟።။]['’]? (?:[\"'“‘]?[{UPPER_CASE}{_LETTER}]|(?<=[।॥৷۔։؟።။] )\S)"
)
# In Armenian a full stop is a colon.
# Two hyphens, or one between blanks, are a dash as typed.
_INTRODUCED = r"(?:(?<=^.)|(?<=[,:;—–․՝] .)|(?<=[—–].)|(?<=--.)|(?<= - .)|(?<=[ա-և]\. .))"
_QUOTATION = re.compile(
    r"[\"“„«‘'](?:"
    rf"(?<=[\"“„«]){_INTRODUCED}([^\"“”„«»]{{60,}}+)[\"”“»]"
    # Single quotes are apostrophes, too, so that a quotation in them has to end with punctuation.
    rf"|(?<=[‘']){_INTRODUCED}(?P<single>[^\"“”]{{1,3000}}?[.,!?—])[’'](?!\w)"
    # A title has no full stop of these scripts, whatever precedes it.
    r"|(?<= [\"“«])([^\"“”„«»]{20,}[।॥৷۔։።။] [^\"“”„«»]{20,}+)[\"”»])"
)


def compose(text: str) -> str:
    """Return `text` composed (NFC), in linear time.

    Only the first 30 of a run of combining marks stay.

    >>> compose("e\\u0301")
    'é'
    """
    if len(text) > 30 and not text.isascii() and _SAMPLED_RUN.search(text[::10]):
        text = _LONG_RUN.sub(r"\1", text)
    return unicodedata.normalize("NFC", text)


def normalise(text: str) -> str:
    """Return `text` on one line, composed by `compose`.

    Any Unicode whitespace becomes a single space, and characters that print nothing (controls, soft
    hyphens, zero-width spaces, marks of direction, lone surrogates) are removed.

    >>> normalise(" Ber\\u00adlin\\u2028is\\ta\\x00  city ")
    'Berlin is a city'
    """
    if not text.isprintable():
        text = " ".join(_JUNK.sub("", text).split())
    elif "  " in text:
        text = " ".join(text.split())
    text = text.strip()
    return text if text.isascii() else compose(text)


def ends_sentence(line: str) -> bool:
    """Return whether `line` ends with the punctuation of a sentence, in any script.

    Closing quotes and brackets may follow.

    >>> ends_sentence('"Is it?" '), ends_sentence("그렇다."), ends_sentence("Contents")
    (True, True, False)
    """
    return line.rstrip(_CLOSERS).endswith(SENTENCE_ENDS)


def split_sentences(paragraphs: list[str], language: str) -> list[str]:
    """Return the sentences of `paragraphs` in order, normalised; a sentence never spans two
    paragraphs.

    `language` is a language code or the code of a Wikimedia project (``ko``, ``en-GB``,
    ``simple``); text in an unknown one is split by English rules without English abbreviations. No
    sentence is empty, long ones are kept, and all characters except whitespace and what `normalise`
    removes are there, in order.

    >>> split_sentences(["It weighs approx. 3 kg. Mr. Low said so.", "Yes!"], "en")
    ['It weighs approx. 3 kg.', 'Mr. Low said so.', 'Yes!']
    """
    rules = _rules_of(language_code(language))
    document = Document(paragraphs)
    pieces: list[str] = []
    for paragraph in paragraphs:
        text = normalise(paragraph)
        if len(text) <= LONGEST_CALL:
            pieces += _split(text, rules, document)
        else:
            for part in _cut_for_calls(text):
                pieces += _split(part, rules, document)
    stripped = map(str.strip, pieces)
    return list(filter(None, stripped))


def _split(text: str, rules: "_Rules", document: Document) -> list[str]:
    """Return the sentences of a text, with the blanks between them."""
    pieces = _pieces(text, rules, document)
    if _is_quoting(text) and _holds_sentences("\n".join(pieces)):
        pieces = [part for piece in pieces for part in _cut_quotations(piece, rules, document)]
    if rules.cuts:
        pieces = [part for piece in pieces for part in _cut(piece, rules.cuts)]
    return pieces


def language_code(language: str) -> str:
    """Return sentencex's code of `language`: lower case, without region or script.

    >>> [language_code(code) for code in ("en_GB", "simple", "zh-yue", "ko")]
    ['en', 'en', 'zh', 'ko']
    """
    code = language.lower().replace("_", "-")
    language = code.split("-")[0]
    return _LANGUAGE_OF_CODE.get(code) or _LANGUAGE_OF_CODE.get(language, language)


def _cut_for_calls(text: str) -> list[str]:
    """Cut a very long paragraph into texts of at most `LONGEST_CALL` characters.

    They end with a sentence, or else with a word, or else anywhere.
    """
    parts = []
    start = 0
    while len(text) - start > LONGEST_CALL:
        longest_stop = start + LONGEST_CALL
        sentence_end = _SENTENCE_END.search(text, start + LONGEST_CALL // 2, longest_stop)
        last_space = text.rfind(" ", start, longest_stop)
        if sentence_end:
            stop = sentence_end.end()
        elif last_space >= 0:
            stop = last_space + 1
        else:
            stop = longest_stop
        parts.append(text[start:stop])
        start = stop
    parts.append(text[start:])
    return parts


def _pieces(text: str, rules: "_Rules", document: Document) -> list[str]:
    """Return the sentences that sentencex finds, joined and cut by the rules; together they are
    `text`.
    """
    pieces = _segment(text, rules)
    # A line a piece, so that one search sees all of them.
    lines = "\n".join(pieces)
    if rules.may_join.search(lines):
        pieces = _join(pieces, rules, _joins_of(rules.code, uncased=text.islower()))
        lines = "\n".join(pieces)
        if _NUMBER_AT_END.search(lines):
            pieces = number_what_follows(pieces)
    if not STOP_AND_CAPITAL.search(lines) or not may_cut_after_words(lines, rules.code):
        return pieces
    return [part for piece in pieces for part in cut_after_words(piece, rules.code, document)]


def _segment(text: str, rules: "_Rules") -> list[str]:
    """Return the pieces that sentencex finds in `text`, with quotation marks as it knows them."""
    shown = text
    if rules.has_gershayim and ('"' in text or "'" in text):
        shown = _TYPED_GERESH.sub("״", text)
    elif rules.mirrors_quotes and "”" in text:
        shown = _RIGHT_TO_LEFT_QUOTES.sub(_as_in_english, text)
    pieces: list[str] = sentencex.segment(rules.code, shown)  # pyright: ignore[reportAttributeAccessIssue]
    if shown is text:
        return pieces
    ends = list(accumulate(map(len, pieces), initial=0))
    return [text[start:end] for start, end in pairwise(ends)]


def _as_in_english(quote: re.Match[str]) -> str:
    return "“" if quote["opening"] else "”"


def _is_quoting(text: str) -> bool:
    """Return whether a text may have a quotation."""
    # Single characters first, which are found faster.
    if '"' in text or "“" in text or "«" in text or "‘" in text or "„" in text:
        return True
    return "'" in text and (" '" in text or text[0] == "'")


def _holds_sentences(lines: str) -> bool:
    """Return whether a sentence ends within a line."""
    # In most lines of ASCII only a full stop may, which is found faster.
    only_stops = lines.isascii() and "?" not in lines and "!" not in lines
    if only_stops and not _STOP_WITHIN.search(lines):
        return False
    return _SENTENCE_WITHIN.search(lines) is not None


def _cut_quotations(piece: str, rules: "_Rules", document: Document) -> list[str]:
    """Cut long quotations between their sentences; sentencex never does.

    She said: "It is late. We must go." And went.
                          ^ a cut, within the quotation only
    """
    if len(piece) < _LONGEST_TITLE:
        return [piece]
    if '"' not in piece and "'" not in piece and piece.isascii():
        return [piece]
    if not _holds_sentences(piece.rstrip()):
        return [piece]
    cuts = [0]
    for quotation in _QUOTATION.finditer(piece):
        if quotation["single"] and len(quotation["single"]) < _LONGEST_TITLE:
            continue
        group = quotation.lastindex or 0
        sentences = _pieces(quotation[group], rules, document)
        position = quotation.start(group)
        for sentence in sentences[:-1]:
            position += len(sentence)
            cuts.append(position)
    cuts.append(len(piece))
    return [piece[start:end] for start, end in pairwise(cuts)]


def _cut(piece: str, marks: re.Pattern[str]) -> list[str]:
    """Cut at the empty matches of `marks`, outside quotes and brackets, which it matches too."""
    # "A。1「B。2」C。3" is cut before 1 and 3; at 2 the depth is 1.
    parts = []
    start = 0
    depth = 0
    for mark in marks.finditer(piece):
        if not mark[0]:
            if depth == 0:
                parts.append(piece[start : mark.start()])
                start = mark.start()
        elif mark[0] in _OPENERS:
            depth += 1
        else:
            depth = max(depth - 1, 0)
    parts.append(piece[start:])
    return parts


def _join(pieces: list[str], rules: "_Rules", joins: re.Pattern[str]) -> list[str]:
    """Join neighbours that `joins` or an abbreviation makes one sentence.

    An opening quote at the end of a piece moves to the piece that it opens.
    """
    joined = [pieces[0]]
    capitals = rules.before_capitals
    for piece in pieces[1:]:
        before = joined[-1]
        if rules.abbreviated:
            goes_on = _ends_abbreviated(before, piece, rules)
        else:
            # The first condition is here, and not in the function, because it is seldom met.
            goes_on = before[-3:-2] in _EXCLAIMING and _is_tagged(before, piece, rules)
        if goes_on:
            joined[-1] = before + piece
        elif _is_plain(before, piece[0]) and (
            not capitals or before[before.rfind(" ", 0, -2) + 1 : -2] not in capitals
        ):
            joined.append(piece)
        elif before[-2:] in _LOST_QUOTES:
            joined[-1] = before[:-1]
            joined.append(before[-1] + piece)
        elif joins.match(f"{before[-20:]}\n{piece[:20]}"):
            # The rules see 20 characters on each side, so that long pieces do not cost more.
            joined[-1] = before + piece
        else:
            joined.append(piece)
    return joined


def _ends_abbreviated(before: str, following: str, rules: "_Rules") -> bool:
    """Return whether a text ends with an initial or abbreviation, and its sentence goes on.

    So it also does after a mark that does not end a sentence in this language.
    """
    # "in 1890 г. Later" has the mark ".", the word "г" and the number "1890 " before it.
    #   before    i n   1 8 9 0   г .
    #                             ^ ^ stop, where the mark is
    #                             start
    stop = len(before) - 1
    if before.endswith(" "):
        stop -= 1
    mark = before[stop : stop + 1]
    # An ellipsis may end a sentence in any language.
    if mark in rules.no_ends and before[stop - 1 : stop] != ".":
        return True
    if mark not in _ABBREVIATING:
        return False
    start = max(before.rfind(" ", 0, stop), before.rfind("(", 0, stop)) + 1
    word = before[start:stop].lstrip(_OPENING)
    last_part = word
    if not word.isalpha():
        last_part = _PARTS.split(word)[-1]  # of "С.-Петерб" or "m.in"
    abbreviations = rules.abbreviations
    is_listed = word.lower() in abbreviations or last_part.lower() in abbreviations
    if not is_listed and (mark == "۔" or not _is_initial(last_part)):
        return False
    word_start = stop - len(word)
    if word in rules.final_words and not _BEHIND_INITIAL.search(before[:word_start][-15:]):
        return False
    # A name or another initial follows: "J. R. R. Tolkien".
    if last_part[0].isupper() or _NEXT_INITIAL.match(following):
        return True
    if not _NUMERAL.search(before[max(0, word_start - 10) : word_start]):
        return True
    # After a number an abbreviation of one letter may end a sentence.
    may_end = following[0].isupper() or rules.code in YEARS_END
    if not may_end:
        return True
    return is_listed and len(last_part) > 1 and last_part not in _MAY_END


def _is_tagged(before: str, following: str, rules: "_Rules") -> bool:
    """Return whether who says it follows a quotation, which asks or exclaims."""
    if rules.speech_tags is None or before[-2] not in _CLOSING_QUOTES:
        return False
    return rules.speech_tags.match(following) is not None


def _is_initial(word: str) -> bool:
    return len(word) <= _LONGEST_INITIAL and _INITIAL.fullmatch(word) is not None


def _is_plain(before: str, first: str) -> bool:
    """Return whether no rule can apply between two pieces.

    That is nearly always so: "... word. Next ...".
    """
    # "12. Next" may be a date, and a short piece an abbreviation.
    if before[-1] != " " or len(before) < 9 or before[-3].isdigit():
        return False
    if first.isupper():
        return True
    return first > LAST_CASED and first.isalpha() and before[-3].isalpha()


class _Rules(NamedTuple):
    """The rules of `sentence_rules` for one language."""

    code: str
    may_join: re.Pattern[str]
    """Searched first, in all pieces, a line each: most texts have nothing to join."""
    abbreviated: bool
    """Whether to join initials and abbreviations; sentencex does it well for English."""
    abbreviations: frozenset[str]
    final_words: frozenset[str]
    speech_tags: re.Pattern[str] | None
    no_ends: tuple[str, ...]
    before_capitals: frozenset[str]
    """Words behind which a rule may apply although a capital follows."""
    cuts: re.Pattern[str] | None
    has_gershayim: bool
    mirrors_quotes: bool


@cache
def _rules_of(code: str) -> _Rules:
    return _Rules(
        code=code,
        may_join=_may_join(code),
        abbreviated=code not in OWN_INITIALS,
        abbreviations=ABBREVIATIONS.get(code, frozenset()),
        final_words=FINAL_WORDS.get(code, frozenset()),
        speech_tags=SPEECH_TAGS.get(code),
        no_ends=tuple(NO_ENDS.get(code, "")),
        before_capitals=BEFORE_CAPITALS if code == "en" else frozenset(),
        cuts=CUTS.get(code),
        has_gershayim=code in GERSHAYIM,
        mirrors_quotes=code in MIRRORED_QUOTES,
    )


def _may_join(language: str) -> re.Pattern[str]:
    """Compile a pattern that matches every line break at which `_join` may change anything.

    It does the work of `_is_plain` in one search, and matches at more places. It begins with a
    character, which makes the search fast.
    """
    if language not in OWN_INITIALS:
        return re.compile("\n")  # any piece may end with an abbreviation
    letter_before = rf"(?<=[{_PLAIN_LETTERS}][^\n] \n)"
    uneven_start = rf"(?![{UPPER_CASE}]|{letter_before}[{_EASTERN_LETTERS}])"
    uneven_end = rf"(?<![^\n]{{6}}[{_PLAIN_LETTERS}{_PLAIN_MARKS}][^\n] \n)"
    if language != "en":
        return re.compile(rf"\n(?:{uneven_start}|{uneven_end})")
    # "in 1990. The" and "10,000. The": in English no rule joins these, and they number nothing.
    uneven_end += r"(?<![a-z] \d{4}[^\n] \n)(?<!\d,\d{3}[^\n] \n)"
    capitals = []
    by_length = groupby(sorted(BEFORE_CAPITALS, key=len), key=len)
    for _, words in by_length:
        capitals.append(rf"(?<= (?:{'|'.join(words)})[^\n] \n)")
    return re.compile(rf"\n(?:{uneven_start}|{uneven_end}|{'|'.join(capitals)})")


@cache
def _joins_of(language: str, *, uncased: bool) -> re.Pattern[str]:
    """Compile the joining rules of a language; a line break stands for the end of the first piece.

    In `uncased` text, which has no capitals, a small letter does not tell that a sentence goes on.
    """
    patterns = []
    for rule in JOINS:
        if rule.languages != "*" and language not in rule.languages.split():
            continue
        if uncased and rule.after == SMALL_LETTER:
            continue
        patterns.append(f"(?:{rule.before}) ?\n(?:{rule.after})")
    # A rule begins before the line break: to try each at all places behind it would take longest.
    return re.compile(rf"[^\n]*?(?:{'|'.join(patterns)})")
