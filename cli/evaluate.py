"""Define the command ``clozeworks evaluate``."""

import json
from typing import Any, Literal

import click

from ..pipeline.errors import UserError
from ..pipeline.wording import in_words
from .glossary import METRICS, PRETRAINING, epilog
from .options import device_option
from .summary import CommandSummary, figure, warn

BASELINE = "baseline_"
"""Begins the names of what constant answers reach."""
UNIGRAM = ("mlm_loss", "mlm_accuracy", "perplexity")


@click.command(epilog=epilog(PRETRAINING, METRICS))
@click.argument("model", type=click.Path(), metavar="RUN")
@click.argument("data", type=click.Path(), metavar="DATA")
@click.option("--split", help="Split of the instances to measure on; the default is validation.")
@click.option("--batch-size", type=click.IntRange(1), help="Rows per batch, for instances.")
@click.option(
    "--context",
    type=click.IntRange(3),
    metavar="N",
    help="Cut rows without pairs into pieces of at most N tokens, to see what a longer context is "
    "worth.",
)
@click.option(
    "--metric",
    type=click.Choice(["squad", "korquad"]),
    help="Official metric for a model of squad; the default is the one it was fine-tuned with.",
)
@click.option(
    "--encoding",
    default="auto",
    show_default=True,
    help="Encoding of labelled examples that are not UTF-8; auto detects it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@device_option
def evaluate(
    model: str,
    data: str,
    split: str | None,
    batch_size: int | None,
    context: int | None,
    metric: Literal["squad", "korquad"] | None,
    encoding: str,
    as_json: bool,
    device: str,
) -> CommandSummary | None:
    """Measure the model in RUN on DATA.

    A pre-trained model (from `clozeworks pretrain`, or any Hugging Face BERT with pre-training
    heads) is measured on instances: masked-LM loss, perplexity and accuracy, and NSP accuracy; on
    rows of over 512 tokens also the loss by position. A fine-tuned model is measured on labelled
    examples with the metrics of its task. Beside each figure stands what the best constant answer
    reaches on the same rows: for masked words the one that knows only how frequent each token is.
    """
    from ..pipeline import storage

    if storage.exists(storage.join(model, "task.json")):
        from ..model.finetuning.evaluate import evaluate_task

        if split or batch_size or context:
            raise UserError(
                "--split, --batch-size and --context are for instances, but "
                f"{model} is a fine-tuned model."
            )
        measured = evaluate_task(model, data, device, metric, encoding=encoding)
        where = {}
    else:
        from ..model.checkpoint import read_config
        from ..model.pretraining.evaluate import evaluate as evaluate_pretrained

        read_config(model)  # a mistyped model is refused before its data are looked at
        if storage.exists(data):
            raise UserError(
                f"{data} is a file, but {model} is not a fine-tuned model (it has no task.json): "
                "fine-tune it with `clozeworks finetune`, or give a directory of instances."
            )
        if metric:
            raise UserError(f"--metric is for a fine-tuned model, but {model} is not one.")
        split = split or "validation"
        measured = evaluate_pretrained(model, data, split, device, batch_size, context)
        where = {"split": split}
        if split == "train":
            warn(
                f"{model} may have been trained on these rows, which flatters it: the split "
                "validation is held out"
            )
    if as_json:
        click.echo(json.dumps({**where, **measured}, indent=2))
        return None
    return CommandSummary("evaluate", model, [("data", data), *where.items(), *_rows(measured)])


def _rows(measured: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for name, value in measured.items():
        if name.startswith(BASELINE):
            continue
        shown = figure(value)
        if f"{BASELINE}{name}" in measured:
            by = "token frequencies" if name in UNIGRAM else "a constant answer"
            shown += f" ({figure(measured[f'{BASELINE}{name}'])} by {by})"
        rows.append((in_words(name), shown))
    return rows
