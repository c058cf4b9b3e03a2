"""Cut after ends of sentences that sentencex misses.

A text is a string of lines, as in `sentence_joins`; to cut is to add a line break. What sentencex
leaves whole, it takes for an abbreviation, a quotation or bracket, or a sentence that continues:

    It runs on for 19 km. Ferries cross it. Come with me. Farewell, my friend!
                        ^ a unit                        ^ a word like any other
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import chain
from string import ascii_uppercase

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

from .sentence_quotes import ORPHAN, Quotations, is_open
from .sentence_rules import (
    LAST_CASED,
    LAST_WORDS,
    WORDS,
    before_numbers_of,
    compiled,
    is_listed,
    last_word,
    patterns_in,
    ranges_of,
    row_of,
    words_of,
)

_NEXT = (
    rf"(?P<closers>[\"'”’»)\]¹²³†‡]*)"
    rf"(?= [\"“‘'«„»(\[¿¡—–{ORPHAN}-]* ?(?P<next>\d+|(?![a-zа-я])[^\W_]+))"
)
_WORD_BEFORE = re.compile(r"([^\W\d_]+)[²³]?$")
_ROMAN = re.compile("[IVXLC]+")
_AFTER_NAMES = frozenset(WORDS.after_names.split())
_PRONOUN = re.compile("[ '’][a-z]")  # "I chose", "I'd", not "Vol. I, 1987"
_NUMBER = r"(?:\d|(?:млн|млрд|тыс|тис|хил)\.?|τετρ\.|кв\.|куб\.|sq|square|cubic)"


class _CutRules:
    """The rules of one language; its words and phrases end a sentence before a capital."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.ordinary_words = words_of(WORDS.ordinary_words, code)
        # What follows the end of a sentence, whatever its last word.
        self.openers = words_of(WORDS.openers, code)
        # A line break stands for the end.
        self.patterns = patterns_in(WORDS.missed_ends, code, "\n")
        # Initials, which end no sentence, are many in a text.
        initials = set(ascii_uppercase) - LAST_WORDS - self.ordinary_words
        is_word = rf"(?<! [{ranges_of(sorted(initials))}]\.)"
        if code == "en":  # "plan B. I chose"
            is_word = rf"(?:{is_word}|(?= I[ '’][a-z]))"
        # Where a sentence may end within a line, one for each mark. Each begins with a character,
        # which makes the search fast.
        self.stops = [re.compile(rf"\.(?![.!?…]){is_word}{_NEXT}")]
        for mark in "!?…" + row_of(WORDS.ends, code):
            self.stops.append(re.compile(rf"{re.escape(mark)}(?![.!?…]){_NEXT}"))
        units = words_of(WORDS.units, code)
        units_pattern = "|".join(map(re.escape, sorted(units)))
        others = row_of(WORDS.others, code)
        # With or without the blanks; of nothing if there are none.
        others_pattern = re.escape(others).replace(",\\ ", "|").replace("\\ ", " ?") or "(?!)"
        # Units after a number, and "and others".
        self.always = rf"{_NUMBER}[ \u00a0]?(?:{units_pattern})[²³]?$|(?<!\w)(?:{others_pattern})$"
        # The last words of units and phrases: the pattern is only tried where it may match.
        last_words = frozenset(map(last_word, (*units, *others.split(","))))
        self.last_words = last_words - {""} | self.ordinary_words


_cut_rules_of = cache(_CutRules)


def cut(lines: str, code: str, split: Callable[[str], str]) -> str:
    """Add line breaks after the ends of sentences that sentencex missed.

    `split` returns the lines of a long quotation.
    """
    rules = _cut_rules_of(code)
    parts = []
    num_copied = 0
    quotations = Quotations(lines)
    candidates = chain.from_iterable(stop.finditer(lines) for stop in rules.stops)
    for end in sorted(candidates, key=re.Match.start):
        if end.start() < num_copied or not _may_begin(end["next"][0]):
            continue
        start = max(lines.rfind("\n", 0, end.start()) + 1, num_copied)
        quotation = quotations.around(start, end.start())
        if quotation:
            first, last = quotation
            parts += [lines[num_copied:first], split(lines[first:last])]
            num_copied = last
        elif _ends_by_word(end, start, rules) or _ends_by_pattern(end, start, rules):
            parts += [lines[num_copied : end.end()], "\n"]
            num_copied = end.end()
    parts.append(lines[num_copied:])
    return "".join(parts)


def _ends_by_word(end: re.Match[str], start: int, rules: _CutRules) -> bool:
    """Return whether it ends with a word and a full stop, before a capital."""
    if end[0][0] != "." or not end["next"][0].isupper():
        return False
    text = end.string
    # The letters at the end of the last word.
    word_start = max(text.rfind(" ", 0, end.start()), text.rfind("\n", 0, end.start())) + 1
    letters = _WORD_BEFORE.search(text, word_start, end.start())
    word = letters[1] if letters else ""
    # Not "i.e. They": a letter alone that follows another full stop.
    is_pronoun = end["next"] == "I" and _PRONOUN.match(text, end.end("next")) is not None
    is_whole = text[end.start() - len(word) - 1 : end.start() - len(word)] != "."
    before_opener = (is_pronoun or end["next"] in rules.openers) and (
        word in _AFTER_NAMES
        or (is_whole and (word.islower() or _ROMAN.fullmatch(word) or is_pronoun))
    )
    # Most words are initials and titles, which need no further look.
    may_be_last = word in rules.last_words or _may_be_common(word)
    if not (before_opener or may_be_last) or is_open(text[start : end.end()]):
        return False
    if before_opener or word in rules.ordinary_words:
        return True
    whole = text[word_start : end.start()].lstrip("(\"'“„«[")  # "m.in", "s-ro"
    if _may_be_common(word) and not (
        is_abbreviation(word, rules.code) or is_abbreviation(whole, rules.code)
    ):
        return True
    # As much as the longest phrase takes; not "5 km. NW of Athens".
    is_direction = end["next"].isupper() and 1 < len(end["next"]) <= 3
    before = text[max(0, end.start() - 24) : end.start()]
    return not is_direction and compiled(rules.always).search(before) is not None


def _ends_by_pattern(end: re.Match[str], start: int, rules: _CutRules) -> bool:
    lines = end.string
    is_plain = end[0] in ".!?" and lines[end.start() - 1].isalpha()
    if is_plain and not end["next"][0].isdigit():
        return False  # no pattern matches "... a word.⏎Next", as most ends are
    stop = end.end()
    seen_from = max(start, stop - 40)
    seen_to = stop + 1 + 20
    seen = f"{lines[seen_from:stop]}\n{lines[stop + 1 : seen_to]}"
    return _matches(seen, rules) and not is_open(lines[start:stop])


@lru_cache(maxsize=1000)  # texts such as "1. 1. 1." repeat it hundreds of times in a line
def _matches(seen: str, rules: _CutRules) -> bool:
    """Return whether a pattern matches at an end, which a line break stands for."""
    for pattern in rules.patterns:
        found = compiled(pattern).search(seen)
        if found:
            word = found.groupdict().get("word", "")
            return not is_abbreviation(word, rules.code)
    return False


@lru_cache(maxsize=10_000)
def is_abbreviation(word: str, code: str) -> bool:
    """Return whether a word is in the language's lists of abbreviations, ours and sentencex's."""
    listed = words_of(WORDS.abbreviations, code) | words_of(WORDS.before_names, code)
    listed |= words_of(WORDS.before_capitals, code)
    if is_listed(word, listed | before_numbers_of(code)):
        return True
    return bool(word) and len(segment(code, f"Ab {word}. Ab")) == 1


def _may_begin(letter: str) -> bool:
    """Return whether a sentence may begin with a letter or digit; not in eastern scripts."""
    if letter.isupper() or letter.isdecimal() or "가" <= letter <= "힣":
        return True
    return LAST_CASED < letter < "\u2000" and ("ა" <= letter <= "ჰ" or not letter.islower())


def _may_be_common(word: str) -> bool:
    if len(word) <= 1:
        return False
    return word[0].islower() or (word.isupper() and not _ROMAN.fullmatch(word))
