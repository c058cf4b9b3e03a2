"""Translate the language codes of sources to those of BCP 47, which documents have."""

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


def language_tag(code: str) -> str:
    """Return a language's code, or a Wikipedia's, in lower case with hyphens; `UNKNOWN` if empty.

    >>> [language_tag(code) for code in ("en_GB", "simple", "zh-yue", "")]
    ['en-gb', 'en', 'yue', 'und']
    """
    tag = code.lower().replace("_", "-")
    return _WIKI_CODES.get(tag, tag) or UNKNOWN
