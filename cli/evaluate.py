"""Define the command ``clozeworks evaluate``."""

import json
from typing import Any

import click

from ..model.config import BASELINE
from ..pipeline.counters import in_words
from ..pipeline.errors import UserError
from .options import device_option
from .output import CommandSummary, figure
from .progress import training_progress


@click.command()
@click.argument("model", type=click.Path(), metavar="RUN")
@click.argument("data", type=click.Path(), metavar="DATA")
@click.option("--batch-size", type=click.IntRange(1), help="Rows per batch, for instances.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@device_option
def evaluate(
    model: str, data: str, batch_size: int | None, as_json: bool, device: str
) -> CommandSummary | None:
    """Measure the model in RUN on DATA.

    A pre-trained model (from `clozeworks pretrain`, or any BERT, ModernBERT or RoBERTa of Hugging
    Face with its pre-training head) is measured on the validation split of instances: masked-LM
    loss, perplexity and accuracy, and NSP accuracy. A fine-tuned model is measured on labelled
    examples with the metrics of its task. Beside each figure stands what the best constant answer
    reaches on the same rows: for masked words the one that knows only how frequent each token is.
    Accuracies have their 95% interval.

    A pre-trained model is also measured on minimal pairs, such as BLiMP's: a table, or a folder of
    JSON Lines, with the columns sentence_good and sentence_bad; or MultiBLiMP's, the file of a
    language or the folder of all, which are shown by language and kind of agreement. The figure is
    how often the first has the higher pseudo-log-likelihood, with its 95% interval; beside it is
    BabyLM's, which masks each token alone, and counts a tie as right. Means are over the paradigms
    (UID, or files; of MultiBLiMP the kinds of agreement).
    """
    from ..pipeline import storage

    if storage.exists(storage.join(model, "task.json")):
        if batch_size:
            raise UserError(
                f"--batch-size is for pre-trained models, but {model} is a fine-tuned model."
            )
        from ..model.finetuning.predict import evaluate_task

        measured = evaluate_task(model, data, device)
    else:
        from ..model.checkpoint import Checkpoint

        Checkpoint.open(model)  # a mistyped model is refused before its data are looked at
        if _are_pairs(data):
            if batch_size:
                raise UserError(f"--batch-size is for instances, but {data} holds minimal pairs.")
            from ..model.minimal_pairs import evaluate_minimal_pairs

            with training_progress() as report:
                measured = evaluate_minimal_pairs(model, data, device, report)
        else:
            from ..model.pretraining.evaluate import evaluate as evaluate_pretrained

            measured = evaluate_pretrained(model, data, device=device, batch_size=batch_size)
            measured = {"split": "validation", **measured}
    if as_json:
        click.echo(json.dumps(measured, indent=2))
        return None
    return CommandSummary("evaluate", model, [("data", data), *_rows(measured)])


def _are_pairs(data: str) -> bool:
    """Return whether `data` is a table, or a folder of them, and not one of instances."""
    from ..pipeline import storage

    if storage.exists(data):  # a file
        return True
    names = storage.file_names(data)
    if "manifest.json" in names:
        return False
    files = [*names, *(f"{folder}/data.tsv" for folder in storage.folder_names(data))]
    return any(
        name.endswith((".jsonl", "data.tsv")) and storage.exists(storage.join(data, name))
        for name in files
    )


def _rows(measured: dict[str, Any]) -> list[tuple[str, str]]:
    of_tokens = ("mlm_loss", "mlm_accuracy", "perplexity")
    rows = []
    for name, value in measured.items():
        if name.startswith(BASELINE) or name.endswith(("_low", "_high")):
            continue
        if isinstance(value, dict):
            rows += _accuracies(name, value)
            continue
        shown = value if isinstance(value, str) else figure(value)
        if f"{name}_low" in measured:
            shown += f", {figure(measured[f'{name}_low'])} to {figure(measured[f'{name}_high'])}"
        if f"{BASELINE}{name}" in measured:
            by = "token frequencies" if name in of_tokens else "a constant answer"
            shown += f" ({figure(measured[f'{BASELINE}{name}'])} by {by})"
        rows.append((in_words(name), shown))
    return rows


def _accuracies(name: str, value: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a row for the accuracy on pairs, or on those of each kind."""
    if "accuracy" not in value:
        return [row for kind, its in value.items() for row in _accuracies(f"… {kind}", its)]
    low, high = 100 * value["low"], 100 * value["high"]
    shown = f"{value['accuracy']:.1%} of {value['pairs']:,} ({low:.1f} to {high:.1f}), "
    shown += f"alone {value['token_alone']:.1%}"
    if value["ties"]:
        shown += f" ({value['ties']:,} ties)"
    return [(in_words(name), shown)]
