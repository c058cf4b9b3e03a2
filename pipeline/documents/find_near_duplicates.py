"""Two phases of ingest that find near-duplicates; the rules are in `near_duplicates`.

`Scatter` writes the bands and the sketch of each document. A unit of *candidates* reads a range of
the bands' hashes, in which texts that share a band meet. The single unit of *clusters* compares
each such pair.

Memory: one process finds the clusters, with about 700 bytes per document that has a candidate;
other documents take nothing. A unit of candidates takes about 150 MB (below 50 million documents).
Temporary files take about 300 bytes per document at a threshold of 0.8.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..execution.job import Job, Phase, Record, Unit
from .layout import KeyRange, plan_keys
from .minhash import choose_bands
from .near_duplicates import distinct, find_first, first_sketches, pair_up, similar_pairs
from .scatter import Scatter
from .tables import BANDS, CANDIDATES, NEAR_DUPLICATES, SKETCHES

BANDS_PER_UNIT = 2_000_000


@dataclass(frozen=True)
class FindCandidates(Phase):
    """Pair up texts that share a band."""

    share: float
    """The share of their word 5-grams that near-duplicates have in common."""
    scatter: Scatter

    name = "candidates"
    payload_type = KeyRange
    record_type = Record

    def plan(self, job: Job) -> Sequence[Unit]:
        """Cut the bands into ranges of their hashes."""
        num_documents = self.scatter.num_documents(job)
        num_bands, _ = choose_bands(self.share)
        return plan_keys("bands", num_bands * num_documents, BANDS_PER_UNIT, job.setup.layout)

    def do(self, job: Job, unit: Unit) -> Record:
        """Write the pairs of texts that share a band in the unit's partitions."""
        batches = BANDS.read(job, unit.payload.partitions)
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
    payload_type = None
    record_type = Record

    def plan(self, job: Job) -> Sequence[Unit]:
        """Plan the one unit."""
        return [Unit("clusters", cost=1, payload=None)]

    def do(self, job: Job, unit: Unit) -> Record:
        """Write the texts to remove as near-duplicates."""
        pairs = np.empty((0, 2), np.uint64)
        for batch in CANDIDATES.read(job):
            pairs_of_batch = np.stack([batch["one"].to_numpy(), batch["other"].to_numpy()], axis=1)
            # After each batch: two nearly equal texts share most bands, so repeats outnumber the
            # rest.
            pairs = distinct(np.concatenate([pairs, pairs_of_batch]))
        texts = np.unique(pairs)
        chosen: list[pa.RecordBatch] = []
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
