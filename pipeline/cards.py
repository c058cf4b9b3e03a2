"""Render templates of pages."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    """Return what a template makes of `values`; it is named by its path below the package."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> "Environment":
    # Imported late: a stage that writes no card has no need of it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        undefined=StrictUndefined,  # a misspelt name is an error, not an empty place
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
