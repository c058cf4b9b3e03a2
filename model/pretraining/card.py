"""The model card of a pre-training run: data, training, and results on held-out text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from ...pipeline.config import identity_fields
from ...pipeline.languages import UNKNOWN
from ...pipeline.manifests import InstancesManifest, too_little_to_judge
from ..card import DATASET, eval_results, model_name, render_card
from ..config import PretrainConfig
from ..encoders.config import EncoderConfig
from .setup import Summary

TASK = "fill-mask"
EXAMPLES = {
    "de": "Die Hauptstadt von Frankreich ist {mask}.",
    "en": "The capital of France is {mask}.",
    "es": "La capital de Francia es {mask}.",
    "fr": "La capitale de la France est {mask}.",
    "it": "La capitale della Francia è {mask}.",
    "ko": "프랑스의 수도는 {mask}이다.",
    "lt": "Prancūzijos sostinė yra {mask}.",
    "nl": "De hoofdstad van Frankrijk is {mask}.",
    "pl": "Stolicą Francji jest {mask}.",
    "pt": "A capital da França é {mask}.",
    "ru": "Столица Франции — {mask}.",
    "uk": "Столиця Франції — {mask}.",
}
"""By language; others have the mask alone."""


def model_card(
    config: PretrainConfig,
    shape: EncoderConfig,
    manifests: Sequence[InstancesManifest],
    summary: Summary,
    products: str,
) -> str:
    """Return the card of a run on instances with these `manifests`, as Markdown.

    `products` is the number format of matrix products.
    """
    tables: dict[str, dict[str, object]] = {
        "Model": {"parameters": summary["parameters"], **asdict(shape)}
    }
    languages = Counter[str]()
    sources = set()
    for number, manifest in enumerate(manifests, 1):
        heading = "Data" if len(manifests) == 1 else f"Data, phase {number}"
        tables[heading] = _data(manifest)
        languages.update(manifest.languages)
        for shard in manifest.shards:
            sources.update(shard.source_tokens)
    options = {**identity_fields(config), "license": config.license}
    if config.checkpoint:
        options["checkpoint"] = model_name(config.checkpoint)
        del options["model"]
    if not config.can_be_prolonged:
        del options["decay_share"]
    tables["Training"] = {
        "steps done": summary["step"],
        "rows seen": summary["rows"],
        "tokens seen": summary["tokens"],
        **{name: value for name, value in options.items() if value is not None},
        "matrix products": products,
    }
    measured: dict[str, object] = {"rows": summary["validation_rows"]}
    scores = summary["final"]
    if too_few := too_little_to_judge(summary["validation_rows"]):
        measured = {"rows": too_few}
        scores = {}
    for name, after in scores.items():
        measured[name] = f"{after:.4g} (before training {summary['initial'][name]:.4g})"
    tables["On held-out documents"] = measured

    fills_masks = not shape.is_decoder
    results = eval_results(
        scores if fills_masks else {},
        task_type=TASK,
        dataset_type=min(sources, default="instances"),
        dataset_name="held-out documents",
        dataset_split="validation",
    )
    most_common = max(languages, key=lambda name: languages[name], default="")
    return render_card(
        f"A {shape.title} encoder pre-trained by Clozeworks",
        "fill" if fills_masks else "",
        tables,
        results,
        EXAMPLES.get(most_common, "{mask}"),
        language=sorted(languages.keys() - {UNKNOWN}) or None,
        license=config.license,
        tags=[shape.model_type],
        pipeline_tag=TASK if fills_masks else None,
        # The Hub makes links of these; a local file would be a broken one.
        datasets=[source for source in sorted(sources) if DATASET.fullmatch(source)] or None,
        model_name=f"{shape.title}, {shape.num_hidden_layers} x {shape.hidden_size}",
    )


def _data(manifest: InstancesManifest) -> dict[str, object]:
    """Return rows, tokens by source, documents by language, and the options of `build`."""
    # Of all passes: with several, a text counts as often as its rows are stored.
    tokens_by_source = Counter[str]()
    num_rows = Counter[str]()
    for shard in manifest.shards:
        num_rows[shard.split] += shard.rows
        if shard.split == "train":
            tokens_by_source.update(shard.source_tokens)
    data: dict[str, object] = {
        "training rows": num_rows["train"],
        "validation rows": num_rows["validation"],
    }
    for source, num_tokens in sorted(tokens_by_source.items()):
        data[f"tokens from {source}, all passes"] = num_tokens
    for language, num_documents in manifest.languages.items():
        data[f"documents in {language}"] = num_documents
    return {
        **data,
        **asdict(manifest.config),
        "fingerprint": manifest.fingerprint,
        "vocabulary's fingerprint": manifest.tokenizer.fingerprint,
    }
