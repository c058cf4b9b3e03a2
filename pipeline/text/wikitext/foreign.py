"""Render templates whose names, or arguments, are codes of languages and countries."""

import re

from .names import NAMES, countries, language_labels
from .patterns import Arguments, first_fitting, first_value

# "lang-grc-gre", "Vol-ru": a word, and the code of a language, perhaps with its script.
_LANGUAGE_TAGGED = re.compile(r"([^\W\d_]{1,12})-([a-z]{2,3})\d?(?:-[a-z-]{1,20})?")


def language_of(name: str) -> tuple[str, str] | None:
    """Return the prefix and the language code of a template's name; None if it has no code.

    It is in ``lang-grc-gre``, ``Vol-ru`` and plain ``ru``, whose argument is text.
    """
    if name in NAMES.languages:
        return "", name
    tagged = _LANGUAGE_TAGGED.fullmatch(name)
    if tagged is None:
        return None
    prefix, code = tagged.groups()
    # Any word before a known code, such as "Vol-ru"; after "lang" any code.
    if prefix == "lang" or code in NAMES.languages:
        return prefix, code
    return None


def foreign(name: str, arguments: Arguments, language: str) -> str | None:
    """Words of ``lang-fr|...``: text in another language, after its name: "French: ..."."""
    prefix, code = language_of(name) or ("", "")
    if not prefix and not arguments:
        return ""  # ``{{fr}}`` alone is a flag, or an abbreviation of the language
    label = ""
    if prefix in _LABELLING_PREFIXES and not name[-1].isdecimal():
        wiki = f"{language}-short" if name.endswith("-short") else language
        label = language_labels().get(wiki, {}).get(code, "")
    if given := arguments.get("label"):
        label = "" if given == "none" else f"{given}: "
    shows = _FOREIGN.get(language, ("{label:}{1}",))
    return first_fitting(shows, {**arguments, "label": label}, language)


_LABELLING_PREFIXES = ("lang", "k", "ny")
_FOREIGN = {
    "en": (
        "{label:}{1}<, romanized: {translit|romanization|2}><, lit. &#39;{lit|translation|3}&#39;>",
    ),
}


def language_text(arguments: Arguments, language: str) -> str | None:
    """Words of ``langx|fr|...``."""
    return foreign(f"lang-{arguments.get('1', '')}", without_first(arguments), language)


def without_first(arguments: Arguments) -> Arguments:
    """Return the arguments with those without a name moved up by one: 2 is 1."""
    moved = {name: value for name, value in arguments.items() if not name.isdecimal()}
    for position in range(2, len(arguments) + 1):
        moved[str(position - 1)] = arguments.get(str(position), "")
    return moved


def labelled(arguments: Arguments, language: str) -> str | None:
    """Words of ``j|de|Neustadt``: "niem. Neustadt"; ``j|de`` alone is the label."""
    code = arguments.get("1", "")
    label = language_labels().get(language, {}).get(code)
    if label is None:
        return code if "2" not in arguments and code not in NAMES.languages else None
    return f"{label}{arguments.get('2', '')}".strip(": ")


def flag(code: str, country: str, arguments: Arguments, language: str) -> str | None:
    """Words of ``FRA``: a flag with the country's name, or alone, as ``FRA|#``."""
    if arguments == {"1": "#"}:
        return ""
    if arguments:
        return foreign(code, arguments, language) if code in NAMES.languages else None
    return country


def country(arguments: Arguments, language: str) -> str | None:
    """Words of ``flag|ITA``: a country by its code or name, whose name may be given."""
    if shown := first_value(arguments, ("name", "2")):
        return shown
    code = arguments.get("1", "")
    return countries().get(language, {}).get(code.lower(), code)
