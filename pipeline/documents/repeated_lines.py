"""Lines repeated across documents (navigation, publishers' lists, licences): with
``--repeated-lines N`` a line that occurs in N or more documents is left out of all of them.

A line is a paragraph of the source. Lines are compared as in CCNet (Wenzek et al. 2020, "CCNet:
Extracting High Quality Monolingual Datasets from Web Crawl Data", section 3.1, and
``normalize_for_dedup`` in its code): by 64 bits of the hash of their text in lower case, with
digits as 0, without punctuation. CCNet keeps the first copy; to leave out all copies from some
number on is the rule of Llama 3 (Grattafiori et al. 2024, section 3.1.1: more than six). As there,
duplicates are removed first, or the copy that stays would lose the text it shares with the others:
equal texts count once, and those that `near_duplicates` removes do not count.

1. `scatter` writes a row per line, by the line's hash.
2. A unit of *lines* reads a range of these hashes and lists where the repeated lines are, by the
   documents' hash.
3. A unit of *clean* (see `clean`) writes the documents without them.

Memory: a unit has two million lines (below two billion), and holds 16 bytes for each text that
contains one that is not yet found to be repeated. Temporary files take 40 bytes per line, and the
documents a second time.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Any
from unicodedata import category

import numpy as np
import pyarrow as pa

from ..execution.partitions import partitioned_file, read_phase, write_partitions
from ..execution.phases import Record
from ..storage.stage import StageDirectory
from .duplicates import NEAR
from .layout import KeyRange, Layout
from .near_duplicates import distinct

REPEATED_LINES = "repeated_lines"
"""The name of the counter of the lines left out."""
LINES_PER_UNIT = 2_000_000
_PAIRS_HELD = 1 << 20

_PLACE = [
    *(pa.field(name, pa.uint64()) for name in ("hash", "validation_hash", "text_hash")),
    *(pa.field(name, pa.uint32()) for name in ("start", "stop")),
]
LINES = pa.schema([pa.field("line_hash", pa.uint64()), *_PLACE])
REPEATED = pa.schema(_PLACE)
"""Where a repeated line is: its document, and its sentences ``start`` up to ``stop``."""


def hash_line(sentences: Sequence[str]) -> int:
    """Return the hash of a line, given its sentences; what it ignores is explained above.

    >>> hash_line(["© 1998 Low & Son.", "All rights reserved."]) == hash_line(["© 2004 Low & Son: all rights reserved"])
    True
    """
    text = " ".join(sentences).lower().translate(_normalisation())
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


@cache
def _normalisation() -> dict[int, str | None]:
    """Return what `str.translate` makes of digits and punctuation."""
    categories = ((code, category(chr(code))) for code in range(sys.maxunicode + 1))
    return {
        code: "0" if kind == "Nd" else None
        for code, kind in categories
        if kind == "Nd" or kind[0] == "P"
    }


def line_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return the `LINES` of documents with their hashes, ``sentences``, and ``line_sizes``:
    sentences in each line.
    """
    spans = [list(pairwise(accumulate(row["line_sizes"], initial=0))) for row in rows]
    hashes = [
        hash_line(row["sentences"][start:stop])
        for row, own in zip(rows, spans, strict=True)
        for start, stop in own
    ]
    num_lines = [len(own) for own in spans]
    documents = [
        np.array([row[name] for row in rows], np.uint64).repeat(num_lines)
        for name in ("hash", "validation_hash", "text_hash")
    ]
    edges = np.array([span for own in spans for span in own], np.uint32).reshape(-1, 2)
    return pa.table(
        [np.array(hashes, np.uint64), *documents, edges[:, 0], edges[:, 1]], schema=LINES
    )


def list_repeated_lines(
    directory: StageDirectory, unit: KeyRange, layout: Layout, num_documents: int, near: bool
) -> Record:
    """List where the lines are that occur in `num_documents` or more; `near` as in `deduplicate`."""
    num_partitions = layout.num_key_partitions
    removed = (
        read_phase(directory, "clusters", "near", range(num_partitions), num_partitions)
        if near
        else ()
    )
    left_out = pa.Table.from_batches(removed, NEAR)["text_hash"].to_numpy()

    def lines() -> Iterator[pa.RecordBatch]:
        return read_phase(directory, "scatter", "lines", unit.partitions, num_partitions)

    repeated = find_repeated(lines(), left_out, num_documents)
    name = partitioned_file("repeated", unit.name)
    with write_partitions(directory, name, REPEATED, layout.num_document_partitions) as writer:
        for batch in lines():
            found = batch.filter(pa.array(np.isin(batch["line_hash"].to_numpy(), repeated)))
            partitions = layout.partition_of(
                found["hash"].to_numpy(), found["validation_hash"].to_numpy()
            )
            writer.write(pa.Table.from_batches([found]).select(REPEATED.names), partitions)
    return Record(files=(name,))


def find_repeated(
    lines: Iterable[pa.RecordBatch], left_out: np.ndarray, num_documents: int
) -> np.ndarray:
    """Return the hashes of the `LINES` that occur in `num_documents` or more texts, apart from
    those `left_out`.
    """
    repeated = np.empty(0, np.uint64)
    pairs = np.empty((0, 2), np.uint64)
    held: list[np.ndarray] = []

    def count() -> None:
        nonlocal repeated, pairs
        pairs = distinct(np.concatenate([pairs, *held]))
        held.clear()
        hashes, counts = np.unique(pairs[:, 0], return_counts=True)
        repeated = np.union1d(repeated, hashes[counts >= num_documents])
        pairs = pairs[~np.isin(pairs[:, 0], repeated)]

    for batch in lines:
        texts = batch["text_hash"].to_numpy()
        counted = ~np.isin(texts, left_out)
        held.append(np.stack([batch["line_hash"].to_numpy(), texts], axis=1)[counted])
        if sum(map(len, held)) > max(_PAIRS_HELD, len(pairs)):
            count()
    count()
    return repeated
