"""Two phases of ingest that find near-duplicates: of documents with nearly the same text (see
`minhash`), one stays.

`Scatter` writes the bands and the sketch of each document. A unit of *candidates* reads a range of
the bands' hashes, in which texts that share a band meet. The single unit of *clusters* compares
each such pair: it is similar if its signatures agree in at least the share asked for. Similar pairs
join into clusters, so two texts may be in one cluster through a third; the document with the lowest
hash of each cluster stays.

Memory: one process finds the clusters, with about 700 bytes per document that has a candidate. A
unit of candidates takes about 150 MB (below 50 million documents).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..execution.job import Job, Phase, Record, Unit
from ..ragged import begins_run
from .layout import plan_keys
from .minhash import NUM_HASHES, choose_bands, estimate_similarity
from .phase_tables import BANDS, CANDIDATES, NEAR_DUPLICATES, SKETCHES
from .scatter import Scatter


@dataclass(frozen=True)
class FindCandidates(Phase):
    """Pair up texts that share a band."""

    share: float
    """The share of their word 5-grams that near-duplicates have in common."""
    scatter: Scatter

    name = "candidates"
    payload_type = tuple[int, int]
    record_type = Record

    def plan(self, job: Job) -> Sequence[Unit]:
        num_documents = self.scatter.num_documents(job)
        num_bands, _ = choose_bands(self.share)
        bands_per_unit = 2_000_000  # 32 MB of hashes
        return plan_keys("bands", num_bands * num_documents, bands_per_unit, job.setup.layout)

    def do(self, job: Job, unit: Unit) -> Record:
        batches = BANDS.read(job, range(*unit.payload))
        rows = pa.Table.from_batches(batches, BANDS.schema)
        bands = rows["band_hash"].to_numpy()
        texts = rows["text_hash"].to_numpy()
        del rows  # millions of rows, copied above
        pairs = pair_up(bands, texts)
        one, other = pairs.T
        with CANDIDATES.write(job, unit.name) as writer:
            writer.write(pa.table([one, other], schema=CANDIDATES.schema))
        return Record()


@dataclass(frozen=True)
class FindClusters(Phase):
    """Join similar pairs, and list all but one document of each cluster as near-duplicates."""

    share: float

    name = "clusters"
    record_type = Record

    def do(self, job: Job, unit: Unit) -> Record:
        pairs = np.empty((0, 2), np.uint64)
        for batch in CANDIDATES.read(job):
            pairs_of_batch = np.stack([batch["one"], batch["other"]], axis=1)
            # After each batch: two nearly equal texts share most bands, so repeats outnumber the
            # rest.
            pairs = distinct(np.concatenate([pairs, pairs_of_batch]))
        texts = np.unique(pairs)
        chosen = []
        for batch in SKETCHES.read(job):
            is_candidate = np.isin(batch["text_hash"].to_numpy(), texts)
            chosen.append(batch.filter(pa.array(is_candidate)))
        sketches = first_sketches(pa.Table.from_batches(chosen, SKETCHES.schema))
        similar = similar_pairs(pairs, sketches, self.share)
        # Each row of the sketches is a node of the graph. They are in the order of the documents'
        # hashes, so the first of a cluster is the document that stays:
        #   rows               0  1  2  3  4         similar pairs  (0, 2) (2, 4)
        #   first of cluster   0  1  0  3  0         removed        2 and 4, for 0
        num_texts = sketches.num_rows
        first_of_cluster = find_first(num_texts, similar)
        removed = np.flatnonzero(first_of_cluster != np.arange(num_texts))
        removed_texts = sketches["text_hash"].to_numpy()[removed]
        kept_rows = first_of_cluster[removed]
        kept_ids = sketches["doc_id"].take(pa.array(kept_rows))
        with NEAR_DUPLICATES.write(job, unit.name) as writer:
            writer.write(pa.table([removed_texts, kept_ids], schema=NEAR_DUPLICATES.schema))
        return Record()


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
    """Return the pairs of rows of `sketches` (pairs, 2) with a similarity of at least `share`."""
    texts = sketches["text_hash"].to_numpy()
    order = np.argsort(texts)
    # All are there: `pairs` chose the sketches.
    rows = order[np.searchsorted(texts[order], pairs)]
    signatures = sketches["signature"].combine_chunks().flatten().to_numpy()
    signatures = signatures.reshape(-1, NUM_HASHES)
    similar = []
    # The signatures of 20,000 pairs are in memory at a time.
    for some_rows in np.array_split(rows, len(rows) // 20_000 + 1):
        one, other = some_rows.T
        similarity = estimate_similarity(signatures[one], signatures[other])
        similar.append(some_rows[similarity >= share])
    return np.concatenate(similar)


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
