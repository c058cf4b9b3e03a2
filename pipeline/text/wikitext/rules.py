"""Render templates that need more than a pattern, each by a rule that ``names.toml`` names."""

import re
from functools import partial

from .formulas import raised
from .names import NAMES, countries, language_labels
from .patterns import (
    SUPERSCRIPTS,
    Arguments,
    Renderer,
    first_fitting,
    first_value,
    format_date,
    format_number,
    unit_words,
)

_NUMERIC_DATE = re.compile(r"\d{1,4}-\d{1,2}-\d{1,2}|\d{1,2}\.\d{1,2}\.\d{4}")
_NUMBER = re.compile(r"[-+−]?\d[\d.,]*(?:[+/]\d+)*")
# "lang-grc-gre", "Vol-ru": a word, and the code of a language, perhaps with its script.
_LANGUAGE_TAGGED = re.compile(r"([^\W\d_]{1,12})-([a-z]{2,3})\d?(?:-[a-z-]{1,20})?")
_FOREIGN = {
    "en": (
        "{label:}{1}<, romanized: {translit|romanization|2}><, lit. &#39;{lit|translation|3}&#39;>",
    ),
}


def _convert(arguments: Arguments, language: str) -> str | None:
    """Words of ``convert``: the value as given with its own unit; the converted one is left out."""
    # A range is ``5|to|7|km``, a compound of units ``5|ft|7|in``, both followed by the unit to
    # convert to, which may be missing:
    #   position           1    2    3    4    5
    #   range              5    to   7    km   mi        the value moves on by 2
    #   compound           5    ft   7    in   m         it does if the fourth is such a unit
    #   plain              5    km   mi
    words = ""
    position = 1
    is_adjective = arguments.get("adj", "") in ("on", "mid")
    while (value := arguments.get(str(position), "")) and _NUMBER.fullmatch(value):
        words += format_number(value, language).replace("+", " ")
        following = arguments.get(str(position + 1), "")
        if following.lower() in NAMES.range_words:
            words += NAMES.range_words[following.lower()]
            position += 2
            continue
        if following:
            words += _unit_behind(value, following, is_adjective=is_adjective)
        second_unit = arguments.get(str(position + 3), "")
        if second_unit.lower() not in ("ft", "in", "lb", "oz", "mi", "yd", "st"):
            return words
        words += " "
        position += 2
    return words.strip() or None


def _unit_behind(number: str, code: str, *, is_adjective: bool) -> str:
    """Return a unit in words behind its number: " acres" of 40, " acre" of 1, "-acre" of a field.

    Symbols, such as km, stay as they are.
    """
    unit = unit_words(code)
    if not (unit.endswith(("s", "feet")) and unit.isalpha() and (is_adjective or number == "1")):
        return f" {unit}"
    singular = {"feet": "foot", "inches": "inch"}.get(unit, unit.removesuffix("s"))
    return f"-{singular}" if is_adjective else f" {singular}"


def _coord(arguments: Arguments, language: str) -> str | None:
    """Words of ``coord|30|12|N|74|7|W``: "30°12′N 74°7′W"."""
    words = ""
    signs = iter("°′″")
    for key in map(str, range(1, 9)):
        value = arguments.get(key, "")
        if value in ("N", "S", "E", "W"):
            words += f"{value} "
            signs = iter("°′″")
        elif words.count(" ") < 2 and _NUMBER.fullmatch(value):
            words += value + next(signs, "")
    return words.strip() if words.count(" ") == 2 else None


def _gauge(arguments: Arguments, language: str) -> str | None:
    """Words of ``track gauge|1435mm``; others name a gauge by a code."""
    measure = re.fullmatch(r"([\d.,]+) ?(mm|m|in|ft)", arguments.get("1", ""))
    return measure and f"{format_number(measure[1], language)} {measure[2]}"


def _density(arguments: Arguments, language: str) -> str | None:
    """Words of ``pop density|1000|10|km2``: the people and the area by which they are divided."""
    people, area = (arguments.get(key, "").replace(",", "") for key in "12")
    if not (people.isdecimal() and re.fullmatch(r"\d+(?:\.\d+)?", area) and float(area)):
        return None
    density = float(people) / float(area)
    number = f"{density:.0f}" if density >= 10 else f"{density:.1f}"
    return f"{format_number(number, language)}/{unit_words(arguments.get('3', 'km2'))}"


def _ordinal(arguments: Arguments, language: str) -> str | None:
    number = arguments.get("1", "")
    if not number.isdecimal():
        return None
    last = "" if number[-2:] in ("11", "12", "13") else number[-1]
    return number + {"1": "st", "2": "nd", "3": "rd"}.get(last, "th")


def _value(arguments: Arguments, language: str) -> str | None:
    """Words of ``val|6.7|0.2|e=5|u=m``: number, uncertainty, exponent, unit."""
    number, uncertainty = (arguments.get(key, "") for key in ("1", "2"))
    # Two uncertainties and ranges begin with a sign.
    if not number or uncertainty.startswith(("+", "-", "–", "−")):
        return None
    words = arguments.get("p", "") + format_number(number, language)
    if uncertainty:
        words += f" ± {uncertainty}"
    if arguments.get("e"):
        words += f" × 10^{arguments['e']}"
    unit = arguments.get("u") or arguments.get("ul") or ""
    return f"{words} {unit_words(unit)}".strip()


def _quantity(arguments: Arguments, language: str) -> str | None:
    """Words of ``unité|5|km|2``: a number, and units each with its exponent."""
    words = format_number(arguments.get("1", ""), language)
    position = 2
    while unit := arguments.get(str(position)):
        exponent = arguments.get(str(position + 1), "")
        if not re.fullmatch(r"[-−]?\d*", exponent):
            return None
        words += f" {unit}{exponent.translate(SUPERSCRIPTS)}"
        position += 2
    return words or None


def _date(arguments: Arguments, language: str) -> str | None:
    """Words of a date in three arguments, year or day first, the month a number or a word; or in
    one.

    Ages, which such templates also show, are left out.
    """
    first, month, last, hour, minute, second = (arguments.get(key, "") for key in "123456")
    style = arguments.get("format", "")  # of ``dts``
    day_first = (
        arguments.get("df", "").lower() in ("y", "yes", "1", "true")
        or "dmy" in (month, style)
        or style == "dm"
    )
    era = ""
    if language == "en" and re.fullmatch(r"[-−]\d{1,5}", first):
        first = first[1:]
        era = " BC"
    if _NUMERIC_DATE.fullmatch(first) and not month.isdecimal():
        first, month, last = re.split("[-.]", first)  # "1900-05-03" or "3.5.1900"
    if not month or " " in first:
        return f"{first}{era}" or None
    months = [name[:3].lower() for name in NAMES.formats["en"].months]
    if month[:3].lower() in months:  # it may be short: "Sept"
        month = str(months.index(month[:3].lower()) + 1)
    date = format_date(first, month, last, language, day_first=day_first)
    if not date and month.isdecimal():
        return None
    date = date or f"{first} {month} {last}".strip()
    if style in ("dm", "md"):
        date = date.replace(max(first, last, key=len), "").strip(" ,")
    if language == "fr" and date.startswith("1 "):
        date = f"1er{date[1:]}"
    if minute.isdecimal() and not second and language == "en":  # not a second date
        date = f"{hour}:{minute}, {date}"
    return f"{date}{era}"


def _as_of(arguments: Arguments, language: str) -> str | None:
    """Words of ``as of|2013|June|8``."""
    if arguments.get("alt"):
        return arguments["alt"]
    preposition = "since" if arguments.get("since") else "as of"
    if language != "en":
        return None
    date = _date({"df": "y", **arguments}, language)
    if not date:
        return None
    if not arguments.get("lc"):
        preposition = preposition.capitalize()
    return f"{preposition} {date}{arguments.get('post', '')}"


def _century(arguments: Arguments, language: str) -> str | None:
    """Words of ``siglo|V|a|s``, where "s" is for the word that the text else has."""
    numeral = arguments.get("1")
    if not numeral:
        return None
    era = {"a": " a. C.", "d": " d. C."}.get(arguments.get("2", ""), "")
    century = {"s": "siglo ", "S": "Siglo "}.get(arguments.get("3", ""), "")
    return f"{century}{numeral}{era}"


def _sic(arguments: Arguments, language: str) -> str:
    words = arguments.get("1", "") + arguments.get("2", "")
    return words if arguments.get("hide") else f"{words} &#91;sic&#93;"


def _raised(arguments: Arguments, language: str) -> str:
    text = first_value(arguments, ("lt", "label", "text", "1"))
    return raised(text) or text


def _joined(separator: str, arguments: Arguments, language: str) -> str:
    return separator.join(value for key, value in arguments.items() if key.isdecimal() and value)


def _last_argument(arguments: Arguments, language: str) -> str:
    """Text after a size, or after the title of a page that another wiki has.

    A third argument in lower case is that wiki's code: ``не переведено|Имя|Надпись|en|Name``.
    """
    if named := first_value(arguments, ("текст", "надо", "треба")):
        return named
    if arguments.get("3", "").islower():
        return first_value(arguments, ("2", "1"))
    return first_value(arguments, ("3", "2", "1"))


def _author_year(arguments: Arguments, language: str) -> str | None:
    """Words of ``harvtxt|Smith|Jones|2004|p=12``: "Smith & Jones (2004, p. 12)"."""
    *authors, year = [value for key, value in arguments.items() if key.isdecimal() and value]
    if not authors:
        return None
    names = authors[0]
    if len(authors) > 3:
        names += " et al."
    elif len(authors) > 1:
        names = f"{', '.join(authors[:-1])} & {authors[-1]}"
    place = ""
    if arguments.get("p"):
        place = f", p. {arguments['p']}"
    elif arguments.get("pp"):
        place = f", pp. {arguments['pp']}"
    return f"{names} ({year}{place})"


def ship(prefix: str, arguments: Arguments, language: str) -> str | None:
    """Words of ``USS|Kidd|DD-661``, where a third argument says what is shown: 2 the name, 3 the
    prefix and the name, 6 the name and the number.
    """
    name = arguments.get("1", "")
    number = arguments.get("2", "")
    style = arguments.get("3", "")
    if style == "2":
        return name or None
    if style == "3":
        return f"{prefix} {name}".strip()
    if style == "6":
        return f"{name} ({number})" if number else name
    if style:
        return None
    words = f"{prefix} {name}".strip()
    return f"{words} ({number})" if number else words


def _any_ship(arguments: Arguments, language: str) -> str | None:
    """Words of ``ship|HMS|Victory``, whose first argument may be empty."""
    return ship(arguments.get("1", ""), without_first(arguments), language) or None


def _audio(arguments: Arguments, language: str) -> str:
    text = arguments.get("2", "")
    return "" if text.strip(" :()").lower() in NAMES.audio_labels else text


def _accidental(arguments: Arguments, language: str) -> str | None:
    sign = arguments.get("1", "").lower()
    return _ACCIDENTALS.get(sign)


_ACCIDENTALS = {
    **dict.fromkeys(("flat", "b", "♭"), "♭"),
    **dict.fromkeys(("sharp", "#", "♯", "&#35;"), "♯"),
    **dict.fromkeys(("natural", "n", "♮"), "♮"),
}


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
    if prefix in ("lang", "k", "ny") and not name[-1].isdecimal():
        wiki = f"{language}-short" if name.endswith("-short") else language
        label = _label(wiki, code) or ""
    if given := arguments.get("label"):
        label = "" if given == "none" else f"{given}: "
    shows = _FOREIGN.get(language, ("{label:}{1}",))
    return first_fitting(shows, {**arguments, "label": label}, language)


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
    label = _label(language, code)
    if label is None:
        return code if "2" not in arguments and code not in NAMES.languages else None
    return f"{label}{arguments.get('2', '')}".strip(": ")


def _label(wiki: str, code: str) -> str | None:
    """Return what a wiki puts in front of text in a language; None if it does not name it."""
    if wiki != "en":
        return language_labels().get(wiki, {}).get(code)
    name = NAMES.languages.get(code) or NAMES.more_languages.get(code)
    return name and f"{name}: "


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


RULES: dict[str, Renderer] = {
    "accidental": _accidental,
    "author_year": _author_year,
    "country": country,
    "labelled": labelled,
    "raised": _raised,
    "ship": _any_ship,
    "as_of": _as_of,
    "audio": _audio,
    "century": _century,
    "convert": _convert,
    "coord": _coord,
    "date": _date,
    "density": _density,
    "gauge": _gauge,
    "joined": partial(_joined, ""),
    "sic": _sic,
    "language_text": language_text,
    "last_argument": _last_argument,
    "listed": partial(_joined, ", "),
    "ordinal": _ordinal,
    "quantity": _quantity,
    "value": _value,
}
