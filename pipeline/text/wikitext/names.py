"""Load ``names.toml``: namespaces, templates, languages, units, numbers and dates of wikis."""

from pathlib import Path

from msgspec import Struct, toml


class TemplateGroup(Struct, frozen=True):
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
