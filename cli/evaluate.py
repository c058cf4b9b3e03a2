"""``clozeworks evaluate``."""

from pathlib import Path

import click

from ..pipeline.errors import UserError
from .options import device_option
from .summary import CommandSummary, figure


@click.command()
@click.argument("model", metavar="RUN")
@click.argument("data", metavar="DATA")
@click.option("--split", default="validation", show_default=True, help="Which split of instances to use.")
@click.option("--batch-size", type=click.IntRange(1), help="Rows of instances computed at once.")
@device_option
def evaluate(model: str, data: str, split: str, batch_size: int | None, device: str) -> CommandSummary:
    """Measure the model in RUN on DATA.

    A pre-trained model (of `clozeworks pretrain`, or any BERT of Hugging Face with pre-training heads) is measured on
    instances: masked-LM loss, perplexity and accuracy, NSP accuracy. A fine-tuned one is measured on labelled
    examples, with the metrics of its task.
    """
    if (Path(model) / "task.json").exists():
        from ..model.finetuning.predict import evaluate_task

        measured = evaluate_task(model, data, device)
    elif Path(data).is_file():
        raise UserError(
            f"{data} is a file, but {model} is no fine-tuned model (task.json is missing): make one by `clozeworks "
            "finetune`, or give a directory of instances."
        )
    else:
        from ..model.pretraining.evaluate import evaluate as evaluate_pretrained

        measured = evaluate_pretrained(model, data, split, device, batch_size)
    return CommandSummary(
        "evaluate", model, [(name.replace("_", " "), figure(value)) for name, value in measured.items()]
    )
