"""Normalise text before it is cut into tokens: as BERT does, and keep together words with an
apostrophe inside, in the languages that write it as a letter.

Ukrainian комп'ютер (computer), Hawaiian Hawaiʻi and Breton c'hoar (sister) are one word each; BERT
cuts them at the apostrophe, as it does English don't and French l'eau. Unicode's word boundaries
(UAX 29, rules WB6 and WB7) keep an apostrophe between two letters in the word, in all languages.
Here that is done where the apostrophe is a letter of the alphabet: `_LANGUAGES` has those with ʼ
or ʻ among the main exemplar characters of CLDR 48, and a few with the same orthography.

Such texts write the letter as U+0027, U+2018 or U+2019 too. So the normaliser replaces these, if
they are between letters of the script, by the letter itself, which is not punctuation: the three
spellings of a word become one, and BERT's pre-tokenizer leaves it whole.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import NFC, BertNormalizer, Normalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

MAX_WORD_CHARACTERS = 100
"""BERT's WordPiece turns any longer word into [UNK]."""

_LETTER = "ʼ"  # U+02BC, modifier letter apostrophe
_OKINA = "ʻ"  # U+02BB, modifier letter turned comma

# As ranges, and not \p{Cyrillic}, because each implementation of `tokenizers` names scripts in its
# own way. Accents may follow a letter.
_MARKS = "\u0300-\u036f"
_CYRILLIC = "\u0400-\u052f"
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"

WRITTEN_AS = "'\u2018\u2019"
"""Characters that texts write instead of the letter."""


def _between(before: str, after: str) -> str:
    return f"(?<=[{before}])[{WRITTEN_AS}](?=[{after}])"


_IN_LATIN = _between(_LATIN + _MARKS, _LATIN)

RULES = {
    "cyrillic": [(_between(_CYRILLIC + _MARKS, _CYRILLIC), _LETTER)],
    "latin": [(_IN_LATIN, _LETTER)],
    "okina": [(_IN_LATIN, _OKINA)],
    # Uzbek has both: oʻ and gʻ are letters, and ʼ separates, as in maʼno.
    "uzbek": [(_between("OoGg", _LATIN), _OKINA), (_IN_LATIN, _LETTER)],
}
"""The replacements of each rule, by its name: a regular expression, and the letter."""

_LANGUAGES = {
    # be and rue are not in CLDR's list: like uk, they write ' to keep a consonant hard.
    **dict.fromkeys(("be", "be-tarask", "rue", "uk"), "cyrillic"),
    **dict.fromkeys(("br", "bss", "cad", "cic", "gn", "ha", "kek", "lkt", "mgo", "mic"), "latin"),
    **dict.fromkeys(("moh", "mus", "nnh", "nv", "qu", "quc"), "latin"),
    # sm and ty write the glottal stop as haw and to do.
    **dict.fromkeys(("haw", "sm", "to", "ty"), "okina"),
    "uz": "uzbek",
}


def rules_for(shares: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of the rules for languages with these shares of the text, in alphabetical
    order.

    >>> rules_for({"ru": 0.9, "uk": 0.1}), rules_for({"en": 0.9, "haw": 0.1})
    (('cyrillic',), ())
    """
    rules = set()
    for language, share in shares.items():
        rule = _LANGUAGES.get(language) or _LANGUAGES.get(language.split("-")[0])
        # No language cuts a word at an apostrophe between Cyrillic letters, so that a small share
        # decides. Between Latin letters English and French do: there it must be the language of
        # most of the text.
        min_share = 0.01 if rule == "cyrillic" else 0.5
        if rule and share >= min_share:
            rules.add(rule)
    return tuple(sorted(rules))


class Normalization(NamedTuple):
    """How text is normalised: both True for the published uncased BERT, both False for cased."""

    lowercase: bool
    strip_accents: bool
    apostrophes: tuple[str, ...] = ()
    """Names of the rules in `RULES` by which apostrophes inside words are kept; BERT has none."""
    composes: bool = False
    """Whether text is composed first (NFC), so that é is one character however it was written; BERT
    has no such step. Where accents are stripped, it makes no difference.
    """


def bert_tokenizer(tokens: Sequence[str], normalization: Normalization) -> Tokenizer:
    """Return BERT's tokenizer for `tokens` in the order of their ids, including "[UNK]".

    No special tokens are registered: "[MASK]" in a text is three words of text.
    """
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(
        WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARACTERS)
    )
    bert_normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=normalization.strip_accents,
        lowercase=normalization.lowercase,
    )
    steps: list[Normalizer] = [NFC()] if normalization.composes else []
    steps.append(bert_normalizer)
    for rule in normalization.apostrophes:
        for pattern, letter in RULES[rule]:
            steps.append(normalizers.Replace(Regex(pattern), letter))
    # A single step alone, as in BERT's own file.
    tokenizer.normalizer = normalizers.Sequence(steps) if steps[1:] else bert_normalizer
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder(prefix="##")
    return tokenizer


def bert_normalization(fields: Mapping[str, Any]) -> Normalization | None:
    """Return the normalisation of a WordPiece that cuts text as BERT does, else None."""
    normalizer: dict[str, Any] = fields["normalizer"] or {"type": None}
    steps = normalizer.get("normalizers", [normalizer])
    bert = [step for step in steps if step["type"] == "BertNormalizer"]
    if len(bert) != 1:
        return None
    asked = normalization_of(bert[0]["lowercase"], bert[0]["strip_accents"])
    asked = asked._replace(composes=steps[0]["type"] == "NFC")
    bert[0]["strip_accents"] = asked.strip_accents
    parts = ("model", "normalizer", "pre_tokenizer")
    found = {part: fields[part] for part in parts} | {"model": {**fields["model"], "vocab": {}}}
    for num_rules in range(len(RULES) + 1):
        for rules in combinations(sorted(RULES), num_rules):
            normalization = asked._replace(apostrophes=rules)
            expected = json.loads(bert_tokenizer(["[UNK]"], normalization).to_str())
            expected["model"]["vocab"] = {}
            if all(found[part] == expected[part] for part in parts):
                return normalization
    return None


def normalization_of(lowercase: bool, strip_accents: bool | None) -> Normalization:
    """Return the normalisation that a tokenizer's settings ask for."""
    if strip_accents is None:  # BERT's default: accents go with the capitals
        strip_accents = lowercase
    return Normalization(lowercase, strip_accents)
