"""The model card of a pre-training run: its data, its length, and results on held-out text."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...pipeline.data_card import hub_languages
from ...pipeline.manifests import InstancesManifest, too_little_to_judge
from ..card import model_name, render_card
from ..config import PretrainConfig
from ..encoders.config import EncoderConfig
from .setup import Summary


def model_card(
    config: PretrainConfig,
    shape: EncoderConfig,
    manifests: Sequence[InstancesManifest],
    summary: Summary,
    products: str,
) -> str:
    """Return the card of a run as Markdown; `products` is the number format of matrix products."""
    tokens = Counter[str]()
    documents = Counter[str]()
    rows = []
    for manifest in manifests:
        # The larger number, not the sum: phases are built from the same documents.
        documents |= Counter(manifest.languages)
        training_shards = [shard for shard in manifest.shards if shard.split == "train"]
        for shard in training_shards:
            tokens.update(shard.source_tokens)
        num_rows = sum(shard.rows for shard in training_shards)
        rows.append(f"{num_rows:,} of at most {manifest.config.max_length:,} tokens")
    training: dict[str, object] = {
        "parameters": summary["parameters"],
        # A text counts as often as its rows are stored.
        "tokens by source, all passes": _counts(tokens),
        "documents by language": _counts(documents),
        "rows": ", then ".join(rows),
        "trained for": f"{summary['step']:,} steps of {config.batch_size:,} rows",
        "tokens seen": summary["tokens"],
        "matrix products": products,
    }
    if config.checkpoint:
        training["started from"] = model_name(config.checkpoint)
    too_few = too_little_to_judge(summary["validation_rows"])
    measured: dict[str, object] = {"rows": too_few or summary["validation_rows"]}
    if not too_few:
        for name, after in summary["final"].items():
            measured[name] = f"{after:.4g} (before training {summary['initial'][name]:.4g})"
    fills_masks = not shape.is_decoder
    return render_card(
        f"A {shape.title} encoder pre-trained by Clozeworks",
        {"Training": training, "On held-out documents": measured},
        usage=None if fills_masks else "",
        language=hub_languages(documents) or None,
        license=config.license,
        tags=[shape.model_type],
        pipeline_tag="fill-mask" if fills_masks else None,
        datasets=sorted(tokens),
    )


def _counts(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{name} {counts[name]:,}" for name in sorted(counts)) or "unknown"
