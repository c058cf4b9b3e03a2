"""The model card of a pre-training run: what it was trained on, how, and how well it predicts held-out text."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from ...pipeline.manifests import InstancesManifest, InstancesShard
from ..config import ModelConfig, PretrainConfig
from ..training.optim import BETAS, EPS, MAX_GRADIENT_NORM, default_warmup

CARD = "README.md"
SPLITS = {"training": "train", "validation": "validation"}
_USE = """```python
from transformers import pipeline

fill = pipeline("fill-mask", model=".")  # this directory, or its name on the Hub
fill("The capital of France is [MASK].")
```
"""
_LICENCES = "Under which licences these texts stand is not recorded; look it up before you publish the model.\n"


def model_card(
    config: PretrainConfig,
    shape: ModelConfig,
    manifests: Sequence[InstancesManifest],
    summary: Mapping[str, Any],
    tokenizer: Mapping[str, bytes],
    *,
    use_bf16: bool = False,
) -> str:
    """Return Markdown with the front matter of the Hugging Face Hub.

    `manifests` are those of the directories of instances, `summary` is what `pretrain` returns, `tokenizer` what
    `checkpoint.read_tokenizer` does.
    """
    sections = [("## Model", _table(_model(shape, summary, tokenizer)))]
    for number, manifest in zip(_numbers(manifests), manifests, strict=True):
        sections.append((f"## Data{number}", f"{_table(_data(manifest))}\n{_LICENCES}"))
        sections.append(("### How the rows were made", _table(_built(manifest))))
    sections.append(("## Training", _table(_training(config, shape, summary, use_bf16, len(manifests)))))
    sections.append(("## On held-out documents", _table(_measured(config, manifests[-1], summary))))
    text = "\n".join(f"{title}\n\n{body}" for title, body in sections)
    use = "" if shape.is_decoder else f"{_USE}\n"
    return f"{_front_matter(shape, manifests)}\n# A BERT encoder pre-trained by Clozeworks\n\n{use}{text}"


def _front_matter(shape: ModelConfig, manifests: Sequence[InstancesManifest]) -> str:
    languages = sorted({language for manifest in manifests for language in manifest.languages if language})
    task = [] if shape.is_decoder else ["pipeline_tag: fill-mask"]
    named = ["language:", *(f"- {json.dumps(language)}" for language in languages)] if languages else []
    return "\n".join(["---", *named, "library_name: transformers", *task, "tags:", "- bert", "---", ""])


def _numbers(manifests: Sequence[Any]) -> list[str]:
    return [""] if len(manifests) == 1 else [f", phase {phase + 1}" for phase in range(len(manifests))]


def _table(rows: Mapping[str, Any]) -> str:
    lines = [f"| {name} | {_text(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines, ""])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def _model(shape: ModelConfig, summary: Mapping[str, Any], tokenizer: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "layers": shape.num_hidden_layers,
        "hidden size": shape.hidden_size,
        "attention heads": shape.num_attention_heads,
        "feed-forward size": shape.intermediate_size,
        "positions": shape.max_position_embeddings,
        "vocabulary": f"{shape.vocab_size:,} WordPiece tokens{_casing(tokenizer)}",
        "reads": "from left to right" if shape.is_decoder else "in both directions",
        "parameters": summary["parameters"],
    }


def _casing(tokenizer: Mapping[str, bytes]) -> str:
    settings = json.loads(tokenizer["tokenizer_config.json"])
    lowercase = settings.get("do_lower_case", True)
    accents = settings.get("strip_accents")  # None goes with the case
    stripped = lowercase if accents is None else accents
    return f", {'uncased' if lowercase else 'cased'}, accents {'stripped' if stripped else 'kept'}"


def _data(manifest: InstancesManifest) -> dict[str, Any]:
    sources = Counter()
    for shard in _shards(manifest, "train"):
        sources.update(shard.source_tokens)
    rows = {f"{name} rows": _num_rows(manifest, split) for name, split in SPLITS.items()}
    tokens = {f"tokens from {source}, all passes": count for source, count in sorted(sources.items())}
    spoken = sorted(manifest.languages.items(), key=lambda item: (-item[1], item[0]))
    languages = {f"documents in {language or 'an unknown language'}": count for language, count in spoken}
    return {**rows, **tokens, **languages}


def _shards(manifest: InstancesManifest, split: str) -> Iterable[InstancesShard]:
    return (shard for shard in manifest.shards if shard.split == split)


def _num_rows(manifest: InstancesManifest, split: str) -> int:
    return sum(shard.rows for shard in _shards(manifest, split))


def _built(manifest: InstancesManifest) -> dict[str, Any]:
    settings = {name.replace("_", " "): value for name, value in sorted(asdict(manifest.config).items())}
    counts = {name.replace("_", " "): count for name, count in manifest.counts.items()}
    fingerprints = {
        "fingerprint": manifest.fingerprint,
        "vocabulary's fingerprint": manifest.tokenizer.fingerprint,
    }
    return settings | counts | fingerprints


def _training(
    config: PretrainConfig, shape: ModelConfig, summary: Mapping[str, Any], use_bf16: bool, num_phases: int
) -> dict[str, Any]:
    begun = {"begun from": config.checkpoint} if config.checkpoint else {"initial weights": _initial(shape)}
    done = {"steps": summary["step"], "rows seen": summary["rows"], "tokens seen": summary["tokens"]}
    phases = {"shares of the phases": config.phase_shares} if num_phases > 1 else {}
    names = ("objective", "batch_size", "learning_rate", "weight_decay", "dropout", "seed")
    asked = {name.replace("_", " "): getattr(config, name) for name in names}
    corrected = "with" if config.bias_correction else "without"
    return {
        **begun,
        **done,
        **phases,
        **asked,
        "warm-up": _warmup(config, summary["step"]),
        "after the warm-up": "learning rate linear to 0",
        "optimiser": f"Adam, betas {_text(BETAS)}, epsilon {EPS:g}, {corrected} bias correction",
        "gradients clipped at": MAX_GRADIENT_NORM,
        **_masks(config),
        "matrix products": "bf16" if use_bf16 else "fp32",
        "made with": f"clozeworks {version('clozeworks')}, torch {version('torch')}",
    }


def _initial(shape: ModelConfig) -> str:
    return f"normal, standard deviation {shape.initializer_range:g}, cut off at ±{2 * shape.initializer_range:g}"


def _warmup(config: PretrainConfig, num_steps: int) -> str:
    if config.hours is not None:
        return f"a tenth of {config.hours:g} hours"
    return f"{default_warmup(num_steps) if config.warmup_steps is None else config.warmup_steps:,} steps"


def _masks(config: PretrainConfig) -> dict[str, Any]:
    if config.duplicates_per_epoch is None and config.dynamic_masking == "none":
        return {}
    passes = {"duplicates per epoch": config.duplicates_per_epoch or "all"}
    if config.dynamic_masking == "none":
        return passes
    return {
        **passes,
        "dynamic masking": config.dynamic_masking,
        "mask rate": config.mask_rate,
        "mask split": config.mask_split,
    }


def _measured(config: PretrainConfig, manifest: InstancesManifest, summary: Mapping[str, Any]) -> dict[str, Any]:
    before, after = summary["initial"], summary["final"]
    num_rows = _num_rows(manifest, "validation")
    figures = {
        name.replace("_", " "): f"{value:.4g} (before training {before[name]:.4g})" for name, value in after.items()
    }
    return {"rows measured": f"{min(num_rows, config.evaluation_rows):,} of {num_rows:,}", **figures}
