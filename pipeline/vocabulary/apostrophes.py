"""Keep together words with an apostrophe inside, in the languages that write it as a letter.

Ukrainian комп'ютер (computer), Hawaiian Hawaiʻi and Breton c'hoar (sister) are one word each; BERT
cuts them at the apostrophe, as it does English don't and French l'eau. Unicode's word boundaries
(UAX 29, rules WB6 and WB7) keep an apostrophe between two letters in the word, in all languages.
Here that is done where the apostrophe is a letter of the alphabet: `_LANGUAGES` has those with ʼ
or ʻ among the main exemplar characters of CLDR 48, and a few with the same orthography.

Such texts write the letter as U+0027, U+2018 or U+2019 too. So the normaliser replaces these, if
they are between letters of the script, by the letter itself, which is not punctuation: the three
spellings of a word become one, and BERT's pre-tokenizer leaves it whole.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

_LETTER = "ʼ"  # U+02BC, modifier letter apostrophe
_OKINA = "ʻ"  # U+02BB, modifier letter turned comma

# As ranges, and not \p{Cyrillic}, because each implementation of `tokenizers` names scripts in its
# own way. Accents may follow a letter.
_MARKS = "\u0300-\u036f"
_CYRILLIC = "\u0400-\u052f"
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"

WRITTEN_AS = "'\u2018\u2019"
"""Characters that texts write instead of the letter."""


class Replacement(NamedTuple):
    """A regular expression, and the letter that replaces what it matches."""

    pattern: str
    letter: str


def _between(before: str, after: str) -> str:
    return f"(?<=[{before}])[{WRITTEN_AS}](?=[{after}])"


_IN_LATIN = _between(_LATIN + _MARKS, _LATIN)

RULES: Mapping[str, tuple[Replacement, ...]] = {
    "cyrillic": (Replacement(_between(_CYRILLIC + _MARKS, _CYRILLIC), _LETTER),),
    "latin": (Replacement(_IN_LATIN, _LETTER),),
    "okina": (Replacement(_IN_LATIN, _OKINA),),
    # Uzbek has both: oʻ and gʻ are letters, and ʼ separates, as in maʼno.
    "uzbek": (Replacement(_between("OoGg", _LATIN), _OKINA), Replacement(_IN_LATIN, _LETTER)),
}
"""The replacements of each rule, by its name."""

_LANGUAGES = {
    # be and rue are not in CLDR's list: like uk, they write ' to keep a consonant hard.
    **dict.fromkeys(("be", "be-tarask", "rue", "uk"), "cyrillic"),
    **dict.fromkeys(("br", "bss", "cad", "cic", "gn", "ha", "kek", "lkt", "mgo", "mic"), "latin"),
    **dict.fromkeys(("moh", "mus", "nnh", "nv", "qu", "quc"), "latin"),
    # sm and ty write the glottal stop as haw and to do.
    **dict.fromkeys(("haw", "sm", "to", "ty"), "okina"),
    "uz": "uzbek",
}
_MIN_SHARE = {"cyrillic": 0.01}
# No language cuts a word at an apostrophe between Cyrillic letters, so that a small share decides.
# Between Latin letters English and French do: there it must be the language of most of the text.
_MIN_SHARE_IN_LATIN = 0.5


def rules_for(shares: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of the rules for languages with these shares of the text, in alphabetical
    order.

    >>> rules_for({"ru": 0.9, "uk": 0.1}), rules_for({"en": 0.9, "haw": 0.1})
    (('cyrillic',), ())
    """
    rules = set()
    for language, share in shares.items():
        rule = _LANGUAGES.get(language) or _LANGUAGES.get(language.split("-")[0])
        if rule and share >= _MIN_SHARE.get(rule, _MIN_SHARE_IN_LATIN):
            rules.add(rule)
    return tuple(sorted(rules))


def replacements_of(rules: tuple[str, ...]) -> list[Replacement]:
    """Return the replacements of the rules, in the order in which they are made."""
    replacements: list[Replacement] = []
    for rule in rules:
        replacements.extend(RULES[rule])
    return replacements


def rules_of(replacements: list[Replacement]) -> tuple[str, ...] | None:
    """Return the rules that make these replacements; None if none do."""
    for num_rules in range(len(RULES) + 1):
        for rules in combinations(sorted(RULES), num_rules):
            if replacements_of(rules) == replacements:
                return rules
    return None
