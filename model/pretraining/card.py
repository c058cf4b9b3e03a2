"""The model card of a pre-training run: data, training, and results on held-out text."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...pipeline.cards import as_code, render
from ...pipeline.languages import UNKNOWN
from ...pipeline.manifests import InstancesManifest, too_little_to_judge
from ..card import DATASET, model_index, model_name, software
from ..config import PretrainConfig
from ..encoders.config import EncoderConfig
from ..training.optim import BETAS, EPS, MAX_GRADIENT_NORM, default_warmup
from .run import Summary

TASK = "fill-mask"
_OPTIONS = (
    "objective",
    "batch_size",
    "learning_rate",
    "hours",
    "weight_decay",
    "dropout",
    "seed",
    "dynamic_masking",
    "mask_split",
    "mask_rate",
)


def model_card(
    config: PretrainConfig,
    shape: EncoderConfig,
    manifests: Sequence[InstancesManifest],
    summary: Summary,
    tokenizer: Mapping[str, bytes],
    *,
    products: str = "fp32",
) -> str:
    """Return the card of a run on instances with these `manifests`, as Markdown.

    `tokenizer` holds its files by name, `products` is the number format of matrix products.
    """
    return render(
        "model/pretraining/card.md.jinja",
        title=f"A {shape.title} encoder pre-trained by Clozeworks",
        metadata=_metadata(config, shape, manifests, _scores(config, manifests[-1], summary)),
        tables=_tables(config, shape, manifests, summary, tokenizer, products),
        licensed_sources="these texts",
        fills_masks=not shape.is_decoder,
    )


def _metadata(
    config: PretrainConfig,
    shape: EncoderConfig,
    manifests: Sequence[InstancesManifest],
    scores: Mapping[str, float],
) -> dict[str, Any]:
    languages = set()
    sources = set()
    for manifest in manifests:
        languages.update(manifest.languages)
        for shard in manifest.shards:
            sources.update(shard.source_tokens)
    # The Hub makes links of these; a local file would be a broken one.
    datasets = [source for source in sorted(sources) if DATASET.fullmatch(source)]
    return {
        "language": sorted(languages - {UNKNOWN}),
        "license": config.license,
        "library_name": "transformers",
        "pipeline_tag": None if shape.is_decoder else TASK,
        "tags": [shape.model_type],
        "datasets": datasets,
        "model-index": _model_index(shape, sorted(sources), scores),
    }


def _model_index(
    shape: EncoderConfig, sources: Sequence[str], scores: Mapping[str, float]
) -> list[dict[str, object]]:
    """Return how well masks are filled, in the Hub's form; nothing for a left-to-right model."""
    hub_scores = {}
    if "mlm_accuracy" in scores:
        hub_scores["accuracy"] = scores["mlm_accuracy"]
    if "perplexity" in scores:
        hub_scores["perplexity"] = scores["perplexity"]
    if shape.is_decoder or not hub_scores:
        return []
    dataset = {
        "type": sources[0] if sources else "instances",
        "name": "held-out documents",
        "split": "validation",
    }
    name = f"{shape.title}, {shape.num_hidden_layers} x {shape.hidden_size}"
    return model_index(name, TASK, dataset, hub_scores)


def _tables(
    config: PretrainConfig,
    shape: EncoderConfig,
    manifests: Sequence[InstancesManifest],
    summary: Summary,
    tokenizer: Mapping[str, bytes],
    products: str,
) -> dict[str, dict[str, object]]:
    settings = json.loads(tokenizer["tokenizer_config.json"])
    casing = {}
    for name in ("do_lower_case", "strip_accents"):
        if name in settings:
            casing[name] = settings[name]
    tables = {"Model": {"parameters": summary["parameters"], **asdict(shape), **casing}}
    for number, manifest in enumerate(manifests, 1):
        heading = "Data" if len(manifests) == 1 else f"Data, phase {number}"
        tables[heading] = _data(manifest)
    tables["Training"] = _training(config, summary, products, len(manifests))
    tables["On held-out documents"] = _measured(config, manifests[-1], summary)
    return tables


def num_evaluated(config: PretrainConfig, manifest: InstancesManifest) -> int:
    """Return how many held-out rows a run on instances of this `manifest` is measured on."""
    return min(_num_rows(manifest, "validation"), config.evaluation_rows)


def _scores(
    config: PretrainConfig, manifest: InstancesManifest, summary: Summary
) -> Mapping[str, float]:
    """Return the figures on held-out documents; none if these are too few to judge."""
    if too_little_to_judge(num_evaluated(config, manifest)):
        return {}
    return summary["final"]


def _measured(
    config: PretrainConfig, manifest: InstancesManifest, summary: Summary
) -> dict[str, object]:
    num_rows = num_evaluated(config, manifest)
    measured: dict[str, object] = {"rows": too_little_to_judge(num_rows) or num_rows}
    for name, after in _scores(config, manifest, summary).items():
        before = summary["initial"][name]
        measured[name] = f"{after:.4g} (before training {before:.4g})"
    return measured


def _num_rows(manifest: InstancesManifest, split: str) -> int:
    return sum(shard.rows for shard in manifest.shards if shard.split == split)


def _data(manifest: InstancesManifest) -> dict[str, object]:
    """Return rows, tokens by source, documents by language, and the options of `build`."""
    # Of all passes: with several, a text counts as often as its rows are stored.
    tokens_by_source = Counter[str]()
    for shard in manifest.shards:
        if shard.split == "train":
            tokens_by_source.update(shard.source_tokens)
    data: dict[str, object] = {
        "training rows": _num_rows(manifest, "train"),
        "validation rows": _num_rows(manifest, "validation"),
    }
    for source, num_tokens in sorted(tokens_by_source.items()):
        data[f"tokens from {as_code(source)}, all passes"] = num_tokens
    for language, num_documents in manifest.languages.items():
        name = "an unknown language" if language == UNKNOWN else as_code(language)
        data[f"documents in {name}"] = num_documents
    return {
        **data,
        **asdict(manifest.config),
        "fingerprint": manifest.fingerprint,
        "vocabulary's fingerprint": manifest.tokenizer.fingerprint,
    }


def _training(
    config: PretrainConfig, summary: Summary, products: str, num_phases: int
) -> dict[str, object]:
    training: dict[str, object] = {
        "steps": summary["step"],
        "rows seen": summary["rows"],
        "tokens seen": summary["tokens"],
    }
    if config.checkpoint:
        training["initial weights"] = as_code(model_name(config.checkpoint))
    options: list[str] = list(_OPTIONS)
    if num_phases > 1:
        options.append("phase_shares")
    for name in options:
        if getattr(config, name) is not None:
            training[name] = getattr(config, name)
    clipping = f"gradients clipped at {MAX_GRADIENT_NORM}"
    return {
        **training,
        "warm-up": _warmup(config, summary["step"]),
        "after the warm-up": _decay(config),
        "optimiser": f"Adam, betas {BETAS}, epsilon {EPS:g}, {clipping}",
        "matrix products": products,
        "software": software(),
    }


def _decay(config: PretrainConfig) -> str:
    if config.schedule == "linear":
        return "learning rate linear to 0"
    if config.decay_share == 0:
        return "learning rate constant"
    return (
        "learning rate constant, then to 0 by the square root over the last "
        f"{config.decay_share:.3g} of the run"
    )


def _warmup(config: PretrainConfig, num_steps: int) -> str:
    if config.hours is not None:
        return f"a tenth of {config.hours:g} hours"
    if config.warmup_steps is not None:
        return f"{config.warmup_steps:,} steps"
    return f"{default_warmup(num_steps):,} steps"
