"""Write numbers, dates and units as the Wikipedia of a language does."""

import re

from .names import NAMES, NumberFormat

_NO_FORMAT = NumberFormat()
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]+)?")
SUPERSCRIPTS = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")
"""For `str.translate`."""
# "e6km2": the exponent of ten, and a unit.
_SCALED_UNIT = re.compile(r"e([369])([^\W\d].{0,20})")
# "m3/s", "mol-1"
_EXPONENT_OF_UNIT = re.compile(r"(?<=[a-z])-?\d(?!\w)")
_SCALES = {"3": "thousand", "6": "million", "9": "billion"}


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
    """Return the words of a date whose year and day are `first` and `last`, in either order.

    `day_first` is for English only. None if the month is not a number from 1 to 12, or the language
    is unknown.

    >>> format_date("1900", "3", "5", "fr")
    '5 mars 1900'
    >>> format_date("5", "3", "1900", "ja")
    '1900年3月5日'
    >>> format_date("1900", "3", "", "en")
    'March 1900'
    """
    style = NAMES.formats.get(language, _NO_FORMAT)
    if style.date is None or not month.isdecimal():
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
    if not day.isdecimal():
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
