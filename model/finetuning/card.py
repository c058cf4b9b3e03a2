"""The model card of a fine-tuned model: its encoder, its data and best run, and its dev scores."""

from itertools import islice
from pathlib import Path

from ..card import model_name, render_card
from ..encoders.config import EncoderConfig
from ..tasks.glue import GLUE
from ..tasks.task import Task
from .results import FinetuneSummary


def task_card(
    task: Task,
    data: str,
    checkpoint: str,
    languages: list[str],
    summary: FinetuneSummary,
    shape: EncoderConfig,
) -> str:
    """Return the card of a search's best run; `languages` and `shape` are the encoder's."""
    best = summary["best"]
    name = f"{task.name} {task.variant}".strip()
    dataset, dataset_name = _dataset(task.name, data)
    split = "train (held-out part)" if summary["held_out"] else "validation"
    training = {
        "encoder": model_name(checkpoint),
        "data": dataset_name,
        "training examples": summary["train_examples"],
        "dev examples": f"{summary['dev_examples']:,}, {split}",
        f"best of {summary['runs']:,} on dev": (
            f"learning rate {best['learning_rate']:.4g}, batch size {best['batch_size']}, "
            f"epochs {best['epochs']:.4g}, seed {best['seed']}"
        ),
    }
    if shape.is_decoder:
        training["attention"] = "left to right"
    # SQuAD 2.0 has 13, of answerable and other questions; all are in summary.json.
    scores: dict[str, object] = dict(islice(best["scores"].items(), 8))
    for metric in scores.keys() & summary["baseline"].keys():
        constant = summary["baseline"][metric]
        scores[metric] = f"{scores[metric]:.4g} ({constant:.4g} for a constant answer)"
    usage = "```console\n$ clozeworks predict . FILE --output predictions.jsonl\n```"
    return render_card(
        f"A {shape.title} encoder fine-tuned on {name} by Clozeworks",
        {"Training": training, "On the dev examples": scores},
        usage=None if task.in_transformers and not shape.is_decoder else usage,
        language=languages or None,
        tags=[shape.model_type],
        pipeline_tag=task.pipeline,
        datasets=[dataset],
    )


def _dataset(task: str, data: str) -> tuple[str, str]:
    """Return a data set's address on the Hub and its name; a local one's file or folder twice."""
    if task in GLUE:
        return "nyu-mll/glue", f"GLUE {task}"
    name = data.removeprefix("hf:").split(":")[0] if data.startswith("hf:") else Path(data).name
    return name, name
