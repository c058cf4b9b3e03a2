"""The words that a template shows: ``{{convert|5|km}}`` reads "5 km".

Only a template's wiki knows what it shows. This module has the inline templates that many wikis share, mostly under
English names, and a few generic rules; `local_templates` has those of single wikis, which take precedence. A template
that neither knows may have been part of the sentence: it leaves a mark, so that the sentence can be repaired or left
out.
"""

import re

from .local_templates import Arguments, Renderer, local_renderer
from .names import (
    AUDIO_LABELS,
    FIRST_ARGUMENT_TEMPLATES,
    LANGUAGES,
    LAST_ARGUMENT_TEMPLATES,
    LITERALS,
    PRONUNCIATION_PREFIXES,
    PRONUNCIATIONS,
    RANGE_WORDS,
    SECOND_ARGUMENT_TEMPLATES,
    SHIP_PREFIXES,
    SILENT_PREFIXES,
    SILENT_SUFFIXES,
    SILENT_TEMPLATES,
    UNITS,
)
from .numbers import format_date, format_number
from .repair import MISSING, PARAGRAPH_BREAK, PRONUNCIATION, REMOVED

_SHOWN_ARGUMENT = {**dict.fromkeys(FIRST_ARGUMENT_TEMPLATES, "1"), **dict.fromkeys(SECOND_ARGUMENT_TEMPLATES, "2")}
_LABEL_ARGUMENTS = ("lt", "label", "text")
_NUMBER = re.compile(r"[-+−]?\d[\d.,]*(?:[+/]\d+)*")
_NAMED = re.compile(r"\s*+([\w-][\w -]{0,40}?)\s*+=", re.ASCII)
_SCALED_UNIT = re.compile(r"e([369])([^\W\d].{0,20})")
_SCALES = {"3": "thousand", "6": "million", "9": "billion"}
_PARSER_FUNCTIONS = ("formatnum", "lc", "uc", "ucfirst", "lcfirst")
_LANGUAGE_TAGGED = re.compile(r"([^\W\d_]{1,12})-([a-z]{2,3})\d?(?:-[a-z-]{1,20})?")


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
    """Return the name before the first pipe, lower-cased, without the template namespace."""
    name = head.replace("_", " ").replace(REMOVED, "").strip().lower()
    return name.removeprefix("template:").removeprefix("subst:").rstrip("? ")


def mark_of_silent(name: str, language: str = "en") -> str | None:
    """Return the mark for a template that a sentence does without, or None if it may be words.

    Silent are footnotes, notes to editors, boxes, and pronunciations.
    """
    if name in PRONUNCIATIONS or name.startswith(PRONUNCIATION_PREFIXES):
        return PRONUNCIATION
    if name in SILENT_TEMPLATES or name.startswith(SILENT_PREFIXES) or name.endswith(SILENT_SUFFIXES):
        return None if local_renderer(name, language) else REMOVED
    return None


def can_render(name: str, language: str = "en") -> bool:
    """Return whether `render_template` knows words for the template; `name` is normalised."""
    return (
        name in _SHOWN_ARGUMENT
        or name in _RENDERERS
        or name in LITERALS
        or name in SHIP_PREFIXES
        or name.partition(":")[0] in _PARSER_FUNCTIONS
        or _language_of(name) is not None
        or local_renderer(name, language) is not None
    )


def render_template(body: str, language: str) -> str:
    """Return the words that a template shows, or the mark of a removal.

    Args:
        body: the text between the braces; links and templates in it are rendered already.
        language: code of the wiki's language, for dates and numbers.
    """
    name, arguments = parse_arguments(body)
    local = local_renderer(name, language)
    if local is None and name in LITERALS:
        return LITERALS[name]
    text = local(arguments, language) if local else _rendered(name, arguments, language)
    if text is None:
        return MISSING
    return text or REMOVED


def _rendered(name: str, arguments: Arguments, language: str) -> str | None:
    if name in _SHOWN_ARGUMENT:
        return next((arguments[key] for key in (*_LABEL_ARGUMENTS, _SHOWN_ARGUMENT[name]) if arguments.get(key)), "")
    if name in _RENDERERS:
        return _RENDERERS[name](arguments, language)
    if name in SHIP_PREFIXES:
        return _ship(name.upper(), arguments)
    function, colon, value = name.partition(":")
    if colon and function in _PARSER_FUNCTIONS:
        return format_number(value.strip(), language) if function == "formatnum" else value.strip()
    if code := _language_of(name):
        if name == code and not arguments:
            return ""
        return _in_language(name, code, arguments.get("1"), language)
    return None


def _language_of(name: str) -> str | None:
    """Return the code in names such as ``lang-grc-gre``, ``Vol-ru`` and plain ``ru``, whose argument is text."""
    if name in LANGUAGES:
        return name
    tagged = _LANGUAGE_TAGGED.fullmatch(name)
    return tagged[2] if tagged and (tagged[1] == "lang" or tagged[2] in LANGUAGES) else None


def _in_language(name: str, code: str, text: str | None, language: str) -> str | None:
    if not text:
        return None
    label = LANGUAGES.get(code, "")
    return f"{label}: {text}" if language == "en" and label and name.startswith("lang") else text


def _language_text(arguments: Arguments, language: str) -> str | None:
    return _in_language("langx", arguments.get("1", ""), arguments.get("2"), language)


def _convert(arguments: Arguments, language: str) -> str | None:
    """Words of ``convert``: the value as given with its own unit; the converted one is left out."""
    words = ""
    position = 1
    while (value := arguments.get(str(position), "")) and _NUMBER.fullmatch(value):
        words += format_number(value.replace("+", " "), language)
        following = arguments.get(str(position + 1), "")
        if following.lower() in RANGE_WORDS:
            words += RANGE_WORDS[following.lower()]
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
    words = format_number(arguments["1"], language)
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
    return UNITS.get(code.lower(), code)


def _fraction(arguments: Arguments, language: str) -> str | None:
    parts = [arguments[key] for key in ("1", "2", "3") if arguments.get(key)]
    if not parts:
        return "/"
    if len(parts) == 1:
        return f"1/{parts[0]}"
    return f"{parts[-2]}/{parts[-1]}" if len(parts) == 2 else f"{parts[0]} {parts[1]}/{parts[2]}"


def _date(arguments: Arguments, language: str) -> str | None:
    """Words of ``birth date``, ``start date`` and their kin: year, month, day; the age would change every year."""
    year, month, day = (arguments.get(key, "") for key in ("1", "2", "3"))
    if not month:
        return year or None
    if not (month.isdecimal() and 1 <= int(month) <= 12):
        return f"{year} {month} {day}".rstrip()
    return format_date(year, month, day, language, day_first=bool(arguments.get("df")))


def _as_of(arguments: Arguments, language: str) -> str | None:
    if arguments.get("alt"):
        return arguments["alt"]
    if language not in ("en", "simple"):
        return None
    date = _date({"df": "y", **arguments}, language)
    return f"{'as of' if arguments.get('lc') else 'As of'} {date}" if date else None


def _prefixed(prefix: str) -> Renderer:
    def render(arguments: Arguments, language: str) -> str | None:
        years = [arguments[key] for key in ("1", "2") if arguments.get(key)]
        return f"{prefix} {'–'.join(years)}" if years else prefix

    return render


def _joined(separator: str) -> Renderer:
    def render(arguments: Arguments, language: str) -> str | None:
        return separator.join(value for key, value in arguments.items() if key.isdecimal() and value)

    return render


def _currency(sign: str) -> Renderer:
    return lambda arguments, language: sign + format_number(arguments.get("1", ""), language)


def _last_argument(arguments: Arguments, language: str) -> str | None:
    """Text after a language code, a size, or the title of a page that another wiki has (``transl|ar|ALA|Allāh``)."""
    keys = ("2", "1") if arguments.get("3", "").islower() else ("3", "2", "1")
    return next((arguments[key] for key in keys if arguments.get(key)), "")


def _nihongo(arguments: Arguments, language: str) -> str | None:
    """Words of ``nihongo``: English (kanji, romaji)."""
    english, *others = (arguments.get(key, "") for key in ("1", "2", "3"))
    inside = ", ".join(other for other in others if other)
    return f"{english} ({inside})" if english and inside else english or inside


def _quotation(arguments: Arguments, language: str) -> str | None:
    text = arguments.get("text") or arguments.get("quote") or arguments.get("1", "")
    return PARAGRAPH_BREAK + text + PARAGRAPH_BREAK


def _audio(arguments: Arguments, language: str) -> str | None:
    text = arguments.get("2", "")
    return "" if text.strip(" :()").lower() in AUDIO_LABELS else text


def _reading(arguments: Arguments, language: str) -> str | None:
    """Words of ``読み仮名``: the word with its reading in full-width parentheses."""
    reading = arguments.get("2")
    return f"{arguments.get('1', '')}（{reading}）" if reading else arguments.get("1", "")


def _ship(prefix: str, arguments: Arguments) -> str:
    name = f"{prefix} {arguments.get('1', '')}"
    return f"{name} ({arguments['2']})" if arguments.get("2") else name


_RENDERERS: dict[str, Renderer] = {
    **dict.fromkeys(("convert", "cvt", "unidad", "unitade"), _convert),
    **dict.fromkeys(("val", "valn"), _value),
    **dict.fromkeys(("frac", "sfrac", "fraction", "sfraction"), _fraction),
    **dict.fromkeys(("circa", "c.", "ca", "ca."), _prefixed("c.")),
    **dict.fromkeys(("floruit", "fl.", "fl"), _prefixed("fl.")),
    **dict.fromkeys(("reign", "r."), _prefixed("r.")),
    **dict.fromkeys(("née", "nee"), _prefixed("née")),
    **dict.fromkeys(("né",), _prefixed("né")),
    **dict.fromkeys(("p.", "page"), _prefixed("p.")),
    **dict.fromkeys(("birth date", "birth date and age", "bda", "dob", "birth year and age", "death date"), _date),
    **dict.fromkeys(("death date and age", "death year and age", "start date", "end date", "film date"), _date),
    **dict.fromkeys(("start date and age", "birth date and given age", "release date", "dts", "date"), _date),
    **dict.fromkeys(("as of", "asof"), _as_of),
    **dict.fromkeys(("us$", "usd"), _currency("US$")),
    **dict.fromkeys(("gbp", "£", "pound sterling"), _currency("£")),
    **dict.fromkeys(("eur", "€"), _currency("€")),
    **dict.fromkeys(("inr", "indian rupee", "₹"), _currency("₹")),
    **dict.fromkeys(("a$", "aud"), _currency("A$")),
    **dict.fromkeys(("yen", "jpy", "¥"), _currency("¥")),
    **dict.fromkeys(("number", "format price", "formatprice", "num", "formatnum"), _currency("")),
    **dict.fromkeys(("chem", "chem2", "simplenuclide", "fchim", "kbd2"), _joined("")),
    **dict.fromkeys(("key press", "bibleverse", "bibleref", "bibleref2", "booky"), _joined(" ")),
    **dict.fromkeys(("hlist", "cslist"), _joined(", ")),
    **dict.fromkeys(("nihongo",), _nihongo),
    **dict.fromkeys(
        ("quote", "blockquote", "cquote", "quotation", "bquote", "poemquote", "centered pull quote"), _quotation
    ),
    **dict.fromkeys(("citation bloc", "zitat", "cita", "citazione", "цитата", "quotation2"), _quotation),
    **dict.fromkeys(LAST_ARGUMENT_TEMPLATES, _last_argument),
    **dict.fromkeys(("langx", "lang-x"), _language_text),
    **dict.fromkeys(("audio",), _audio),
    **dict.fromkeys(("読み仮名", "読み仮名 ruby不使用"), _reading),
    "angbr": lambda arguments, language: f"⟨{arguments.get('1', '')}⟩",
    "e": lambda arguments, language: f" × 10^{arguments['1']}" if arguments.get("1") else None,
    "music": lambda arguments, language: {"flat": "♭", "sharp": "♯", "natural": "♮"}.get(arguments.get("1", "")),
    "math": lambda arguments, language: arguments.get("1"),
    "ship": lambda arguments, language: _ship(arguments.get("1", ""), {"1": arguments.get("2", "")}),
    "oldstyledate": lambda arguments, language: " ".join(arguments.get(key, "") for key in ("1", "2")).strip(),
}
