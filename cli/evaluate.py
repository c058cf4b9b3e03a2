"""``clozeworks evaluate``."""

import click

from .made import Made


@click.command()
@click.argument("run")
@click.argument("instances")
@click.option("--split", default="validation", show_default=True, help="Which split of the instances to use.")
def evaluate(run: str, instances: str, split: str) -> Made:
    """Measure the model in RUN on INSTANCES: masked-LM loss, perplexity and accuracy, NSP accuracy.

    RUN is a directory of `clozeworks pretrain`, or of any BERT of Hugging Face with pre-training heads.
    """
    from ..model.evaluate import evaluate as run_evaluate

    measured = run_evaluate(run, instances, split)
    return Made("evaluate", run, [(name.replace("_", " "), f"{value:,.4g}") for name, value in measured.items()])
