"""The model card of a pre-training run: what it was trained on, how, and how well it predicts held-out text."""

from collections.abc import Mapping, Sequence
from typing import Any

from .config import ModelConfig, PretrainConfig

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
    rows = sum(shard["rows"] for shard in manifest["shards"] if shard["name"].startswith("train-"))
    counts = {name.replace("_", " "): count for name, count in manifest.get("counts", {}).items()}
    built = {name.replace("_", " "): value for name, value in manifest["config"].items()}
    fingerprint = {"fingerprint": manifest["fingerprint"]} if "fingerprint" in manifest else {}
    return {"training rows": rows, **counts, **built, **fingerprint}


def _training(config: PretrainConfig, summary: Mapping[str, Any]) -> dict[str, Any]:
    names = ("objective", "batch_size", "learning_rate", "weight_decay", "bias_correction", "dropout", "seed")
    asked = {name.replace("_", " "): getattr(config, name) for name in names}
    begun = {"begun from": config.checkpoint} if config.checkpoint else {}
    done = {"steps": summary["step"], "rows seen": summary["rows"], "tokens seen": summary["tokens"]}
    return begun | done | asked


def _measured(summary: Mapping[str, Any]) -> dict[str, Any]:
    before, after = summary["initial"], summary["final"]
    return {
        name.replace("_", " "): f"{_text(value)} (before training {_text(before[name])})"
        for name, value in after.items()
    }
