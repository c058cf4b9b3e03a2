"""Define the command ``clozeworks export``."""

import os

import click

from ..pipeline.wording import in_words
from .summary import CommandSummary, byte_size


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
@click.option(
    "--onnx",
    is_flag=True,
    help="Also write onnx/model.onnx, for programs without PyTorch, if its outputs equal those of "
    "PyTorch within 1e-4.",
)
@click.option(
    "--int8",
    is_flag=True,
    help="With --onnx also write onnx/model_quantized.onnx, with matrices in 8 bits.",
)
@click.option(
    "--dev",
    type=click.Path(),
    metavar="DATA",
    help="With --onnx: score the graphs on a labelled file, or a pre-trained model on instances.",
)
@click.option("--overwrite", is_flag=True, help="Replace a card in FOLDER that has been edited.")
def export(
    directory: str,
    output: str,
    license: str | None,
    onnx: bool,
    int8: bool,
    dev: str | None,
    overwrite: bool,
) -> CommandSummary:
    """Copy the model in DIR, its tokenizer and its card, without checkpoints and logs, for the
    Hugging Face Hub.

    DIR is the output of a finished `clozeworks pretrain` or `finetune`.
    """
    # Imported late, as in all commands: torch would make `clozeworks --help` take seconds.
    from ..model.export import export as run_export

    exported = run_export(
        directory, output, license, onnx=onnx, int8=int8, dev=dev, overwrite=overwrite
    )
    sizes = exported.sizes
    # `normpath` first: the last name of `models/tiny/` would be empty.
    name = os.path.basename(os.path.normpath(output))
    rows = [
        ("files", ", ".join(sizes)),
        ("size", byte_size(sum(sizes.values()))),
        ("to upload it", f"hf upload YOUR-NAME/{name} {output}"),
    ]
    for graph in exported.onnx:
        times = [f"{value:.2f} ms for {rows} x 32" for rows, value in graph.milliseconds.items()]
        scores = [f"{in_words(name)} {value:.4f}" for name, value in graph.scores.items()]
        facts = [f"at most {graph.difference:.1e} from PyTorch", *scores, *times]
        rows.append((graph.name, ", ".join(facts)))
    return CommandSummary("export", output, rows)
