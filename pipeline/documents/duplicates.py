"""Exact duplicates: of all documents with the same text, the one with the lowest hash stays,
whatever its source.

Two texts are duplicates if their characters match, with one space for each line break and between
sentences. So it makes no difference where lines were wrapped or sentences split. Chinese and
Japanese have no such spaces: there only splits after 。！？」』） make no difference, in texts
with a 。 Letter case, punctuation and accents count. Texts are compared by the first 128 bits of
SHA-256, which processors implement.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..ragged import begins_run
from .tables import LEFT_OUT

DUPLICATE = "duplicate_texts"
NEAR_DUPLICATE = "near_duplicates"

_ODD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: multiples of it differ in all bits
_NO_SPACE_AFTER = "。！？」』）"
"""In a text with 。, so that splits after these marks make no difference."""


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
    # Two halves, as Arrow has no integers of 128 bits.
    high = int.from_bytes(digest[:8], "big")
    low = int.from_bytes(digest[8:16], "big")
    return high, low, len(encoded)


class Decision(NamedTuple):
    """The documents that stay, and the others."""

    kept: pa.Table
    """Rows of `KEYS`."""
    removed: pa.Table
    """Rows of `LEFT_OUT`."""
    removed_bytes: np.ndarray
    """Length of the text of each removed document."""


def decide(keys: pa.Table, near_duplicates: pa.Table) -> Decision:
    """Decide which of the documents with these `KEYS` stay.

    `near_duplicates` lists texts to remove as well, and the document kept instead. A document that
    occurs twice with the same id and text counts once: it is not a duplicate but a repeated id,
    which `gather` handles. If that drops the kept document in favour of another text with the same
    id, no copy of its own stays.
    """
    #   text  a  a  a  b  c  c        keys by text, then hash; c is nearly another text
    #   hash  1  4  7  2  3  8
    #         *        *  *           first of its text
    #            x  x     n  x        removed: x as a duplicate, n as a near-duplicate
    columns = ("text_hash", "text_hash_low", "hash")
    keys = keys.sort_by([(name, "ascending") for name in (*columns, "doc_id")])
    is_distinct = begins_run(*(keys[name].to_numpy() for name in columns))
    keys = keys.filter(pa.array(is_distinct))
    is_first = begins_run(keys["text_hash"].to_numpy(), keys["text_hash_low"].to_numpy())
    is_listed = np.isin(keys["text_hash"].to_numpy(), near_duplicates["text_hash"].to_numpy())
    # The first of a text stands for it among the near-duplicates; its copies are duplicates anyway.
    is_near_duplicate = is_first & is_listed
    is_removed = ~is_first | is_near_duplicate

    removed_rows = np.flatnonzero(is_removed)
    removed_keys = keys.take(pa.array(removed_rows))
    #   is_first        1  0  0  1  1  0
    #   row if first    0  0  0  3  4  0        the running maximum  0  0  0  3  4  4
    row_if_first = np.where(is_first, np.arange(len(is_first)), 0)
    row_of_first = np.maximum.accumulate(row_if_first)
    kept_ids = keys["doc_id"].take(pa.array(row_of_first[removed_rows])).to_pylist()
    is_near = is_near_duplicate[removed_rows]
    similar_ids = dict(
        zip(
            near_duplicates["text_hash"].to_pylist(),
            near_duplicates["kept"].to_pylist(),
            strict=True,
        )
    )
    for row in np.flatnonzero(is_near).tolist():
        text_hash = removed_keys["text_hash"][row].as_py()
        kept_ids[row] = similar_ids[text_hash]
    removed = pa.table(
        {
            "hash": removed_keys["hash"],
            "validation_hash": removed_keys["validation_hash"],
            "text_hash": removed_keys["text_hash"],
            "reason": pa.array(np.where(is_near, NEAR_DUPLICATE, DUPLICATE)),
            "kept": pa.array(kept_ids, pa.string()),
        },
        schema=LEFT_OUT.schema,
    )
    return Decision(
        keys.filter(pa.array(~is_removed)), removed, removed_keys["num_bytes"].to_numpy()
    )


def empty_left_out(
    batches: Iterable[pa.RecordBatch], left_out: pa.Table
) -> Iterator[pa.RecordBatch]:
    """For each batch, yield the kept documents, and the removed ones with their sentences emptied:
    they can far outnumber the kept.
    """
    left_out_keys = np.sort(_document_keys(left_out))
    for batch in batches:
        keys = _document_keys(batch)
        # Not `np.isin`, which would sort the keys of all that are left out again for each batch.
        first_position = np.searchsorted(left_out_keys, keys)
        end_position = np.searchsorted(left_out_keys, keys, side="right")
        is_removed = end_position > first_position
        if not is_removed.any():  # as nearly always
            yield batch
            continue
        yield batch.filter(pa.array(~is_removed))
        removed = batch.filter(pa.array(is_removed))
        index = batch.schema.get_field_index("sentences")
        field = batch.schema.field(index)
        no_sentences = pa.array([[]] * removed.num_rows, field.type)
        yield removed.set_column(index, field, no_sentences)


def _document_keys(rows: pa.RecordBatch | pa.Table) -> np.ndarray:
    """Return a number for each row's document and text, by its ``hash`` and ``text_hash``."""
    id_hashes = rows["hash"].to_numpy()
    text_hashes = rows["text_hash"].to_numpy()
    # One number instead of pairs, which NumPy cannot search. A plain sum or XOR would be the same
    # for (a, b) and (b, a); the product wraps around at 2**64.
    return id_hashes * np.uint64(_ODD) + text_hashes
