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


# Languages that are written in another script than Latin, or in several, among those that had an
# encoding before Unicode. Scripts are the first words of Unicode's names of their letters.
_SCRIPTS = {
    **dict.fromkeys(("be", "bg", "ce", "cv", "kk", "ky", "mk", "mn", "ru", "rue"), ("Cyrillic",)),
    **dict.fromkeys(("ba", "os", "sah", "tg", "tyv", "udm", "uk", "myv"), ("Cyrillic",)),
    **dict.fromkeys(("az", "bs", "crh", "sh", "sr", "tk", "tt", "uz"), ("Cyrillic", "Latin")),
    **dict.fromkeys(("ar", "arz", "ckb", "fa", "ps", "sd", "ug", "ur"), ("Arabic",)),
    **dict.fromkeys(("el", "grc", "pnt"), ("Greek",)),
    **dict.fromkeys(("he", "yi"), ("Hebrew",)),
    **dict.fromkeys(("lzh", "wuu", "yue", "zh"), ("Cjk",)),
    "ja": ("Cjk", "Hiragana", "Katakana", "Katakana-hiragana", "Fullwidth"),
    "ko": ("Hangul", "Cjk"),
    "ku": ("Arabic", "Latin"),
    "th": ("Thai",),
}


def scripts_of_language(code: str) -> frozenset[str]:
    """Return the scripts of a language's letters beyond ASCII; none if the language is unknown.

    >>> scripts_of_language("uk-UA"), scripts_of_language("pl"), scripts_of_language("und")
    (frozenset({'Cyrillic'}), frozenset({'Latin'}), frozenset())
    """
    tag = language_tag(code)
    if tag == UNKNOWN:
        return frozenset()
    language, _, _ = tag.partition("-")
    return frozenset(_SCRIPTS.get(language, ("Latin",)))


def language_tag(code: str) -> str:
    """Return a language's code, or a Wikipedia's, in lower case with hyphens; `UNKNOWN` if empty.

    >>> [language_tag(code) for code in ("en_GB", "simple", "zh-yue", "")]
    ['en-gb', 'en', 'yue', 'und']
    """
    tag = code.lower().replace("_", "-")
    return _WIKI_CODES.get(tag, tag) or UNKNOWN
