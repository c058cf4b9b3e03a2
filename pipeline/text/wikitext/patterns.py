"""Fill in the patterns of ``names.toml``: "{1} {2}" with the arguments of ``x|5|km`` is "5 km"."""

import re
from collections.abc import Callable, Sequence

from .figures import format_number

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
