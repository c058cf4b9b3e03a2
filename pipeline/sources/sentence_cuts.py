"""Find ends of sentences inside sentencex's pieces, and the numbers that enumerate them.

Whether "con." is an abbreviation, and "Paris" a name, depends on the text. Punkt (Kiss and Strunk,
2006) learns it from a whole corpus; here a document answers for itself, so that its sentences do
not depend on the documents beside it.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from string import ascii_uppercase

from .sentence_rules import LAST_WORDS, UPPER_CASE, Endings, endings_of

# Capitals that end no sentence in any language: initials, of which a text has many.
_INITIALS = "".join(capital for capital in ascii_uppercase if capital not in LAST_WORDS)
# Begins with a character, which makes the search fast; the word before it is looked at then.
STOP_AND_CAPITAL = re.compile(
    rf"\.(?<! [{_INITIALS}]\.)[\"”’»)]?(?= [\"“‘'«„(]?(?P<next>[{UPPER_CASE}][^\W_]*))"
)
"""Where `cut_after_words` may cut."""
_WORD_BEFORE = re.compile(r"([^\W\d_]+)[²³]?$")
# Not English ones: "the U.S. Government", where sentencex knows better.
_ACRONYM = re.compile(r"(?:^|[\s(«\"“])(?:[Α-ΩА-ЯЁЄІЇЎ]{1,4}\.){2,}$")
_ROMAN = re.compile("[IVXLC]+")
# The patterns of a word see as much of the text before it.
_LONGEST_ENDING = 24
_LONGEST_DIRECTION = 3
_APOSTROPHE_OPENS = re.compile(r"(?:^|[\s(—–-])'(?=\w)")
_APOSTROPHE_CLOSES = re.compile(r"[\w.,!?]'(?!\w)")

_NUMBER_BEFORE = re.compile(r"\W*(?P<number>\d{1,3})[.।)]")
_NUMBER_BEHIND = re.compile(r"(?:^|(?P<comma>[,;])?\s)(?P<number>\d{1,3}[.।)]) ?$")
_LONGEST_NUMBER = 8
# "It reached number 1. The next reached number 2." enumerates nothing.
_SHORTEST_ENUMERATION = 3

MOST_WORDS = 200
"""A document is asked about no more words, so that hostile text takes linear time."""


class Document:
    """Tell abbreviations and names from other words by their occurrences in one document."""

    def __init__(self, paragraphs: list[str]) -> None:
        self._paragraphs = paragraphs
        self._text = ""
        self._counts: dict[str, int] = {}

    def is_abbreviation(self, word: str) -> bool:
        """Return whether `word` stands mostly with a full stop."""
        return self._count(f" {word} ") <= self._count(f" {word}. ")

    def is_name(self, word: str) -> bool:
        """Return whether `word`, which begins with a capital, mostly does so.

        Any word does at the beginning of a sentence, so a third in lower case shows the contrary.
        """
        in_lower_case = self._count(f" {word.lower()} ")
        return in_lower_case == 0 or 2 * in_lower_case < self._count(f" {word} ")

    def _count(self, text: str) -> int:
        if text not in self._counts:
            if len(self._counts) >= 2 * MOST_WORDS:
                return 0
            self._text = self._text or "\n".join(self._paragraphs)
            self._counts[text] = self._text.count(text)
        return self._counts[text]


def may_cut_after_words(lines: str, language: str) -> bool:
    """Return whether `cut_after_words` may cut one of the pieces, a line each; most are whole."""
    endings = endings_of(language)
    return any(_stops(lines, endings))


def cut_after_words(piece: str, language: str, document: Document) -> list[str]:
    """Cut where a word with a full stop ends a sentence: a capital follows, and no name.

    It runs on for 19 km. Ferries cross it. Come with me. Farewell, my friend!
                        ^ a unit                        ^ a word like any other
    """
    endings = endings_of(language)
    cuts = [0]
    for word, stop in _stops(piece, endings):
        start = cuts[-1]
        if not _is_open(piece[start : stop.end()]) and _ends(word, stop, endings, document):
            cuts.append(stop.end())
    if len(cuts) == 1:
        return [piece]
    cuts.append(len(piece))
    return [piece[start:end] for start, end in pairwise(cuts)]


def _stops(text: str, endings: Endings) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the words that may end a sentence before a capital, and their full stops."""
    for stop in STOP_AND_CAPITAL.finditer(text):
        end = stop.start()
        start = text.rfind(" ", 0, end) + 1
        start = max(start, text.rfind("\n", start, end) + 1)
        word = _WORD_BEFORE.search(text, start, end)
        if word is not None and _may_end(word[1], endings):
            yield word[1], stop


def _may_end(word: str, endings: Endings) -> bool:
    """Return whether it has to be seen if a word ends a sentence; most are initials and titles."""
    return _may_be_common(word) or word in endings.last_words or _may_end_acronym(word)


def _may_be_common(word: str) -> bool:
    if len(word) == 1:
        return False
    return word[0].islower() or (word.isupper() and not _ROMAN.fullmatch(word))


def _may_end_acronym(word: str) -> bool:
    return word.isupper() and not word.isascii()


def _ends(word: str, stop: re.Match[str], endings: Endings, document: Document) -> bool:
    if _may_be_common(word) and not document.is_abbreviation(word):
        return True
    before = stop.string[max(0, stop.start() - _LONGEST_ENDING) : stop.start()]
    following = stop["next"]
    if endings.always.search(before):
        # "5 km. NW of Athens"
        return not (following.isupper() and 1 < len(following) <= _LONGEST_DIRECTION)
    if not endings.unless_name.search(before) and not _ACRONYM.search(before + "."):
        return False
    # "J.R.R. T. Smith"
    is_initial = len(following) == 1 and stop.string[stop.end("next") :][:1] == "."
    return not is_initial and not document.is_name(following)


def _is_open(text: str) -> bool:
    """Return whether a quotation or bracket that `text` opens is not closed in it."""
    # '… advise me." Accordingly' ends a quotation that an earlier piece opened.
    if (text.count('"') % 2 and text[-1] != '"') or text.count("(") > text.count(")"):
        return True
    num_opened = text.count("“") + text.count("«") + text.count("„")
    num_closed = text.count("”") + text.count("»")
    if "„" in text:  # „so“ or „so”
        num_opened -= text.count("“")
        num_closed += text.count("“")
    if num_opened > num_closed:
        return True
    if "'" not in text:
        return False
    return len(_APOSTROPHE_OPENS.findall(text)) > len(_APOSTROPHE_CLOSES.findall(text))


def number_what_follows(pieces: list[str]) -> list[str]:
    """Move the numbers of an enumeration from the end of a piece to the next, which they number.

    1. Athens, 2. | Volos, 3. | Patras  becomes  1. Athens, | 2. Volos, | 3. Patras
    """
    enumerated = _enumerated(pieces)
    if not enumerated:
        return pieces
    moved = []
    number = ""
    for index, piece in enumerate(pieces):
        text = number + piece
        number = ""
        if index in enumerated:
            mark = _number_behind(piece)
            assert mark is not None
            number = piece[len(piece) - len(mark[0]) :].lstrip(" ,;")
            text = text[: len(text) - len(number)]
        moved.append(text)
    return moved


def _enumerated(pieces: list[str]) -> set[int]:
    """Return the indices of the pieces that end with the number of what follows them."""
    marks = [_number_behind(piece) for piece in pieces[:-1]]
    if not any(marks):
        return set()
    enumerated: set[int] = set()
    run: list[int] = []
    before = 0
    length = 0
    for index, mark in enumerate([*marks, None]):
        number = int(mark["number"][:-1]) if mark else None
        if run and number == before + 1:
            run.append(index)
            length += 1
        else:
            if length >= _SHORTEST_ENUMERATION:
                enumerated.update(run)
            run = []
            if number is not None and mark is not None:
                run = [index]
                first = _NUMBER_BEFORE.match(pieces[index])
                is_second = first is not None and int(first["number"]) == number - 1
                length = 1 + is_second + bool(mark["comma"])
        before = number or 0
    return enumerated


def _number_behind(piece: str) -> re.Match[str] | None:
    """Return the number at the end of `piece`, if there is one besides other text."""
    if not piece[-3:-1].strip(".।) ").isdigit():
        return None
    mark = _NUMBER_BEHIND.search(piece[-_LONGEST_NUMBER:])
    if mark is None or len(mark[0].strip()) == len(piece.strip()):
        return None
    return mark
