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

from msgspec import Struct
from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

from ..parsing import parse_toml_option
from .sentence_cuts import cut
from .sentence_ends import SENTENCE_ENDS
from .sentence_joins import JoinRules, join, join_rules_of
from .sentence_quotes import with_known_quotes
from .sentence_rules import (
    LOWER_CASE,
    UPPER_CASE,
    WORDS,
    before_numbers_of,
    is_listed,
    language_code,
    ranges_of,
    row_of,
)

# A call of sentencex takes more than linear time if quotes are opened and never closed, so no call
# gets more characters.
LONGEST_CALL = 20_000

# Not whitespace, and never wanted: control characters, lone halves of surrogate pairs (Arrow
# refuses them), soft hyphens, zero-width spaces, byte order marks and marks of writing direction.
# The joiners U+200C and U+200D stay: Persian and the Indic scripts are misspelt without them.
_JUNK = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
    # With the line break that it allowed.
    r"|\xad\s*"
)

# An ellipsis is as often within a sentence as at its end.
_SENTENCE_END = re.compile(rf"[{ranges_of(sorted(SENTENCE_ENDS - {'…'}))}]['\"”’)\]」』]* ?")

# The bracket that begins an item of a list, within a line too: "of two kinds: (1) dogs, (2) cats".
_ITEM = re.compile(r"\((?=(?:[0-9]{1,2}|[A-Za-z]|[ivxlcdm]+|[IVXLCDM]+)\) )")
# Not an item, but the last word in brackets: "Alpha (115 m) Tower, born (in 1950) Lee".
_LAST_IN_BRACKETS = re.compile(
    r"\((?:[^()\n ]*+ )++(?=(?:[0-9]+|[A-Za-z]|[ivxlcdm]+|[IVXLCDM]+)\.?\) )"
)
# "I agree. (Applause) The debate": shown as "Qpplause."
_BRACKET_OF_ITS_OWN = re.compile(
    rf"\((?<=[.!?…] \()([{UPPER_CASE}][{LOWER_CASE}]{{4,}})\)"
    rf"(?= [{UPPER_CASE}][{LOWER_CASE}]{{0,3}} )"
)
# "Vite !… Il est parti": an ellipsis stays with its mark.
_ELLIPSES = {"…": re.compile("…(?<=[!?]…)"), "..": re.compile(r"\.\.(?<=[!?]\.\.)\.*")}
_MARK_IN_URL = re.compile(r"(//[^\s?!]+)[?!](?=\w)")
# All begin with a character, which makes the search fast.
# "java.lang.String", "www.Example.com": a stop before another one, and the last.
_STOP_BEFORE_STOP = re.compile(r"\.(?<=\w\.)(?=[^\W\d]\w+\.[^\W\d]\w)")
_LAST_STOP = re.compile(r"(\ue000[^\W\d]\w+)\.")
# "et al. [12] propose", "Fig. [4]": sentencex would end a sentence with the bracket.
_BEFORE_REFERENCE = re.compile(r"\.(?= \[[0-9])")
_LETTERS_AT_END = re.compile(r"[^\W\d_]+$")
# A footnote's mark goes with its sentence: "1990.¹²" is shown as "1990__.".
_NOTE_MARKS = re.compile(r"([.!?…][\"”’»“)\]]*)([¹²³⁰⁴-⁹†‡]+)(?= |$)", re.MULTILINE)
# A click: "the !Kung". A French "!" has a blank before it, and may lack the one behind it.
_CLICK = re.compile(r"!(?<![^\s(]!)(?=[A-Z][^\W_])")


def compose(text: str) -> str:
    """Return `text` composed (NFC), in linear time: of a run of marks, the first 30 stay."""
    # To compose a run takes quadratic time, and no language needs more than 30 (UAX #15,
    # stream-safe text). Every tenth character shows whether there may be one: three lie in it.
    if len(text) > 30 and not text.isascii():
        three, long_run = _runs_of_marks()
        if three.search(text[::10]):
            text = long_run.sub(r"\1", text)
    return unicodedata.normalize("NFC", text)


@cache
def _runs_of_marks() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what may be three combining marks, and what is a run of over 30."""
    marks = ranges_of(filter(unicodedata.combining, map(chr, range(0x300, 0x1F000))))
    # Beyond the BMP one range: `re` is slow to tell many apart.
    in_bmp, first, _ = marks.partition("\U000101fd")
    three = re.compile(f"[{in_bmp}{first}-\U0001efff]{{3}}")
    return three, re.compile(f"([{marks}]{{30}})[{marks}]++")


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


def split_sentences(paragraphs: list[str], language: str, abbreviations: str = "") -> list[str]:
    """Return the sentences of `paragraphs` in order, normalised; a sentence never spans two
    paragraphs.

    `language` is a language code or the code of a Wikimedia project (``ko``, ``en-GB``,
    ``simple``); text in an unknown one is split by English rules without English abbreviations. No
    sentence is empty, long ones are kept, and all characters except whitespace and what `normalise`
    removes are there, in order. `abbreviations` is the content of a user's file (`stops_of`).

    >>> split_sentences(["It weighs approx. 3 kg. Mr. Low said so.", "Yes!"], "en")
    ['It weighs approx. 3 kg.', 'Mr. Low said so.', 'Yes!']
    """
    texts: list[str] = []
    for paragraph in paragraphs:
        text = normalise(paragraph)
        if len(text) > LONGEST_CALL:
            texts += _cut_for_calls(text)
        elif text:
            texts.append(text)
    code = language_code(language)
    shown = with_known_quotes(texts, code)
    if stops := stops_of(abbreviations, code):
        # A character for private use, at which no rule of any language looks.
        shown = [stops.sub("\\1\ue000", text) for text in shown]
    distinct = list(dict.fromkeys(shown))
    lines = _lines(distinct, code, join_rules_of(code))
    if len(distinct) < len(shown):  # as the calls of "1. 1. 1. ", which would take longest
        lines_of = dict(zip(distinct, lines.split("\n\n"), strict=True))
        lines = "\n\n".join(lines_of[text] for text in shown)
    if shown == texts:  # mostly the same objects, so that it is fast
        sentences = lines.split("\n")
    else:
        sentences = _same_lines(texts, lines)
    return list(filter(None, map(str.strip, sentences)))


class _Abbreviations(Struct, frozen=True, forbid_unknown_fields=True):
    """The user's TOML file: words, separated by white space, by language; ``*`` for all."""

    abbreviations: dict[str, str]


@cache
def stops_of(text: str, language: str) -> re.Pattern[str] | None:
    """Return what matches the full stops that end no sentence, by the content of a user's file;
    None if there are none.

    Raise `UserError` if `text` is not such a file.
    """
    if not text:
        return None
    file = parse_toml_option(text, _Abbreviations, "abbreviations", "words by language")
    listed: set[str] = set()
    for code, words in file.abbreviations.items():
        if code == "*" or language_code(code) == language:
            listed.update(word.rstrip(".") for word in words.split())
    # The longest first: "e.g" before "e".
    words = sorted(listed - {""}, key=len, reverse=True)
    if not words:
        return None
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, words))})\.", re.IGNORECASE)


def _lines(texts: list[str], code: str, joins: JoinRules) -> str:
    """Return lines, as in `sentence_joins`: joining removes line breaks, cutting adds some."""
    text = "\n".join(texts)
    shown = _shown(text, code)
    shown_texts = texts if shown == text else shown.split("\n")
    paragraphs: list[str] = []
    for text, shown in zip(texts, shown_texts, strict=True):
        pieces = segment(code, shown)
        if shown != text:
            pieces = _same_lines([text], "\n".join(pieces))
        paragraphs.append("\n".join(pieces))
    lines = "\n\n".join(
        join("\n\n".join(alike), joins, is_cased=not is_lower)
        for is_lower, alike in groupby(paragraphs, str.islower)
    )
    return cut(lines, code, lambda quotation: _lines([quotation], code, joins))


def _shown(text: str, code: str) -> str:
    """Return paragraphs, a line each, as sentencex cuts them best; their lengths stay.

    It would begin a sentence with each item of a list, and end it with the next or the paragraph.
    So it is shown a capital letter where an item begins, or what it takes for one.
    """
    if marks := row_of(WORDS.marks, code):
        # A letter in place of a digit that begins a sentence.
        text = re.sub(marks, lambda mark: "Q" if mark[0].isdigit() else "!" * len(mark[0]), text)
    # Single characters first, which are found faster than any of a set.
    if "(" in text:
        text = _LAST_IN_BRACKETS.sub(lambda words: f"{words[0][:-1]}Q", _ITEM.sub("Q", text))
        text = _BRACKET_OF_ITS_OWN.sub(r"Q\1.", text)
    if "!" in text or "?" in text:
        for dots, behind_mark in _ELLIPSES.items():
            if dots in text:
                text = behind_mark.sub(lambda ellipsis: "!" * len(ellipsis[0]), text)
        if "//" in text:
            text = _MARK_IN_URL.sub(r"\1_", text)
        if code != "fr":
            text = _CLICK.sub("Q", text)
    if ". [" in text:
        text = _BEFORE_REFERENCE.sub(lambda stop: _without_stop(stop, code), text)
    if "¹" in text or "²" in text or "³" in text or "†" in text or "‡" in text or "⁴" in text:
        text = _NOTE_MARKS.sub(lambda end: "_" * len(end[2]) + end[1], text)
    text, num_stops = _STOP_BEFORE_STOP.subn("\ue000", text)
    if num_stops:
        text = _LAST_STOP.sub("\\1\ue000", text)
    return text


def _without_stop(stop: re.Match[str], code: str) -> str:
    """Return what is shown for the full stop before a reference, by the word that it follows."""
    word = _LETTERS_AT_END.search(stop.string[max(0, stop.start() - 20) : stop.start()])
    if word and (word[0] == "др" or is_listed(word[0], before_numbers_of(code))):
        return "_"
    return "."


def _same_lines(texts: list[str], lines: str) -> list[str]:
    """Cut paragraphs where `lines`, which show them with other characters, are cut."""
    text = "".join(texts)
    ends = accumulate(map(len, lines.split("\n")), initial=0)
    return [text[start:end] for start, end in pairwise(ends)]


def _cut_for_calls(text: str) -> list[str]:
    """Cut a very long paragraph into texts of at most `LONGEST_CALL` characters, after a sentence,
    or else after a word, or else anywhere.
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
