"""Codes of languages in documents: those of BCP 47, whatever code the source uses."""

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
"""Names of Wikipedias that are not codes: MediaWiki's ``LanguageCode``, whose codes its dumps use,
and Norwegian.
"""


def language_tag(code: str) -> str:
    """Return a language code, or that of a Wikipedia, in lower case with hyphens, `UNKNOWN` if
    empty.

    >>> [language_tag(code) for code in ("en_GB", "simple", "zh-yue", "")]
    ['en-gb', 'en', 'yue', 'und']
    """
    tag = code.lower().replace("_", "-")
    return _WIKI_CODES.get(tag, tag) or UNKNOWN
