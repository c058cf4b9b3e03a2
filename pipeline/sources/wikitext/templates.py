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
from .names import NAMES, NumberFormat, TemplateGroup, countries
from .repair import MISSING, PRONUNCIATION, REMOVED

Arguments = dict[str, str]
"""Arguments of one template by name; those without a name are called "1", "2", ..."""
Renderer = Callable[[Arguments, str], str | None]
"""Turns arguments and the wiki's language into words.

They are "" if there is nothing to show, None if the renderer does not know the words.
"""

_SUPERSCRIPTS = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")
_PLAIN_NUMBER = re.compile(r"-?\d{4,30}(?:\.\d+)?")
_NO_FORMAT = NumberFormat()
_NUMBER = re.compile(r"[-+−]?\d[\d.,]*(?:[+/]\d+)*")
_YES = ("y", "yes", "1", "true")
_NAMED = re.compile(r"\s*+([\w-][\w -]{0,40}?)\s*+=", re.ASCII)
# "e6km2": the exponent of ten, and a unit.
_SCALED_UNIT = re.compile(r"e([369])([^\W\d].{0,20})")
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
    r"([ivx\d][ivxl\d]{0,6})((?:er|re|e|ᵉ|nd|nde)(?: siècle| millénaire| s\.?| [a-zéû]{3,9})?)"
    r"(?: av\. j\.-c\.)?-?"
)
# A field in a pattern of ``names.toml``: "{#1|value:0}" is the first of the arguments 1 and value,
# written as a number; 0 if there is neither.
_FIELD = re.compile(r"\{(#?)([\w|]+)(?::(\w*))?\}")


def parse_arguments(body: str) -> tuple[str, Arguments]:
    """Split the text between the braces into the template's name, normalised, and its arguments.

    >>> parse_arguments("Convert |5|km|abbr=on")
    ('convert', {'1': '5', '2': 'km', 'abbr': 'on'})
    """
    head, *fields = body.split("|")
    arguments: Arguments = {}
    position = 0
    for field in fields:
        # A URL with "=" in it is not a name: names have only letters, digits and blanks.
        named = _NAMED.match(field) if "=" in field else None
        if named:
            arguments[named[1]] = field[named.end() :].strip()
        else:
            position += 1
            arguments[str(position)] = field.strip()
    return template_name(head), arguments


def template_name(head: str) -> str:
    """Return the name before the first pipe, lower-cased, without the template namespace.

    The text of a function that changes its case, such as ``uc:``, keeps its own.
    """
    head = head.replace(REMOVED, "").strip()
    function, colon, text = head.partition(":")
    if colon and function.lower() in _CASE_FUNCTIONS:
        return f"{function.lower()}:{text.strip()}"
    name = head.replace("_", " ").strip().lower()
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
    if len(name) == 3 and (country := countries().get(language, {}).get(name)):
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
        # ``{{enS|text}}`` is text in English.
        return _TEXT
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
    for pattern in shows:
        words = _filled(pattern, arguments, language)
        if words is not None:
            return words
    return None


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


def _expression(expression: str, arguments: Arguments, language: str) -> str | None:
    value = _evaluate(expression)
    return None if value is None else _format_number(f"{value:.12g}", language)


def _evaluate(expression: str) -> float | None:
    """Return the value of a number, or of one operation on two; None if it is anything else."""
    parsed = _EXPRESSION.fullmatch(expression)
    if parsed is None:
        return None
    left, sign, right = parsed.groups()
    if sign is None:
        return float(left)
    if sign in ("/", "div") and not float(right):
        return None
    return float(_OPERATIONS[sign](float(left), float(right)))


_DECIMAL = r"([-+]?\d{1,15}(?:\.\d{1,15})?)"
_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "div": operator.truediv,
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_EXPRESSION = re.compile(
    rf"\s*{_DECIMAL}\s*(?:({'|'.join(map(re.escape, sorted(_OPERATIONS, reverse=True)))})"
    rf"\s*{_DECIMAL}\s*)?"
)
_PARSER_FUNCTIONS: dict[str, Callable[[str, Arguments, str], str | None]] = {
    "#if": _if,
    "#ifeq": _if_equal,
    "#ifexpr": _if_true,
    "#expr": _expression,
}


def _language_of(name: str) -> str | None:
    """Return the language code in a template's name, None if there is none.

    It is in ``lang-grc-gre``, ``Vol-ru`` and plain ``ru``, whose argument is text.
    """
    if name in NAMES.languages:
        return name
    tagged = _LANGUAGE_TAGGED.fullmatch(name)
    if tagged is None:
        return None
    prefix, code = tagged.groups()
    # Any word before a known code, such as "Vol-ru"; after "lang" any code.
    if prefix == "lang" or code in NAMES.languages:
        return code
    return None


def _foreign(name: str, arguments: Arguments, language: str) -> str | None:
    """Words of ``lang-fr|...``: text in another language."""
    code = _language_of(name) or ""
    if name == code and not arguments:
        return ""  # ``{{fr}}`` alone is a flag, or an abbreviation of the language
    return _in_language(name, code, arguments.get("1"), language)


def _in_language(name: str, code: str, text: str | None, language: str) -> str | None:
    if not text:
        return None
    label = NAMES.languages.get(code, "")
    # English templates put the name of the language in front: "French: ..."
    if language == "en" and label and name.startswith("lang"):
        return f"{label}: {text}"
    return text


def _language_text(arguments: Arguments, language: str) -> str | None:
    return _in_language("langx", arguments.get("1", ""), arguments.get("2"), language)


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
    if not arguments.get("1"):
        return None
    words = _format_number(arguments["1"], language)
    if arguments.get("2"):
        words += f" ± {arguments['2']}"
    if arguments.get("e"):
        words += f" × 10^{arguments['e']}"
    unit = arguments.get("u") or arguments.get("ul") or ""
    return f"{words} {_unit(unit)}".strip()


def _unit(code: str) -> str:
    """Return the words of a unit: ``e6km2`` reads "million km²"."""
    scaled = _SCALED_UNIT.fullmatch(code)
    if scaled:
        return f"{_SCALES[scaled[1]]} {_unit(scaled[2])}"
    return NAMES.units.get(code.lower(), code)


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
    if not month:
        return first or None
    day_first = arguments.get("df", "").lower() in _YES
    date = _format_date(first, month, last, language, day_first=day_first)
    if date:
        return date
    if month.isdecimal():
        return None
    return f"{first} {month} {last}".strip()


def _as_of(arguments: Arguments, language: str) -> str | None:
    """Words of ``as of|2013|June|8``: the month is a number or an English word."""
    if arguments.get("alt"):
        return arguments["alt"]
    if language not in ("en", "simple"):
        return None
    arguments = {"df": "y", **arguments}
    months = [name[:3] for name in NAMES.formats["en"].months]
    month = arguments.get("2", "")[:3].capitalize()  # it may be short: "Sept"
    if month in months:
        arguments["2"] = str(months.index(month) + 1)
    date = _date(arguments, language)
    if not date:
        return None
    as_of = "as of" if arguments.get("lc") else "As of"
    return f"{as_of} {date}"


def _format_number(value: str, language: str) -> str:
    """Group the digits of a plain number: "2381741" reads "2,381,741" in English."""
    separator = NAMES.formats.get(language, _NO_FORMAT).thousands
    plain = value.replace(" ", "")
    if separator is None or not _PLAIN_NUMBER.fullmatch(plain):
        return value
    whole, _, fraction = plain.partition(".")
    grouped = f"{int(whole):,}".replace(",", separator)
    if not fraction:
        return grouped
    # Languages that group digits with commas have a decimal point, all others a decimal comma.
    decimal_point = "." if separator == "," else ","
    return grouped + decimal_point + fraction


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
    if language == "simple":
        language = "en"
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
    """Words of ``USS|Kidd|DD-661``, where a third argument says what is shown: 2 the name, 6 the
    name and the number.
    """
    name = arguments.get("1", "")
    number = arguments.get("2", "")
    style = arguments.get("3", "")
    if style == "2":
        return name or None
    if style == "6":
        return f"{name} ({number})" if number else name
    if style:
        return None
    words = f"{prefix} {name}".strip()
    return f"{words} ({number})" if number else words


def _any_ship(arguments: Arguments, language: str) -> str | None:
    """Words of ``ship|HMS|Victory``, whose first argument may be empty."""
    shifted = {str(number): arguments.get(str(number + 1), "") for number in range(1, 4)}
    return _ship(arguments.get("1", ""), shifted, language) or None


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
    label = NAMES.language_labels.get(language, {}).get(code)
    if label is None:
        return code if "2" not in arguments and code not in NAMES.languages else None
    return f"{label} {arguments.get('2', '')}".strip()


def _percentage(arguments: Arguments, language: str) -> str | None:
    part, whole, digits = (arguments.get(key, "") for key in ("1", "2", "3"))
    share = _evaluate(f"{part}/{whole}")
    if share is None or (digits and not re.fullmatch(r"\d", digits)):
        return None
    last_digit = Decimal(1).scaleb(-int(digits or 0))
    # As MediaWiki rounds: halves away from zero.
    return f"{Decimal(str(100 * share)).quantize(last_digit, ROUND_HALF_UP)}%"


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
    "language_text": _language_text,
    "last_argument": _last_argument,
    "listed": partial(_joined, ", "),
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
        if group.rule:
            renderer = RULES[group.rule]
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
