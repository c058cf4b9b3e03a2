"""Exact duplicates: of the documents with one text, the one with the lowest hash stays, whatever source it is from.

Two texts are one where they have the same characters in the same order, it does not matter how lines were wrapped or
sentences cut. Letter case, punctuation and accents count. What is compared are the first 128 bits of SHA-256 (which
processors have in hardware: it takes half as long as BLAKE2).

`scatter` leaves a small row for each document, its *key*, beside the documents, by the hash of the text. A unit of this
phase (`deduplicate`) reads the keys of a range of text hashes from all files, so that all copies of a text meet,
and writes which documents are to be left out, by the documents' hash, for `gather` to do. It also takes the
near-duplicates that `near_duplicates` found, so that what stays is known in one place: it says how many documents
stay, and which of them come first for validation.

Memory: up to 450 bytes for each key of a unit, and a unit has half a million (as long as there are fewer than 64
million documents).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..execution.directory import StageDirectory
from ..execution.partitions import Layout, counts_to_text, cut_evenly, read_scattered, write_scattered
from ..execution.units import Unit

DOCUMENTS_PER_UNIT = 500_000
MIN_VALIDATION_DOCUMENTS = 2
DUPLICATE, NEAR_DUPLICATE = "duplicate_texts", "near_duplicates"

_NO_SPACE_AFTER = "。！？」』）"  # so that it does not matter whether a sentence was cut after them

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


class HashedText(NamedTuple):
    """The 128-bit hash of a text, in two halves, and the text's length in bytes of UTF-8."""

    high: int
    low: int
    num_bytes: int


def hash_text(sentences: Sequence[str]) -> HashedText:
    """Return the hash by which texts are told apart, see above, and the length in bytes.

    >>> hash_text(["It is so.", "Is it?"]) == hash_text(["It is so. Is", "it?"])
    True
    """
    text = " ".join(sentences)
    if "。" in text:
        for mark in _NO_SPACE_AFTER:
            text = text.replace(f"{mark} ", mark)
    encoded = text.encode()
    digest = sha256(encoded).digest()
    return HashedText(int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big"), len(encoded))


@dataclass(frozen=True, kw_only=True)
class DedupUnit:
    """A unit of this phase: places of the text hash, and the files to read them from."""

    name: str
    places: range
    layout: Layout
    keys: tuple[str, ...]
    near: str | None
    """The file of near-duplicates, where they are asked for."""


def plan_dedup(scattered: Sequence[dict[str, Any]], layout: Layout, near: str | None) -> list[Unit]:
    """Return the units that settle which documents stay, from the records of the scattered ones."""
    num_documents = sum(record["documents"] for record in scattered)
    pieces = cut_evenly(layout.num_places, min(num_documents // DOCUMENTS_PER_UNIT + 1, layout.num_places))
    keys = tuple(record["files"]["keys"] for record in scattered if record["documents"])
    return [
        Unit(
            name=name,
            cost=num_documents * len(places) // layout.num_places,
            payload=DedupUnit(name=name, places=places, layout=layout, keys=keys, near=near),
        )
        for index, places in enumerate(pieces)
        for name in [f"texts-{index:05d}"]
    ]


def deduplicate(directory: StageDirectory, settling: DedupUnit) -> dict[str, Any]:
    """Write which documents of some text hashes are to be left out; return the record."""
    keys = _read(directory, settling.keys, settling, KEYS)
    near = _read(directory, (settling.near,) if settling.near else (), settling, NEAR)
    kept, left_out, num_bytes = settle(keys, near)
    layout = settling.layout
    hashes, validation_hashes = left_out["hash"].to_numpy(), left_out["validation_hash"].to_numpy()
    name = f".work/left-out/{settling.name}.arrow"
    with write_scattered(directory, name, LEFT_OUT, layout.num_places + 1) as writer:
        writer.write(left_out, layout.place_of(hashes, validation_hashes))
    buckets = layout.bucket_of(hashes, validation_hashes)
    bytes_left_out = np.bincount(buckets, weights=num_bytes, minlength=layout.num_buckets + 1)
    return {
        "file": {"name": name},
        "documents": kept.num_rows,
        "left_out": left_out.num_rows,
        "bucket_bytes": counts_to_text(bytes_left_out.astype(int)),
        "lowest_validation_hashes": np.sort(kept["validation_hash"].to_numpy())[:MIN_VALIDATION_DOCUMENTS].tolist(),
    }


def _read(directory: StageDirectory, names: Sequence[str], settling: DedupUnit, schema: pa.Schema) -> pa.Table:
    read = (read_scattered(directory.file(name), settling.places, settling.layout.num_places) for name in names)
    return pa.Table.from_batches((batch for batches in read for batch in batches), schema)


def settle(keys: pa.Table, near: pa.Table) -> tuple[pa.Table, pa.Table, np.ndarray]:
    """Return the `KEYS` of the documents that stay, the `LEFT_OUT` ones, and the lengths in bytes of the latter.

    `near` are the texts that go because another, of the document `kept`, is nearly the same. A document that stands
    there twice, with one id and one text, counts once: that is no duplicate but a repetition, which `gather` sees to.
    """
    keys = keys.sort_by([(name, "ascending") for name in ("text_hash", "text_hash_low", "hash", "doc_id")])
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
        "reason": pa.array(np.where(is_near[goes], NEAR_DUPLICATE, DUPLICATE).tolist(), pa.string()),
        "kept": pa.array(
            [
                kept[text] if nearly else doc_id
                for text, nearly, doc_id in zip(left_out["text_hash"].to_pylist(), is_near[goes], same, strict=True)
            ],
            pa.string(),
        ),
    }
    stays = keys.filter(pa.array(is_first & ~is_near))
    return stays, pa.table(columns, schema=LEFT_OUT), left_out["num_bytes"].to_numpy()


def _differs_from_before(rows: pa.Table, *columns: str) -> np.ndarray:
    """Tell for each row whether it differs in one of `columns` from the row before; the first does."""
    differs = np.zeros(rows.num_rows, bool)
    for column in columns:
        values = rows[column].to_numpy()
        differs[1:] |= values[1:] != values[:-1]
    differs[:1] = True
    return differs
