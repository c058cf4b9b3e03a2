"""Write the model card of a fine-tuned model: its task, encoder and data, and its dev scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...pipeline.cards import as_code, render_card
from ..card import DATASET, model_index, model_name, software
from ..encoders.config import EncoderConfig
from ..tasks.glue import GLUE
from ..tasks.task import Task
from .config import FinetuneConfig
from .prepare import chosen_recipe
from .records import SearchSummary


@dataclass(frozen=True)
class CardSources:
    """What a model was made of."""

    data: str
    """As the user named it."""
    checkpoint: str
    """The encoder's directory, or ``random weights``."""
    languages: list[str]
    """The encoder's."""


def task_card(
    task: Task,
    sources: CardSources,
    config: FinetuneConfig,
    summary: SearchSummary,
    shape: EncoderConfig,
) -> str:
    """Return Markdown with the front matter of the Hub; `shape` is the encoder's."""
    has_hf_head = "architectures" not in task.hf_settings()
    in_transformers = has_hf_head and not shape.is_decoder and task.pipeline != "multiple-choice"
    return render_card(
        "model/finetuning/card.md.jinja",
        title=f"A {shape.title} encoder fine-tuned on {_name(task)} by Clozeworks",
        metadata=_metadata(task, sources, config, summary, shape),
        tables=_tables(task, sources, config, summary, shape),
        licensed_sources="the data and of the encoder",
        pipeline=task.pipeline,
        in_transformers=in_transformers,
    )


def _name(task: Task) -> str:
    return f"{task.name} {task.variant}".strip()


def _metadata(
    task: Task,
    sources: CardSources,
    config: FinetuneConfig,
    summary: SearchSummary,
    shape: EncoderConfig,
) -> dict[str, object]:
    dataset = _dataset(task, sources.data)
    results = model_index(
        f"{shape.title} for {_name(task)}",
        task.pipeline,
        {**dataset, "split": _split(summary)},
        summary.best.scores,
    )
    # The Hub makes links of these; a local file would be a broken one.
    datasets = []
    if DATASET.fullmatch(dataset["type"]):
        datasets.append(dataset["type"])
    library = "transformers"
    tags = [shape.model_type]
    if task.pipeline == "sentence-similarity":
        library = "sentence-transformers"
        tags += [library, "feature-extraction"]
    return {
        "language": sources.languages,
        "license": config.license,
        "library_name": library,
        "pipeline_tag": task.pipeline,
        "tags": tags,
        "datasets": datasets,
        "model-index": results,
    }


def _tables(
    task: Task,
    sources: CardSources,
    config: FinetuneConfig,
    summary: SearchSummary,
    shape: EncoderConfig,
) -> dict[str, Mapping[str, object]]:
    best = summary.best
    recipe = chosen_recipe(task, config, best)
    training = {"encoder": as_code(model_name(sources.checkpoint))}
    if shape.is_decoder:
        training["attention"] = "left to right"
    return {
        "Data": {
            "data": as_code(_dataset(task, sources.data)["name"]),
            "training examples": summary.train_examples,
            "dev examples": summary.dev_examples,
            "dev examples are": _split(summary),
        },
        "Training": {
            **training,
            "learning rate": f"{best.learning_rate:g}",
            "seed": best.seed,
            "batch_size": recipe.batch_size,
            "epochs": f"{recipe.epochs:g}",
            "max_length": task.max_length,
            "runs": f"{summary.runs:,}; this is the best on dev",
            "software": software(),
        },
        "On the dev examples": _scores(summary),
    }


def _split(summary: SearchSummary) -> str:
    return "train (held-out part)" if summary.held_out else "validation"


def _scores(summary: SearchSummary) -> dict[str, str]:
    scores = {}
    for metric, score in summary.best.scores.items():
        scores[metric] = _figure(score)
        if metric in summary.baseline:
            scores[metric] += f" ({_figure(summary.baseline[metric])} for a constant answer)"
    return scores


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
