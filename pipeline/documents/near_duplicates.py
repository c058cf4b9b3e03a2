"""Near-duplicates: of documents with nearly the same text (see `minhash`), the one with the lowest
hash stays.

1. `scatter` cuts each document's signature into bands and writes a row per band, by the band's
   hash, and a *sketch* of the document, its shortened signature.
2. A unit of *candidates* reads a range of the bands' hashes: texts that share a band may be
   similar.
3. The single unit of *clusters* estimates the similarity of each such pair, joins pairs that reach
   the threshold (two texts may be in one cluster through a third), and keeps the document with the
   lowest hash of each cluster.

Memory: one process finds the clusters, with about 700 bytes per document that has a candidate;
other documents take nothing. A unit of candidates takes about 150 MB (below 50 million documents).
Temporary files take about 300 bytes per document at a threshold of 0.8.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..execution.partitions import partitioned_file, range_of, read_phase, write_partitions
from ..execution.phases import Record
from ..storage.stage import StageDirectory
from .duplicates import NEAR
from .layout import KeyRange
from .minhash import (
    NUM_HASHES,
    choose_bands,
    estimate_similarity,
    hash_bands,
    hash_shingles,
    shorten,
    sign,
)

BANDS_PER_UNIT = 2_000_000

BANDS = pa.schema([pa.field(name, pa.uint64()) for name in ("band_hash", "text_hash")])
PAIRS = pa.schema([pa.field(name, pa.uint64()) for name in ("one", "other")])
SKETCHES = pa.schema(
    [
        pa.field("text_hash", pa.uint64()),
        pa.field("hash", pa.uint64()),
        pa.field("doc_id", pa.string()),
        pa.field("signature", pa.list_(pa.uint8(), NUM_HASHES)),
    ]
)


def sketch_text(sentences: Sequence[str]) -> np.ndarray | None:
    """Return the MinHash signature (uint32) of a document; None if it has no words."""
    shingles = hash_shingles("\n".join(sentences))
    return sign(shingles) if len(shingles) else None


def sketch_tables(rows: Sequence[dict[str, Any]], share: float) -> tuple[pa.Table, pa.Table]:
    """Return the `BANDS` and the `SKETCHES` of documents with their ``hash``, ``text_hash``,
    ``doc_id``, ``sketch``.
    """
    rows = [row for row in rows if row["sketch"] is not None]
    if not rows:
        return BANDS.empty_table(), SKETCHES.empty_table()
    signatures = np.stack([row["sketch"] for row in rows])
    num_bands, length = choose_bands(share)
    hashes, texts = (
        np.array([row[name] for row in rows], np.uint64) for name in ("hash", "text_hash")
    )
    columns = [hash_bands(signatures, num_bands, length).ravel(), texts.repeat(num_bands)]
    short = pa.FixedSizeListArray.from_arrays(shorten(signatures).ravel(), NUM_HASHES)
    ids = [row["doc_id"] for row in rows]
    return pa.table(columns, schema=BANDS), pa.table([texts, hashes, ids, short], schema=SKETCHES)


def find_candidates(directory: StageDirectory, unit: KeyRange, num_partitions: int) -> Record:
    """Write the pairs of texts that share a band in the unit's partitions."""
    read = read_phase(directory, "scatter", "bands", unit.partitions, num_partitions)
    table = pa.Table.from_batches(read, BANDS)
    bands, texts = (table[name].to_numpy() for name in BANDS.names)
    del table, read
    pairs = pair_up(bands, texts)
    name = partitioned_file("pairs", unit.name)
    with write_partitions(directory, name, PAIRS, 1) as writer:
        writer.write(
            pa.table([pairs[:, 0], pairs[:, 1]], schema=PAIRS), np.zeros(len(pairs), np.int64)
        )
    return Record(files=(name,))


def pair_up(bands: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Return (pairs, 2) distinct texts that share a band, the lower one first.

    Of texts that share a band, each is paired with the first and with the one before it, in the
    order of their hashes: what hundreds of copies of one page have in common does not make pairs
    without end.
    """
    order = np.lexsort((texts, bands))
    bands, texts = bands[order], texts[order]
    begins = np.ones(len(bands), bool)
    begins[1:] = bands[1:] != bands[:-1]
    later = np.flatnonzero(~begins)
    first = np.flatnonzero(begins)[np.cumsum(begins)[later] - 1]
    pairs = [np.stack([texts[before], texts[later]], axis=1) for before in (first, later - 1)]
    pairs = np.concatenate(pairs)
    return _distinct(pairs[pairs[:, 0] != pairs[:, 1]])


def _distinct(pairs: np.ndarray) -> np.ndarray:
    """Return the distinct rows of (pairs, 2), sorted."""
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    differs = np.ones(len(pairs), bool)
    differs[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return pairs[differs]


def find_clusters(
    directory: StageDirectory, unit: str, share: float, num_partitions: int
) -> Record:
    """Write to the file of the `unit` the texts to remove as near-duplicates."""
    pairs = np.empty((0, 2), np.uint64)
    for batch in read_phase(directory, "candidates", "pairs", [0], 1):
        pairs = _distinct(
            np.concatenate([pairs, np.stack([batch[0].to_numpy(), batch[1].to_numpy()], axis=1)])
        )
    sketches = _read_sketches(directory, np.unique(pairs))
    similar = _similar_pairs(pairs, sketches, share)
    kept = find_first(sketches.num_rows, similar)
    goes = np.flatnonzero(kept != np.arange(len(kept)))
    texts = sketches["text_hash"].to_numpy()[goes]
    near = pa.table([texts, sketches["doc_id"].take(pa.array(kept[goes]))], schema=NEAR)
    name = partitioned_file("near", unit)
    with write_partitions(directory, name, NEAR, num_partitions) as writer:
        writer.write(near, range_of(texts, num_partitions))
    return Record(files=(name,))


def _read_sketches(directory: StageDirectory, texts: np.ndarray) -> pa.Table:
    """Return the sketches of some texts, one each, of the document with the lowest hash, in that
    order.
    """
    batches = read_phase(directory, "scatter", "sketches", [0], 1)
    chosen = (
        batch.filter(pa.array(np.isin(batch["text_hash"].to_numpy(), texts))) for batch in batches
    )
    sketches = pa.Table.from_batches(chosen, SKETCHES)
    texts, hashes = sketches["text_hash"].to_numpy(), sketches["hash"].to_numpy()
    order = np.lexsort((texts, hashes))
    _, first = np.unique(texts[order], return_index=True)
    return sketches.take(pa.array(order[np.sort(first)])).combine_chunks()


def _similar_pairs(pairs: np.ndarray, sketches: pa.Table, share: float) -> np.ndarray:
    """Return the pairs of texts with an estimated similarity of at least `share`, as row numbers of
    the sketches.
    """
    texts = sketches["text_hash"].to_numpy()
    order = np.argsort(texts)
    rows = order[np.searchsorted(texts[order], pairs)]
    signatures = sketches["signature"].combine_chunks().flatten().to_numpy().reshape(-1, NUM_HASHES)
    estimates = [
        estimate_similarity(*signatures[part.T])
        for part in np.array_split(rows, len(rows) // 20_000 + 1)
    ]
    return rows[np.concatenate(estimates) >= share]


def find_first(number: int, pairs: np.ndarray) -> np.ndarray:
    """Return for each of `number` nodes the first node of its connected component under `pairs`, by
    union-find.
    """
    parents = list(range(number))

    def root(node: int) -> int:
        while parents[node] != node:
            parents[node] = node = parents[parents[node]]
        return node

    for one, other in pairs.tolist():
        low, high = sorted((root(one), root(other)))
        parents[high] = low
    return np.array([root(node) for node in range(number)], np.int64)
