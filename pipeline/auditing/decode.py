"""Instances in readable form: tokens with their roles in the row."""

from collections.abc import Iterator, Mapping, Set
from itertools import islice
from typing import Any, Literal, NamedTuple

from .. import storage
from ..errors import UserError
from ..manifests import DocumentsManifest, InstancesManifest
from ..schemas import DOCUMENTS
from ..storage.shards import checked, open_shard, read_columns
from ..vocabulary.vocabulary import Vocabulary
from .measures import checked_instances

Role = Literal["special", "a", "b", "mask", "random", "kept"]


class Token(NamedTuple):
    """A token of a row: the `text` of its piece, its `role`, and the `original` before masking."""

    text: str
    role: Role
    segment: Literal["a", "b"]
    original: str


def label_names(pairing: str) -> tuple[str, str]:
    """Return what labels 0 and 1 mean."""
    special = {"sop": ("in order", "swapped"), "none": ("one segment", "–")}
    return special.get(pairing, ("IsNext", "NotNext"))


def decode_row(row: Mapping[str, Any], vocabulary: Vocabulary) -> list[Token]:
    """Return the tokens of a row of `schemas.instances_schema` (plain Python values by column)."""
    originals = dict(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
    specials = {vocabulary.cls_id, vocabulary.sep_id}
    tokens = []
    for position, token_id in enumerate(row["input_ids"]):
        segment = "b" if position >= row["segment_b_start"] else "a"
        role: Role = "special" if token_id in specials else segment
        original = originals.get(position, token_id)
        if position in originals:
            role = (
                "mask"
                if token_id == vocabulary.mask_id
                else "kept"
                if token_id == original
                else "random"
            )
        tokens.append(
            Token(vocabulary.tokens[token_id], role, segment, vocabulary.tokens[original])
        )
    return tokens


class Example(NamedTuple):
    """A row of instances with its tokens, and the titles (or ids) of the documents of A and B;
    empty if unknown.
    """

    row: dict[str, Any]
    tokens: list[Token]
    title_a: str
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
    rows = list(islice(_rows(storage.join(directory, shard), manifest.stage, vocabulary), num_rows))
    wanted = {row[name] for row in rows for name in ("document_a", "document_b")}
    titles = _titles(storage.join(documents, shard), wanted) if documents else {}
    return [
        Example(
            row,
            decode_row(row, vocabulary),
            titles.get(row["document_a"], ""),
            titles.get(row["document_b"], ""),
        )
        for row in rows
    ]


def _titles(path: str, wanted: Set[int]) -> dict[int, str]:
    """Return the titles of some rows of a shard of documents, their ids if they have none."""
    titles: dict[int, str] = {}
    start = 0
    for batch in read_columns(path, "doc_id", "title"):
        for row in (row for row in wanted if start <= row < start + len(batch)):
            titles[row] = (
                batch["title"][row - start].as_py() or batch["doc_id"][row - start].as_py()
            )
        start += len(batch)
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

    Instances need their `vocabulary`. Raise `UserError` if the manifest lists no such split or a
    shard is damaged.
    """
    paths = [
        storage.join(directory, shard.name) for shard in manifest.shards if shard.split == split
    ]
    if not paths:
        splits = sorted({shard.split for shard in manifest.shards})
        raise UserError(
            f"{directory} has no split {split!r}; it has {' and '.join(splits) or 'none'}."
        )
    return islice(
        (row for path in paths for row in _rows(path, manifest.stage, vocabulary)), num_rows
    )


def _rows(path: str, stage: str, vocabulary: Vocabulary | None) -> Iterator[dict[str, Any]]:
    with open_shard(path, stage) as file:
        for batch in file.iter_batches(batch_size=16, use_threads=False):
            rows = (
                checked_instances(batch, len(vocabulary))
                if vocabulary
                else checked([batch], DOCUMENTS)
            )
            yield from rows.to_pylist()
