"""Evaluate MediaWiki's parser functions, ``#if:`` and the like, and functions of case."""

import operator
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

from .patterns import Arguments


def _if(condition: str, arguments: Arguments, language: str) -> str:
    return arguments.get("1" if condition else "2", "")


def _if_equal(value: str, arguments: Arguments, language: str) -> str:
    return arguments.get("2" if _is_same(value, arguments.get("1", "")) else "3", "")


def _is_same(value: str, other: str) -> bool:
    """Return whether two values are the same text, or numbers that are equal: 01 and 1.0."""
    if value == other:
        return True
    return all(map(_NUMERIC.fullmatch, (value, other))) and float(value) == float(other)


def _if_true(expression: str, arguments: Arguments, language: str) -> str | None:
    value = evaluate(expression)
    if value is None:
        return None
    return _if("1" if value else "", arguments, language)


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


def _expression(expression: str, arguments: Arguments, language: str) -> str | None:
    value = evaluate(expression)
    return None if value is None else f"{value:.12g}"


def evaluate(expression: str) -> float | None:
    """Return the value of an expression of numbers; None if it has anything else.

    >>> evaluate("2 * (3 + 4) - 10 / 4 round 0")
    12.0
    """
    text = "".join(expression.split())
    if len(text) > 200:  # each operation copies it
        return None
    while inner := _INNERMOST.search(text):
        value = evaluate(inner[1])
        if value is None:
            return None
        text = f"{text[: inner.start()]}{value:.12g}{text[inner.end() :]}"
    for operation in _OPERATIONS_BY_PRECEDENCE:
        while match := operation.search(text):
            left, sign, right = match.groups()
            try:
                value = float(_OPERATIONS[sign](float(left), float(right)))
            except ArithmeticError:
                return None
            text = f"{text[: match.start()]}{value:.12g}{text[match.end() :]}"
    return float(text) if re.fullmatch(_DECIMAL, text) else None


def rounded(number: float, digits: float) -> Decimal:
    """Return a number rounded as MediaWiki does: halves away from zero."""
    return Decimal(str(number)).quantize(Decimal(1).scaleb(-int(digits)), ROUND_HALF_UP)


_NUMERIC = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_INNERMOST = re.compile(r"\(([^()]*)\)")
_DECIMAL = r"(?:(?<!\d)[-+])?\d{1,15}(?:\.\d{1,15})?"
_OPERATIONS: dict[str, Callable[[float, float], float | Decimal]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "div": operator.truediv,
    "mod": operator.mod,
    "+": operator.add,
    "-": operator.sub,
    "round": rounded,
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_OPERATIONS_BY_PRECEDENCE = [
    re.compile(rf"({_DECIMAL})({signs})({_DECIMAL})")
    for signs in (r"\*|/|div|mod", r"\+|-", "round", "<>|!=|<=|>=|=|<|>")
]
PARSER_FUNCTIONS: dict[str, Callable[[str, Arguments, str], str | None]] = {
    "#if": _if,
    "#ifeq": _if_equal,
    "#ifexpr": _if_true,
    "#expr": _expression,
    "#switch": _switch,
    "plural": _plural,
    "lc": lambda text, arguments, language: text.lower(),
    "uc": lambda text, arguments, language: text.upper(),
    "lcfirst": lambda text, arguments, language: text[:1].lower() + text[1:],
    "ucfirst": lambda text, arguments, language: text[:1].upper() + text[1:],
}
