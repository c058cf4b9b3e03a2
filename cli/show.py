"""Define the command ``clozeworks show``."""

from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from ..pipeline import storage
from ..pipeline.errors import UserError
from ..pipeline.manifests import DocumentsManifest, InstancesManifest, VocabularyManifest
from .output import make_console, printable, warn

if TYPE_CHECKING:
    from rich.text import Text

    from ..pipeline.auditing.decode import Shards, Token

MARKS = {
    "special": ("{text}", "dim"),
    "a": ("{text}", ""),
    "b": ("{text}", "cyan"),
    "mask": ("[MASK={original}]", "bold yellow"),
    "random": ("[{text}={original}]", "bold red"),
    "kept": ("[={original}]", "bold green"),
}
"""How a token is shown, and its style, by its role."""


@click.command()
@click.argument("directory", type=click.Path())
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "-n",
    "num_rows",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Number of documents or instances to show.",
)
@click.option("--grep", metavar="TEXT", help="Find documents with this text, in any case.")
@click.option(
    "--where",
    metavar="SQL",
    help="Find rows by a condition on their columns in DuckDB's SQL, such as \"source = 'enwiki' "
    'AND len(sentences) > 100"; needs clozeworks[search].',
)
def show(
    directory: str,
    ids: tuple[str, ...],
    num_rows: int,
    grep: str | None,
    where: str | None,
) -> None:
    """Print documents or instances from DIRECTORY as readable text: a random sample of the
    training split, the documents with these IDs, or what --grep and --where find.

    In instances a masked token is shown as [MASK=original], a random one as [random=original] and a
    kept one as [=original]. On a terminal, A and B have different colours. Instances are found by
    the IDs of their documents, or --where.
    """
    from rich.text import Text

    from ..pipeline.auditing.decode import label_names, read_documents, read_instances
    from ..pipeline.storage.shards import shard_paths
    from ..pipeline.storage.state import read_any_manifest
    from ..pipeline.vocabulary.files import read_vocabulary

    num_rows = max(num_rows, len(ids))
    manifest = read_any_manifest(directory, "ingest", "build")
    if isinstance(manifest, VocabularyManifest):
        raise UserError(
            f"{directory} was written by `clozeworks vocab`; show reads documents and instances."
        )
    asked = None
    if ids or grep or where:
        chosen, asked = _find(directory, manifest, ids, grep, where, num_rows)
    else:
        # Shards are shuffled: their first rows are a random sample.
        chosen = dict.fromkeys(shard_paths(directory, manifest, "train"))
    # One line of output per line of text, so that it can be searched and piped.
    console = make_console(highlight=False, soft_wrap=True)
    if isinstance(manifest, DocumentsManifest):
        for document in islice(read_documents(chosen), num_rows):
            sentences = document["sentences"]
            about = f"{document['language']}, {len(sentences)} sentences"
            heading = f"{document['doc_id']}  {document['title']}  ({about})"
            if grep:
                sentences = [each for each in sentences if grep.lower() in each.lower()]
            console.print(Text(printable(heading), "bold"))
            for sentence in sentences[:20]:  # about a screen
                line = Text(printable(f"  {sentence}"))
                if grep:
                    line.highlight_words([grep], "bold yellow", case_sensitive=False)
                console.print(line)
            console.print()
        return
    labels = label_names(manifest.config.pairing)
    vocabulary = read_vocabulary(directory)
    for instance in islice(read_instances(chosen, vocabulary, asked), num_rows):
        label = labels[instance.label != 0]
        documents = f"documents {instance.document_a} and {instance.document_b}"
        length = f"{len(instance.tokens)} tokens"
        heading = f"{label}, {documents}, pass {instance.duplicate}, {length}"
        console.print(Text(printable(heading), "bold"))
        console.print(Text(" ").join(_marked(token) for token in instance.tokens))
        console.print()


def _find(
    directory: str,
    manifest: DocumentsManifest | InstancesManifest,
    ids: tuple[str, ...],
    grep: str | None,
    where: str | None,
    num_rows: int,
) -> tuple["Shards", "Shards | None"]:
    """Return the first rows for which all conditions hold, and, of instances, the documents with
    these `ids` by the name of their shard; None for all.
    """
    from ..pipeline.auditing.decode import read_documents
    from ..pipeline.auditing.find import MANY, find_documents, find_instances, find_rows
    from ..pipeline.auditing.origins import documents_of

    documents: str | None = directory
    if isinstance(manifest, InstancesManifest):
        if grep:
            raise UserError("--grep finds documents: give the directory of documents.")
        documents = documents_of(directory, manifest, None)
    # Of what is found, DuckDB chooses.
    limit = MANY if where else num_rows
    chosen = asked = None
    if ids or grep:
        if documents is None:
            raise UserError(f"IDs are looked up in documents, and none are beside {directory}.")
        paths = [storage.join(documents, shard.name) for shard in manifest.shards]
        chosen = find_documents(paths, ids, grep, limit)
        with_id = find_documents(paths, ids, None, len(ids)) if grep else chosen
        there = {document["doc_id"] for document in read_documents(with_id)} if ids else set()
        missing = [each for each in ids if each not in there]
        if there and missing:
            warn(f"not in {documents}: {', '.join(missing)}")
        elif missing:
            some = next(read_documents(dict.fromkeys(paths)))["doc_id"]
            raise UserError(f"{missing[0]} is not in {documents}, whose ids are such as {some}.")
    paths = [storage.join(directory, shard.name) for shard in manifest.shards]
    if chosen and isinstance(manifest, InstancesManifest):
        # Rows number the documents of the shard that has their shard's name.
        asked = {PurePath(path).name: rows or () for path, rows in chosen.items()}
        chosen = find_instances(paths, asked, limit)
    if where and chosen != {}:
        chosen = find_rows(paths, where, num_rows, chosen)
    if not chosen:
        raise UserError(f"Nothing like this is in {directory}.")
    return chosen, asked


def _marked(token: "Token") -> "Text":
    from rich.text import Text

    form, style = MARKS[token.role]
    return Text(printable(form.format(text=token.text, original=token.original)), style)
