"""Write the model card of a fine-tuned model: its task, encoder and data, and its dev scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...pipeline.cards import as_code, render
from ..card import DATASET, model_index, model_name, software
from ..encoders.config import EncoderConfig
from ..tasks.glue import GLUE
from ..tasks.task import Task
from .config import FinetuneConfig
from .prepare import chosen_recipe
from .records import SearchSummary


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What the card of a fine-tuned model is made from."""

    task: Task
    data: str
    """As the user named it."""
    checkpoint: str
    """The encoder's directory, or ``random weights``."""
    languages: list[str]
    """The encoder's."""
    config: FinetuneConfig
    summary: SearchSummary
    shape: EncoderConfig
    """The encoder's."""

    @property
    def name(self) -> str:
        """The task, and its variant if it has several."""
        return f"{self.task.name} {self.task.variant}".strip()


def task_card(facts: CardFacts) -> str:
    """Return Markdown with the front matter of the Hub."""
    task = facts.task
    shape = facts.shape
    has_hf_head = "architectures" not in task.hf_settings()
    in_transformers = has_hf_head and not shape.is_decoder and task.pipeline != "multiple-choice"
    return render(
        "model/finetuning/card.md.jinja",
        title=f"A {shape.title} encoder fine-tuned on {facts.name} by Clozeworks",
        metadata=_metadata(facts),
        tables=_tables(facts),
        licensed_sources="the data and of the encoder",
        pipeline=task.pipeline,
        in_transformers=in_transformers,
    )


def _metadata(facts: CardFacts) -> dict[str, object]:
    pipeline = facts.task.pipeline
    dataset = _dataset(facts)
    results = model_index(
        f"{facts.shape.title} for {facts.name}",
        pipeline,
        {**dataset, "split": _split(facts.summary)},
        facts.summary.best.scores,
    )
    # The Hub makes links of these; a local file would be a broken one.
    datasets = []
    if DATASET.fullmatch(dataset["type"]):
        datasets.append(dataset["type"])
    library = "transformers"
    tags = [facts.shape.model_type]
    if pipeline == "sentence-similarity":
        library = "sentence-transformers"
        tags += [library, "feature-extraction"]
    return {
        "language": facts.languages,
        "library_name": library,
        "pipeline_tag": pipeline,
        "tags": tags,
        "datasets": datasets,
        "model-index": results,
    }


def _tables(facts: CardFacts) -> dict[str, Mapping[str, object]]:
    summary = facts.summary
    best = summary.best
    recipe = chosen_recipe(facts.task, facts.config, best)
    training = {"encoder": as_code(model_name(facts.checkpoint))}
    if facts.shape.is_decoder:
        training["attention"] = "left to right"
    return {
        "Data": {
            "data": as_code(_dataset(facts)["name"]),
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
            "max_length": facts.task.max_length,
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


def _dataset(facts: CardFacts) -> dict[str, str]:
    """Return the data set as the Hub's metadata name it; a local one by its file or folder."""
    task = facts.task.name
    if task in GLUE:
        return {"type": "nyu-mll/glue", "name": f"GLUE {task}", "config": task}
    if facts.data.startswith("hf:"):
        address, _, rest = facts.data.removeprefix("hf:").partition(":")
        dataset = {"type": address, "name": address}
        if rest:
            dataset["config"] = rest.split(":")[0]  # after it may come a split
        return dataset
    name = Path(facts.data).name
    return {"type": name, "name": name}
