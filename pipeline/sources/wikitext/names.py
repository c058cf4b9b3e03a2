"""Load ``names.toml``: namespaces, templates, languages, units, numbers and dates of wikis; and
``countries.toml``.
"""

from functools import cache
from pathlib import Path

from msgspec import Struct, toml


class TemplateGroup(Struct, frozen=True):
    """Templates that show the same words; see ``names.toml``."""

    names: tuple[str, ...]
    shows: tuple[str, ...] = ()
    rule: str = ""


class NumberFormat(Struct, frozen=True):
    """The way a language writes numbers and dates; None if it is not listed."""

    thousands: str | None = None
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
    language_labels: dict[str, dict[str, str]]
    units: dict[str, str]
    range_words: dict[str, str]
    formats: dict[str, NumberFormat]


NAMES = toml.decode(Path(__file__).with_name("names.toml").read_bytes(), type=Names)


@cache
def countries() -> dict[str, dict[str, str]]:
    """Return the names of countries by language, then by code in small letters."""
    text = Path(__file__).with_name("countries.toml").read_bytes()
    table = toml.decode(text, type=_CountryTable)
    names: dict[str, dict[str, str]] = {language: {} for language in table.languages}
    for line in table.names.strip().split("\n"):
        code, *names_of_country = line.split(" | ")
        for language, name in zip(table.languages, names_of_country, strict=True):
            names[language][code] = name
    return names


class _CountryTable(Struct, frozen=True):
    """The content of ``countries.toml``: a line a country, of its code and its names."""

    languages: tuple[str, ...]
    names: str
