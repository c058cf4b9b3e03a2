"""Evaluate MediaWiki's parser functions, ``#if:`` and the like, and functions of case.

Those that compute, such as ``#expr:``, are left to templates, whose text is not here.
"""

import re
from collections.abc import Callable

from .patterns import Arguments


def _if_equal(value: str, arguments: Arguments, language: str) -> str:
    return arguments.get("2" if _is_same(value, arguments.get("1", "")) else "3", "")


def _is_same(value: str, other: str) -> bool:
    """Return whether two values are the same text, or numbers that are equal: 01 and 1.0."""
    if value == other:
        return True
    return all(map(_NUMERIC.fullmatch, (value, other))) and float(value) == float(other)


def _switch(value: str, arguments: Arguments, language: str) -> str:
    """Words of ``#switch:a|a|b=x|#default=y``: "x", as a case without words shows the next's."""
    *_, last = ("", *arguments.values())
    default = "" if "=" in last or last == "#default" else last
    is_found = False
    is_default = False
    for field in arguments.values():
        case, equals, words = map(str.strip, field.partition("="))
        is_found = is_found or _is_same(value, case)
        is_default = is_default or case == "#default"
        if equals and is_found:
            return words
        if equals and is_default:
            default = words
            is_default = False
    return default


def _plural(number: str, arguments: Arguments, language: str) -> str | None:
    if len(arguments) != 2:
        return None  # a language with more than two forms
    return arguments["1" if number == "1" else "2"]


_NUMERIC = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
PARSER_FUNCTIONS: dict[str, Callable[[str, Arguments, str], str | None]] = {
    "#if": lambda text, arguments, language: arguments.get("1" if text else "2", ""),
    "#ifeq": _if_equal,
    "#switch": _switch,
    "plural": _plural,
    "lc": lambda text, arguments, language: text.lower(),
    "uc": lambda text, arguments, language: text.upper(),
    "lcfirst": lambda text, arguments, language: text[:1].lower() + text[1:],
    "ucfirst": lambda text, arguments, language: text[:1].upper() + text[1:],
}
