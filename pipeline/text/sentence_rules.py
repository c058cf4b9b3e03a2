"""Load ``sentence_words.toml``: where sentencex splits too eagerly, and where it does not split.

`benchmarks.sentences` measures what a word or a pattern changes.
"""

import re
from collections.abc import Container, Iterable
from copy import deepcopy
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct, toml

from ..languages import language_tag


class Rule(Struct, frozen=True):
    """A place in a text, where two pieces are one sentence, or a piece is two: regular expressions
    of what is before it and after it, without the blank.
    """

    languages: str
    """Codes of the languages of the rule, or ``*`` for all."""
    example: str
    """Real text; ``|`` marks the place."""
    before: str = ""
    after: str = ""


class _SentenceWords(Struct, frozen=True):
    """The content of the file, which explains each. Codes and words are separated by white space,
    phrases by commas; the keys of tables are codes.
    """

    after_names: str
    own_initials: str
    syllabic: str
    gershayim: str
    mirrored_quotes: str
    nordic_quotes: str
    years_end: str
    rules_of: dict[str, str]
    ends: dict[str, str]
    no_ends: dict[str, str]
    marks: dict[str, str]
    abbreviations: dict[str, str]
    before_capitals: dict[str, str]
    before_names: dict[str, str]
    months: dict[str, str]
    before_numbers: dict[str, str]
    proclitics: dict[str, str]
    final_words: dict[str, str]
    ordinary_words: dict[str, str]
    openers: dict[str, str]
    units: dict[str, str]
    others: dict[str, str]
    parts: dict[str, str]
    joins: tuple[Rule, ...]
    missed_ends: tuple[Rule, ...]


WORDS = toml.decode(
    Path(__file__).with_name("sentence_words.toml").read_bytes(), type=_SentenceWords
)


def row_of(table: dict[str, str], language: str) -> str:
    """Return what a table of `WORDS` lists for a language; "" if nothing."""
    for languages, row in table.items():
        if language in languages.split():
            return row
    return table.get("*", "")


def words_of(table: dict[str, str], language: str) -> frozenset[str]:
    """Return the words that a table lists for a language."""
    return frozenset(row_of(table, language).split())


def is_listed(word: str, words: Container[str]) -> bool:
    """Return whether a list has a word; what it lists with a capital has only that form."""
    return word.lower() in words or word in words


@cache
def before_numbers_of(language: str) -> frozenset[str]:
    """Return the abbreviations before numbers, among them those of months (CLDR's)."""
    listed = words_of(WORDS.before_numbers, language) | {"al"}  # "et al. (2004)"
    full, short = months_of(language)
    # Italian has "febbr.", too.
    short.update(name[:length] for name in full for length in range(4, len(name)))
    words = words_of(WORDS.ordinary_words, language) | full
    return listed | {month for month in short - words if month.isalpha()}


def months_of(language: str) -> tuple[set[str], set[str]]:
    """Return the names of months in small letters, and their abbreviations without the stop."""
    if row := WORDS.months.get(language):
        names, abbreviated = row.split(",")
        return set(names.split()), set(abbreviated.split())
    from babel import localedata  # late: to read CLDR takes longer than a short text

    if not localedata.exists(language):
        return set(), set()
    # A copy, because what `babel` looks up in one language it writes to what all of them share.
    shared: dict[str | int | None, Any] = {"months": localedata.load(language)["months"]}
    months = localedata.LocaleDataDict(deepcopy(shared))["months"].values()
    full = set()
    short = set()
    for form in months:
        full.update(map(str.lower, form["wide"].values()))
        short.update(name.rstrip(".").lower() for name in form["abbreviated"].values())
    return full, short - full


def language_code(language: str) -> str:
    """Return the code of `language` in the rules, as in BCP 47 without region or script.

    >>> [language_code(code) for code in ("en_GB", "simple", "zh-yue", "ko")]
    ['en', 'en', 'zh', 'ko']
    """
    tag = language_tag(language)
    code, _, _ = tag.partition("-")
    return WORDS.rules_of.get(tag) or WORDS.rules_of.get(code, code)


def ranges_of(characters: Iterable[str]) -> str:
    """Return characters, in order, as they are written between the brackets of a pattern: one by
    one, `re` would take milliseconds to compile the thousands of some scripts.

    >>> ranges_of("abcdxy")
    'a-dxy'
    """
    ranges = []
    # Neighbours are as far from their places in the list as the first of them.
    for _, neighbours in groupby(enumerate(characters), lambda item: ord(item[1]) - item[0]):
        run = [character for _, character in neighbours]
        if len(run) > 2:
            ranges.append(f"{run[0]}-{run[-1]}")
        else:
            ranges += run
    return "".join(ranges)


LAST_CASED = "\u058f"
LOWER_CASE = ranges_of(filter(str.islower, map(chr, range(0x590))))
UPPER_CASE = ranges_of(filter(str.isupper, map(chr, range(0x590))))


compiled = cache(re.compile)
"""Compiles a pattern that few texts need when the first one does."""


@cache
def with_parts(pattern: str) -> str:
    """Return a pattern with the parts that it names in braces."""
    for name, part in {**WORDS.parts, "upper": UPPER_CASE, "lower": LOWER_CASE}.items():
        pattern = pattern.replace(f"{{{name}}}", part.replace("\n", ""))
    return pattern


def patterns_in(rules: Iterable[Rule], language: str, end: str) -> list[str]:
    """Return a pattern of each rule that holds in a language; `end` stands between its pieces."""
    return [
        with_parts(f"(?:{rule.before}){end}(?:{rule.after})")
        for rule in rules
        if rule.languages == "*" or language in rule.languages.split()
    ]


def last_word(phrase: str) -> str:
    """Return the letters at the end of a phrase."""
    return re.split(r"[\W\d_]", phrase)[-1]


LAST_WORDS = frozenset(
    last_word(phrase)
    for table, separator in ((WORDS.units, None), (WORDS.others, ","))
    for phrases in table.values()
    for phrase in phrases.split(separator)
).union(WORDS.after_names.split())
"""The last words of all phrases that end a sentence, and of units."""
