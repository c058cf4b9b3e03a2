"""Numbers and dates as each language writes them, for the templates that hold them as plain digits."""

import re

from .names import NAMES, NumberFormat

SUPERSCRIPTS = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")
_PLAIN_NUMBER = re.compile(r"-?\d{4,30}(?:\.\d+)?")
_UNKNOWN = NumberFormat()


def format_number(value: str, language: str) -> str:
    """Group the digits of a plain number as the language does: "2381741" reads "2,381,741" in English."""
    separator = NAMES.formats.get(language, _UNKNOWN).thousands
    plain = value.replace(" ", "")
    if separator is None or not _PLAIN_NUMBER.fullmatch(plain):
        return value
    whole, point, fraction = plain.partition(".")
    decimal_point = "." if separator == "," else ","
    return f"{int(whole):,}".replace(",", separator) + (decimal_point + fraction if point else "")


def format_date(first: str, month: str, last: str, language: str, *, day_first: bool = False) -> str | None:
    """Return the words of a date whose year and day are `first` and `last`, in either order.

    `day_first` is for English only. None if the month is not a number from 1 to 12, or the language is unknown.

    >>> format_date("1900", "3", "5", "fr"), format_date("5", "3", "1900", "ja"), format_date("1900", "3", "", "en")
    ('5 mars 1900', '1900年3月5日', 'March 1900')
    """
    language = "en" if language == "simple" else language
    known = NAMES.formats.get(language, _UNKNOWN)
    if known.date is None or not (month.isdecimal() and 1 <= int(month) <= 12):
        return None
    year, day = (last, first) if len(last) > 2 else (first, last)
    name = known.months[int(month) - 1] if known.months else str(int(month))
    if not day.isdecimal():
        return known.month.format(year=year, month=name)
    pattern = "{day} {month} {year}" if day_first and language == "en" else known.date
    return pattern.format(year=year, month=name, day=int(day))
