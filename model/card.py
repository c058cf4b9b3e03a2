"""The cards of pre-trained and of fine-tuned models: metadata of the Hub, and tables.

What others wrote, such as names of sources, is shown as text: no markup and no link comes of it.
"""

import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pipeline.counters import in_words
from ..pipeline.data_card import CARD
from ..pipeline.errors import UserError

if TYPE_CHECKING:
    from huggingface_hub import ModelCard


def render_card(
    title: str,
    tables: Mapping[str, Mapping[str, object]],
    usage: str | None = None,
    **metadata: Any,
) -> str:
    """Return a card as Markdown: `tables` of names and values by heading, metadata for the Hub."""
    from huggingface_hub import ModelCardData  # late: it imports an HTTP client

    # The Hub makes links of these; a local file would be a broken one.
    on_hub = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
    metadata["datasets"] = list(filter(on_hub.fullmatch, metadata["datasets"])) or None
    data = ModelCardData(library_name="transformers", **metadata)
    if usage is None:
        usage = f"""```python
from transformers import pipeline

model = pipeline("{data.pipeline_tag}", model=".")  # this directory, or its name on the Hub
```"""
    blocks = [f"---\n{data.to_yaml()}\n---", f"# {shown(title)}", usage]
    for heading, rows in tables.items():
        lines = [f"| {shown(in_words(name))} | {shown(rows[name])} |" for name in rows]
        blocks += [f"## {heading}", "\n".join(["| | |", "|---|---|", *lines])]
    blocks.append(
        f"Made by clozeworks {version('clozeworks')} with torch {version('torch')}. The licences "
        "of the data are not recorded: look them up before you publish the model, and name its own "
        "in `license` above."
    )
    return "\n\n".join(filter(None, blocks)) + "\n"


def shown(value: object) -> str:
    """Return a value as one line of Markdown, whatever markup it contains.

    >>> shown("<b>"), shown(12345), shown(0.12345)
    ('\\\\<b\\\\>', '12,345', '0.1235')
    """
    if isinstance(value, float):
        value = f"{value:.4g}"
    elif isinstance(value, int):
        value = f"{value:,}"
    # A bar would end the cell of a table, a line break the table.
    text = re.sub(r"[|\s]+", " ", str(value))
    return re.sub(r"([\\`*_\[\]<>&~])", r"\\\1", text)


def model_name(checkpoint: str) -> str:
    """Return a model's name for a card, which is public and shows no path: that on the Hub if it
    lies in the Hub's cache, else its folder's.

    >>> model_name("/home/me/hub/models--google-bert--bert-base-cased/snapshots/cd5ef92")
    'google-bert/bert-base-cased'
    """
    path = os.path.abspath(checkpoint)
    cached = re.search(r"/models--([^/]+)/snapshots/[^/]+$", path)
    if cached:
        # Only the first: a model's own name may contain two hyphens, its owner's may not.
        return cached[1].replace("--", "/", 1)
    return os.path.basename(path)


def read_languages(folder: Path) -> list[str]:
    """Return the languages on the card of the model in `folder`; none if it has no readable one."""
    try:
        card = (folder / CARD).read_text(encoding="utf-8", errors="replace")
        named = _parsed(card).data.get("language")
    except (OSError, UserError):
        return []
    if isinstance(named, str):
        return [named]
    # YAML reads Norwegian's code, without quotes, as false.
    return [code for code in named or [] if isinstance(code, str)]


def with_license(card: str, license: str) -> str:
    """Return a card whose metadata name this licence alone."""
    parsed = _parsed(card)
    parsed.data["license"] = license
    parsed.data.pop("license_name")
    parsed.data.pop("license_link")
    return str(parsed)


def _parsed(card: str) -> "ModelCard":
    """Return somebody's card; raises `UserError` if its metadata cannot be read."""
    from huggingface_hub import ModelCard
    from yaml import YAMLError

    try:
        return ModelCard(card, ignore_metadata_errors=True)
    except (RecursionError, TypeError, ValueError, YAMLError) as error:
        raise UserError(
            f"The metadata at the beginning of {CARD} cannot be read: {error}"
        ) from error
