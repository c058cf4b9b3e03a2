"""The cards of models: one template, for pre-trained and for fine-tuned ones.

What others wrote, such as names of sources, is shown as text: no markup and no link comes of it.
"""

import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..pipeline.counters import in_words
from ..pipeline.data_card import CARD
from ..pipeline.errors import UserError

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCard

DATASET = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
"""The name of a data set on the Hub."""
_TEMPLATE = Path(__file__).with_name("card.md.jinja")
_CACHED_MODEL = re.compile(r"/models--([^/]+)/snapshots/[^/]+$")
"""A model's path in the cache of ``huggingface_hub``."""
_MARKUP = re.compile(r"([\\`*_\[\]<>&~])")
_METRICS = {
    "matthews": "matthews_correlation",
    "spearman": "spearmanr",
    "pearson": "pearsonr",
    "exact": "exact_match",
    "macro_f1": "f1",
    "accuracy": "accuracy",
    "mlm_accuracy": "accuracy",
    "exact_match": "exact_match",
    "f1": "f1",
    "perplexity": "perplexity",
    "precision": "precision",
    "recall": "recall",
}
"""The Hub's names of our metrics."""


def render_card(
    title: str,
    usage: Literal["fill", "pipeline", "predict", ""],
    tables: Mapping[str, Mapping[str, object]],
    results: "list[EvalResult]",
    example: str = "",
    **metadata: Any,
) -> str:
    """Return a card as Markdown; `tables` map headings to names and values, `metadata` are those
    of the Hub that are not the same for all models; `example` is a sentence with ``{mask}``.
    """
    from huggingface_hub import ModelCard, ModelCardData  # late: they import an HTTP client

    if not results:
        metadata["model_name"] = None
    data = ModelCardData(library_name="transformers", eval_results=results or None, **metadata)
    software = f"clozeworks {version('clozeworks')}, torch {version('torch')}"
    shown_tables = {}
    for heading, rows in [*tables.items(), ("Software", {"versions": software})]:
        shown_tables[heading] = {shown(in_words(name)): shown(rows[name]) for name in rows}
    card = ModelCard.from_template(
        data, str(_TEMPLATE), title=shown(title), usage=usage, example=example, tables=shown_tables
    )
    return f"{card}\n"


def shown(value: object) -> str:
    """Return a value as one line of Markdown, whatever markup it contains.

    >>> shown("<b>"), shown(12345), shown(0.12345), shown(())
    ('\\\\<b\\\\>', '12,345', '0.1235', 'none')
    """
    if isinstance(value, tuple | list):
        value = ", ".join(map(str, value)) or "none"
    elif isinstance(value, float):
        value = f"{value:.4g}"
    elif isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    # A bar would end the cell of a table, a line break the table.
    text = re.sub(r"[|\s]+", " ", str(value))
    return _MARKUP.sub(r"\\\1", text)


def eval_results(scores: Mapping[str, float], **measured: Any) -> "list[EvalResult]":
    """Return the `scores` that the Hub knows, in its form; `measured` says on what, by the names of
    `EvalResult`.
    """
    from huggingface_hub import EvalResult

    results = []
    for name, value in scores.items():
        # MNLI's second dev set has the same metrics under other names.
        metric = _METRICS.get(name.removeprefix("mismatched_"))
        if metric:
            result = EvalResult(
                metric_type=metric, metric_name=in_words(name), metric_value=value, **measured
            )
            results.append(result)
    return results


def model_name(checkpoint: str) -> str:
    """Return a model's name for a card, which is public and shows no path: that on the Hub if it
    lies in the Hub's cache, else its folder's.

    >>> model_name("/home/me/hub/models--google-bert--bert-base-cased/snapshots/cd5ef92")
    'google-bert/bert-base-cased'
    """
    path = os.path.abspath(checkpoint)
    cached = _CACHED_MODEL.search(path)
    if cached:
        # Only the first: a model's own name may contain two hyphens, its owner's may not.
        return cached[1].replace("--", "/", 1)
    return os.path.basename(path)


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


def read_languages(folder: Path) -> list[str]:
    """Return the languages that the card of the model in `folder` names; none if it has no card,
    or one that cannot be read.
    """
    path = folder / CARD
    if not path.is_file():
        return []
    try:
        named = _parsed(path.read_text(encoding="utf-8", errors="replace")).data.get("language")
    except UserError:
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
