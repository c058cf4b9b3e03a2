"""Inline templates whose meaning depends on the language of the wiki.

French ``{{citation|...}}`` is a quotation and English ``{{citation|...}}`` a footnote, so these names are listed by
language; those that many wikis share are in `templates`.
"""

import re
from collections.abc import Callable

from .names import LANGUAGES, LOCAL_FIRST_ARGUMENT, LOCAL_LITERALS, LOCAL_SECOND_ARGUMENT, LOCAL_SILENT
from .numbers import SUPERSCRIPTS, format_date, format_number
from .repair import PARAGRAPH_BREAK

Arguments = dict[str, str]
"""Arguments of one template by name; those without a name are called "1", "2", ..."""
Renderer = Callable[[Arguments, str], str | None]
"""Makes words of arguments and the wiki's language; "" if there is nothing to show, None if it does not know."""

_LABELS = ("texte", "text", "fr", "1")


def local_renderer(name: str, language: str) -> Renderer | None:
    """Return the renderer of a template of this language's Wikipedia alone; None if there is none.

    `name` is normalised, see `templates.template_name`.
    """
    if renderer := _LOCAL.get(language, {}).get(name):
        return renderer
    if language == "fr" and (numeral := _FRENCH_NUMERAL.fullmatch(name)):
        return lambda arguments, language: _french_numeral(numeral)
    if language == "de" and name.endswith("s") and name[:-1] in LANGUAGES:
        return _first
    return None


def _first(arguments: Arguments, language: str) -> str | None:
    return next((arguments[key] for key in _LABELS if arguments.get(key)), "")


def _second(arguments: Arguments, language: str) -> str | None:
    return arguments.get("2") or arguments.get("1")


def _nothing(arguments: Arguments, language: str) -> str | None:
    return ""


def _literal(text: str) -> Renderer:
    return lambda arguments, language: f"{text} {arguments['1']}" if arguments.get("1") else text


def _between(opening: str, closing: str) -> Renderer:
    def render(arguments: Arguments, language: str) -> str | None:
        text = _first(arguments, language)
        return f"{opening}{text}{closing}" if text else ""

    return render


def _break(arguments: Arguments, language: str) -> str | None:
    return PARAGRAPH_BREAK


def _number(arguments: Arguments, language: str) -> str | None:
    """Words of a number and its unit, ``nombre|12345|habitants``."""
    number = format_number(arguments.get("1", "").replace(" ", ""), language)
    unit = arguments.get("2") or arguments.get("u") or arguments.get("ul") or ""
    return f"{number} {unit}".strip() or None


def _french_unit(arguments: Arguments, language: str) -> str | None:
    """Words of ``unité|5|km|2``: a number, and units each with its exponent."""
    if not arguments.get("2"):
        return _number(arguments, language)
    words = format_number(arguments.get("1", "").replace(" ", ""), language)
    position = 2
    while unit := arguments.get(str(position)):
        exponent = arguments.get(str(position + 1), "")
        if not re.fullmatch(r"[-−]?\d*", exponent):
            return None
        words += f" {unit}{exponent.translate(SUPERSCRIPTS)}"
        position += 2
    return words


def _date(arguments: Arguments, language: str) -> str | None:
    """Words of day, month and year in three arguments, the month a number or a word; or of one with all in it."""
    first, month, last = (arguments.get(key, "") for key in ("1", "2", "3"))
    if not month:
        return first or None
    return format_date(first, month, last, language) or (
        None if month.isdecimal() else f"{first} {month} {last}".strip()
    )


_FRENCH_NUMERAL = re.compile(r"([ivx\d][ivxl\d]{0,6})(er|re|e|nd|nde)( siècle)?( av\. j\.-c\.)?")


def _french_numeral(match: re.Match[str]) -> str:
    """Words of ``XIXe siècle``, ``Ier``, ``IIe siècle av. J.-C.``, which have no arguments."""
    numeral, suffix, century, before_christ = match.groups()
    return f"{numeral.upper()}{suffix}{century or ''}{' av. J.-C.' if before_christ else ''}"


def _french_centuries(after: str) -> Renderer:
    """Return the renderer of ``s|XIX|e`` and of ``s2|XVIII|e|XIX|e``."""

    def render(arguments: Arguments, language: str) -> str | None:
        numerals = [
            f"{arguments[key]}{arguments.get(str(int(key) + 1)) or 'e'}" for key in ("1", "3") if arguments.get(key)
        ]
        if not numerals:
            return None
        return f"{' et '.join(numerals)} siècle{'s' if len(numerals) > 1 else ''}{after}"

    return render


def _french_span(after: str) -> Renderer:
    """Return the renderer of ``sp|XVIII|e|ou|XIX|e``."""

    def render(arguments: Arguments, language: str) -> str | None:
        first, ending, word, last, last_ending = (arguments.get(str(key), "") for key in range(1, 6))
        return f"{first}{ending} {word} {last}{last_ending or 'e'} siècles{after}" if first and last else None

    return render


def _time(arguments: Arguments, language: str) -> str | None:
    return f"{arguments.get('1', '')} h {arguments.get('2', '')}".strip()


def _century(word: str) -> Renderer:
    def render(arguments: Arguments, language: str) -> str | None:
        era = {"a": " a. C.", "d": " d. C."}.get(arguments.get("2", ""), "")
        return f"{word}{arguments['1']}{era}" if arguments.get("1") else None

    return render


def _lifetime(arguments: Arguments, language: str) -> str | None:
    """Words of Chinese ``bd|1900年|1月1日|1990年|2月2日``."""
    born, died = (arguments.get(a, "") + arguments.get(b, "") for a, b in (("1", "2"), ("3", "4")))
    return f"{born}—{died}" if born or died else ""


def _stressed(arguments: Arguments, language: str) -> str | None:
    return f"{arguments.get('1', '')}\u0301"


def _chinese_link(arguments: Arguments, language: str) -> str | None:
    """Words of ``tsl|en|Title|中文``: the label, else the Chinese title."""
    return arguments.get("4") or arguments.get("3") or arguments.get("2")


_RENDERERS: dict[str, dict[str, Renderer]] = {
    "fr": {
        **dict.fromkeys(("unité", "unite"), _french_unit),
        **dict.fromkeys(("nombre", "nb"), _number),
        **dict.fromkeys(("s", "s-", "siècle"), _french_centuries("")),
        **dict.fromkeys(("s2", "s2-"), _french_centuries("")),
        **dict.fromkeys(("sp", "sp-"), _french_span("")),
        **dict.fromkeys(("-s", "-s-"), _french_centuries(" av. J.-C.")),
        **dict.fromkeys(("-s2", "-s2-"), _french_centuries(" av. J.-C.")),
        **dict.fromkeys(("-sp", "-sp-"), _french_span(" av. J.-C.")),
        **dict.fromkeys(("citation", "citation étrangère", "guil", "guillemets"), _between("« ", " »")),
        **dict.fromkeys(("date", "date-", "date de naissance", "date de décès", "date rapide"), _date),
        **dict.fromkeys(("heure", "durée"), _time),
        "incise": _between("– ", " –"),
    },
    "es": {
        **dict.fromkeys(("fecha", "fecha de nacimiento", "fecha de inicio", "fecha de fallecimiento"), _date),
        "siglo": _century("siglo "),
        "cita": _between(PARAGRAPH_BREAK, PARAGRAPH_BREAK),
    },
    "pt": {
        **dict.fromkeys(("dtlink", "dtext", "nascimento", "morte", "data"), _date),
        "fmtn": _number,
        **dict.fromkeys(("séc", "século"), _century("século ")),
        "cita": _between(PARAGRAPH_BREAK, PARAGRAPH_BREAK),
    },
    "it": {
        **dict.fromkeys(("data", "data nascita", "data morte"), _date),
        "m": _number,
        "cita": _nothing,
    },
    "de": {
        "höhe": lambda arguments, language: f"{arguments['1']} m" if arguments.get("1") else None,
        "formatzahl": _number,
    },
    "nl": {"citaat": _between(PARAGRAPH_BREAK, PARAGRAPH_BREAK), "datum": _date},
    "pl": {"cytat": _between(PARAGRAPH_BREAK, PARAGRAPH_BREAK), "cytatd": _break, "liczba": _number, "data": _date},
    "ru": {
        **dict.fromkeys(("число", "num"), _number),
        **dict.fromkeys(("дата", "date", "др", "дс"), _date),
        **dict.fromkeys(("ударение", "удар", "уд"), _stressed),
        **dict.fromkeys(("начало цитаты", "конец цитаты", "oq", "cq"), _break),
    },
    "uk": {**dict.fromkeys(("число", "num"), _number), **dict.fromkeys(("наголос", "нг"), _stressed)},
    "bg": {"цитат": _between(PARAGRAPH_BREAK, PARAGRAPH_BREAK), "дата": _date},
    "ja": {**dict.fromkeys(("ilq", "行内引用"), _between("「", "」")), "日付": _date},
    "zh": {
        "bd": _lifetime,
        **dict.fromkeys(("tsl", "translink"), _chinese_link),
        "le": lambda arguments, language: arguments.get("3") or arguments.get("1"),
    },
}


def _of_language(language: str) -> dict[str, Renderer]:
    return {
        **dict.fromkeys(LOCAL_SILENT.get(language, ()), _nothing),
        **dict.fromkeys(LOCAL_FIRST_ARGUMENT.get(language, ()), _first),
        **dict.fromkeys(LOCAL_SECOND_ARGUMENT.get(language, ()), _second),
        **{name: _literal(text) for name, text in LOCAL_LITERALS.get(language, {}).items()},
        **_RENDERERS.get(language, {}),
    }


_LOCAL = {
    language: _of_language(language)
    for language in {*LOCAL_SILENT, *LOCAL_FIRST_ARGUMENT, *LOCAL_SECOND_ARGUMENT, *LOCAL_LITERALS, *_RENDERERS}
}
