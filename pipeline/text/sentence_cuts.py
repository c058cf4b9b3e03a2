"""Cut after ends of sentences that sentencex misses.

A text is a string of lines, as in `sentence_joins`; to cut is to add a line break. What sentencex
leaves whole, it takes for an abbreviation, a quotation or bracket, or a sentence that continues:

    It runs on for 19 km. Ferries cross it. Come with me. Farewell, my friend!
                        ^ a unit                        ^ a word like any other

Whether "con." is an abbreviation, and "Paris" a name, depends on the text. Punkt (Kiss and Strunk,
2006) learns it from a whole corpus; here a document answers for itself, so that its sentences do
not depend on the documents beside it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from string import ascii_uppercase

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

from .sentence_joins import UNCASED_LETTERS
from .sentence_quotes import ORPHAN, Quotations, is_open
from .sentence_rules import (
    LAST_WORDS,
    MISSED_ENDS,
    UPPER_CASE,
    WORDS,
    before_numbers_of,
    is_listed,
    last_word,
    ranges_of,
    row_of,
    rules_in,
    words_of,
)

_NEXT = (
    rf"(?P<closers>[\"'”’»)\]]*)"
    rf"(?= [\"“‘'«„»(\[¿¡—–{ORPHAN}-]* ?"
    rf"(?P<next>[{UPPER_CASE}][^\W_]*|\d+|[{UNCASED_LETTERS}가-힣]))"
)
_WORD_BEFORE = re.compile(r"([^\W\d_]+)[²³]?$")
# Not English ones: "the U.S. Government", where sentencex knows better.
_ACRONYM = re.compile(r"(?:^|[\s(«\"“])(?:[Α-ΩА-ЯЁЄІЇЎ]{1,4}\.){2,}$")
_ROMAN = re.compile("[IVXLC]+")
_PRONOUN = re.compile("[ '’][a-z]")  # "I chose", "I'd", not "Vol. I, 1987"
_SEEN_BEFORE = 40
_SEEN_AFTER = 20


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
            # Few words in the first of the text, so that it takes little time.
            if len(self._counts) >= 400:
                return 0
            self._text = self._text or "\n".join(self._paragraphs)[:200_000]
            self._counts[text] = self._text.count(text)
        return self._counts[text]


_NUMBER = r"(?:\d|(?:млн|млрд|тыс|тис|хил)\.?|τετρ\.|кв\.|куб\.|sq|square|cubic)"


@dataclass(frozen=True, slots=True, eq=False)
class _CutRules:
    """The rules of one language, an object for each; its words and phrases end a sentence before a
    capital.
    """

    code: str
    after_names: frozenset[str]
    """Abbreviations that follow a name, and that no name follows."""
    stops: tuple[re.Pattern[str], ...]
    """Where a sentence may end within a line, one for each mark. Each begins with a character,
    which makes the search fast.
    """
    always: re.Pattern[str]
    """Units after a number, and "and others"."""
    unless_name: re.Pattern[str]
    """Eras and the like: "44 до н. е. Також" is cut, "44 до н. е. Цезар" is not."""
    ordinary_words: frozenset[str]
    openers: frozenset[str]
    """What follows the end of a sentence, whatever its last word."""
    last_words: frozenset[str]
    """The last words of units and phrases, so that a pattern is only tried where it may match."""
    patterns: tuple[re.Pattern[str], ...]
    """Those of `MISSED_ENDS`; a line break stands for the end."""


@cache
def _cut_rules_of(code: str) -> _CutRules:
    ordinary_words = words_of(WORDS.ordinary_words, code)
    # Initials, which end no sentence, are many in a text.
    initials = set(ascii_uppercase) - LAST_WORDS - ordinary_words
    is_word = rf"(?<! [{ranges_of(sorted(initials))}]\.)"
    if code == "en":  # "plan B. I chose"
        is_word = rf"(?:{is_word}|(?= I[ '’][a-z]))"
    stops = [rf"\.(?![.!?…]){is_word}{_NEXT}"]
    for mark in "!?…" + row_of(WORDS.ends, code):
        stops.append(rf"{re.escape(mark)}(?![.!?…]){_NEXT}")
    units = words_of(WORDS.units, code)
    units_pattern = "|".join(map(re.escape, sorted(units)))
    others = row_of(WORDS.others, code)
    eras = row_of(WORDS.eras, code)
    phrases = f"{others},{eras}".split(",")
    return _CutRules(
        code=code,
        after_names=frozenset(WORDS.after_names.split()),
        stops=tuple(map(re.compile, stops)),
        always=re.compile(
            rf"{_NUMBER}[ \u00a0]?(?:{units_pattern})[²³]?$|(?<!\w)(?:{_alternatives(others)})$"
        ),
        unless_name=re.compile(rf"(?<!\w)(?:{_alternatives(eras)})$"),
        ordinary_words=ordinary_words,
        openers=words_of(WORDS.openers, code),
        last_words=frozenset(map(last_word, (*units, *phrases))) - {""} | ordinary_words,
        patterns=tuple(
            re.compile(f"(?:{rule.before})\n(?:{rule.after})")
            for rule in rules_in(MISSED_ENDS, code)
        ),
    )


def _alternatives(phrases: str) -> str:
    """Return a pattern of phrases, with or without their spaces; of nothing if there are none."""
    return re.escape(phrases).replace(",\\ ", "|").replace("\\ ", " ?") or "(?!)"


def cut(lines: str, code: str, document: Document, split: Callable[[str], str]) -> str:
    """Add line breaks after the ends of sentences that sentencex missed.

    `split` returns the lines of a long quotation.
    """
    rules = _cut_rules_of(code)
    parts: list[str] = []
    num_copied = 0
    quotations = Quotations(lines)
    candidates = chain.from_iterable(stop.finditer(lines) for stop in rules.stops)
    for end in sorted(candidates, key=re.Match.start):
        if end.start() < num_copied:
            continue
        start = max(lines.rfind("\n", 0, end.start()) + 1, num_copied)
        quotation = quotations.around(start, end.start())
        if quotation:
            first, last = quotation
            parts += [lines[num_copied:first], split(lines[first:last])]
            num_copied = last
        elif _ends_by_word(end, start, rules, document) or _ends_by_pattern(end, start, rules):
            parts += [lines[num_copied : end.end()], "\n"]
            num_copied = end.end()
    parts.append(lines[num_copied:])
    return "".join(parts)


def _ends_by_word(end: re.Match[str], start: int, rules: _CutRules, document: Document) -> bool:
    """Return whether it ends with a word and a full stop, before a capital."""
    if end[0][0] != "." or len(end["closers"]) > 1 or not end["next"][0].isupper():
        return False
    text = end.string
    # The letters at the end of the last word.
    word_start = max(text.rfind(" ", 0, end.start()), text.rfind("\n", 0, end.start())) + 1
    letters = _WORD_BEFORE.search(text, word_start, end.start())
    word = letters[1] if letters else ""
    # Not "i.e. They": a letter alone that follows another full stop.
    is_pronoun = end["next"] == "I" and _PRONOUN.match(text, end.end("next")) is not None
    before_opener = (
        (word.islower() or word in rules.after_names or _ROMAN.fullmatch(word) or is_pronoun)
        and (is_pronoun or end["next"] in rules.openers)
        and text[end.start() - len(word) - 1 : end.start() - len(word)] != "."
    )
    # Most words are initials and titles, which need no further look.
    may_be_last = word in rules.last_words or _may_be_common(word)
    is_acronym = word.isupper() and not word.isascii()
    if not (before_opener or may_be_last or is_acronym) or is_open(text[start : end.end()]):
        return False
    if before_opener or word in rules.ordinary_words:
        return True
    if _may_be_common(word) and not document.is_abbreviation(word):
        return True
    # As much as the longest phrase takes.
    before = text[max(0, end.start() - 24) : end.start()]
    following = end["next"]
    if rules.always.search(before):
        # "5 km. NW of Athens"
        return not (following.isupper() and 1 < len(following) <= 3)
    if not rules.unless_name.search(before) and not _ACRONYM.search(before + "."):
        return False
    # "J.R.R. T. Smith"
    is_initial = len(following) == 1 and text[end.end("next") :][:1] == "."
    return not is_initial and (following in rules.openers or not document.is_name(following))


def _ends_by_pattern(end: re.Match[str], start: int, rules: _CutRules) -> bool:
    lines = end.string
    is_plain = end[0] in ".!?" and lines[end.start() - 1].isalpha()
    if is_plain and not end["next"][0].isdigit():
        return False  # no pattern matches "... a word.⏎Next", as most ends are
    before = lines[max(start, end.end() - _SEEN_BEFORE) : end.end()]
    after = lines[end.end() + 1 : end.end() + 1 + _SEEN_AFTER]
    return _matches(f"{before}\n{after}", rules) and not is_open(lines[start : end.end()])


@lru_cache(maxsize=1000)  # texts such as "1. 1. 1." repeat it hundreds of times in a line
def _matches(seen: str, rules: _CutRules) -> bool:
    """Return whether a pattern matches at an end, which a line break stands for."""
    for pattern in rules.patterns:
        found = pattern.search(seen)
        if found:
            word = found.groupdict().get("word", "")
            return not is_abbreviation(word, rules.code)
    return False


@lru_cache(maxsize=10_000)
def is_abbreviation(word: str, code: str) -> bool:
    """Return whether a word is in the language's lists of abbreviations, ours and sentencex's."""
    listed = words_of(WORDS.abbreviations, code) | words_of(WORDS.before_names, code)
    if is_listed(word, listed | before_numbers_of(code)):
        return True
    return bool(word) and len(segment(code, f"Ab {word}. Ab")) == 1


def _may_be_common(word: str) -> bool:
    if len(word) <= 1:
        return False
    return word[0].islower() or (word.isupper() and not _ROMAN.fullmatch(word))
