"""Define the command ``clozeworks export``."""

import os

import click

from .options import output_option
from .output import CommandSummary


@click.command()
@click.argument("directory", type=click.Path(), metavar="DIR")
@output_option("FOLDER", "To upload.")
@click.option("--license", help="Licence for the card: an identifier of the Hugging Face Hub.")
@click.option("--overwrite", is_flag=True, help="Replace a model in FOLDER, and its card.")
def export(directory: str, output: str, license: str | None, overwrite: bool) -> CommandSummary:
    """Copy the model in DIR, its tokenizer and its card for the Hugging Face Hub.

    DIR is the output of a finished `clozeworks pretrain` or `finetune`.
    """
    # Imported late, as in all commands: torch would make `clozeworks --help` take seconds.
    from ..model.export import export as run_export

    names = run_export(directory, output, license, overwrite)
    # `normpath` first: the last name of `models/tiny/` would be empty.
    repository = os.path.basename(os.path.normpath(output))
    upload = f"hf upload YOUR-NAME/{repository} {output}"
    return CommandSummary("export", output, [("files", ", ".join(names)), ("to upload it", upload)])
