"""Decode instances into readable form: tokens with their roles in the row."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from .. import storage
from ..errors import UserError
from ..instances.rows import Rows, sequences
from ..manifests import DocumentsManifest, InstancesManifest
from ..schemas import DOCUMENTS
from ..storage.shards import checked, open_shard
from ..vocabulary.vocabulary import Vocabulary
from .measures import read_batch

BATCH_ROWS = 16

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


class Instance(NamedTuple):
    """A row with its tokens as people read them; of packed rows one of their documents."""

    tokens: list[Token]
    label: int
    document_a: int
    document_b: int
    duplicate: int

    @property
    def num_masked(self) -> int:
        """Tokens to predict."""
        return sum(token.role in ("mask", "random", "kept") for token in self.tokens)


def decode_rows(rows: Rows, vocabulary: Vocabulary) -> Iterator[Instance]:
    """Yield each of `rows`, which have their documents and pass, as text."""
    assert rows.document_a is not None and rows.document_b is not None
    assert rows.duplicate is not None
    originals = rows.unmasked_ids()
    is_predicted = np.zeros(len(originals), bool)
    is_predicted[rows.masked_index] = True
    for row, b_start in enumerate(rows.segment_b_start.tolist()):
        tokens = []
        first = int(rows.offsets[row])
        for index in range(first, int(rows.offsets[row + 1])):
            token_id = int(rows.input_ids[index])
            original = int(originals[index])
            segment = "b" if index - first >= b_start else "a"
            role: Role = segment
            if is_predicted[index]:
                role = "random"
                if token_id == vocabulary.mask_id:
                    role = "mask"
                elif token_id == original:
                    role = "kept"
            elif token_id in (vocabulary.cls_id, vocabulary.sep_id):
                role = "special"
            text = vocabulary.readable[token_id]
            tokens.append(Token(text, role, segment, vocabulary.readable[original]))
        yield Instance(
            tokens,
            label=int(rows.next_sentence_label[row]),
            document_a=int(rows.document_a[row]),
            document_b=int(rows.document_b[row]),
            duplicate=int(rows.duplicate[row]),
        )


def documents_of_split(
    directory: str, manifest: DocumentsManifest, split: str
) -> Iterator[dict[str, Any]]:
    """Yield the documents of a split as plain Python values; shards are shuffled, so the first ones
    are a random sample.

    Raise `UserError` if the manifest lists no such split or a shard is damaged.
    """
    for path in shards_of_split(directory, manifest, split):
        with open_shard(path, "ingest") as file:
            for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                yield from checked([batch], DOCUMENTS).to_pylist()


def instances_of_split(
    directory: str, manifest: InstancesManifest, split: str, vocabulary: Vocabulary
) -> Iterator[Instance]:
    """Yield the rows of a split, of packed rows each document; else as `documents_of_split`."""
    for path in shards_of_split(directory, manifest, split):
        with open_shard(path, "build") as file:
            for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                rows = sequences(read_batch(batch, len(vocabulary)))
                yield from decode_rows(rows, vocabulary)


def shards_of_split(
    directory: str, manifest: DocumentsManifest | InstancesManifest, split: str
) -> list[str]:
    """Return the paths of the shards of a split; raise `UserError` if the manifest lists none."""
    names = [shard.name for shard in manifest.shards if shard.split == split]
    if not names:
        splits = sorted({shard.split for shard in manifest.shards})
        listed = " and ".join(splits) or "none"
        raise UserError(f"{directory} has no split {split!r}; it has {listed}.")
    return [storage.join(directory, name) for name in names]
