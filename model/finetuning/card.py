"""Write the model card of a fine-tuned model: its task, encoder and data, and its dev scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..card import (
    DATASET,
    as_code,
    model_index,
    model_name,
    render_card,
    software,
)
from ..encoders.config import EncoderConfig
from ..tasks.glue import GLUE
from ..tasks.task import Task
from .config import FinetuneConfig
from .results import SearchSummary


def task_card(
    task: Task,
    data: str,
    checkpoint: str,
    languages: list[str],
    config: FinetuneConfig,
    recipe: Mapping[str, Any],
    summary: SearchSummary,
    shape: EncoderConfig,
    *,
    in_transformers: bool,
) -> str:
    """Return Markdown with the front matter of the Hub.

    `languages` and `shape` are the encoder's, `recipe` has hyperparameters that the task or user
    set; `in_transformers` says whether ``transformers`` has the head.
    """
    pipeline = task.pipeline
    name = f"{task.name} {task.variant}".strip()
    dataset = _dataset(task, data)
    split = "train (held-out part)" if summary["held_out"] else "validation"
    best = summary["best"]
    results = model_index(
        f"{shape.title} for {name}", pipeline, {**dataset, "split": split}, best["scores"]
    )
    # The Hub makes links of these; a local file would be a broken one.
    datasets = []
    if DATASET.fullmatch(dataset["type"]):
        datasets.append(dataset["type"])
    library = "transformers"
    tags = [shape.model_type]
    if pipeline == "sentence-similarity":
        library = "sentence-transformers"
        tags += [library, "feature-extraction"]
    metadata = {
        "language": languages,
        "license": config.license,
        "library_name": library,
        "pipeline_tag": pipeline,
        "tags": tags,
        "datasets": datasets,
        "model-index": results,
    }
    scores = {}
    for metric, score in best["scores"].items():
        scores[metric] = _figure(score)
        if metric in summary["baseline"]:
            constant = _figure(summary["baseline"][metric])
            scores[metric] += f" ({constant} for a constant answer)"
    attention = {}
    if shape.is_decoder:
        attention["attention"] = "left to right"
    tables = {
        "Data": {
            "data": as_code(dataset["name"]),
            "training examples": summary["train_examples"],
            "dev examples": summary["dev_examples"],
            "dev examples are": split,
        },
        "Training": {
            "encoder": as_code(model_name(checkpoint)),
            **attention,
            "learning rate": f"{best['learning_rate']:g}",
            "seed": best["seed"],
            **recipe,
            "max_length": task.max_length,
            "runs": f"{summary['runs']:,}; this is the best on dev",
            "software": software(),
        },
        "On the dev examples": scores,
    }
    return render_card(
        "finetuning/card.md.jinja",
        title=f"A {shape.title} encoder fine-tuned on {name} by Clozeworks",
        metadata=metadata,
        tables=tables,
        licensed_sources="the data and of the encoder",
        pipeline=pipeline,
        in_transformers=in_transformers and pipeline != "multiple-choice",
    )


def _figure(score: float) -> str:
    if isinstance(score, int):  # a count, such as SQuAD 2.0's total
        return f"{score:,}"
    return f"{score:.4g}"


def _dataset(task: Task, data: str) -> dict[str, str]:
    """Return the data set as the Hub's metadata name it; a local one by its file or folder."""
    if task.name in GLUE:
        return {"type": "nyu-mll/glue", "name": f"GLUE {task.name}", "config": task.name}
    if data.startswith("hf:"):
        address, _, rest = data.removeprefix("hf:").partition(":")
        dataset = {"type": address, "name": address}
        if rest:
            dataset["config"] = rest.split(":")[0]  # after it may come a split
        return dataset
    name = Path(data).name
    return {"type": name, "name": name}
