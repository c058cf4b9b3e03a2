"""Split paragraphs into sentences by sentencex (by Wikimedia), in the document's language.

sentencex splits constructions that are frequent in real text too eagerly, and does not know all
ends of sentences. The tables of `sentence_rules` join and cut what it returns, and long quotations
are cut between their sentences. No text is lost. One core splits 40 to 50 MB of English a second
(sentencex alone: 95).
"""

import re
import unicodedata
from collections.abc import Callable
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
    compiled,
    is_listed,
    language_code,
    ranges_of,
    row_of,
)

# A call of sentencex takes more than linear time if quotes are opened and never closed, so no call
# gets more characters.
LONGEST_CALL = 20_000
# Nor is what has no more cut, though it repeats itself.
SHORTEST_CALL = 4000

# Not whitespace, and never wanted: control characters, lone halves of surrogate pairs (Arrow
# refuses them), soft hyphens, zero-width spaces, byte order marks and marks of writing direction.
# The joiners U+200C and U+200D stay: Persian and the Indic scripts are misspelt without them.
_JUNK = (
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
    # With the line break that it allowed.
    r"|\xad\s*"
)

# An ellipsis is as often within a sentence as at its end.
_SENTENCE_END = rf"[{ranges_of(sorted(SENTENCE_ENDS - {'…'}))}]['\"”’)\]」』]* ?"

# "java.lang.String", "www.Example.com": a stop before another one, and the last. They begin with a
# character, which makes the search fast.
_STOP_BEFORE_STOP = re.compile(r"\.(?<=\w\.)(?=[^\W\d]\w+\.[^\W\d]\w)")
_LAST_STOP = re.compile(r"(\ue000[^\W\d]\w+)\.")

_OF_ITEM = "[A-Za-z]|[ivxlcdm]+|[IVXLCDM]+"
_FOOTNOTE = r"([.!?…][\"”’»“)\]]*)([¹²³⁰⁴-⁹†‡]+)(?= |\n|$)"

# What sentencex would cut wrongly: a character that it has, which is found faster than the pattern
# that follows, and what is shown in its place, as long as it.
_SHOWN_OTHERWISE: tuple[tuple[str, str, str | Callable[[re.Match[str]], str]], ...] = (
    # The bracket that begins an item of a list, in a line too: "of two kinds: (1) dogs, (2) cats".
    # It would begin a sentence with each, and end it with the next or the paragraph.
    ("(", rf"\((?=(?:[0-9]{{1,2}}|{_OF_ITEM})\) )", "Q"),
    # Not an item, but the last word in brackets: "Alpha (115 m) Tower, born (in 1950) Lee".
    (
        "(",
        rf"\((?:[^()\n ]*+ )++(?=(?:[0-9]+|{_OF_ITEM})\.?\) )",
        lambda words: f"{words[0][:-1]}Q",
    ),
    # "I agree. (Applause) The debate": "Qpplause."
    (
        "(",
        rf"\((?<=[.!?…] \()([{UPPER_CASE}][{LOWER_CASE}]{{4,}})\)"
        rf"(?= [{UPPER_CASE}][{LOWER_CASE}]{{0,3}} )",
        r"Q\1.",
    ),
    # "Vite !… Il est parti": an ellipsis stays with its mark.
    ("…", "…(?<=[!?]…)", "!"),
    ("..", r"\.\.(?<=[!?]\.\.)\.*", lambda dots: "!" * len(dots[0])),
    ("//", r"(//[^\s?!]+)[?!](?=\w)", r"\1_"),
    # A footnote's mark goes with its sentence: "1990.¹²" is "1990__."
    *((mark, _FOOTNOTE, lambda end: "_" * len(end[2]) + end[1]) for mark in "¹²³⁴†‡"),
)


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
        text = " ".join(re.sub(_JUNK, "", text).split())
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
    texts = []
    for paragraph in paragraphs:
        text = normalise(paragraph)
        if len(text) > SHORTEST_CALL:
            texts += _cut_for_calls(text)
        elif text:
            texts.append(text)
    code = language_code(language)
    distinct = list(dict.fromkeys(texts))
    shown = with_known_quotes(distinct, code)
    if stops := stops_of(abbreviations, code):
        # A character for private use, at which no rule of any language looks.
        shown = [stops.sub("\\1\ue000", text) for text in shown]
    lines = _lines(shown, code, join_rules_of(code))
    if shown != distinct:  # mostly the same objects, so that it is fast
        lines = _cut_alike(distinct, lines)
    if len(distinct) < len(texts):
        lines_of = dict(zip(distinct, lines.split("\n\n"), strict=True))
        lines = "\n\n".join(lines_of[text] for text in texts)
    return list(filter(None, map(str.strip, lines.split("\n"))))


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
    listed = set()
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
    paragraphs = []
    for text, shown in zip(texts, shown_texts, strict=True):
        pieces = "\n".join(segment(code, shown))
        paragraphs.append(pieces if shown == text else _cut_alike([text], pieces))
    lines = "\n\n".join(
        join("\n\n".join(alike), joins, is_cased=not is_lower)
        for is_lower, alike in groupby(paragraphs, str.islower)
    )
    return cut(lines, code, lambda quotation: _lines([quotation], code, joins))


def _shown(text: str, code: str) -> str:
    """Return paragraphs, a line each, as sentencex cuts them best; their lengths stay."""
    if marks := row_of(WORDS.marks, code):
        # A letter in place of a digit that begins a sentence.
        text = re.sub(marks, lambda mark: "Q" if mark[0].isdigit() else "!" * len(mark[0]), text)
    for character, pattern, shown in _SHOWN_OTHERWISE:
        if character in text:
            text = compiled(pattern).sub(shown, text)
    # A click: "the !Kung". A French "!" has a blank before it, and may lack the one behind it.
    if "!" in text and code != "fr":
        text = compiled(r"!(?<![^\s(]!)(?=[A-Z][^\W_])").sub("Q", text)
    if ". [" in text:
        # "et al. [12] propose", "Fig. [4]": it would end a sentence with the bracket.
        text = compiled(r"\.(?= \[[0-9])").sub(lambda stop: _without_stop(stop, code), text)
    text, num_stops = _STOP_BEFORE_STOP.subn("\ue000", text)
    if num_stops:
        text = _LAST_STOP.sub("\\1\ue000", text)
    return text


def _without_stop(stop: re.Match[str], code: str) -> str:
    """Return what is shown for the full stop before a reference, by the word that it follows."""
    word = re.search(r"[^\W\d_]+$", stop.string[max(0, stop.start() - 20) : stop.start()])
    if word and (word[0] == "др" or is_listed(word[0], before_numbers_of(code))):
        return "_"
    return "."


def _cut_alike(texts: list[str], lines: str) -> str:
    """Cut paragraphs where `lines`, which show them with other characters, are cut."""
    text = "".join(texts)
    ends = accumulate(map(len, lines.split("\n")), initial=0)
    return "\n".join([text[start:end] for start, end in pairwise(ends)])


def _cut_for_calls(text: str) -> list[str]:
    """Cut a very long paragraph into texts of at most `LONGEST_CALL` characters, after a sentence,
    or else after a word, or else anywhere; one that repeats a few words into short ones, so that
    they are equal and only one is split.
    """
    least = LONGEST_CALL // 2
    middle = len(text) // 2
    period = text.find(text[middle : middle + 40], middle + 1, middle + 240) - middle
    if period > 0 and text[middle : middle + 600] == text[middle + period :][:600]:
        least = SHORTEST_CALL // 8
    parts = []
    start = 0
    while len(text) - start > 2 * least:
        longest_stop = start + LONGEST_CALL
        sentence_end = compiled(_SENTENCE_END).search(text, start + least, longest_stop)
        if sentence_end:
            stop = sentence_end.end()
        elif len(text) <= longest_stop:
            break
        else:
            stop = text.rfind(" ", start, longest_stop) + 1 or longest_stop
        parts.append(text[start:stop])
        start = stop
    parts.append(text[start:])
    return parts
