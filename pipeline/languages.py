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
    has_names = find_spec("babel") is not None  # not where only manifests are read
    if _TAG.fullmatch(tag) and (not has_names or _is_known(language)):
        return
    meant = _code_meant(code) if has_names else ""
    hint = f"; did you mean {meant}" if meant else ": give one such as en, uk or zh"
    raise UserError(f"`language` is {code}, which is not the code of a language{hint}.")


def _is_known(language: str) -> bool:
    """Return whether CLDR knows a code of two letters, or none shorter than a longer one."""
    from babel import Locale, localedata
    from babel.core import get_global

    if len(language) != 2:
        return not _shorter_code(language)
    # A language that has a locale has a name, too, and the names take 30 ms to load.
    if localedata.exists(language):
        return True
    return language in get_global("language_aliases") or language in Locale("en").languages


def _shorter_code(language: str) -> str:
    """Return the code of two letters of a language given by three, such as ukr, whose rules would
    not be found; nothing if there is none.
    """
    from babel.core import get_global

    code = get_global("language_aliases").get(language, "")
    return code if len(language) == 3 and len(code) == 2 else ""


def _code_meant(text: str) -> str:
    """Return the shorter code, or that of the language with this English name, or of the country
    with this code.
    """
    from babel import Locale
    from babel.languages import get_official_languages

    language, _, _ = language_tag(text).partition("-")
    if shorter := _shorter_code(language):
        return shorter
    names = Locale("en").languages
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
