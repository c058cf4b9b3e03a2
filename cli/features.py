"""Define the command ``clozeworks features``."""

import click

from ..model.features.config import FeaturesConfig
from .options import GroupedCommand, check_suffix, config_options, make_config, output_option
from .output import CommandSummary, byte_size
from .progress import training_progress


@click.command(cls=GroupedCommand)
@click.argument("checkpoint", type=click.Path(), metavar="CHECKPOINT")
@click.argument("data", type=click.Path(), metavar="DATA")
@output_option("FILE.parquet", "Parquet file to write the vectors to.")
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
