"""Translate the language codes of sources to those of BCP 47, which documents have."""

import re
from collections.abc import Mapping
from difflib import get_close_matches

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
    """Raise `UserError`, naming the code meant, unless this is a language's code: not its name, nor
    that of a country, nor three letters where there are two.

    Codes and names are those of CLDR, by ``babel``. Languages of three letters that it does not
    name are taken as they are: ISO 639-3 has 7,900.
    """
    tag = language_tag(code)
    language, _, _ = tag.partition("-")
    try:
        from babel import Locale
        from babel.core import get_global
    except ImportError:  # a manifest is read where `ingest` is not installed
        names, aliases = {}, {}
    else:
        names = Locale("en").languages
        aliases = get_global("language_aliases")
    # Such as ukr, whose rules would not be found.
    shorter = aliases.get(language, "")
    is_long = len(language) == 3 and len(shorter) == 2
    is_unknown = bool(names) and len(language) == 2 and language not in {*names, *aliases}
    if _TAG.fullmatch(tag) and not is_long and not is_unknown:
        return
    meant = shorter if is_long else _code_meant(code, names)
    hint = f"; did you mean {meant}" if meant else ": give one such as en, uk or zh"
    raise UserError(f"`language` is {code}, which is not the code of a language{hint}.")


def _code_meant(text: str, names: Mapping[str, str]) -> str:
    """Return the code of the language with this English name, or of the country with this code."""
    if not names:
        return ""
    from babel.languages import get_official_languages

    code_of_name = {name.lower(): code for code, name in names.items()}
    close = get_close_matches(text.lower(), code_of_name, n=1, cutoff=0.8)
    if close:
        return code_of_name[close[0]].replace("_", "-").lower()
    # Its first official language, such as ja of JP.
    official = get_official_languages(text.upper(), de_facto=True)
    return official[0] if official else ""


def language_tag(code: str) -> str:
    """Return a language's code, or a Wikipedia's, in lower case with hyphens; `UNKNOWN` if empty.

    >>> [language_tag(code) for code in ("en_GB", "simple", "zh-yue", "")]
    ['en-gb', 'en', 'yue', 'und']
    """
    tag = code.lower().replace("_", "-")
    return _WIKI_CODES.get(tag, tag) or UNKNOWN
