"""Define the command ``clozeworks predict``."""

import click

from .options import device_option, output_option
from .output import CommandSummary


@click.command()
@click.argument("model", type=click.Path(), metavar="DIR")
@click.argument("data", type=click.Path())
@output_option(
    "FILE",
    "File for the predictions, replaced if it exists: .tsv, .csv, .jsonl or .json, or - for "
    "the terminal.",
)
@click.option(
    "--official",
    is_flag=True,
    help="Write files in the form that the task's server or script takes (for GLUE, CoLA.tsv and "
    "so on) to the folder --output.",
)
@device_option
def predict(
    model: str,
    data: str,
    output: str,
    official: bool,
    device: str,
) -> CommandSummary | None:
    """Predict with the fine-tuned model in DIR: the text, its answer and probabilities for each
    example in DATA.

    DATA is a file in the format that the model was trained on (labels are not needed), or plain
    text with one example per line, even if it is empty (.txt, or - for standard input), and a tab
    between the texts of a pair.
    """
    from ..model.finetuning.predict import predict as run_predict

    num_predicted = run_predict(model, data, output, device, official=official)
    if output == "-":
        return None  # a summary would follow the predictions
    return CommandSummary("predict", output, [("predictions", f"{num_predicted:,}")])
