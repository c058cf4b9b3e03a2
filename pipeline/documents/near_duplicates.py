"""Near-duplicates: of documents with nearly the same text (see `minhash`), one stays.

Texts whose signatures share a band are candidates. A pair of candidates is similar if its
signatures agree in at least the share asked for; similar pairs join into clusters, so two texts may
be in one cluster through a third. The document with the lowest hash of each cluster stays.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..ragged import begins_run
from .minhash import NUM_HASHES, choose_bands, estimate_similarity, hash_bands, shorten
from .tables import BANDS, SKETCHES

PAIRS_AT_ONCE = 20_000
"""Pairs whose signatures are in memory at a time."""


def sketch_tables(rows: Sequence[dict[str, Any]], share: float) -> tuple[pa.Table, pa.Table]:
    """Return the rows of `BANDS` and of `SKETCHES` for documents with their ``hash``,
    ``text_hash``, ``doc_id`` and ``sketch``.
    """
    rows = [row for row in rows if row["sketch"] is not None]
    if not rows:
        return BANDS.schema.empty_table(), SKETCHES.schema.empty_table()
    signatures = np.stack([row["sketch"] for row in rows])
    text_hashes = np.array([row["text_hash"] for row in rows], np.uint64)
    hashes = np.array([row["hash"] for row in rows], np.uint64)
    doc_ids = [row["doc_id"] for row in rows]

    # A row for each band of each text:
    #   band hashes [texts, bands]   a0 a1     flat   a0 a1 b0 b1
    #                                b0 b1     text   a  a  b  b
    num_bands, band_length = choose_bands(share)
    band_hashes = hash_bands(signatures, num_bands, band_length)
    text_of_band = text_hashes.repeat(num_bands)
    bands = pa.table([band_hashes.ravel(), text_of_band], schema=BANDS.schema)

    # The bands need whole hashes, but to compare two texts a byte of each is enough.
    short_signatures = shorten(signatures)
    lists = pa.FixedSizeListArray.from_arrays(short_signatures.ravel(), NUM_HASHES)
    sketches = pa.table([text_hashes, hashes, doc_ids, lists], schema=SKETCHES.schema)
    return bands, sketches


def pair_up(bands: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Return (pairs, 2) distinct texts that share a band, the lower one first.

    Of texts that share a band, each is paired with the first and with the one before it, in the
    order of their hashes. All pairs would be too many: hundreds of copies of one page share a band.
    """
    #   band    7  7  7  9  9          first of its band  0 0 0 3 3
    #   text    a  b  c  a  d          pairs  (a, b) (a, c) (a, d) and (a, b) (b, c) (a, d)
    order = np.lexsort((texts, bands))
    bands = bands[order]
    texts = texts[order]
    begins_band = begins_run(bands)
    band_starts = np.flatnonzero(begins_band)
    later = np.flatnonzero(~begins_band)
    band_of_later = np.cumsum(begins_band)[later] - 1
    first_of_band = band_starts[band_of_later]
    with_first = np.stack([texts[first_of_band], texts[later]], axis=1)
    with_previous = np.stack([texts[later - 1], texts[later]], axis=1)
    pairs = np.concatenate([with_first, with_previous])
    # Equal texts share all bands; `duplicates` finds them.
    is_of_two_texts = pairs[:, 0] != pairs[:, 1]
    return distinct(pairs[is_of_two_texts])


def distinct(pairs: np.ndarray) -> np.ndarray:
    """Return the distinct rows of (pairs, 2), sorted."""
    # Much faster than `np.unique` with an axis, which sorts rows as structured values.
    one, other = pairs.T
    pairs = pairs[np.lexsort((other, one))]
    return pairs[begins_run(*pairs.T)]


def first_sketches(sketches: pa.Table) -> pa.Table:
    """Return one sketch for each text, of the document with the lowest hash, in that order."""
    texts = sketches["text_hash"].to_numpy()
    hashes = sketches["hash"].to_numpy()
    order = np.lexsort((texts, hashes))
    _, first_of_text = np.unique(texts[order], return_index=True)
    # `np.unique` returns them in the order of the texts: sorted, they are in that of the hashes.
    rows = order[np.sort(first_of_text)]
    return sketches.take(pa.array(rows)).combine_chunks()


def similar_pairs(pairs: np.ndarray, sketches: pa.Table, share: float) -> np.ndarray:
    """Return the pairs of texts (pairs, 2) with an estimated similarity of at least `share`, as row
    numbers of the sketches.
    """
    texts = sketches["text_hash"].to_numpy()
    order = np.argsort(texts)
    # All are there: `pairs` chose the sketches.
    rows = order[np.searchsorted(texts[order], pairs)]
    signatures = sketches["signature"].combine_chunks().flatten().to_numpy()
    signatures = signatures.reshape(-1, NUM_HASHES)
    similarities: list[np.ndarray] = []
    for some_rows in np.array_split(rows, len(rows) // PAIRS_AT_ONCE + 1):
        one = signatures[some_rows[:, 0]]
        other = signatures[some_rows[:, 1]]
        similarities.append(estimate_similarity(one, other))
    return rows[np.concatenate(similarities) >= share]


def find_first(num_nodes: int, pairs: np.ndarray) -> np.ndarray:
    """Return for each node the first one of its connected component, by union-find."""
    parents = list(range(num_nodes))

    def root(node: int) -> int:
        while parents[node] != node:
            # Each node passed now points to its grandparent: paths halve, so that they stay short.
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for one, other in pairs.tolist():
        # The lower root wins, so that the root of a component is its first node.
        low, high = sorted((root(one), root(other)))
        parents[high] = low
    return np.array([root(node) for node in range(num_nodes)], np.int64)
