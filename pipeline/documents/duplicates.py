"""Exact duplicates: of all documents with the same text, the one with the lowest hash stays,
whatever its source.

Two texts are duplicates if their characters match, with one space for each line break and between
sentences. So it makes no difference where lines were wrapped or sentences split. Chinese and
Japanese have no such spaces: there only splits after 。！？」』） make no difference, in texts with a 。
Letter case, punctuation and accents count. Texts are compared by the first 128 bits of SHA-256,
which processors implement.

For each document `scatter` also writes a small row, its *key*, by the hash of the text. A unit of
this phase reads the keys of a range of text hashes from all files, so all copies of a text meet. It
lists the documents to remove, including those that `near_duplicates` found, by the documents' hash,
for `gather` to skip.

Memory: up to 450 bytes per key of a unit, which has half a million keys (below 64 million
documents).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pyarrow as pa

from ..execution.partitions import partitioned_file, read_phase, write_partitions
from ..execution.phases import Record
from ..storage.stage import StageDirectory
from .layout import KeyRange, Layout

DOCUMENTS_PER_UNIT = 500_000
MIN_VALIDATION_DOCUMENTS = 2
DUPLICATE, NEAR_DUPLICATE = "duplicate_texts", "near_duplicates"

_ODD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: multiples of it differ in all bits
_NO_SPACE_AFTER = (
    "。！？」』）"  # in a text with 。, so that splits after these marks make no difference
)

KEYS = pa.schema(
    [
        pa.field("text_hash", pa.uint64()),
        pa.field("text_hash_low", pa.uint64()),
        pa.field("hash", pa.uint64()),
        pa.field("validation_hash", pa.uint64()),
        pa.field("num_bytes", pa.uint32()),
        pa.field("doc_id", pa.string()),
    ]
)
NEAR = pa.schema([pa.field("text_hash", pa.uint64()), pa.field("kept", pa.string())])
LEFT_OUT = pa.schema(
    [
        pa.field("hash", pa.uint64()),
        pa.field("validation_hash", pa.uint64()),
        pa.field("text_hash", pa.uint64()),
        pa.field("reason", pa.string()),
        pa.field("kept", pa.string()),
    ]
)


def hash_text(sentences: Sequence[str]) -> tuple[int, int, int]:
    """Return the two halves of the hash that identifies a text, as explained above, and its length
    in bytes of UTF-8.

    >>> hash_text(["It is so.", "Is it?"]) == hash_text(["It is so. Is", "it?"])
    True
    """
    text = " ".join(sentences)
    if "。" in text:
        for mark in _NO_SPACE_AFTER:
            text = text.replace(f"{mark} ", mark)
    encoded = text.encode()
    digest = sha256(encoded).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big"), len(encoded)


@dataclass(frozen=True, kw_only=True)
class Deduplicated(Record):
    """The record of a unit: what stays and what is removed; the latter also per bucket, as in
    `Scattered`.

    `lowest_validation_hashes` are the lowest ones of the documents that stay, ascending; each
    counts once, because versions of a document under one id share theirs.
    """

    documents: int
    left_out: int
    bucket_bytes: bytes
    bucket_documents: bytes
    lowest_validation_hashes: list[int]


def deduplicate(
    directory: StageDirectory, unit: KeyRange, layout: Layout, near: bool
) -> Deduplicated:
    """List the documents of some text hashes to remove; `near` says whether near-duplicates were
    looked for.
    """
    num_partitions = layout.num_key_partitions
    keys = read_phase(directory, "scatter", "keys", unit.partitions, num_partitions)
    found = (
        read_phase(directory, "clusters", "near", unit.partitions, num_partitions) if near else ()
    )
    kept, left_out, num_bytes = decide(
        pa.Table.from_batches(keys, KEYS), pa.Table.from_batches(found, NEAR)
    )
    hashes, validation_hashes = left_out["hash"].to_numpy(), left_out["validation_hash"].to_numpy()
    name = partitioned_file("left-out", unit.name)
    with write_partitions(directory, name, LEFT_OUT, layout.num_document_partitions) as writer:
        writer.write(left_out, layout.partition_of(hashes, validation_hashes))
    buckets = layout.bucket_of(hashes, validation_hashes)
    bytes_left_out = np.bincount(buckets, weights=num_bytes, minlength=layout.num_buckets + 1)
    return Deduplicated(
        files=(name,),
        documents=kept.num_rows,
        left_out=left_out.num_rows,
        bucket_bytes=bytes_left_out.astype(np.int64).tobytes(),
        bucket_documents=np.bincount(buckets, minlength=layout.num_buckets + 1)
        .astype(np.uint32)
        .tobytes(),
        lowest_validation_hashes=np.unique(kept["validation_hash"].to_numpy())[
            :MIN_VALIDATION_DOCUMENTS
        ].tolist(),
    )


def decide(keys: pa.Table, near: pa.Table) -> tuple[pa.Table, pa.Table, np.ndarray]:
    """Return the `KEYS` of the documents that stay, the `LEFT_OUT` ones, and the lengths in bytes
    of the latter.

    `near` lists the texts to remove as near-duplicates of the document `kept`. A document that
    occurs twice with the same id and text counts once: it is not a duplicate but a repeated id,
    which `gather` handles.
    """
    keys = keys.sort_by(
        [(name, "ascending") for name in ("text_hash", "text_hash_low", "hash", "doc_id")]
    )
    keys = keys.filter(pa.array(_differs_from_before(keys, "text_hash", "text_hash_low", "hash")))
    is_first = _differs_from_before(keys, "text_hash", "text_hash_low")
    is_near = is_first & np.isin(keys["text_hash"].to_numpy(), near["text_hash"].to_numpy())
    goes = np.flatnonzero(~is_first | is_near)
    left_out = keys.take(pa.array(goes))
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(is_first)), 0))
    kept = dict(zip(near["text_hash"].to_pylist(), near["kept"].to_pylist(), strict=True))
    same = keys["doc_id"].take(pa.array(first[goes])).to_pylist()
    columns = {
        **{name: left_out[name] for name in ("hash", "validation_hash", "text_hash")},
        "reason": pa.array(
            np.where(is_near[goes], NEAR_DUPLICATE, DUPLICATE).tolist(), pa.string()
        ),
        "kept": pa.array(
            [
                kept[text] if nearly else doc_id
                for text, nearly, doc_id in zip(
                    left_out["text_hash"].to_pylist(), is_near[goes], same, strict=True
                )
            ],
            pa.string(),
        ),
    }
    stays = keys.filter(pa.array(is_first & ~is_near))
    return stays, pa.table(columns, schema=LEFT_OUT), left_out["num_bytes"].to_numpy()


def _document_keys(rows: pa.RecordBatch | pa.Table) -> np.ndarray:
    """Return a number for each row's document and text, by its ``hash`` and ``text_hash``."""
    return rows["hash"].to_numpy() * np.uint64(_ODD) + rows["text_hash"].to_numpy()


def empty_left_out(
    batches: Iterable[pa.RecordBatch], left_out: pa.Table
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield of each batch the documents that stay, and the `LEFT_OUT` ones without their sentences,
    which may be many times what stays.
    """
    keys = np.sort(_document_keys(left_out))
    for batch in batches:
        own = _document_keys(batch)
        goes = np.searchsorted(keys, own, side="right") > np.searchsorted(keys, own)
        gone = batch.filter(pa.array(goes))
        column = batch.schema.get_field_index("sentences")
        nothing = pa.array([[]] * gone.num_rows, batch.schema[column].type)
        yield batch.filter(pa.array(~goes)), gone.set_column(column, batch.schema[column], nothing)


def _differs_from_before(rows: pa.Table, *columns: str) -> np.ndarray:
    """Return for each row whether it differs from the previous one in any of `columns`; the first
    does.
    """
    differs = np.zeros(rows.num_rows, bool)
    for column in columns:
        values = rows[column].to_numpy()
        differs[1:] |= values[1:] != values[:-1]
    differs[:1] = True
    return differs
