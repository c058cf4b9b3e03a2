"""Fill in the patterns of ``names.toml``: "{1} {2}" with the arguments of ``x|5|km`` is "5 km".

Numbers, dates and units are written as the Wikipedia of a language does.
"""

import re
from collections.abc import Callable, Sequence

from .names import NAMES, NumberFormat

Arguments = dict[str, str]
"""Arguments of one template by name; those without a name are called "1", "2", ..."""
Renderer = Callable[[Arguments, str], str | None]
"""Turns arguments and the wiki's language into words.

They are "" if there is nothing to show, None if the renderer does not know the words.
"""
# A field in a pattern of ``names.toml``: "{#1|value:0}" is the first of the arguments 1 and value,
# written as a number; 0 if there is neither.
_FIELD = re.compile(r"\{(#?)([\w|]+)(?::(\w*))?\}")
# "{1}<, {2}>": the text between angle brackets is shown if its arguments are all given.
_OPTIONAL_PART = re.compile("<([^<>]*)>")

_NO_FORMAT = NumberFormat()
_NUMBER = r"\d{1,9}"  # `int` refuses thousands of digits
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]+)?")
SUPERSCRIPTS = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")
# "e6km2": the exponent of ten, and a unit.
_SCALED_UNIT = re.compile(r"e([369])([^\W\d].{0,20})")
# "m3/s", "mol-1"
_EXPONENT_OF_UNIT = re.compile(r"(?<=[a-z])-?\d(?!\w)")
_SCALES = {"3": "thousand", "6": "million", "9": "billion"}


def first_value(arguments: Arguments, names: Sequence[str]) -> str:
    """Return the first of some arguments that is there, and not empty; "" if none is."""
    for name in names:
        value = arguments.get(name)
        if value:
            return value
    return ""


def first_fitting(shows: Sequence[str], arguments: Arguments, language: str) -> str | None:
    """Words of the first of some patterns for which all arguments are there."""

    def resolve(optional_part: re.Match[str]) -> str:
        has_all = _filled(optional_part[1], arguments, language) is not None
        return optional_part[1] if has_all else ""

    for pattern in shows:
        if "<" in pattern:
            pattern = _OPTIONAL_PART.sub(resolve, pattern)
        words = _filled(pattern, arguments, language)
        if words is not None:
            return words
    return None


def all_fitting(
    shows: Sequence[str], joint: str, arguments: Arguments, language: str
) -> str | None:
    """Words of all patterns for which all arguments are there, joined by `joint`."""
    fitting = [_filled(pattern, arguments, language) for pattern in shows]
    return joint.join(filter(None, fitting)) or None


def _filled(pattern: str, arguments: Arguments, language: str) -> str | None:
    """Return a pattern with the values of its fields; None if one without a default has none."""
    # `re.split` returns for each field its three groups and the literal after it:
    #   "about {#1|value:0} km"   ->   "about "   "#"  "1|value"  "0"  " km"
    words, *fields = _FIELD.split(pattern)
    for index in range(0, len(fields), 4):
        number_sign, names, default, literal = fields[index : index + 4]
        value = first_value(arguments, names.split("|")) or default
        if value is None:
            return None
        if number_sign:
            value = format_number(value, language)
        words += value + literal
    return words


def format_number(value: str, language: str) -> str:
    """Group the digits of a plain number: "2381741" reads "2,381,741" in English."""
    style = NAMES.formats.get(language, _NO_FORMAT)
    separator = style.thousands
    plain = value.replace(" ", "")
    if separator is None or not _PLAIN_NUMBER.fullmatch(plain):
        return value
    whole, _, fraction = plain.partition(".")
    number = whole
    if len(whole.lstrip("-")) >= style.groups_from:
        number = f"{int(whole):,}".replace(",", separator)
    if fraction:
        # Languages that group digits with commas have a decimal point, all others a decimal comma.
        number += ("." if separator == "," else ",") + fraction
    if style.digits:
        number = number.translate(str.maketrans("0123456789", style.digits))
    return number


def format_date(
    first: str, month: str, last: str, language: str, *, day_first: bool = False
) -> str | None:
    """Return the words of a date whose year and day are `first` and `last`, in either order; None
    if its month is not a number from 1 to 12, or the language is unknown.

    >>> format_date("1900", "3", "5", "fr"), format_date("1900", "3", "", "en")
    ('5 mars 1900', 'March 1900')
    """
    style = NAMES.formats.get(language, _NO_FORMAT)
    if style.date is None or not re.fullmatch(_NUMBER, month):
        return None
    month_number = int(month)
    if not 1 <= month_number <= 12:
        return None
    month_name = str(month_number)
    if style.months:
        month_name = style.months[month_number - 1]
    # Three digits or more are a year: 5|3|1900, else 1900|3|5.
    if len(last) > 2:
        day, year = first, last
    else:
        year, day = first, last
    if not re.fullmatch(_NUMBER, day):
        return style.month.format(year=year, month=month_name)
    pattern = style.date
    if day_first and language == "en":
        pattern = "{day} {month} {year}"
    return pattern.format(year=year, month=month_name, day=int(day))


def unit_words(code: str) -> str:
    """Return the words of a unit: ``e6km2`` reads "million km²"."""
    scaled = _SCALED_UNIT.fullmatch(code)
    if scaled:
        return f"{_SCALES[scaled[1]]} {unit_words(scaled[2])}"
    unit = NAMES.units.get(code.lower(), code)
    return _EXPONENT_OF_UNIT.sub(lambda exponent: exponent[0].translate(SUPERSCRIPTS), unit)
