"""Load ``countries.toml`` and ``language_names.toml``: names in the languages of wikis."""

from functools import cache
from pathlib import Path

from msgspec import Struct, toml


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
