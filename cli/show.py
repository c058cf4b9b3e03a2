"""Define the command ``clozeworks show``."""

from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from ..pipeline.errors import UserError
from .output import make_console, printable, warn

if TYPE_CHECKING:
    from rich.text import Text

    from ..pipeline.auditing.decode import Shards, Token
    from ..pipeline.manifests import DocumentsManifest, InstancesManifest


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
    'AND len(sentences) > 100".',
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
    from ..pipeline.manifests import DocumentsManifest, VocabularyManifest
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
        tokens = instance.tokens
        heading = f"{label}, {documents}, pass {instance.duplicate}, {len(tokens)} tokens"
        words = [_styled(token) for token in tokens]
        console.print(Text(printable(heading), "bold"))
        console.print(Text(" ").join(words))
        console.print()


def _find(
    directory: str,
    manifest: "DocumentsManifest | InstancesManifest",
    ids: tuple[str, ...],
    grep: str | None,
    where: str | None,
    num_rows: int,
) -> tuple["Shards", "Shards | None"]:
    """Return the first rows for which all conditions hold, and, of instances, the documents with
    these `ids` by the name of their shard; None for all.
    """
    from ..pipeline import storage
    from ..pipeline.auditing.decode import find_rows, read_documents
    from ..pipeline.auditing.origins import documents_of
    from ..pipeline.manifests import InstancesManifest

    conditions = []
    values: dict[str, object] = {}
    if where:
        conditions.append(f"({where})")
    if grep:
        if isinstance(manifest, InstancesManifest):
            raise UserError("--grep finds documents: give the directory of documents.")
        conditions.append("contains(lower(array_to_string(sentences, chr(10))), lower($text))")
        values["text"] = grep
    asked = None
    if ids:
        documents = directory
        if isinstance(manifest, InstancesManifest):
            documents = documents_of(directory, manifest, None)
        if documents is None:
            raise UserError(f"IDs are looked up in documents, and none are beside {directory}.")
        paths = [storage.join(documents, shard.name) for shard in manifest.shards]
        found = find_rows(paths, "list_contains($ids, doc_id)", len(ids), ids=list(ids))
        there = {document["doc_id"] for document in read_documents(found)}
        if there and (missing := ", ".join(each for each in ids if each not in there)):
            warn(f"not in {documents}: {missing}")
        if isinstance(manifest, InstancesManifest):
            # Rows number the documents of the shard that has their shard's name.
            asked = {PurePath(path).name: rows for path, rows in found.items()}
            values["places"] = [
                f"{name}:{row}" for name, rows in asked.items() for row in rows or ()
            ]
            numbers = "documents" if manifest.config.packs else "[document_a, document_b]"
            place = "parse_filename(filename) || ':' || number"
            conditions.append(
                f"list_has_any($places, list_transform({numbers}, lambda number: {place}))"
            )
        else:
            conditions.append("list_contains($ids, doc_id)")
            values["ids"] = list(ids)
    paths = [storage.join(directory, shard.name) for shard in manifest.shards]
    chosen = find_rows(paths, " AND ".join(conditions), num_rows, **values)
    if not chosen:
        raise UserError(f"Nothing like this is in {directory}.")
    return chosen, asked


def _styled(token: "Token") -> "Text":
    from rich.text import Text

    styles = {
        "special": "dim",
        "a": "",
        "b": "cyan",
        "mask": "bold yellow",
        "random": "bold red",
        "kept": "bold green",
    }
    return Text(printable(_marked(token)), styles[token.role])


def _marked(token: "Token") -> str:
    if token.role == "mask":
        return f"[MASK={token.original}]"
    if token.role == "random":
        return f"[{token.text}={token.original}]"
    if token.role == "kept":
        return f"[={token.original}]"
    return token.text
