"""The words that a template shows: ``{{convert|5|km}}`` reads "5 km".

Only a template's wiki knows what it shows. ``names.toml`` lists the inline templates that many
wikis share, mostly under English names, and those of single wikis, which take precedence: French
``{{citation|...}}`` is a quotation, English ``{{citation|...}}`` a footnote. Here are the rules for
those that need more than a pattern. An unknown template may have been part of the sentence: it
leaves a mark, so that the sentence can be repaired or left out.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

from .names import NAMES, NumberFormat, TemplateGroup
from .repair import MISSING, PRONUNCIATION, REMOVED

Arguments = dict[str, str]
"""Arguments of one template by name; those without a name are called "1", "2", ..."""
Renderer = Callable[[Arguments, str], str | None]
"""Makes words of arguments and the wiki's language; "" if there is nothing to show, None if it does
not know.
"""

SUPERSCRIPTS = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")
_PLAIN_NUMBER = re.compile(r"-?\d{4,30}(?:\.\d+)?")
_NO_FORMAT = NumberFormat()
_NUMBER = re.compile(r"[-+−]?\d[\d.,]*(?:[+/]\d+)*")
_YES = ("y", "yes", "1", "true")
_NAMED = re.compile(r"\s*+([\w-][\w -]{0,40}?)\s*+=", re.ASCII)
_SCALED_UNIT = re.compile(r"e([369])([^\W\d].{0,20})")
_SCALES = {"3": "thousand", "6": "million", "9": "billion"}
_CASE_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "lc": str.lower,
    "uc": str.upper,
    "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:],
}
_LANGUAGE_TAGGED = re.compile(r"([^\W\d_]{1,12})-([a-z]{2,3})\d?(?:-[a-z-]{1,20})?")
_FRENCH_NUMERAL = re.compile(
    r"([ivx\d][ivxl\d]{0,6})((?:er|re|e|ᵉ|nd|nde)(?: siècle| millénaire| s\.?)?)(?: av\. j\.-c\.)?-?"
)
_FIELD = re.compile(r"\{(#?)([\w|]+)(?::(\w*))?\}")


def parse_arguments(body: str) -> tuple[str, Arguments]:
    """Split the text between the braces into the template's name, normalised, and its arguments.

    >>> parse_arguments("Convert |5|km|abbr=on")
    ('convert', {'1': '5', '2': 'km', 'abbr': 'on'})
    """
    head, *parts = body.split("|")
    arguments: Arguments = {}
    position = 0
    for part in parts:
        named = _NAMED.match(part) if "=" in part else None
        if named:
            arguments[named[1]] = part[named.end() :].strip()
        else:
            position += 1
            arguments[str(position)] = part.strip()
    return template_name(head), arguments


def template_name(head: str) -> str:
    """Return the name before the first pipe, lower-cased, without the template namespace.

    Of a function that changes the case of a text, such as ``uc:``, the text keeps its own.
    """
    head = head.replace(REMOVED, "").strip()
    function, colon, text = head.partition(":")
    if colon and function.lower() in _CASE_FUNCTIONS:
        return f"{function.lower()}:{text.strip()}"
    name = head.replace("_", " ").strip().lower()
    return name.removeprefix("template:").removeprefix("subst:").rstrip("? ")


def mark_of_silent(name: str, language: str) -> str | None:
    """Return the mark for a footnote, note to editors, box or pronunciation; None for a template
    that may be words.
    """
    if name in NAMES.pronunciations or name.startswith(NAMES.pronunciation_prefixes):
        return PRONUNCIATION
    if (
        name in NAMES.silent_templates
        or name.startswith(NAMES.silent_prefixes)
        or name.endswith(NAMES.silent_suffixes)
    ):
        return None if _own_renderer(name, language) else REMOVED
    return None


def find_renderer(name: str, language: str) -> Renderer | None:
    """Return what makes the words of a template, None if they are not known; `name` is normalised."""
    if renderer := _own_renderer(name, language) or _TEMPLATES["*"].get(name):
        return renderer
    function, colon, value = name.partition(":")
    if colon and function == "formatnum":
        return partial(_literal, _format_number(value.strip(), language))
    if colon and function in _CASE_FUNCTIONS:
        return partial(_literal, _CASE_FUNCTIONS[function](value))
    return partial(_foreign, name) if _language_of(name) else None


def _own_renderer(name: str, language: str) -> Renderer | None:
    """Return the renderer of a template of this language's Wikipedia alone."""
    if renderer := _TEMPLATES.get(language, {}).get(name):
        return renderer
    if language == "fr" and (numeral := _FRENCH_NUMERAL.fullmatch(name)):
        era = " av. J.-C." if "j.-c." in name else ""
        return partial(_literal, numeral[1].upper() + numeral[2] + era)
    if language == "de" and name.endswith("s") and name[:-1] in NAMES.languages:
        return _TEXT
    return None


def render_template(body: str, language: str) -> str:
    """Return the words that a template shows, or the mark of a removal.

    `body` is the text between the braces, with links and templates rendered; `language` is the
    wiki's, for dates and numbers.
    """
    name, arguments = parse_arguments(body)
    renderer = find_renderer(name, language)
    text = renderer(arguments, language) if renderer else None
    return MISSING if text is None else text or REMOVED


def _pattern(shows: Sequence[str]) -> Renderer:
    """Return the renderer of the patterns of ``names.toml``."""
    # A literal, then for each field: "#", the names, the default (or None), the literal after it.
    patterns = [_FIELD.split(text) for text in shows]

    def render(arguments: Arguments, language: str) -> str | None:
        for words, *fields in patterns:
            for number, keys, default, literal in zip(*[iter(fields)] * 4, strict=True):
                value = next(
                    (arguments[key] for key in keys.split("|") if arguments.get(key)), default
                )
                if value is None:
                    break
                words += (_format_number(value, language) if number else value) + literal
            else:
                return words
        return None

    return render


def _literal(text: str, arguments: Arguments, language: str) -> str:
    return text


def _language_of(name: str) -> str | None:
    """Return the code in names such as ``lang-grc-gre``, ``Vol-ru`` and plain ``ru``, whose
    argument is text.
    """
    if name in NAMES.languages:
        return name
    tagged = _LANGUAGE_TAGGED.fullmatch(name)
    return tagged[2] if tagged and (tagged[1] == "lang" or tagged[2] in NAMES.languages) else None


def _foreign(name: str, arguments: Arguments, language: str) -> str | None:
    code = _language_of(name) or ""
    return (
        ""
        if name == code and not arguments
        else _in_language(name, code, arguments.get("1"), language)
    )


def _in_language(name: str, code: str, text: str | None, language: str) -> str | None:
    if not text:
        return None
    label = NAMES.languages.get(code, "")
    return f"{label}: {text}" if language == "en" and label and name.startswith("lang") else text


def _language_text(arguments: Arguments, language: str) -> str | None:
    return _in_language("langx", arguments.get("1", ""), arguments.get("2"), language)


def _convert(arguments: Arguments, language: str) -> str | None:
    """Words of ``convert``: the value as given with its own unit; the converted one is left out."""
    words = ""
    position = 1
    while (value := arguments.get(str(position), "")) and _NUMBER.fullmatch(value):
        words += _format_number(value, language).replace("+", " ")
        following = arguments.get(str(position + 1), "")
        if following.lower() in NAMES.range_words:
            words += NAMES.range_words[following.lower()]
            position += 2
            continue
        words += f" {_unit(following)}" if following else ""
        compound = arguments.get(str(position + 3), "")
        if compound.lower() not in ("ft", "in", "lb", "oz", "mi", "yd", "st"):
            return words
        words += " "
        position += 2
    return words.strip() or None


def _value(arguments: Arguments, language: str) -> str | None:
    """Words of ``val``: number, uncertainty, exponent, unit."""
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
    one. Ages are left out.
    """
    first, month, last = (arguments.get(key, "") for key in ("1", "2", "3"))
    if not month:
        return first or None
    if date := _format_date(
        first, month, last, language, day_first=arguments.get("df", "").lower() in _YES
    ):
        return date
    return None if month.isdecimal() else f"{first} {month} {last}".strip()


def _as_of(arguments: Arguments, language: str) -> str | None:
    if arguments.get("alt"):
        return arguments["alt"]
    if language not in ("en", "simple"):
        return None
    date = _date({"df": "y", **arguments}, language)
    return f"{'as of' if arguments.get('lc') else 'As of'} {date}" if date else None


def _format_number(value: str, language: str) -> str:
    """Group the digits of a plain number as the language does: "2381741" reads "2,381,741" in
    English.
    """
    separator = NAMES.formats.get(language, _NO_FORMAT).thousands
    plain = value.replace(" ", "")
    if separator is None or not _PLAIN_NUMBER.fullmatch(plain):
        return value
    whole, point, fraction = plain.partition(".")
    decimal_point = "." if separator == "," else ","
    return f"{int(whole):,}".replace(",", separator) + (decimal_point + fraction if point else "")


def _format_date(
    first: str, month: str, last: str, language: str, *, day_first: bool = False
) -> str | None:
    """Return the words of a date whose year and day are `first` and `last`, in either order.

    `day_first` is for English only. None if the month is not a number from 1 to 12, or the language
    is unknown.

    >>> _format_date("1900", "3", "5", "fr"), _format_date("5", "3", "1900", "ja"), _format_date("1900", "3", "", "en")
    ('5 mars 1900', '1900年3月5日', 'March 1900')
    """
    language = "en" if language == "simple" else language
    known = NAMES.formats.get(language, _NO_FORMAT)
    if known.date is None or not (month.isdecimal() and 1 <= int(month) <= 12):
        return None
    year, day = (last, first) if len(last) > 2 else (first, last)
    name = known.months[int(month) - 1] if known.months else str(int(month))
    if not day.isdecimal():
        return known.month.format(year=year, month=name)
    pattern = "{day} {month} {year}" if day_first and language == "en" else known.date
    return pattern.format(year=year, month=name, day=int(day))


def _century(arguments: Arguments, language: str) -> str | None:
    """Words of ``siglo|V|a`` and ``séc|V``."""
    era = {"a": " a. C.", "d": " d. C."}.get(arguments.get("2", ""), "")
    return (
        f"{'siglo' if language == 'es' else 'século'} {arguments['1']}{era}"
        if arguments.get("1")
        else None
    )


def _joined(separator: str, arguments: Arguments, language: str) -> str:
    return separator.join(value for key, value in arguments.items() if key.isdecimal() and value)


def _last_argument(arguments: Arguments, language: str) -> str:
    """Text after a language code, a size, or the title of a page that another wiki has
    (``transl|ar|ALA|Allāh``).
    """
    keys = ("2", "1") if arguments.get("3", "").islower() else ("3", "2", "1")
    return next((arguments[key] for key in keys if arguments.get(key)), "")


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

_TEXT = _pattern(["{text|1}", ""])
_SHIPS = [
    TemplateGroup((ship,), (f"{ship.upper()} {{1}} ({{2}})", f"{ship.upper()} {{1}}", ship.upper()))
    for ship in NAMES.ships
]
_TEMPLATES: dict[str, dict[str, Renderer]] = {
    language: {
        name: renderer
        for group in (*groups, *(_SHIPS if language == "*" else ()))
        for renderer in [RULES[group.rule] if group.rule else _pattern(group.shows)]
        for name in group.names
    }
    for language, groups in NAMES.templates.items()
}
