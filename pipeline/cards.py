"""Render templates: cards of data and models, which are Markdown with the metadata of the Hugging
Face Hub, and pages in HTML.

``card.md.jinja`` beside this file is the frame of all cards. The cards of data, of pre-training and
of fine-tuning extend it, each by a template of its own.
"""

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UserError
from .wording import in_words, with_commas

if TYPE_CHECKING:
    from jinja2 import Environment

_CODE = re.compile(r"(`[^`]*`)")
# https://huggingface.co/docs/hub/repositories-licenses
_LICENSE = re.compile(r"[a-z0-9]+([.+-]+[a-z0-9]+)*\+*")


def render(template: str, **values: object) -> str:
    """Return what a template makes of `values`; it is named by its path below the package."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> "Environment":
    # Imported late: a stage that writes no card has no need of it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        undefined=StrictUndefined,  # a misspelt name is an error, not an empty place
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"json": _json, "words": in_words, "shown": shown}
    return environment


def _json(value: object) -> str:
    # JSON is a subset of YAML, and a name in quotes cannot end the front matter.
    return json.dumps(value, ensure_ascii=False)


def shown(value: object) -> str:
    """Return a value as one line of Markdown that shows it, whatever markup it contains; what
    stands between backticks is code.

    >>> shown("<b>`a<b`"), shown(12345), shown(())
    ('&lt;b&gt;`a<b`', '12,345', 'none')
    """
    if isinstance(value, tuple | list):
        value = ", ".join(map(str, value)) or "none"
    # A bar would end the cell of a table, a line break the table.
    text = re.sub(r"[|\s]+", " ", str(with_commas(value)))
    parts = []
    for part in _CODE.split(text):
        if not _CODE.fullmatch(part):
            part = html.escape(part, quote=False).replace("[", r"\[")
        parts.append(part)
    return "".join(parts)


def check_license(license: str | None) -> None:
    """Raise `UserError` unless this has the form of the Hub's identifiers of licences, which is
    also safe in the YAML of a card.
    """
    if license is not None and not _LICENSE.fullmatch(license):
        raise UserError(
            f"`license` is {license}, which is not the identifier of a licence on the Hugging Face "
            "Hub; common ones are apache-2.0, mit, cc-by-4.0, cc-by-sa-4.0 and other."
        )


def as_code(name: object) -> str:
    """Return a name that a user or a source chose, as code in Markdown."""
    text = re.sub(r"[`|\s]+", " ", str(name))
    return f"`{text}`"
