"""Define the command ``clozeworks show``."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..pipeline.errors import UserError

if TYPE_CHECKING:
    from rich.text import Text

    from ..pipeline.auditing.decode import Token
    from ..pipeline.vocabulary.vocabulary import Vocabulary

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
    from rich.console import Console

    from ..pipeline.auditing.decode import first_rows
    from ..pipeline.manifests import DocumentsManifest, VocabularyManifest
    from ..pipeline.storage.stage import read_any_manifest
    from ..pipeline.vocabulary.vocabulary import read_vocabulary

    manifest = read_any_manifest(directory)
    if isinstance(manifest, VocabularyManifest):
        raise UserError(
            f"{directory} was written by `clozeworks vocab`; show reads documents and instances."
        )
    # One line of output per line of text, so that it can be searched and piped.
    console = Console(highlight=False, soft_wrap=True)
    vocabulary = None
    show_row = _document
    if not isinstance(manifest, DocumentsManifest):
        vocabulary = read_vocabulary(directory)
        show_row = partial(_instance, vocabulary=vocabulary, pairing=manifest.config.pairing)
    for row in first_rows(directory, manifest, split, num_rows, vocabulary):
        for line in show_row(row):
            console.print(line)
        console.print()


def _document(row: dict[str, Any]) -> "list[Text]":
    from rich.text import Text

    sentences = row["sentences"]
    about = f"{row['language']}, {len(sentences)} sentences"
    lines = [Text(f"{row['doc_id']}  {row['title']}  ({about})", "bold")]
    for sentence in sentences[:MAX_SENTENCES]:
        lines.append(Text(f"  {sentence}"))
    return lines


def _instance(row: dict[str, Any], vocabulary: "Vocabulary", pairing: str) -> "list[Text]":
    from rich.text import Text

    from ..pipeline.auditing.decode import decode_row, label_names

    label_0, label_1 = label_names(pairing)
    label = label_0
    if row["next_sentence_label"] != 0:
        label = label_1
    documents = f"documents {row['document_a']} and {row['document_b']}"
    tokens = decode_row(row, vocabulary)
    heading = f"{label}, {documents}, pass {row['duplicate']}, {len(tokens)} tokens"
    words = [Text(_marked(token), STYLES[token.role]) for token in tokens]
    return [Text(heading, "bold"), Text(" ").join(words)]


def _marked(token: "Token") -> str:
    if token.role == "mask":
        return f"[MASK={token.original}]"
    if token.role == "random":
        return f"[{token.text}={token.original}]"
    if token.role == "kept":
        return f"[={token.original}]"
    return token.text
