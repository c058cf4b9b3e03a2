"""List where sentencex splits too eagerly, and where it does not split, by language.

- `JOINS`: patterns at which two pieces are one sentence;
- `ABBREVIATIONS`: words whose full stop does not end a sentence;
- `MISSED_ENDS`: patterns at which one piece is two sentences;
- `FINAL_WORDS`: words as short as an initial that do end sentences;
- `NO_ENDS`: punctuation at which sentencex splits, and which does not end a sentence in a language;
- `CUTS`: ends of sentences that it does not know;
- `endings_of`: abbreviations that often end a sentence.

Words and patterns are in ``sentence_words.toml``, which says where they come from.
`benchmarks.sentences` measures the result.
"""

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, toml
from msgspec.structs import replace

from ..languages import language_tag
from .wikitext.names import language_labels

# Languages that sentencex does not know are split by the rules of another.
_RULES_OF = {
    "auto": "en",
    "gan": "zh",
    "gsw": "de",
    "hak": "zh",
    "lzh": "zh",
    "nan": "zh",
    "nds-nl": "nl",
    "rup": "ro",
    "sgs": "lt",
    "und": "en",
    "vro": "et",
    "wuu": "zh",
    "yue": "zh",
}


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

    def holds_in(self, language: str) -> bool:
        """Return whether this is a rule of a language."""
        return self.languages == "*" or language in self.languages.split()


def language_code(language: str) -> str:
    """Return the code of `language` in the rules, as in BCP 47 without region or script.

    >>> [language_code(code) for code in ("en_GB", "simple", "zh-yue", "ko")]
    ['en', 'en', 'zh', 'ko']
    """
    tag = language_tag(language)
    code, _, _ = tag.partition("-")
    return _RULES_OF.get(tag) or _RULES_OF.get(code, code)


def ranges_of(characters: Iterable[str]) -> str:
    """Return characters, in order, as they are written between the brackets of a pattern: one by
    one, `re` would take milliseconds to compile the thousands of some scripts.

    >>> ranges_of("abcdxy")
    'a-dxy'
    """
    ranges: list[str] = []
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
SMALL_LETTER = f"[{LOWER_CASE}]"


class _SentenceWords(Struct, frozen=True):
    """The content of ``sentence_words.toml``: words by languages, and rules.

    Codes and words are separated by white space; phrases are without their last full stop.
    """

    abbreviations: dict[str, str]
    before_numbers: dict[str, str]
    final_words: dict[str, str]
    ordinary_words: dict[str, str]
    openers: dict[str, str]
    units: dict[str, str]
    others: dict[str, tuple[str, ...]]
    eras: dict[str, tuple[str, ...]]
    after_names: str
    parts: dict[str, str]
    joins: tuple[Rule, ...]
    missed_ends: tuple[Rule, ...]


def _by_language(table: dict[str, str]) -> dict[str, frozenset[str]]:
    words_of: dict[str, frozenset[str]] = {}
    for languages, words in table.items():
        for language in languages.split():
            words_of[language] = frozenset(words.split())
    return words_of


_WORDS = toml.decode(
    Path(__file__).with_name("sentence_words.toml").read_bytes(), type=_SentenceWords
)


def _with_parts(rule: Rule) -> Rule:
    """Return a rule with the parts that its patterns name."""
    before, after = rule.before, rule.after
    for name, part in {**_WORDS.parts, "upper": UPPER_CASE, "lower": LOWER_CASE}.items():
        before = before.replace(f"{{{name}}}", part)
        after = after.replace(f"{{{name}}}", part)
    return replace(rule, before=before, after=after)


JOINS = tuple(map(_with_parts, _WORDS.joins))
"""Where two pieces are one sentence."""
MISSED_ENDS = tuple(map(_with_parts, _WORDS.missed_ends))
"""Where one piece is two sentences; the group ``word`` must not be an abbreviation."""

ABBREVIATIONS = _by_language(_WORDS.abbreviations)
"""In lower case; before a capital, they may end a sentence after a number ("in 1890 г. Later")."""

BEFORE_NUMBERS = _by_language(_WORDS.before_numbers)
"""Abbreviations before a number, in languages in which numbers may begin a sentence."""

AFTER_NAMES = frozenset(_WORDS.after_names.split())
"""Abbreviations in any language, with a capital as names have, that no name follows."""

SYLLABIC = frozenset(("cs", "sk", "sl", "hr", "bs", "sh", "sr", "mk", "cy"))
"""Languages in which words, such as "vrh", have no vowel."""

FINAL_WORDS = _by_language(_WORDS.final_words)
"""Verbs and particles of one syllable, which are not initials."""

ORDINARY_WORDS = _by_language(_WORDS.ordinary_words)
"""Words that sentencex takes for abbreviations, with a capital or without."""

OPENERS = _by_language(_WORDS.openers)
"""With a capital: words that begin a sentence after an abbreviation in lower case."""

BEFORE_CAPITALS = frozenset(
    (
        *("Ft", "Mdlle", "Mdme", "Messrs", "Mr", "Mrs", "Sta", "Ste"),
        *("Vol", "Vols", "vol", "vols", "ed"),
        *("ser", "ssp", "subg", "subsp", "var", "a.m", "p.m"),
    )
)
"""English abbreviations that sentencex lacks, before the capital of a name or a Roman numeral."""

OWN_INITIALS = frozenset(("en", "ko", "ja", "zh"))
"""Languages without initials, or in which sentencex joins them itself ("vitamin C. The" is two)."""

ENDS = {
    **dict.fromkeys(("hi", "mr", "ne", "mai", "bho", "sa", "new", "or", "pa"), "।॥"),
    **dict.fromkeys(("bn", "as", "bpy"), "।৷"),
    **dict.fromkeys(("ar", "ary", "arz", "fa", "ckb"), "؟"),
    **dict.fromkeys(("ur", "pnb", "ps"), "۔؟"),
    **dict.fromkeys(("hy", "hyw"), "։"),
    **dict.fromkeys(("am", "ti"), "።"),
    **dict.fromkeys(("my", "shn", "mnw"), "။"),
}
"""Marks besides ``.``, ``!`` and ``?`` that end a sentence, at which quotations are cut."""

NO_ENDS = {
    **dict.fromkeys(("hy", "hyw"), "․.՜՞"),
    **dict.fromkeys(("km", "th", "bo", "dz"), "."),
    **dict.fromkeys(("my", "shn", "mnw"), ".၊၏"),
}
"""Marks at which sentencex splits, and which do not end a sentence.

The Burmese ၏ is a genitive; where it is the verb that ends a sentence, ။ follows.
"""

GERSHAYIM = frozenset(("he", "yi"))
"""Languages whose abbreviations are typed with a quotation mark: 130 מ"מ."""

MIRRORED_QUOTES = frozenset(("ar", "ary", "arz", "ckb", "fa", "ps", "ur"))
"""Languages, written from right to left, in which ” opens a quotation in some texts."""

YEARS_END = frozenset(("ar", "ary", "arz", "he"))
"""Languages without capitals in which a year and its era's abbreviation often end a sentence."""

# sentencex does not split after 。 if a digit follows: "…がある。2003年には…" stays one piece.
# Bengali is often typed with the currency sign ৷ instead of the danda ।. sentencex does not know
# the end of a Khmer sentence.
CUTS = {
    **dict.fromkeys(("ja", "zh"), re.compile("(?<=[。！？])(?=[0-9０-９])|[「『（(“」』）)”]")),
    **dict.fromkeys(("bn", "as", "bpy"), re.compile(r"(?<=৷)(?!\W*$)|[(“)”]")),
    "km": re.compile(r"(?<=[។៕])(?!\W*$)|[(“«)”»]"),
}


def language_abbreviations(language: str) -> frozenset[str]:
    """Return the abbreviated names of languages that a Wikipedia puts before foreign text.

    >>> "niem" in language_abbreviations("pl")
    True
    """
    labels = language_labels().get(language, {}).values()
    return frozenset(label.rstrip(" .") for label in labels if label.endswith(". "))


class Endings(NamedTuple):
    """Words with a full stop that end a sentence before a capital, without that full stop."""

    always: re.Pattern[str]
    """Units after a number, and "and others"."""
    unless_name: re.Pattern[str]
    """Eras and the like: "44 до н. е. Також" is cut, "44 до н. е. Цезар" is not."""
    ordinary_words: frozenset[str]
    """Those of `ORDINARY_WORDS`."""
    openers: frozenset[str]
    """Those of `OPENERS`: what follows, whatever the word."""
    last_words: frozenset[str]
    """The letters at the end of each, so that a pattern is only tried where it may match."""


_NUMBER = r"(?:\d|(?:млн|млрд|тыс|тис|хил)\.?|τετρ\.|кв\.|куб\.|sq|square|cubic)"


@cache
def endings_of(language: str) -> Endings:
    """Return the endings of a language, by what the tables list for it."""
    units = _UNITS.get(language, _UNITS["*"])
    ordinary_words = ORDINARY_WORDS.get(language, frozenset())
    others = _phrases(_WORDS.others, language)
    eras = _phrases(_WORDS.eras, language)
    units_pattern = "|".join(map(re.escape, sorted(units)))
    return Endings(
        always=re.compile(
            rf"{_NUMBER}[ \u00a0]?(?:{units_pattern})[²³]?$|(?<!\w)(?:{_alternatives(others)})$"
        ),
        unless_name=re.compile(rf"(?<!\w)(?:{_alternatives(eras)})$"),
        ordinary_words=ordinary_words,
        openers=OPENERS.get(language, frozenset()),
        last_words=frozenset(map(_last_word, (*units, *others, *eras))) | ordinary_words,
    )


def _last_word(phrase: str) -> str:
    return re.split(r"[\W\d_]", phrase)[-1]


def _phrases(table: dict[str, tuple[str, ...]], language: str) -> tuple[str, ...]:
    for languages, phrases in table.items():
        if language in languages.split():
            return phrases
    return ()


def _alternatives(phrases: Iterable[str]) -> str:
    """Return a pattern of phrases, with or without their spaces; of nothing if there are none."""
    return "|".join(re.escape(phrase).replace("\\ ", " ?") for phrase in phrases) or "(?!)"


_UNITS = _by_language(_WORDS.units)

LAST_WORDS = frozenset(
    _last_word(phrase)
    for phrases in (*_UNITS.values(), *_WORDS.others.values(), *_WORDS.eras.values())
    for phrase in phrases
)
"""The `Endings.last_words` of all languages."""
