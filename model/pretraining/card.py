"""The model card of a pre-training run: what it was trained on, how, and how well it predicts
held-out text.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...pipeline.languages import UNKNOWN
from ...pipeline.manifests import InstancesManifest
from ..card import (
    DATASET,
    as_code,
    front_matter,
    licence_notice,
    model_index,
    model_name,
    software,
    table,
)
from ..config import ModelConfig, PretrainConfig
from ..training.optim import BETAS, EPS, MAX_GRADIENT_NORM, default_warmup

_USE = """
```python
from transformers import pipeline

fill = pipeline("fill-mask", model=".")  # this directory, or its name on the Hub
fill("The capital of France is [MASK].")
```
"""
_OPTIONS = ("objective", "batch_size", "learning_rate", "hours", "weight_decay", "bias_correction")
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
    """Return Markdown with the front matter of the Hugging Face Hub, for a run on instances with
    these `manifests`.
    """
    front = _front_matter(config, shape, manifests, summary["final"])
    settings = json.loads(tokenizer["tokenizer_config.json"])
    casing = {
        name: settings[name] for name in ("do_lower_case", "strip_accents") if name in settings
    }
    tables = {"Model": {"parameters": summary["parameters"], **asdict(shape), **casing}}
    for number, manifest in enumerate(manifests, 1):
        tables["Data" if len(manifests) == 1 else f"Data, phase {number}"] = _data(manifest)
    tables["Training"] = _training(config, summary, products, len(manifests))
    before = dict(summary["initial"])
    measured = {
        name: f"{after:.4g} (before training {before[name]:.4g})"
        for name, after in summary["final"].items()
    }
    tables["On held-out documents"] = {
        "rows": min(_rows(manifests[-1], "validation"), config.evaluation_rows),
        **measured,
    }
    use = "" if shape.is_decoder else _USE
    licences = licence_notice(config.license, "these texts")
    text = "\n".join(f"\n## {title}\n\n{table(rows)}" for title, rows in tables.items())
    return f"{front}\n# A BERT encoder pre-trained by Clozeworks\n{use}{text}{licences}\n"


def _front_matter(
    config: PretrainConfig,
    shape: ModelConfig,
    manifests: Sequence[InstancesManifest],
    scores: Mapping[str, float],
) -> str:
    languages = {language for manifest in manifests for language in manifest.languages} - {UNKNOWN}
    sources = sorted(
        {
            source
            for manifest in manifests
            for shard in manifest.shards
            for source in shard.source_tokens
        }
    )
    dataset = {
        "type": sources[0] if sources else "instances",
        "name": "held-out documents",
        "split": "validation",
    }
    ours = {"accuracy": "mlm_accuracy", "perplexity": "perplexity"}
    known = {name: scores[our_name] for name, our_name in ours.items() if our_name in scores}
    name, task = f"BERT, {shape.num_hidden_layers} x {shape.hidden_size}", "fill-mask"
    fills = bool(known) and not shape.is_decoder
    return front_matter(
        language=sorted(languages),
        license=config.license,
        library_name="transformers",
        pipeline_tag=None if shape.is_decoder else task,
        tags=["bert"],
        datasets=[source for source in sources if DATASET.fullmatch(source)],
        **{"model-index": model_index(name, task, dataset, known) if fills else []},
    )


def _rows(manifest: InstancesManifest, split: str) -> int:
    return sum(shard.rows for shard in manifest.shards if shard.split == split)


def _data(manifest: InstancesManifest) -> dict[str, Any]:
    """Return rows, tokens of each source, documents in each language, and how ``clozeworks build``
    was asked.
    """
    sources = Counter[str]()
    for shard in manifest.shards:
        if shard.split == "train":
            sources.update(shard.source_tokens)
    return {
        "training rows": _rows(manifest, "train"),
        "validation rows": _rows(manifest, "validation"),
        **{
            f"tokens from {as_code(source)}, all passes": count
            for source, count in sorted(sources.items())
        },
        **{
            f"documents in {'an unknown language' if name == UNKNOWN else as_code(name)}": count
            for name, count in manifest.languages.items()
        },
        **asdict(manifest.config),
        "fingerprint": manifest.fingerprint,
        "vocabulary's fingerprint": manifest.tokenizer.fingerprint,
    }


def _training(
    config: PretrainConfig, summary: Mapping[str, Any], products: str, num_phases: int
) -> dict[str, Any]:
    masks = () if config.dynamic_masking == "none" else ("mask_rate", "mask_split")
    options = (*_OPTIONS, *masks, *(("phase_shares",) if num_phases > 1 else ()))
    warmup_steps = (
        default_warmup(summary["step"]) if config.warmup_steps is None else config.warmup_steps
    )
    return {
        "steps": summary["step"],
        "rows seen": summary["rows"],
        "tokens seen": summary["tokens"],
        **(
            {"initial weights": as_code(model_name(config.checkpoint))} if config.checkpoint else {}
        ),
        **{name: getattr(config, name) for name in options if getattr(config, name) is not None},
        "warm-up": f"{warmup_steps:,} steps"
        if config.hours is None
        else f"a tenth of {config.hours:g} hours",
        "after the warm-up": "learning rate linear to 0",
        "optimiser": f"Adam, betas {BETAS}, epsilon {EPS:g}, gradients clipped at {MAX_GRADIENT_NORM}",
        "matrix products": products,
        "software": software(),
    }
