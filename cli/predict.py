"""``clozeworks predict``."""

import click

from .made import Made


@click.command()
@click.argument("model", metavar="DIR")
@click.argument("data")
@click.option("--output", required=True, metavar="FILE", help="File to write the predictions to (- for the terminal).")
def predict(model: str, data: str, output: str) -> Made | None:
    """Predict with the fine-tuned model in DIR: one line of label and probabilities for each line of DATA (- reads
    standard input).
    """
    from ..model.predict import predict as run_predict

    num_predicted = run_predict(model, data, output)
    return Made("predict", output, [("predictions", f"{num_predicted:,}")]) if output != "-" else None
