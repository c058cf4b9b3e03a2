"""Load ``names.toml``: namespaces, templates, languages, units, numbers and dates of wikis; and,
when they are needed, names in the languages of wikis.
"""

from functools import cache
from pathlib import Path

from msgspec import Struct, toml


class TemplateGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """Templates that show the same words; see ``names.toml``."""

    names: tuple[str, ...]
    shows: tuple[str, ...] = ()
    joint: str = ""
    unless: tuple[str, ...] = ()
    rule: str = ""


class NumberFormat(Struct, frozen=True):
    """The way a language writes numbers and dates; None if it is not listed."""

    thousands: str | None = None
    groups_from: int = 4
    """How many digits a number has at least whose digits are grouped."""
    digits: str = ""
    date: str | None = None
    month: str = ""
    months: tuple[str, ...] = ()


class Names(Struct, frozen=True):
    """The content of ``names.toml``."""

    files_and_categories: frozenset[str]
    disambiguation_templates: frozenset[str]
    disambiguation_titles: frozenset[str]
    silent_templates: frozenset[str]
    silent_prefixes: tuple[str, ...]
    silent_suffixes: tuple[str, ...]
    pronunciations: frozenset[str]
    pronunciation_prefixes: tuple[str, ...]
    audio_labels: frozenset[str]
    ships: tuple[str, ...]
    title_templates: frozenset[str]
    behaviour_switches: frozenset[str]
    languages_with_variants: frozenset[str]
    picture_options: tuple[str, ...]
    templates: dict[str, tuple[TemplateGroup, ...]]
    languages: dict[str, str]
    more_languages: dict[str, str]
    units: dict[str, str]
    tex_functions: str
    tex_symbols: dict[str, str]
    range_words: dict[str, str]
    formats: dict[str, NumberFormat]


NAMES = toml.decode(Path(__file__).with_name("names.toml").read_bytes(), type=Names)


@cache
def countries() -> dict[str, dict[str, str]]:
    """Return the names of countries by language, then by code or name in small letters."""
    names = _read_table("countries.toml")
    for names_of_language in names.values():
        names_of_language |= {name.lower(): name for name in names_of_language.values()}
    return names


@cache
def language_labels() -> dict[str, dict[str, str]]:
    """Return what a wiki puts in front of foreign text, by the wiki's language, then by the text's.

    The English names are those of ``names.toml``.

    >>> language_labels()["de"]["en"], language_labels()["fr"]["en"]
    ('englisch ', 'en anglais : ')
    """
    return _read_table("language_names.toml")


def _read_table(file_name: str) -> dict[str, dict[str, str]]:
    text = Path(__file__).with_name(file_name).read_bytes()
    table = toml.decode(text, type=_Table)
    names: dict[str, dict[str, str]] = {language: {} for language in table.languages}
    forms = table.forms or ("{}",) * len(table.languages)
    for line in table.names.strip().split("\n"):
        code, *names_of_line = line.split(" | ")
        for language, form, name in zip(table.languages, forms, names_of_line, strict=True):
            if name:
                names[language][code] = form.format(name)
    return names


class _Table(Struct, frozen=True):
    """A table of names in many languages: a line is a code and its name in each language."""

    languages: tuple[str, ...]
    names: str
    forms: tuple[str, ...] = ()
    """What is made of each language's names; "{}" is the name."""
