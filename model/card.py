"""Facts in model cards; ``card.md.jinja`` beside this file adds them to the frame of all cards."""

import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..pipeline.wording import in_words

CARD = "README.md"
DATASET = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
"""The name of a data set on the Hub."""
_CACHED_MODEL = re.compile(r"/models--([^/]+)/snapshots/[^/]+$")
"""A model's path in the cache of ``huggingface_hub``."""
LONGEST_HEAD = 65536
"""Characters of a card in which its metadata are looked for."""
# As ``card.md.jinja`` writes it.
_UNKNOWN_LICENCES = re.compile(
    r"\n\nThe licences of .* are not recorded; look them up before you publish the model\."
)
_METRICS = {
    "matthews": "matthews_correlation",
    "spearman": "spearmanr",
    "pearson": "pearsonr",
    "exact": "exact_match",
    "macro_f1": "f1",
    "accuracy": "accuracy",
    "exact_match": "exact_match",
    "f1": "f1",
    "perplexity": "perplexity",
    "precision": "precision",
    "recall": "recall",
}
"""The Hub's names of our metrics."""


def model_index(
    name: str, task: str, dataset: Mapping[str, str], scores: Mapping[str, float]
) -> list[dict[str, object]]:
    """Return the ``model-index`` of the Hub: `scores` by our names, those that the Hub knows, on
    the `dataset`.
    """
    metrics = []
    for our_name, value in scores.items():
        # MNLI's second dev set has the same metrics under other names.
        hub_name = _METRICS.get(our_name.removeprefix("mismatched_"))
        if hub_name:
            metrics.append({"type": hub_name, "name": in_words(our_name), "value": value})
    result = {
        "task": {"type": task},
        "dataset": dict(dataset),
        "metrics": metrics,
    }
    # The Hub allows several models and several results; a card of ours has one each.
    return [{"name": name, "results": [result]}]


def software() -> str:
    """Return the versions of Clozeworks and PyTorch."""
    try:
        clozeworks = version("clozeworks")
    except PackageNotFoundError:  # run from a checkout
        clozeworks = "(not installed)"
    return f"clozeworks {clozeworks}, torch {version('torch')}"


def model_name(checkpoint: str) -> str:
    """Return a model's name for a card: that on the Hub if it lies in the Hub's cache, else its
    folder's.

    A card is public, so it shows no path of this machine.

    >>> model_name("/home/me/hub/models--google-bert--bert-base-cased/snapshots/cd5ef92")
    'google-bert/bert-base-cased'
    >>> model_name("runs/base/")
    'base'
    """
    path = os.path.abspath(checkpoint)
    cached = _CACHED_MODEL.search(path)
    if cached:
        # Only the first: a model's own name may contain two hyphens, its owner's may not.
        return cached[1].replace("--", "/", 1)
    return os.path.basename(path)


def read_languages(folder: Path) -> list[str]:
    """Return the languages that the card of the model in `folder` names; none without a card."""
    path = folder / CARD
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="replace") as file:
        head = file.read(LONGEST_HEAD).split("\n---", 1)[0]
    # Either `language: en` or, on lines of their own, `- en` and so on.
    listed = re.search(r"^language:(.*(?:\n- .*)*)", head, re.MULTILINE)
    if listed is None:
        return []
    return re.findall(r"\w+(?:-\w+)*", listed[1].replace("\n- ", " "))


def with_license(card: str, license: str) -> str:
    """Return a card whose metadata name this licence alone, and whose text no longer says that it
    is unknown.
    """
    # A card begins with its metadata in YAML, between two lines of hyphens:
    #
    #     ---                      head
    #     license: apache-2.0
    #     ---                      end
    #     # The title, …           rest
    head, end, rest = card.partition("\n---")
    if not end or not card.startswith("---"):  # somebody else's card, without metadata
        head = "---"
        rest = f"\n\n{card}"
    # Also license_name and license_link, and the lines of a list.
    head = re.sub(r"\nlicense\w*:.*(\n[ -].*)*", "", head)
    rest = _UNKNOWN_LICENCES.sub("", rest)
    return f"{head}\nlicense: {license}\n---{rest}"
