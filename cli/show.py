"""Define the command ``clozeworks show``."""

from itertools import islice
from typing import TYPE_CHECKING

import click

from ..pipeline.errors import UserError
from .output import make_console, printable

if TYPE_CHECKING:
    from ..pipeline.auditing.decode import Token

MAX_SENTENCES = 20
"""Sentences of a document that are shown."""

STYLES = {
    "special": "dim",
    "a": "",
    "b": "cyan",
    "mask": "bold yellow",
    "random": "bold red",
    "kept": "bold green",
}


@click.command()
@click.argument("directory", type=click.Path())
@click.option(
    "-n",
    "num_rows",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Number of documents or instances to show.",
)
@click.option(
    "--split", default="train", show_default=True, help="Split to show: train or validation."
)
def show(directory: str, num_rows: int, split: str) -> None:
    """Print documents or instances from DIRECTORY as readable text.

    In instances a masked token is shown as [MASK=original], a random one as [random=original] and a
    kept one as [=original]. On a terminal, A and B have different colours.
    """
    from rich.text import Text

    from ..pipeline.auditing.decode import documents_of_split, instances_of_split, label_names
    from ..pipeline.manifests import DocumentsManifest, VocabularyManifest
    from ..pipeline.storage.state import read_any_manifest
    from ..pipeline.vocabulary.files import read_vocabulary

    manifest = read_any_manifest(directory)
    if isinstance(manifest, VocabularyManifest):
        raise UserError(
            f"{directory} was written by `clozeworks vocab`; show reads documents and instances."
        )
    # One line of output per line of text, so that it can be searched and piped.
    console = make_console(highlight=False, soft_wrap=True)
    if isinstance(manifest, DocumentsManifest):
        for document in islice(documents_of_split(directory, manifest, split), num_rows):
            sentences = document["sentences"]
            about = f"{document['language']}, {len(sentences)} sentences"
            heading = f"{document['doc_id']}  {document['title']}  ({about})"
            console.print(Text(printable(heading), "bold"))
            for sentence in sentences[:MAX_SENTENCES]:
                console.print(Text(printable(f"  {sentence}")))
            console.print()
        return
    labels = label_names(manifest.config.pairing)
    vocabulary = read_vocabulary(directory)
    rows = instances_of_split(directory, manifest, split, vocabulary)
    for instance in islice(rows, num_rows):
        label = labels[instance.label != 0]
        documents = f"documents {instance.document_a} and {instance.document_b}"
        tokens = instance.tokens
        heading = f"{label}, {documents}, pass {instance.duplicate}, {len(tokens)} tokens"
        words = [Text(printable(_marked(token)), STYLES[token.role]) for token in tokens]
        console.print(Text(printable(heading), "bold"))
        console.print(Text(" ").join(words))
        console.print()


def _marked(token: "Token") -> str:
    if token.role == "mask":
        return f"[MASK={token.original}]"
    if token.role == "random":
        return f"[{token.text}={token.original}]"
    if token.role == "kept":
        return f"[={token.original}]"
    return token.text
