"""Write the model card of a fine-tuned model: its task, encoder and data, and its dev scores."""

from pathlib import Path

from ..card import DATASET, eval_results, model_name, render_card
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
    """Return the card of the best run of a search, as Markdown.

    `data` is as the user named it, `checkpoint` the encoder's directory or ``random weights``;
    `languages` and `shape` are the encoder's.
    """
    best = summary["best"]
    name = f"{task.name} {task.variant}".strip()
    dataset_type, dataset_name, dataset_config = _dataset(task.name, data)
    split = "train (held-out part)" if summary["held_out"] else "validation"
    attention = {"attention": "left to right"} if shape.is_decoder else {}
    scores = dict(best["scores"])
    for metric in scores.keys() & summary["baseline"].keys():
        constant = summary["baseline"][metric]
        scores[metric] = f"{scores[metric]:.4g} ({constant:.4g} for a constant answer)"
    tables = {
        "Data": {
            "data": dataset_name,
            "training examples": summary["train_examples"],
            "dev examples": summary["dev_examples"],
            "dev examples are": split,
        },
        "Training": {
            "encoder": model_name(checkpoint),
            **attention,
            "learning rate": best["learning_rate"],
            "seed": best["seed"],
            "batch size": best["batch_size"],
            "epochs": best["epochs"],
            "max length": task.max_length,
            "runs": f"{summary['runs']:,}; this is the best on dev",
        },
        "On the dev examples": scores,
    }
    results = eval_results(
        best["scores"],
        task_type=task.pipeline,
        dataset_type=dataset_type,
        dataset_name=dataset_name,
        dataset_split=split,
        dataset_config=dataset_config,
    )
    has_hf_head = "architectures" not in task.hf_settings() and not shape.is_decoder
    # Of these there is no pipeline.
    in_transformers = has_hf_head and task.pipeline != "multiple-choice"
    return render_card(
        f"A {shape.title} encoder fine-tuned on {name} by Clozeworks",
        "pipeline" if in_transformers else "predict",
        tables,
        results,
        language=languages or None,
        tags=[shape.model_type],
        pipeline_tag=task.pipeline,
        # The Hub makes links of these; a local file would be a broken one.
        datasets=[dataset_type] if DATASET.fullmatch(dataset_type) else None,
        model_name=f"{shape.title} for {name}",
    )


def _dataset(task: str, data: str) -> tuple[str, str, str | None]:
    """Return a data set's address on the Hub, name and part; a local one's file or folder twice."""
    if task in GLUE:
        return "nyu-mll/glue", f"GLUE {task}", task
    if data.startswith("hf:"):
        address, _, rest = data.removeprefix("hf:").partition(":")
        return address, address, rest.split(":")[0] or None  # after the part may come a split
    name = Path(data).name
    return name, name, None
