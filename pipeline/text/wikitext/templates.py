"""Render the words that a template shows: ``{{convert|5|km}}`` reads "5 km".

Only a template's wiki knows what it shows. ``names.toml`` lists the inline templates that many
wikis share, mostly under English names, and those of single wikis, which take precedence: French
``{{citation|...}}`` is a quotation, English ``{{citation|...}}`` a footnote. Most are `patterns`;
`rules` renders those that need more. An unknown template may have been part of the sentence: it
leaves a mark, so that the sentence can be repaired or left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import chain

from msgspec import Struct

from ...errors import UserError
from ...parsing import parse_toml_option
from .functions import PARSER_FUNCTIONS
from .names import NAMES, TemplateGroup, countries
from .patterns import (
    Arguments,
    Renderer,
    all_fitting,
    first_fitting,
    first_value,
    format_number,
)
from .repair import MISSING, PRONUNCIATION, REMOVED
from .rules import RULES, flag, foreign, language_of, ship

NUM_CACHED = 4096
"""Names of templates whose kind is remembered: a few hundred are most of a wiki's."""
_NAMED = re.compile(r"\s*+([\w-][\w -]{0,40}?)\s*+=")
_FRENCH_NUMERAL = re.compile(
    r"([ivx\d][ivxl\d]{0,6})((?:er|re|e|ᵉ|nd|nde|d|de)(?: siècle| millénaire| s\.?| [a-zéû]{3,9})?)"
    r"(?: av\. j\.-c\.)?-?"
)


def parse_arguments(body: str) -> tuple[str, Arguments]:
    """Split the text between the braces into the template's name, normalised, and its arguments.

    >>> parse_arguments("Convert |5|km|abbr=on")
    ('convert', {'1': '5', '2': 'km', 'abbr': 'on'})
    """
    head, *fields = body.split("|")
    name = template_name(head)
    arguments = {}
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


@lru_cache(NUM_CACHED)
def template_name(head: str) -> str:
    """Return the name before the first pipe, lower-cased, without the template namespace; the text
    of a function, such as ``uc:`` or ``#if:``, keeps its case.
    """
    head = head.replace(REMOVED, "").strip()
    function, colon, text = head.partition(":")
    if colon and function.lower() in PARSER_FUNCTIONS:
        return f"{function.lower()}:{text.strip()}"
    name = " ".join(head.replace("_", " ").lower().split())
    name = name.removeprefix("template:").removeprefix("subst:")
    return name.rstrip("? ")


@lru_cache(NUM_CACHED)
def mark_of_silent(name: str, language: str) -> str | None:
    """Return the mark for a footnote, note, box or pronunciation; None if it may be words."""
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


@lru_cache(NUM_CACHED)
def find_renderer(name: str, language: str) -> Renderer | None:
    """Return the function that renders a template by its normalised name; None if there is none."""
    renderer = _renderer_of_language(name, language) or _TEMPLATES["*"].get(name)
    if renderer:
        return renderer
    function, colon, value = name.partition(":")
    if colon and function == "formatnum":
        return lambda arguments, language: format_number(value.strip(), language)
    if colon and function in PARSER_FUNCTIONS:
        return partial(PARSER_FUNCTIONS[function], value.strip())
    if country := countries().get(language, {}).get(name):
        return partial(flag, name, country)
    if language_of(name):
        return partial(foreign, name)
    return None


def _renderer_of_language(name: str, language: str) -> Renderer | None:
    """Return the renderer of a template of this language's Wikipedia alone."""
    if renderer := _TEMPLATES.get(language, {}).get(name):
        return renderer
    if language == "fr" and (numeral := _FRENCH_NUMERAL.fullmatch(name)):
        # ``{{xixe siècle}}`` reads "XIXe siècle".
        era = " av. J.-C." if "j.-c." in name else ""
        return partial(first_fitting, (f"{numeral[1].upper()}{numeral[2]}{era}< {{1}}>",))
    if language == "de" and name.endswith("s") and name[:-1] in NAMES.languages:
        # ``{{enS|text}}`` reads "englisch text".
        return partial(foreign, f"lang-{name[:-1]}")
    return None


def render_template(body: str, language: str, added: Mapping[str, Renderer]) -> str:
    """Return what a template shows, or the mark of a removal; its `body` is rendered already."""
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


def _unless(
    names: Sequence[str], renderer: Renderer, arguments: Arguments, language: str
) -> str | None:
    """Words of a template that shows others if it has an argument of these names."""
    return None if first_value(arguments, names) else renderer(arguments, language)


def _renderers(groups: Iterable[TemplateGroup]) -> dict[str, Renderer]:
    renderers = {}
    for group in groups:
        renderer = partial(first_fitting, group.shows)
        if group.joint:
            renderer = partial(all_fitting, group.shows, group.joint)
        elif group.rule:
            renderer = RULES[group.rule]
        if group.unless:
            renderer = partial(_unless, group.unless, renderer)
        renderers.update(dict.fromkeys(group.names, renderer))
    return renderers


@cache
def added_templates(text: str, language: str) -> Mapping[str, Renderer]:
    """Return the renderers of the templates in a user's TOML file, a table as ``names.toml``."""
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
_TEMPLATES["*"] |= {prefix: partial(ship, prefix.upper()) for prefix in NAMES.ships}
