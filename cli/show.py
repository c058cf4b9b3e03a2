"""Define the command ``clozeworks show``."""

from typing import TYPE_CHECKING, Any

import click

from ..pipeline.errors import UserError
from .output import make_console, printable

if TYPE_CHECKING:
    from rich.text import Text

    from ..pipeline.auditing.decode import Instance, Token

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
    from ..pipeline.auditing.decode import first_documents, first_instances
    from ..pipeline.manifests import DocumentsManifest, VocabularyManifest
    from ..pipeline.storage.stage import read_any_manifest
    from ..pipeline.vocabulary.files import read_vocabulary

    manifest = read_any_manifest(directory)
    if isinstance(manifest, VocabularyManifest):
        raise UserError(
            f"{directory} was written by `clozeworks vocab`; show reads documents and instances."
        )
    # One line of output per line of text, so that it can be searched and piped.
    console = make_console(highlight=False, soft_wrap=True)
    if isinstance(manifest, DocumentsManifest):
        documents = first_documents(directory, manifest, split, num_rows)
        shown = (_document(document) for document in documents)
    else:
        vocabulary = read_vocabulary(directory)
        instances = first_instances(directory, manifest, split, num_rows, vocabulary)
        pairing = manifest.config.pairing
        shown = (_instance(instance, pairing) for instance in instances)
    for lines in shown:
        for line in lines:
            console.print(line)
        console.print()


def _document(row: dict[str, Any]) -> "list[Text]":
    from rich.text import Text

    sentences = row["sentences"]
    about = f"{row['language']}, {len(sentences)} sentences"
    lines = [Text(printable(f"{row['doc_id']}  {row['title']}  ({about})"), "bold")]
    for sentence in sentences[:MAX_SENTENCES]:
        lines.append(Text(printable(f"  {sentence}")))
    return lines


def _instance(instance: "Instance", pairing: str) -> "list[Text]":
    from rich.text import Text

    from ..pipeline.auditing.decode import label_names

    label_0, label_1 = label_names(pairing)
    label = label_0
    if instance.label != 0:
        label = label_1
    documents = f"documents {instance.document_a} and {instance.document_b}"
    tokens = instance.tokens
    heading = f"{label}, {documents}, pass {instance.duplicate}, {len(tokens)} tokens"
    words = [Text(printable(_marked(token)), STYLES[token.role]) for token in tokens]
    return [Text(printable(heading), "bold"), Text(" ").join(words)]


def _marked(token: "Token") -> str:
    if token.role == "mask":
        return f"[MASK={token.original}]"
    if token.role == "random":
        return f"[{token.text}={token.original}]"
    if token.role == "kept":
        return f"[={token.original}]"
    return token.text
