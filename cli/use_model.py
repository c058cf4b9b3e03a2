"""Define the commands that use a trained model: ``fill``, ``predict``, ``merge`` and so on."""

import json
import os
import sys

import click

from ..model.features.config import FeaturesConfig
from .options import (
    GroupedCommand,
    check_suffix,
    config_options,
    device_option,
    make_config,
    path_option,
)
from .output import CommandSummary, byte_size
from .progress import training_progress


@click.command()
@click.argument("run", type=click.Path())
@click.argument("text")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the candidates of each [MASK] as JSON."
)
def fill(run: str, text: str, as_json: bool) -> CommandSummary | None:
    """Print the five likeliest tokens for each [MASK] in TEXT, or in each line of standard input
    (-), according to the model in RUN.
    """
    texts = [text]
    if text == "-":
        # As bytes: of a text, `splitlines` would also cut at form feeds and U+2028.
        lines = sys.stdin.buffer.read().splitlines()
        texts = [line.decode("utf-8", "replace") for line in lines if line.strip()]
    # Imported late, as in all commands: torch would make `clozeworks --help` take seconds.
    from ..model.pretraining.fill import fill_all

    rows = []
    for line, masks in zip(texts, fill_all(run, texts), strict=True):
        if as_json:
            guesses_by_mask = [[guess._asdict() for guess in guesses] for guesses in masks]
            click.echo(json.dumps(guesses_by_mask, indent=None if text == "-" else 2))
            continue
        rows.append(("text", line))
        for number, guesses in enumerate(masks, 1):
            # A line each, the token last: it may be a comma itself.
            shown = [f"{guess.probability:6.1%}  {guess.token}" for guess in guesses]
            name = "[MASK]" if len(masks) == 1 else f"[MASK] {number}"
            rows.append((name, "\n".join(shown)))
    return None if as_json else CommandSummary("fill", run, rows)


@click.command()
@click.argument("model", type=click.Path(), metavar="DIR")
@click.argument("data", type=click.Path())
@path_option(
    "--output",
    "FILE",
    "File for the predictions, replaced if it exists: .tsv, .csv or .jsonl, or - for the terminal.",
)
@click.option(
    "--official",
    is_flag=True,
    help="Write files in the form that the task's server or script takes (for GLUE, CoLA.tsv and "
    "so on) to the folder --output.",
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="Write these columns of DATA and of the prediction alone, such as id,label, or "
    "id,label=Sentiment to call one Sentiment.",
)
@click.option(
    "--text",
    metavar="COLUMN",
    help="Column of the text in DATA, or both columns of a pair, such as question,answer; the "
    "default is the training's.",
)
@device_option
def predict(
    model: str,
    data: str,
    output: str,
    official: bool,
    columns: str | None,
    text: str | None,
    device: str,
) -> CommandSummary | None:
    """Predict with the fine-tuned model in DIR: the text, its answer and probabilities for each
    example in DATA.

    DATA is a file in the format that the model was trained on (labels are not needed), or plain
    text with one example per line, even if it is empty (.txt, or - for standard input), and a tab
    between the texts of a pair. The column id of a table is kept, and the training's, such as
    PhraseId; .jsonl keeps all others too, except those with the name of a part of the prediction.
    """
    from ..model.finetuning.predict import predict as run_predict

    num_predicted = run_predict(
        model, data, output, device, official=official, columns=columns, text=text
    )
    if output == "-":
        return None  # a summary would follow the predictions
    return CommandSummary("predict", output, [("predictions", f"{num_predicted:,}")])


@click.command(cls=GroupedCommand)
@click.argument("checkpoint", type=click.Path(), metavar="CHECKPOINT")
@click.argument("data", type=click.Path(), metavar="DATA")
@path_option("--output", "FILE.parquet", "Parquet file to write the vectors to.")
@click.option("--overwrite", is_flag=True, help="Replace the output file.")
@config_options(FeaturesConfig)
def features(
    checkpoint: str, data: str, output: str, overwrite: bool, **values: object
) -> CommandSummary:
    """Write hidden states of the encoder in CHECKPOINT for the texts in DATA.

    DATA is plain text (one text per line), a table (TSV, CSV, JSON Lines, Parquet), or a data set
    from the Hub (hf:nyu-mll/glue:sst2:test; the default split is train), which is streamed. FILE
    gets one row per word, token or text, with a vector from each layer.
    """
    from ..model.features.features import extract_features
    from ..pipeline import storage

    check_suffix("output", output, ".parquet", "Parquet (pyarrow, pandas, DuckDB read it)")
    config = make_config(FeaturesConfig, values)
    with training_progress() as report:
        counts = extract_features(checkpoint, data, output, config, report, overwrite=overwrite)
    rows = [(name, f"{count:,}") for name, count in counts.items()]
    num_bytes = storage.find_files(output)[output]
    rows.append(("size", byte_size(num_bytes)))
    return CommandSummary("features", output, rows)


@click.command()
@click.argument("run", type=click.Path())
@click.argument("instances", type=click.Path())
@click.option("--last", type=click.IntRange(2), required=True, help="Number of models to merge.")
@path_option("--output", "FOLDER", "For the merged model.")
@device_option
def merge(run: str, instances: str, last: int, output: str, device: str) -> CommandSummary:
    """Write the mean of the last models that `pretrain --archive-every` kept in RUN.

    After a constant rate it does what a decay would (--schedule constant-with-decay --decay-share
    0). Prints the loss on the held-out rows of INSTANCES of the last model alone, and of the mean.
    """
    from ..model.pretraining.merge import merge as run_merge

    measured = run_merge(run, instances, last, output, device)
    losses = {name: f"{metrics['loss']:.3f}" for name, metrics in measured.items()}
    rows = [("loss, last model alone", losses["last"]), ("loss, mean", losses["mean"])]
    return CommandSummary("merge", output, rows)


@click.command()
@click.argument("directory", type=click.Path(), metavar="DIR")
@path_option("--output", "FOLDER", "To upload.")
@click.option("--license", help="Licence for the card: an identifier of the Hugging Face Hub.")
@click.option("--overwrite", is_flag=True, help="Replace a model in FOLDER, and its card.")
def export(directory: str, output: str, license: str | None, overwrite: bool) -> CommandSummary:
    """Copy the model in DIR, its tokenizer and its card for the Hugging Face Hub.

    DIR is the output of a finished `clozeworks pretrain` or `finetune`.
    """
    from ..model.export import export as run_export

    names = run_export(directory, output, license, overwrite)
    # `normpath` first: the last name of `models/tiny/` would be empty.
    repository = os.path.basename(os.path.normpath(output))
    upload = f"hf upload YOUR-NAME/{repository} {output}"
    return CommandSummary("export", output, [("files", ", ".join(names)), ("to upload it", upload)])
