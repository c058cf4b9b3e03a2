"""Decode instances into readable form: tokens with their roles in the row."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..instances.rows import Rows, sequences
from ..schemas import DOCUMENTS
from ..storage.shards import checked, open_shard
from ..vocabulary.vocabulary import Vocabulary
from .measures import read_batch

BATCH_ROWS = 16
Shards = Mapping[str, Sequence[int] | None]
"""The paths of shards, and which of their rows; None stands for all."""

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


def read_documents(shards: Shards) -> Iterator[dict[str, Any]]:
    """Yield the documents of shards as plain Python values; raise `UserError` for a damaged one."""
    for path, chosen in shards.items():
        with open_shard(path, "ingest") as file:
            for batch in _batches(file, chosen):
                yield from checked([batch], DOCUMENTS).to_pylist()


def read_instances(
    shards: Shards, vocabulary: Vocabulary, documents: Shards | None = None
) -> Iterator[Instance]:
    """Yield the rows of shards, of packed rows each document, or only those of `documents`."""
    for path, chosen in shards.items():
        asked = None
        if documents is not None:
            asked = set(documents[PurePath(path).name] or ())
        with open_shard(path, "build") as file:
            for batch in _batches(file, chosen):
                rows = sequences(read_batch(batch, len(vocabulary)))
                for instance in decode_rows(rows, vocabulary):
                    if asked is None or asked & {instance.document_a, instance.document_b}:
                        yield instance


def _batches(file: pq.ParquetFile, chosen: Sequence[int] | None) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows of a shard in batches; None stands for all."""
    if chosen is None:
        yield from file.iter_batches(BATCH_ROWS, use_threads=False)
        return
    start = 0
    for group in range(file.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        inside = [row - start for row in chosen if start <= row < end]
        if inside:
            yield from file.read_row_group(group, use_threads=False).take(inside).to_batches()
        start = end
