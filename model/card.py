"""The model card of a pre-training run: what it was trained on, how, and how well it predicts held-out text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .config import ModelConfig, PretrainConfig
from .optim import default_warmup

CARD = "README.md"
_HEADER = """---
library_name: transformers
pipeline_tag: fill-mask
tags:
- bert
---

"""


def model_card(
    config: PretrainConfig, shape: ModelConfig, manifests: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> str:
    """Return Markdown with the front matter of the Hugging Face Hub.

    `manifests` are those of the directories of instances, `summary` is what `pretrain` returns.
    """
    sections = [
        ("Model", _model(shape, summary)),
        *((f"Data{number}", _data(manifest)) for number, manifest in zip(_numbers(manifests), manifests, strict=True)),
        ("Training", _training(config, summary)),
        ("On held-out documents", _measured(summary)),
    ]
    text = "\n".join(f"## {title}\n\n{_table(rows)}" for title, rows in sections)
    return f"{_HEADER}# A BERT encoder pre-trained by Clozeworks\n\n{text}"


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


def _model(shape: ModelConfig, summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "layers": shape.num_hidden_layers,
        "hidden size": shape.hidden_size,
        "attention heads": shape.num_attention_heads,
        "feed-forward size": shape.intermediate_size,
        "positions": shape.max_position_embeddings,
        "vocabulary": f"{shape.vocab_size:,} WordPiece tokens",
        "reads": "from left to right" if shape.is_decoder else "in both directions",
        "parameters": summary["parameters"],
    }


def _data(manifest: Mapping[str, Any]) -> dict[str, Any]:
    shards = [shard for shard in manifest["shards"] if shard["name"].startswith("train-")]
    rows, sources = sum(shard["rows"] for shard in shards), Counter()
    for shard in shards:
        sources.update(shard.get("source_tokens", {}))
    tokens = {f"tokens from {source}": count for source, count in sorted(sources.items())}
    counts = {name.replace("_", " "): count for name, count in manifest.get("counts", {}).items()}
    built = {name.replace("_", " "): value for name, value in manifest["config"].items()}
    marked = {"fingerprint": manifest, "vocabulary's fingerprint": manifest.get("tokenizer", {})}
    fingerprints = {name: part["fingerprint"] for name, part in marked.items() if "fingerprint" in part}
    return {"training rows": rows, **tokens, **counts, **built, **fingerprints}


def _training(config: PretrainConfig, summary: Mapping[str, Any]) -> dict[str, Any]:
    names = ("objective", "batch_size", "learning_rate", "weight_decay", "bias_correction", "dropout", "seed")
    asked = {name.replace("_", " "): getattr(config, name) for name in names}
    begun = {"begun from": config.checkpoint} if config.checkpoint else {}
    done = {"steps": summary["step"], "rows seen": summary["rows"], "tokens seen": summary["tokens"]}
    return begun | done | asked | {"warm-up": _warmup(config, summary["step"])} | _masks(config)


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
        "masks drawn anew": config.dynamic_masking,
        "mask rate": config.mask_rate,
        "mask split": config.mask_split,
    }


def _measured(summary: Mapping[str, Any]) -> dict[str, Any]:
    before, after = summary["initial"], summary["final"]
    return {
        name.replace("_", " "): f"{_text(value)} (before training {_text(before[name])})"
        for name, value in after.items()
    }
