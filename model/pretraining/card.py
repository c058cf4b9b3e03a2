"""The model card of a pre-training run: data, training, and results on held-out text."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ...pipeline.languages import UNKNOWN
from ...pipeline.manifests import InstancesManifest, too_little_to_judge
from ..card import DATASET, as_code, eval_results, model_name, render_card, software
from ..config import EVALUATION_ROWS, PretrainConfig
from ..encoders.config import EncoderConfig
from ..training.optim import BETAS, EPS, MAX_GRADIENT_NORM, default_warmup
from .state import Summary

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

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

    num_rows = num_evaluated(manifests[-1])
    measured: dict[str, object] = {"rows": num_rows}
    scores = summary["final"]
    if too_few := too_little_to_judge(num_rows):
        measured = {"rows": too_few}
        scores = {}
    for name, after in scores.items():
        measured[name] = f"{after:.4g} (before training {summary['initial'][name]:.4g})"
    tables["On held-out documents"] = measured
    return render_card(
        f"A {shape.title} encoder pre-trained by Clozeworks",
        _metadata(config, shape, manifests, scores),
        "" if shape.is_decoder else "fill",
        tables,
    )


def num_evaluated(manifest: InstancesManifest) -> int:
    """Return how many held-out rows a run on instances of this `manifest` is measured on."""
    return min(_num_rows(manifest, "validation"), EVALUATION_ROWS)


def _metadata(
    config: PretrainConfig,
    shape: EncoderConfig,
    manifests: Sequence[InstancesManifest],
    scores: Mapping[str, float],
) -> "ModelCardData":
    from huggingface_hub import ModelCardData

    languages = set()
    sources = set()
    for manifest in manifests:
        languages.update(manifest.languages)
        for shard in manifest.shards:
            sources.update(shard.source_tokens)
    results = []
    if not shape.is_decoder:
        # How well masks are filled.
        names = {"mlm_accuracy": "accuracy", "perplexity": "perplexity"}
        figures = {names[name]: score for name, score in scores.items() if name in names}
        results = eval_results(
            figures,
            task=TASK,
            dataset_type=min(sources, default="instances"),
            dataset_name="held-out documents",
            dataset_split="validation",
        )
    name = f"{shape.title}, {shape.num_hidden_layers} x {shape.hidden_size}"
    return ModelCardData(
        language=sorted(languages - {UNKNOWN}) or None,
        license=config.license,
        library_name="transformers",
        pipeline_tag=None if shape.is_decoder else TASK,
        tags=[shape.model_type],
        # The Hub makes links of these; a local file would be a broken one.
        datasets=[source for source in sorted(sources) if DATASET.fullmatch(source)] or None,
        model_name=name if results else None,
        eval_results=results or None,
    )


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
    for name in _OPTIONS:
        if getattr(config, name) is not None:
            training[name] = getattr(config, name)
    if num_phases > 1:
        training["phase_shares"] = config.phase_shares
    warmup = config.warmup_steps
    if warmup is None:
        warmup = default_warmup(summary["step"])
    decay = "linear to 0"
    if config.schedule != "linear":
        decay = f"constant, then to 0 by the square root over the last {config.decay_share:.3g}"
    clipping = f"gradients clipped at {MAX_GRADIENT_NORM}"
    return {
        **training,
        "warm-up": f"{warmup:,} steps" if config.hours is None else "a tenth of the time",
        "learning rate after it": decay,
        "optimiser": f"Adam, betas {BETAS}, epsilon {EPS:g}, {clipping}",
        "matrix products": products,
        "software": software(),
    }
