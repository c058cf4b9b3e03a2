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
    from ..pipeline.auditing.decode import Shards

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
    directory: str, ids: tuple[str, ...], num_rows: int, grep: str | None, where: str | None
) -> None:
    """Print documents or instances in DIRECTORY as readable text: a random sample of the
    training split, the documents with these IDs, or what a search finds.

    In instances a masked token is shown as [MASK=original], a random one as [random=original] and a
    kept one as [=original]. On a terminal, A and B have different colours. Instances are found by
    the IDs of their documents, or by a condition.
    """
    from ..pipeline.storage.shards import shard_paths
    from ..pipeline.storage.state import read_any_manifest

    num_rows = max(num_rows, len(ids))
    manifest = read_any_manifest(directory, "ingest", "build")
    if isinstance(manifest, VocabularyManifest):
        raise UserError(
            f"{directory} was written by `clozeworks vocab`; show reads documents and instances."
        )
    if sum(map(bool, (ids, grep, where))) > 1:
        raise UserError("Give IDs, --grep or --where: each finds rows on its own.")
    asked = None
    if ids or grep or where:
        chosen, asked = _find(directory, manifest, ids, grep, where, num_rows)
    else:
        # Shards are shuffled: their first rows are a random sample.
        chosen = dict.fromkeys(shard_paths(directory, manifest, "train"))
    if isinstance(manifest, DocumentsManifest):
        _print_documents(chosen, num_rows, grep)
    else:
        _print_instances(directory, manifest.config.pairing, chosen, asked, num_rows)


def _print_documents(chosen: "Shards", num_rows: int, grep: str | None) -> None:
    from rich.text import Text

    from ..pipeline.auditing.decode import read_documents

    # One line of output per line of text, so that it can be searched and piped.
    console = make_console(highlight=False, soft_wrap=True)
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


def _print_instances(
    directory: str, pairing: str, chosen: "Shards", asked: "Shards | None", num_rows: int
) -> None:
    from rich.text import Text

    from ..pipeline.auditing.decode import label_names, read_instances
    from ..pipeline.vocabulary.files import read_vocabulary

    console = make_console(highlight=False, soft_wrap=True)
    labels = label_names(pairing)
    for instance in islice(read_instances(chosen, read_vocabulary(directory), asked), num_rows):
        label = labels[instance.label != 0]
        documents = f"documents {instance.document_a} and {instance.document_b}"
        length = f"{len(instance.tokens)} tokens"
        heading = f"{label}, {documents}, pass {instance.duplicate}, {length}"
        console.print(Text(printable(heading), "bold"))
        tokens = []
        for token in instance.tokens:
            form, style = MARKS[token.role]
            shown = form.format(text=token.text, original=token.original)
            tokens.append(Text(printable(shown), style))
        console.print(Text(" ").join(tokens))
        console.print()


def _find(
    directory: str,
    manifest: DocumentsManifest | InstancesManifest,
    ids: tuple[str, ...],
    grep: str | None,
    where: str | None,
    num_rows: int,
) -> tuple["Shards", "Shards | None"]:
    """Return the rows that are asked for, and, of instances, the documents with the `ids`."""
    from ..pipeline.auditing.find import find_instances, find_rows, find_text
    from ..pipeline.auditing.origins import documents_of

    names = [shard.name for shard in manifest.shards]
    paths = [storage.join(directory, name) for name in names]
    asked = None
    if where:
        chosen = find_rows(paths, where, num_rows)
    elif isinstance(manifest, DocumentsManifest):
        chosen = find_text(paths, grep, num_rows) if grep else _find_ids(directory, names, ids)
    elif grep:
        raise UserError("--grep finds documents: give the directory of documents.")
    else:
        documents = documents_of(directory, manifest, None)
        if documents is None:
            raise UserError(f"IDs are looked up in documents, and none are beside {directory}.")
        # Rows number the documents of the shard that has their shard's name.
        with_ids = _find_ids(documents, names, ids)
        asked = {PurePath(path).name: rows or () for path, rows in with_ids.items()}
        chosen = find_instances(paths, asked, num_rows)
    if not chosen:
        raise UserError(f"Nothing like this is in {directory}.")
    return chosen, asked


def _find_ids(documents: str, names: list[str], ids: tuple[str, ...]) -> "Shards":
    """Return the documents with these ids; warn of those that do not exist."""
    from ..pipeline.auditing.decode import read_documents
    from ..pipeline.auditing.find import find_ids

    paths = [storage.join(documents, name) for name in names]
    found = find_ids(paths, ids)
    there = {document["doc_id"] for document in read_documents(found)}
    missing = [each for each in ids if each not in there]
    if missing and not there:
        some = next(read_documents(dict.fromkeys(paths)))["doc_id"]
        raise UserError(f"{missing[0]} is not in {documents}, whose ids are such as {some}.")
    if missing:
        warn(f"not in {documents}: {', '.join(missing)}")
    return found
