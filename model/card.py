"""What the model cards of pre-training and of fine-tuning share: the Hub's metadata, and tables."""

import json
import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .mirror import local_copy

CARD = "README.md"
DATASET = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
"""The name of a data set on the Hub."""
_IN_CACHE = re.compile(r"/models--([^/]+)/snapshots/[^/]+$")
"""A model's path in the cache of ``huggingface_hub``."""
_UNKNOWN_LICENCES = " are not recorded; look them up before you publish the model."
_METRICS = {
    "matthews": "matthews_correlation",
    "spearman": "spearmanr",
    "pearson": "pearsonr",
    "exact": "exact_match",
    "macro_f1": "f1",
    **{
        name: name
        for name in ("accuracy", "exact_match", "f1", "perplexity", "precision", "recall")
    },
}
"""Our metrics by the names that the Hub knows."""


def front_matter(**metadata: Any) -> str:
    """Return the metadata as the YAML that the Hub reads at the head of a card; what is empty is
    left out.
    """
    lines = ["---"]
    for name, value in metadata.items():
        if isinstance(value, list):
            lines += (
                [f"{name}:", *(f"- {json.dumps(item, ensure_ascii=False)}" for item in value)]
                if value
                else []
            )
        elif value:
            lines.append(f"{name}: {value}")
    return "\n".join([*lines, "---", ""])


def model_index(
    name: str, task: str, dataset: Mapping[str, str], scores: Mapping[str, float]
) -> list[Any]:
    """Return the ``model-index`` of the Hub: `scores` by our names, those that the Hub knows, on
    the `dataset`.
    """
    metrics = [
        {"type": _METRICS[bare], "name": metric.replace("_", " "), "value": value}
        for metric, value in scores.items()
        if (bare := metric.removeprefix("mismatched_")) in _METRICS
    ]
    return [
        {
            "name": name,
            "results": [{"task": {"type": task}, "dataset": dict(dataset), "metrics": metrics}],
        }
    ]


def table(rows: Mapping[str, Any]) -> str:
    """Return a Markdown table of names and values."""
    texts = {
        name.replace("_", " "): f"{value:,}" if type(value) is int else value
        for name, value in rows.items()
    }
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in texts.items())]
    )


def software() -> str:
    """Return the versions of Clozeworks and PyTorch."""
    try:
        own = version("clozeworks")
    except PackageNotFoundError:  # run from a checkout
        own = "(not installed)"
    return f"clozeworks {own}, torch {version('torch')}"


def as_code(name: object) -> str:
    """Return a name that a user or a source chose as Markdown that shows it, whatever markup it
    contains.
    """
    return "`" + re.sub(r"[`|\s]+", " ", str(name)) + "`"


def model_name(checkpoint: str) -> str:
    """Return what a card calls a model: its name on the Hub if it lies in the Hub's cache, else
    that of its folder.

    A card is public, so it shows no path of this machine.

    >>> model_name("/home/me/hub/models--google-bert--bert-base-cased/snapshots/cd5ef92"), model_name("runs/base/")
    ('google-bert/bert-base-cased', 'base')
    """
    path = os.path.abspath(checkpoint)
    found = _IN_CACHE.search(path)
    return found[1].replace("--", "/", 1) if found else os.path.basename(path)


def read_languages(directory: str | Path) -> list[str]:
    """Return the languages that the card in a model directory names; none without a card."""
    path = local_copy(directory) / CARD
    if not path.is_file():
        return []
    head = path.read_text(encoding="utf-8", errors="replace").split("\n---", 1)[0]
    found = re.search(r"^language:(.*(?:\n- .*)*)", head, re.MULTILINE)
    return re.findall(r"[\w-]*\w", found[1].replace("\n- ", " ")) if found else []


def licence_notice(license: str | None, whose: str) -> str:
    """Return the end of a card: without a `license`, that those of `whose` (the sources) are
    unknown.
    """
    return "" if license else f"\n\nThe licences of {whose}{_UNKNOWN_LICENCES}"


def with_license(card: str, license: str) -> str:
    """Return a card whose metadata name this licence alone, and whose text no longer says that it
    is unknown.
    """
    head, end, rest = card.partition("\n---")
    if not end or not card.startswith("---"):  # a card of others, without metadata
        head, rest = "---", f"\n\n{card}"
    head = re.sub(r"\nlicense\w*:.*(\n[ -].*)*", "", head)
    rest = re.sub(rf"\n\nThe licences of .*{re.escape(_UNKNOWN_LICENCES)}", "", rest)
    return f"{head}\nlicense: {license}\n---{rest}"
