"""Translate the language codes of sources to those of BCP 47, which documents have."""

import re
from functools import lru_cache
from importlib.util import find_spec

from .errors import UserError

UNKNOWN = "und"
"""The code of BCP 47 for text in an undetermined language."""

_WIKI_CODES = {
    "als": "gsw",
    "bat-smg": "sgs",
    "be-x-old": "be-tarask",
    "cbk-zam": "cbk",
    "eml": "egl",
    "fiu-vro": "vro",
    "map-bms": "jv-x-bms",
    "no": "nb",
    "nrm": "nrf",
    "roa-rup": "rup",
    "roa-tara": "nap-x-tara",
    "simple": "en",
    "zh-classical": "lzh",
    "zh-min-nan": "nan",
    "zh-yue": "yue",
}
"""Codes of Wikipedias that are not BCP 47, from MediaWiki's ``LanguageCode``, and Norwegian."""


_TAG = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8})*")


def check_language(code: str) -> None:
    """Raise `UserError` unless this is a language's code: not its name, nor that of a country."""
    if not known_language(code):
        advice = "give one such as en, uk or zh"
        raise UserError(f"`language` is {code}, which is not the code of a language: {advice}.")


@lru_cache(maxsize=1000)
def known_language(code: str) -> str:
    """Return the tag of a language's code, of two letters where there are such (``de`` of ``deu``);
    "" if it is not one.

    Codes are those of CLDR, by ``babel``. Languages of three letters that it does not name are
    taken as they are: ISO 639-3 has 7,900.
    """
    tag = language_tag(code)
    if not _TAG.fullmatch(tag):
        return ""
    language, hyphen, subtags = tag.partition("-")
    if find_spec("babel") is not None:  # not where only manifests are read
        from babel import Locale, localedata
        from babel.core import get_global

        # A language that has a locale has a name, too; to read names and aliases takes 40 ms.
        if len(language) == 2 and localedata.exists(language):
            return tag
        aliases = get_global("language_aliases")
        shorter = aliases.get(language, "")
        if len(language) == 3 and len(shorter) == 2:  # ukr, whose rules would not be found
            return f"{shorter}{hyphen}{subtags}"
        if len(language) == 2 and language not in aliases:
            return tag if language in Locale("en").languages else ""
    return tag


def language_tag(code: str) -> str:
    """Return a language's code, or a Wikipedia's, in lower case with hyphens; `UNKNOWN` if empty.

    >>> [language_tag(code) for code in ("en_GB", "simple", "zh-yue", "")]
    ['en-gb', 'en', 'yue', 'und']
    """
    tag = code.lower().replace("_", "-")
    return _WIKI_CODES.get(tag, tag) or UNKNOWN
