"""Decode instances into readable form: tokens with their roles in the row."""

from collections.abc import Iterator, Mapping, Set
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

from .. import storage
from ..errors import UserError
from ..manifests import DocumentsManifest, InstancesManifest
from ..schemas import DOCUMENTS
from ..storage.shards import checked, open_shard, read_columns
from ..vocabulary.vocabulary import Vocabulary
from .measures import checked_instances, sequences_of

Role = Literal["special", "a", "b", "mask", "random", "kept"]


class Token(NamedTuple):
    """A token of a row: the `text` of its piece, its `role`, and the `original` before masking."""

    text: str
    role: Role
    segment: Literal["a", "b"]
    original: str


def label_names(pairing: str) -> tuple[str, str]:
    """Return the meanings of labels 0 and 1."""
    if pairing == "sop":
        return "in order", "swapped"
    if pairing == "none":
        return "one segment", "–"
    return "IsNext", "NotNext"


def decode_row(row: Mapping[str, Any], vocabulary: Vocabulary) -> list[Token]:
    """Return the tokens of a row of `schemas.instances_schema` (plain Python values by column)."""
    originals = dict(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
    tokens = []
    for position, token_id in enumerate(row["input_ids"]):
        segment = "b" if position >= row["segment_b_start"] else "a"
        original = originals.get(position, token_id)
        if position in originals:
            role = _role_of_masked(token_id, original, vocabulary)
        elif token_id in (vocabulary.cls_id, vocabulary.sep_id):
            role = "special"
        else:
            role = segment
        text = vocabulary.readable[token_id]
        tokens.append(Token(text, role, segment, vocabulary.readable[original]))
    return tokens


def _role_of_masked(token_id: int, original: int, vocabulary: Vocabulary) -> Role:
    if token_id == vocabulary.mask_id:
        return "mask"
    if token_id == original:
        return "kept"
    return "random"


class Example(NamedTuple):
    """A row of instances with its tokens, and the documents of A and B."""

    row: dict[str, Any]
    tokens: list[Token]
    title_a: str
    """The title, or else the id, of A's document; empty if unknown."""
    title_b: str


def first_examples(
    directory: str,
    manifest: InstancesManifest,
    num_rows: int,
    vocabulary: Vocabulary,
    documents: str | None,
) -> list[Example]:
    """Return the first rows of the first training shard, with titles if the directory of
    `documents` is known.
    """
    shard = next(shard.name for shard in manifest.shards if shard.split == "train")
    all_rows = _rows(storage.join(directory, shard), manifest.stage, vocabulary)
    rows = list(islice(all_rows, num_rows))
    titles: dict[int, str] = {}
    if documents:
        # `document_a` and `document_b` are rows of the shard of documents with the same name.
        wanted = {row[name] for row in rows for name in ("document_a", "document_b")}
        titles = _titles(storage.join(documents, shard), wanted)
    examples = []
    for row in rows:
        title_a = titles.get(row["document_a"], "")
        title_b = titles.get(row["document_b"], "")
        examples.append(Example(row, decode_row(row, vocabulary), title_a, title_b))
    return examples


def _titles(path: str, wanted: Set[int]) -> dict[int, str]:
    """Return the titles of some rows of a shard of documents, their ids if they have none."""
    titles: dict[int, str] = {}
    start = 0
    for batch in read_columns(path, "doc_id", "title"):
        stop = start + len(batch)
        for row in wanted:
            if start <= row < stop:
                title = batch["title"][row - start].as_py()
                doc_id = batch["doc_id"][row - start].as_py()
                titles[row] = title or doc_id
        start = stop
    return titles


def first_rows(
    directory: str,
    manifest: DocumentsManifest | InstancesManifest,
    split: str,
    num_rows: int,
    vocabulary: Vocabulary | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the first rows of a split as plain Python values; shards are shuffled, so this is a
    random sample.

    Of packed rows each document is yielded as a row of its own. Instances need their
    `vocabulary`. Raise `UserError` if the manifest lists no such split or a shard is damaged.
    """
    paths = [
        storage.join(directory, shard.name) for shard in manifest.shards if shard.split == split
    ]
    if not paths:
        splits = sorted({shard.split for shard in manifest.shards})
        listed = " and ".join(splits) or "none"
        raise UserError(f"{directory} has no split {split!r}; it has {listed}.")
    # A generator: a shard is opened only once the rows of those before it are used up.
    shards = (_rows(path, manifest.stage, vocabulary) for path in paths)
    return islice(chain.from_iterable(shards), num_rows)


def _rows(path: str, stage: str, vocabulary: Vocabulary | None) -> Iterator[dict[str, Any]]:
    with open_shard(path, stage) as file:
        for batch in file.iter_batches(batch_size=16, use_threads=False):
            if vocabulary:
                rows = sequences_of(checked_instances(batch, len(vocabulary)))
            else:
                rows = checked([batch], DOCUMENTS)
            yield from rows.to_pylist()
