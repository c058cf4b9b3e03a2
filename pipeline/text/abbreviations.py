"""A user's abbreviations: words whose full stop never ends a sentence, in a language's own rules.

While a text is split, each of these full stops is shown as a character that ends nothing.
"""

import re
from functools import cache

from msgspec import Struct

from ..parsing import parse_toml_option
from .sentence_rules import language_code

HIDDEN_STOP = "\ue000"
"""Of Unicode's private use: no rule of any language looks at it."""


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
    words_of = parse_toml_option(
        text, _Abbreviations, "abbreviations", "words by language"
    ).abbreviations
    listed: set[str] = set()
    for code, words in words_of.items():
        if code == "*" or language_code(code) == language:
            listed.update(word.rstrip(".") for word in words.split())
    # The longest first: "e.g" before "e".
    words = sorted(listed - {""}, key=len, reverse=True)
    if not words:
        return None
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, words))})\.", re.IGNORECASE)
