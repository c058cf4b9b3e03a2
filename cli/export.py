"""Define the command ``clozeworks export``."""

import os

import click

from .summary import CommandSummary, megabytes


@click.command()
@click.argument("directory", type=click.Path(), metavar="DIR")
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="FOLDER",
    help="Folder for the files, to upload as it is.",
)
@click.option(
    "--license",
    help="Licence for the card, instead of the one that it names: an identifier of the Hugging "
    "Face Hub.",
)
def export(directory: str, output: str, license: str | None) -> CommandSummary:
    """Copy the model in DIR, its tokenizer and its card, without checkpoints and logs, for the
    Hugging Face Hub.

    DIR is the output of a finished `clozeworks pretrain` or `finetune`.
    """
    # Imported late, as in all commands: torch would make `clozeworks --help` take seconds.
    from ..model.export import export as run_export

    sizes = run_export(directory, output, license)
    # `normpath` first: the last name of `models/tiny/` would be empty.
    name = os.path.basename(os.path.normpath(output))
    rows = [
        ("files", ", ".join(sizes)),
        ("size", megabytes(sum(sizes.values()))),
        ("to upload it", f"hf upload YOUR-NAME/{name} {output}"),
    ]
    return CommandSummary("export", output, rows)
