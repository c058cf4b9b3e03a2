"""The model card of a pre-training run: what it was trained on, how, and how well it predicts held-out text."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from ...pipeline.languages import UNKNOWN
from ...pipeline.manifests import InstancesManifest
from ..config import ModelConfig, PretrainConfig
from ..training.optim import BETAS, EPS, MAX_GRADIENT_NORM, default_warmup

CARD = "README.md"
_USE = """
```python
from transformers import pipeline

fill = pipeline("fill-mask", model=".")  # this directory, or its name on the Hub
fill("The capital of France is [MASK].")
```
"""
_LICENCES = "Under which licences these texts stand is not recorded; look it up before you publish the model."
_OPTIONS = ("checkpoint", "objective", "batch_size", "learning_rate", "hours", "weight_decay", "bias_correction")
_OPTIONS += ("dropout", "seed", "duplicates_per_epoch", "dynamic_masking")


def model_card(
    config: PretrainConfig,
    shape: ModelConfig,
    manifests: Sequence[InstancesManifest],
    summary: Mapping[str, Any],
    tokenizer: Mapping[str, bytes],
    *,
    products: str = "fp32",
) -> str:
    """Return Markdown with the front matter of the Hugging Face Hub, for a run on instances with these `manifests`."""
    languages = sorted({language for manifest in manifests for language in manifest.languages} - {UNKNOWN})
    named = ["language:", *(f"- {json.dumps(language)}" for language in languages)] if languages else []
    task = [] if shape.is_decoder else ["pipeline_tag: fill-mask"]
    front = ["---", *named, "library_name: transformers", *task, "tags:", "- bert", "---", ""]
    settings = json.loads(tokenizer["tokenizer_config.json"])
    casing = {name: settings[name] for name in ("do_lower_case", "strip_accents") if name in settings}
    tables = {"Model": {"parameters": summary["parameters"], **asdict(shape), **casing}}
    for number, manifest in enumerate(manifests, 1):
        tables["Data" if len(manifests) == 1 else f"Data, phase {number}"] = _data(manifest)
    tables["Training"] = _training(config, summary, products, len(manifests))
    before = dict(summary["initial"])
    measured = {name: f"{after:.4g} (before training {before[name]:.4g})" for name, after in summary["final"].items()}
    tables["On held-out documents"] = {
        "rows": min(_rows(manifests[-1], "validation"), config.evaluation_rows),
        **measured,
    }
    use = "" if shape.is_decoder else _USE
    text = "\n".join(f"\n## {title}\n\n{_table(rows)}" for title, rows in tables.items())
    return "\n".join([*front, f"# A BERT encoder pre-trained by Clozeworks\n{use}{text}\n\n{_LICENCES}\n"])


def _table(rows: Mapping[str, Any]) -> str:
    texts = {name.replace("_", " "): f"{value:,}" if type(value) is int else value for name, value in rows.items()}
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in texts.items())])


def _code(name: str) -> str:
    """Return a name that a source gave itself as Markdown that shows it, whatever markup it contains."""
    return "`" + re.sub(r"[`|\s]+", " ", name) + "`"


def _rows(manifest: InstancesManifest, split: str) -> int:
    return sum(shard.rows for shard in manifest.shards if shard.split == split)


def _data(manifest: InstancesManifest) -> dict[str, Any]:
    """Return rows, tokens of each source, documents in each language, and how ``clozeworks build`` was asked."""
    sources = Counter[str]()
    for shard in manifest.shards:
        if shard.split == "train":
            sources.update(shard.source_tokens)
    return {
        "training rows": _rows(manifest, "train"),
        "validation rows": _rows(manifest, "validation"),
        **{f"tokens from {_code(source)}, all passes": count for source, count in sorted(sources.items())},
        **{
            f"documents in {'an unknown language' if name == UNKNOWN else _code(name)}": count
            for name, count in manifest.languages.items()
        },
        **asdict(manifest.config),
        "fingerprint": manifest.fingerprint,
        "vocabulary's fingerprint": manifest.tokenizer.fingerprint,
    }


def _training(config: PretrainConfig, summary: Mapping[str, Any], products: str, num_phases: int) -> dict[str, Any]:
    masks = () if config.dynamic_masking == "none" else ("mask_rate", "mask_split")
    options = (*_OPTIONS, *masks, *(("phase_shares",) if num_phases > 1 else ()))
    warmup_steps = default_warmup(summary["step"]) if config.warmup_steps is None else config.warmup_steps
    return {
        "steps": summary["step"],
        "rows seen": summary["rows"],
        "tokens seen": summary["tokens"],
        **{name: getattr(config, name) for name in options if getattr(config, name) is not None},
        "warm-up": f"{warmup_steps:,} steps" if config.hours is None else f"a tenth of {config.hours:g} hours",
        "after the warm-up": "learning rate linear to 0",
        "optimiser": f"Adam, betas {BETAS}, epsilon {EPS:g}, gradients clipped at {MAX_GRADIENT_NORM}",
        "matrix products": products,
        "software": f"clozeworks {version('clozeworks')}, torch {version('torch')}",
    }
