"""Render the words that a template shows: ``{{convert|5|km}}`` reads "5 km".

Only a template's wiki knows what it shows. ``names.toml`` lists the inline templates that many
wikis share, mostly under English names, and those of single wikis, which take precedence: French
``{{citation|...}}`` is a quotation, English ``{{citation|...}}`` a footnote. Here are the rules for
templates that need more than a pattern. An unknown template may have been part of the sentence: it
leaves a mark, so that the sentence can be repaired or left out.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache, partial
from itertools import chain
from types import MappingProxyType

from msgspec import Struct

from ...errors import UserError
from ...parsing import parse_toml_option
from .formulas import raised
from .names import NAMES, NumberFormat, TemplateGroup, countries, language_labels
from .repair import MISSING, PRONUNCIATION, REMOVED

Arguments = dict[str, str]
"""Arguments of one template by name; those without a name are called "1", "2", ..."""
Renderer = Callable[[Arguments, str], str | None]
"""Turns arguments and the wiki's language into words.

They are "" if there is nothing to show, None if the renderer does not know the words.
"""

_SUPERSCRIPTS = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]+)?")
_NO_FORMAT = NumberFormat()
_NUMERIC_DATE = re.compile(r"\d{1,4}-\d{1,2}-\d{1,2}|\d{1,2}\.\d{1,2}\.\d{4}")
_NUMBER = re.compile(r"[-+−]?\d[\d.,]*(?:[+/]\d+)*")
_YES = ("y", "yes", "1", "true")
_NAMED = re.compile(r"\s*+([\w-][\w -]{0,40}?)\s*+=")
# "e6km2": the exponent of ten, and a unit.
_SCALED_UNIT = re.compile(r"e([369])([^\W\d].{0,20})")
# "m3/s", "mol-1"
_EXPONENT_OF_UNIT = re.compile(r"(?<=[a-z])-?\d(?!\w)")
_SCALES = {"3": "thousand", "6": "million", "9": "billion"}
_COMPOUND_UNITS = ("ft", "in", "lb", "oz", "mi", "yd", "st")
_CASE_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "lc": str.lower,
    "uc": str.upper,
    "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:],
}
# "lang-grc-gre", "Vol-ru": a word, and the code of a language, perhaps with its script.
_LANGUAGE_TAGGED = re.compile(r"([^\W\d_]{1,12})-([a-z]{2,3})\d?(?:-[a-z-]{1,20})?")
_FRENCH_NUMERAL = re.compile(
    r"([ivx\d][ivxl\d]{0,6})((?:er|re|e|ᵉ|nd|nde|d|de)(?: siècle| millénaire| s\.?| [a-zéû]{3,9})?)"
    r"(?: av\. j\.-c\.)?-?"
)
# A field in a pattern of ``names.toml``: "{#1|value:0}" is the first of the arguments 1 and value,
# written as a number; 0 if there is neither.
_FIELD = re.compile(r"\{(#?)([\w|]+)(?::(\w*))?\}")
# "{1}<, {2}>": the text between angle brackets is shown if its arguments are all given.
_OPTIONAL_PART = re.compile("<([^<>]*)>")


def parse_arguments(body: str) -> tuple[str, Arguments]:
    """Split the text between the braces into the template's name, normalised, and its arguments.

    >>> parse_arguments("Convert |5|km|abbr=on")
    ('convert', {'1': '5', '2': 'km', 'abbr': 'on'})
    """
    head, *fields = body.split("|")
    name = template_name(head)
    arguments: Arguments = {}
    position = 0
    for field in fields:
        # A URL with "=" in it is not a name: names have only letters, digits and blanks. The
        # arguments of functions, such as ``#if:``, have no names.
        named = _NAMED.match(field) if "=" in field and ":" not in name else None
        if named:
            arguments[named[1]] = field[named.end() :].strip()
        else:
            position += 1
            arguments[str(position)] = field.strip()
    return name, arguments


def template_name(head: str) -> str:
    """Return the name before the first pipe, lower-cased, without the template namespace.

    The text of a function, such as ``uc:`` or ``#if:``, keeps its case.
    """
    head = head.replace(REMOVED, "").strip()
    function, colon, text = head.partition(":")
    if colon and function.lower() in _FUNCTIONS:
        return f"{function.lower()}:{text.strip()}"
    name = " ".join(head.replace("_", " ").lower().split())
    name = name.removeprefix("template:").removeprefix("subst:")
    return name.rstrip("? ")


def mark_of_silent(name: str, language: str) -> str | None:
    """Return the mark for a footnote, note to editors, box or pronunciation.

    It is None for a template that may be words.
    """
    if name in NAMES.pronunciations or name.startswith(NAMES.pronunciation_prefixes):
        return PRONUNCIATION
    if name in NAMES.silent_templates:
        is_silent = True
    elif name in _TEMPLATES["*"]:
        is_silent = False  # "harvtxt" is text, unlike the others that begin so
    else:
        is_silent = name.startswith(NAMES.silent_prefixes) or name.endswith(NAMES.silent_suffixes)
    if is_silent and not _renderer_of_language(name, language):
        return REMOVED
    return None


def find_renderer(name: str, language: str) -> Renderer | None:
    """Return the function that renders a template, None if its words are not known.

    `name` is normalised by `template_name`.
    """
    renderer = _renderer_of_language(name, language) or _TEMPLATES["*"].get(name)
    if renderer:
        return renderer
    function, colon, value = name.partition(":")
    if colon and function == "formatnum":
        return partial(_literal, _format_number(value.strip(), language))
    if colon and function in _CASE_FUNCTIONS:
        return partial(_literal, _CASE_FUNCTIONS[function](value))
    if colon and function in _PARSER_FUNCTIONS:
        return partial(_PARSER_FUNCTIONS[function], value.strip())
    if country := countries().get(language, {}).get(name):
        return partial(_flag, name, country)
    if _language_of(name):
        return partial(_foreign, name)
    return None


def _renderer_of_language(name: str, language: str) -> Renderer | None:
    """Return the renderer of a template of this language's Wikipedia alone."""
    if renderer := _TEMPLATES.get(language, {}).get(name):
        return renderer
    if language == "fr" and (numeral := _FRENCH_NUMERAL.fullmatch(name)):
        # ``{{xixe siècle}}`` reads "XIXe siècle".
        era = " av. J.-C." if "j.-c." in name else ""
        return partial(_with_noun, numeral[1].upper() + numeral[2] + era)
    if language == "de" and name.endswith("s") and name[:-1] in NAMES.languages:
        # ``{{enS|text}}`` reads "englisch text".
        return partial(_foreign, f"lang-{name[:-1]}")
    return None


def render_template(
    body: str, language: str, added: Mapping[str, Renderer] = MappingProxyType({})
) -> str:
    """Return the words that a template shows, or the mark of a removal.

    `body` is the text between the braces, with links and templates rendered; `language` is the
    wiki's, for dates and numbers; `added` are the user's templates.
    """
    name, arguments = parse_arguments(body)
    renderer = added.get(name) or find_renderer(name, language)
    if renderer is None:
        return MISSING
    words = renderer(arguments, language)
    if words is None and not arguments:
        words = countries().get(language, {}).get(name)  # {{AUT}}, not {{aut|Linnaeus}}
    if words is None:
        return MISSING
    return words or REMOVED


def _first_value(arguments: Arguments, names: Sequence[str]) -> str:
    for name in names:
        value = arguments.get(name)
        if value:
            return value
    return ""


def _first_fitting(shows: Sequence[str], arguments: Arguments, language: str) -> str | None:
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


def _all_fitting(
    shows: Sequence[str], joint: str, arguments: Arguments, language: str
) -> str | None:
    """Words of all patterns for which all arguments are there, joined by `joint`."""
    fitting = [_filled(pattern, arguments, language) for pattern in shows]
    return joint.join(filter(None, fitting)) or None


def _unless(
    names: Sequence[str], renderer: Renderer, arguments: Arguments, language: str
) -> str | None:
    """Words of a template that shows others if it has an argument of these names."""
    return None if _first_value(arguments, names) else renderer(arguments, language)


def _filled(pattern: str, arguments: Arguments, language: str) -> str | None:
    """Return a pattern with the values of its fields; None if one without a default has none."""
    # `re.split` returns for each field its three groups and the literal after it:
    #   "about {#1|value:0} km"   ->   "about "   "#"  "1|value"  "0"  " km"
    words, *fields = _FIELD.split(pattern)
    for index in range(0, len(fields), 4):
        number_sign, names, default, literal = fields[index : index + 4]
        value = _first_value(arguments, names.split("|")) or default
        if value is None:
            return None
        if number_sign:
            value = _format_number(value, language)
        words += value + literal
    return words


def _literal(text: str, arguments: Arguments, language: str) -> str:
    return text


def _with_noun(text: str, arguments: Arguments, language: str) -> str:
    """Words of ``4e|régiment``."""
    return f"{text} {arguments.get('1', '')}".strip()


def _flag(code: str, country: str, arguments: Arguments, language: str) -> str | None:
    """Words of ``FRA``: a flag with the country's name, or alone, as ``FRA|#``."""
    if arguments == {"1": "#"}:
        return ""
    if arguments:
        return _foreign(code, arguments, language) if code in NAMES.languages else None
    return country


def _country(arguments: Arguments, language: str) -> str | None:
    """Words of ``flag|ITA``: a country by its code or name, whose name may be given."""
    if shown := _first_value(arguments, ("name", "2")):
        return shown
    code = arguments.get("1", "")
    return countries().get(language, {}).get(code.lower(), code)


def _if(condition: str, arguments: Arguments, language: str) -> str:
    return arguments.get("1" if condition else "2", "")


def _if_equal(value: str, arguments: Arguments, language: str) -> str:
    return arguments.get("2" if value == arguments.get("1") else "3", "")


def _if_true(expression: str, arguments: Arguments, language: str) -> str | None:
    value = _evaluate(expression)
    if value is None:
        return None
    return _if("1" if value else "", arguments, language)


def _switch(value: str, arguments: Arguments, language: str) -> str:
    """Words of ``#switch:b|a|b=x|#default=y``: "x"; a case without words has those of the next."""
    *_, last = ("", *arguments.values())
    default = "" if "=" in last else last
    is_found = False
    for field in arguments.values():
        case, equals, words = map(str.strip, field.partition("="))
        is_found = is_found or case == value
        if equals and is_found:
            return words
        if case == "#default":
            default = words
    return default


def _plural(number: str, arguments: Arguments, language: str) -> str | None:
    if len(arguments) != 2:
        return None  # a language with more than two forms
    return arguments["1" if number == "1" else "2"]


def _expression(expression: str, arguments: Arguments, language: str) -> str | None:
    value = _evaluate(expression)
    return None if value is None else f"{value:.12g}"


def _evaluate(expression: str) -> float | None:
    """Return the value of an expression of numbers; None if it has anything else.

    >>> _evaluate("2 * (3 + 4) - 10 / 4 round 0")
    12.0
    """
    text = "".join(expression.split())
    if len(text) > _LONGEST_EXPRESSION:
        return None
    while inner := _INNERMOST.search(text):
        value = _evaluate(inner[1])
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


def _rounded(number: float, digits: float) -> Decimal:
    """Return a number rounded as MediaWiki does: halves away from zero."""
    return Decimal(str(number)).quantize(Decimal(1).scaleb(-int(digits)), ROUND_HALF_UP)


_LONGEST_EXPRESSION = 200
_INNERMOST = re.compile(r"\(([^()]*)\)")
_DECIMAL = r"(?:(?<!\d)[-+])?\d{1,15}(?:\.\d{1,15})?"
_OPERATIONS: dict[str, Callable[[float, float], float | Decimal]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "div": operator.truediv,
    "mod": operator.mod,
    "+": operator.add,
    "-": operator.sub,
    "round": _rounded,
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
_PARSER_FUNCTIONS: dict[str, Callable[[str, Arguments, str], str | None]] = {
    "#if": _if,
    "#ifeq": _if_equal,
    "#ifexpr": _if_true,
    "#expr": _expression,
    "#switch": _switch,
    "plural": _plural,
}
_FUNCTIONS = frozenset((*_CASE_FUNCTIONS, *_PARSER_FUNCTIONS))


def _language_of(name: str) -> tuple[str, str] | None:
    """Return the prefix and the language code of a template's name, None if there is no code.

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


def _foreign(name: str, arguments: Arguments, language: str) -> str | None:
    """Words of ``lang-fr|...``: text in another language, after its name: "French: ..."."""
    prefix, code = _language_of(name) or ("", "")
    if not prefix and not arguments:
        return ""  # ``{{fr}}`` alone is a flag, or an abbreviation of the language
    label = ""
    if prefix in _LABELLING_PREFIXES and not name[-1].isdecimal():
        wiki = f"{language}-short" if name.endswith("-short") else language
        label = language_labels().get(wiki, {}).get(code, "")
    if given := arguments.get("label"):
        label = "" if given == "none" else f"{given}: "
    shows = _FOREIGN.get(language, ("{label:}{1}",))
    return _first_fitting(shows, {**arguments, "label": label}, language)


_LABELLING_PREFIXES = ("lang", "k", "ny")
_FOREIGN = {
    "en": (
        "{label:}{1}<, romanized: {translit|romanization|2}><, lit. &#39;{lit|translation|3}&#39;>",
    ),
}


def _language_text(arguments: Arguments, language: str) -> str | None:
    """Words of ``langx|fr|...``."""
    return _foreign(f"lang-{arguments.get('1', '')}", _without_first(arguments), language)


def _without_first(arguments: Arguments) -> Arguments:
    """Return the arguments with those without a name moved up by one: 2 is 1."""
    moved = {name: value for name, value in arguments.items() if not name.isdecimal()}
    for position in range(2, len(arguments) + 1):
        moved[str(position - 1)] = arguments.get(str(position), "")
    return moved


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
    while (value := arguments.get(str(position), "")) and _NUMBER.fullmatch(value):
        words += _format_number(value, language).replace("+", " ")
        following = arguments.get(str(position + 1), "")
        if following.lower() in NAMES.range_words:
            words += NAMES.range_words[following.lower()]
            position += 2
            continue
        if following:
            words += f" {_unit(following)}"
        second_unit = arguments.get(str(position + 3), "")
        if second_unit.lower() not in _COMPOUND_UNITS:
            return words
        words += " "
        position += 2
    return words.strip() or None


def _value(arguments: Arguments, language: str) -> str | None:
    """Words of ``val|6.7|0.2|e=5|u=m``: number, uncertainty, exponent, unit."""
    number, uncertainty = (arguments.get(key, "") for key in ("1", "2"))
    # Two uncertainties and ranges begin with a sign.
    if not number or uncertainty.startswith(("+", "-", "–", "−")):
        return None
    words = arguments.get("p", "") + _format_number(number, language)
    if uncertainty:
        words += f" ± {uncertainty}"
    if arguments.get("e"):
        words += f" × 10^{arguments['e']}"
    unit = arguments.get("u") or arguments.get("ul") or ""
    return f"{words} {_unit(unit)}".strip()


def _unit(code: str) -> str:
    """Return the words of a unit: ``e6km2`` reads "million km²"."""
    scaled = _SCALED_UNIT.fullmatch(code)
    if scaled:
        return f"{_SCALES[scaled[1]]} {_unit(scaled[2])}"
    unit = NAMES.units.get(code.lower(), code)
    return _EXPONENT_OF_UNIT.sub(lambda exponent: exponent[0].translate(_SUPERSCRIPTS), unit)


def _quantity(arguments: Arguments, language: str) -> str | None:
    """Words of ``unité|5|km|2``: a number, and units each with its exponent."""
    words = _format_number(arguments.get("1", ""), language)
    position = 2
    while unit := arguments.get(str(position)):
        exponent = arguments.get(str(position + 1), "")
        if not re.fullmatch(r"[-−]?\d*", exponent):
            return None
        words += f" {unit}{exponent.translate(_SUPERSCRIPTS)}"
        position += 2
    return words or None


def _date(arguments: Arguments, language: str) -> str | None:
    """Words of a date in three arguments, year or day first, the month a number or a word; or in
    one.

    Ages, which such templates also show, are left out.
    """
    first, month, last = (arguments.get(key, "") for key in ("1", "2", "3"))
    day_first = arguments.get("df", "").lower() in _YES or month == "dmy"
    if _NUMERIC_DATE.fullmatch(first) and not month.isdecimal():
        first, month, last = re.split("[-.]", first)  # "1900-05-03" or "3.5.1900"
    if not month or " " in first:
        return first or None
    date = _format_date(first, month, last, language, day_first=day_first)
    if not date and month.isdecimal():
        return None
    date = date or f"{first} {month} {last}".strip()
    if language == "fr" and date.startswith("1 "):
        date = f"1er{date[1:]}"
    return date


def _as_of(arguments: Arguments, language: str) -> str | None:
    """Words of ``as of|2013|June|8``: the month is a number or an English word."""
    if arguments.get("alt"):
        return arguments["alt"]
    preposition = "since" if arguments.get("since") else "as of"
    if language != "en":
        return None
    arguments = {"df": "y", **arguments}
    months = [name[:3] for name in NAMES.formats["en"].months]
    month = arguments.get("2", "")[:3].capitalize()  # it may be short: "Sept"
    if month in months:
        arguments["2"] = str(months.index(month) + 1)
    date = _date(arguments, language)
    if not date:
        return None
    if not arguments.get("lc"):
        preposition = preposition.capitalize()
    return f"{preposition} {date}{arguments.get('post', '')}"


def _format_number(value: str, language: str) -> str:
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


def _format_date(
    first: str, month: str, last: str, language: str, *, day_first: bool = False
) -> str | None:
    """Return the words of a date whose year and day are `first` and `last`, in either order.

    `day_first` is for English only. None if the month is not a number from 1 to 12, or the language
    is unknown.

    >>> _format_date("1900", "3", "5", "fr")
    '5 mars 1900'
    >>> _format_date("5", "3", "1900", "ja")
    '1900年3月5日'
    >>> _format_date("1900", "3", "", "en")
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


def _century(arguments: Arguments, language: str) -> str | None:
    """Words of ``siglo|V|a|s``, where "s" is for the word that Spanish else leaves to the text, and
    ``séc|V``.
    """
    numeral = arguments.get("1")
    if not numeral:
        return None
    era = {"a": " a. C.", "d": " d. C."}.get(arguments.get("2", ""), "")
    century = "século "
    if language == "es":
        century = {"s": "siglo ", "S": "Siglo "}.get(arguments.get("3", ""), "")
    return f"{century}{numeral}{era}"


def _joined(separator: str, arguments: Arguments, language: str) -> str:
    return separator.join(value for key, value in arguments.items() if key.isdecimal() and value)


def _last_argument(arguments: Arguments, language: str) -> str:
    """Text after a size, or after the title of a page that another wiki has.

    A third argument in lower case is that wiki's code: ``не переведено|Имя|Надпись|en|Name``.
    """
    if named := _first_value(arguments, ("текст", "надо", "треба")):
        return named
    if arguments.get("3", "").islower():
        return _first_value(arguments, ("2", "1"))
    return _first_value(arguments, ("3", "2", "1"))


def _audio(arguments: Arguments, language: str) -> str:
    text = arguments.get("2", "")
    return "" if text.strip(" :()").lower() in NAMES.audio_labels else text


def _accidental(arguments: Arguments, language: str) -> str | None:
    sign = arguments.get("1", "").lower()
    for shown, names in _ACCIDENTALS.items():
        if sign in names:
            return shown
    return None


_ACCIDENTALS = {
    "♭": ("flat", "b", "♭"),
    "♯": ("sharp", "#", "♯", "&#35;"),
    "♮": ("natural", "n", "♮"),
}


def _ordinal(arguments: Arguments, language: str) -> str | None:
    """Words of ``ordinal|3`` in English: "3rd"."""
    number = arguments.get("1", "")
    if not number.isdecimal():
        return None
    ending = {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    if number[-2:] in ("11", "12", "13"):
        ending = "th"
    return number + ending


def _exponent_of_ten(arguments: Arguments, language: str) -> str:
    return f"10{_raised(arguments, language)}"


def _raised(arguments: Arguments, language: str) -> str:
    text = _first_value(arguments, ("lt", "label", "text", "1"))
    return raised(text) or text


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


def _ship(prefix: str, arguments: Arguments, language: str) -> str | None:
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
    return _ship(arguments.get("1", ""), _without_first(arguments), language) or None


def _coordinates(arguments: Arguments, language: str) -> str:
    """Text of ``Coordinate|text=Ulm``; the names of formats and icons are in capitals."""
    text = arguments.get("text", "")
    return "" if text.isupper() or not text[:1].isalpha() else text


def _stress(arguments: Arguments, language: str) -> str | None:
    if "2" in arguments:
        return None
    return f"{arguments.get('1', '')}\u0301"


def _labelled(arguments: Arguments, language: str) -> str | None:
    """Words of ``j|de|Neustadt``: "niem. Neustadt"; ``j|de`` alone is the label."""
    code = arguments.get("1", "")
    label = language_labels().get(language, {}).get(code)
    if label is None:
        return code if "2" not in arguments and code not in NAMES.languages else None
    return f"{label}{arguments.get('2', '')}".strip(": ")


def _percentage(arguments: Arguments, language: str) -> str | None:
    part, whole, digits = (arguments.get(key, "") for key in ("1", "2", "3"))
    share = _evaluate(f"{part}/{whole}")
    if share is None or (digits and not re.fullmatch(r"\d", digits)):
        return None
    return f"{_rounded(100 * share, int(digits or 0))}%"


def _height_above_sea(arguments: Arguments, language: str) -> str | None:
    """Words of ``Höhe|540|DE-NHN``: "540 m ü. NHN"."""
    if "1" not in arguments:
        return None
    datum = NAMES.height_datums.get(arguments.get("2", "").lower(), "")
    return f"{arguments['1']} m {datum}".strip()


def _height(arguments: Arguments, language: str) -> str | None:
    """Words of ``height|ft=6|in=2``: the value as given; the converted one is left out."""
    words = [f"{arguments[unit]} {unit}" for unit in ("ft", "in", "m", "cm") if arguments.get(unit)]
    return " ".join(words) or None


RULES: dict[str, Renderer] = {
    "accidental": _accidental,
    "author_year": _author_year,
    "coordinates": _coordinates,
    "country": _country,
    "height": _height,
    "height_above_sea": _height_above_sea,
    "labelled": _labelled,
    "percentage": _percentage,
    "raised": _raised,
    "ship": _any_ship,
    "stress": _stress,
    "as_of": _as_of,
    "audio": _audio,
    "century": _century,
    "convert": _convert,
    "date": _date,
    "joined": partial(_joined, ""),
    "ordinal": _ordinal,
    "language_text": _language_text,
    "last_argument": _last_argument,
    "listed": partial(_joined, ", "),
    "keys": partial(_joined, "+"),
    "power_of_ten": _exponent_of_ten,
    "quantity": _quantity,
    "spaced": partial(_joined, " "),
    "value": _value,
}
"""The rules that ``names.toml`` names."""

_TEXT = partial(_first_fitting, ("{text|1}", ""))


def _renderers(groups: Iterable[TemplateGroup]) -> dict[str, Renderer]:
    """Return the renderer of each name in some groups."""
    renderers: dict[str, Renderer] = {}
    for group in groups:
        renderer = partial(_first_fitting, group.shows)
        if group.joint:
            renderer = partial(_all_fitting, group.shows, group.joint)
        elif group.rule:
            renderer = RULES[group.rule]
        if group.unless:
            renderer = partial(_unless, group.unless, renderer)
        renderers.update(dict.fromkeys(group.names, renderer))
    return renderers


@cache
def added_templates(text: str, language: str) -> Mapping[str, Renderer]:
    """Return the renderers of the templates that a user's TOML file describes.

    It has a table ``templates`` like that of ``names.toml``. Raise `UserError` if it does not.
    """
    if not text:
        return {}
    templates = parse_toml_option(
        text, _AddedTemplates, "templates", "templates by language"
    ).templates
    for group in chain.from_iterable(templates.values()):
        if group.rule and group.rule not in RULES:
            raise UserError(
                f"`templates` names the rule {group.rule}, which is not one of {', '.join(RULES)}."
            )
    groups = (*templates.get("*", ()), *templates.get(language, ()))
    return {name.lower(): renderer for name, renderer in _renderers(groups).items()}


class _AddedTemplates(Struct, frozen=True, forbid_unknown_fields=True):
    templates: dict[str, tuple[TemplateGroup, ...]]


# By language, ``*`` for all wikis, then by name.
_TEMPLATES = {language: _renderers(groups) for language, groups in NAMES.templates.items()}
_TEMPLATES["*"] |= {prefix: partial(_ship, prefix.upper()) for prefix in NAMES.ships}
