"""Translate the language codes of sources to those of BCP 47, which documents have."""

import re
from difflib import get_close_matches
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
    """Raise `UserError`, naming the code meant, unless this is a language's code: not its name, nor
    that of a country, nor three letters where there are two.

    Codes and names are those of CLDR, by ``babel``. Languages of three letters that it does not
    name are taken as they are: ISO 639-3 has 7,900.
    """
    tag = language_tag(code)
    language, _, _ = tag.partition("-")
    is_known = _TAG.fullmatch(tag) is not None
    meant = ""
    if find_spec("babel") is not None:  # not where only manifests are read
        from babel import Locale, localedata
        from babel.core import get_global

        aliases = get_global("language_aliases")
        shorter = aliases.get(language, "")
        if len(language) == 3 and len(shorter) == 2:  # ukr, whose rules would not be found
            is_known = False
            meant = shorter
        # A language that has a locale has a name, too, and the names take 30 ms to load.
        elif len(language) == 2 and not localedata.exists(language) and language not in aliases:
            is_known = language in Locale("en").languages
        if not is_known and not meant:
            meant = _code_of_name(code)
    if is_known:
        return
    hint = f"; did you mean {meant}" if meant else ": give one such as en, uk or zh"
    raise UserError(f"`language` is {code}, which is not the code of a language{hint}.")


def _code_of_name(text: str) -> str:
    """Return the code of the language with this English name, or of the country with this code."""
    from babel import Locale
    from babel.languages import get_official_languages

    code_of_name = {name.lower(): code for code, name in Locale("en").languages.items()}
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
