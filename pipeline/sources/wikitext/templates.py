"""Render the words that a template shows: ``{{convert|5|km}}`` reads "5 km".

Only a template's wiki knows what it shows. ``names.toml`` lists the inline templates that many
wikis share, mostly under English names, and those of single wikis, which take precedence: French
``{{citation|...}}`` is a quotation, English ``{{citation|...}}`` a footnote. Here are the rules for
templates that need more than a pattern. An unknown template may have been part of the sentence: it
leaves a mark, so that the sentence can be repaired or left out.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from .names import NAMES, NumberFormat, TemplateGroup
from .repair import MISSING, PRONUNCIATION, REMOVED

Arguments = dict[str, str]
"""Arguments of one template by name; those without a name are called "1", "2", ..."""
Renderer = Callable[[Arguments, str], str | None]
"""Turns arguments and the wiki's language into words.

They are "" if there is nothing to show, None if the renderer does not know the words.
"""

SUPERSCRIPTS = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")
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
    r"([ivx\d][ivxl\d]{0,6})((?:er|re|e|ᵉ|nd|nde)(?: siècle| millénaire| s\.?)?)"
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
    is_silent = (
        name in NAMES.silent_templates
        or name.startswith(NAMES.silent_prefixes)
        or name.endswith(NAMES.silent_suffixes)
    )
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
        return partial(_literal, numeral[1].upper() + numeral[2] + era)
    if language == "de" and name.endswith("s") and name[:-1] in NAMES.languages:
        # ``{{enS|text}}`` is text in English.
        return _TEXT
    return None


def render_template(body: str, language: str) -> str:
    """Return the words that a template shows, or the mark of a removal.

    `body` is the text between the braces, with links and templates rendered; `language` is the
    wiki's, for dates and numbers.
    """
    name, arguments = parse_arguments(body)
    renderer = find_renderer(name, language)
    if renderer is None:
        return MISSING
    words = renderer(arguments, language)
    if words is None:
        return MISSING
    return words or REMOVED


@dataclass(frozen=True, slots=True)
class _Field:
    """A place in a pattern for the value of an argument."""

    names: tuple[str, ...]
    """The first of these arguments that has a value."""
    default: str | None
    """The value if none of them has one; None: then the pattern does not fit."""
    is_number: bool
    literal: str
    """The text that follows."""

    def render(self, arguments: Arguments, language: str) -> str | None:
        value = _first_value(arguments, self.names) or self.default
        if value is None:
            return None
        if self.is_number:
            value = _format_number(value, language)
        return value + self.literal


def _first_value(arguments: Arguments, names: Sequence[str]) -> str:
    for name in names:
        value = arguments.get(name)
        if value:
            return value
    return ""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern of ``names.toml``: "{1} ({2})" is the field 1, " (", the field 2, ")"."""

    literal: str
    """The text before the first field."""
    fields: tuple[_Field, ...]

    def render(self, arguments: Arguments, language: str) -> str | None:
        """Return the words; None if an argument without a default is missing."""
        words = self.literal
        for field in self.fields:
            rendered = field.render(arguments, language)
            if rendered is None:
                return None
            words += rendered
        return words


def _parse_pattern(text: str) -> _Pattern:
    # `re.split` returns for each field its three groups and the literal behind it:
    #   "about {#1|value:0} km"   ->   "about "   "#"  "1|value"  "0"  " km"
    literal, *pieces = _FIELD.split(text)
    fields: list[_Field] = []
    for index in range(0, len(pieces), 4):
        number_sign, names, default, following = pieces[index : index + 4]
        fields.append(
            _Field(
                names=tuple(names.split("|")),
                default=default,
                is_number=bool(number_sign),
                literal=following,
            )
        )
    return _Pattern(literal, tuple(fields))


def _first_fitting(shows: Sequence[str]) -> Renderer:
    """Return a renderer that shows the first of some patterns for which it has the arguments."""
    patterns = [_parse_pattern(text) for text in shows]

    def render(arguments: Arguments, language: str) -> str | None:
        for pattern in patterns:
            words = pattern.render(arguments, language)
            if words is not None:
                return words
        return None

    return render


def _literal(text: str, arguments: Arguments, language: str) -> str:
    return text


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
        words += f" {unit}{exponent.translate(SUPERSCRIPTS)}"
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
    """Words of ``siglo|V|a`` and ``séc|V``."""
    numeral = arguments.get("1")
    if not numeral:
        return None
    era = {"a": " a. C.", "d": " d. C."}.get(arguments.get("2", ""), "")
    century = "siglo" if language == "es" else "século"
    return f"{century} {numeral}{era}"


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
    return {"flat": "♭", "sharp": "♯", "natural": "♮"}.get(arguments.get("1", ""))


RULES: dict[str, Renderer] = {
    "accidental": _accidental,
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

_TEXT = _first_fitting(["{text|1}", ""])


def _ship_group(prefix: str) -> TemplateGroup:
    """Return the template of some ships: ``{{USS|Kidd|DD-661}}`` reads "USS Kidd (DD-661)"."""
    shown = prefix.upper()
    patterns = (f"{shown} {{1}} ({{2}})", f"{shown} {{1}}", shown)
    return TemplateGroup((prefix,), patterns)


def _renderers(groups: Iterable[TemplateGroup]) -> dict[str, Renderer]:
    """Return the renderer of each name in some groups."""
    renderers: dict[str, Renderer] = {}
    for group in groups:
        renderer = RULES[group.rule] if group.rule else _first_fitting(group.shows)
        renderers.update(dict.fromkeys(group.names, renderer))
    return renderers


# By language, ``*`` for all wikis, then by name.
_TEMPLATES = {language: _renderers(groups) for language, groups in NAMES.templates.items()}
_TEMPLATES["*"] |= _renderers(map(_ship_group, NAMES.ships))
