"""Count rows by label and by the origins of A and B: source, language, and length of the document.

The rows say which documents A and B come from, and how long these are; sources and languages are
looked up in the documents themselves. `_D` marks arrays with one entry per document of a shard::

    rows          A of document 0 (5 tokens), B of 1 (3 tokens);  A of 1 (2 tokens), B of 0 (4)
    lengths_D     9  5
"""

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from .. import storage
from ..errors import UserError
from ..instances.origins import Origins, assume_languages, document_weights, origins_of
from ..instances.rows import Rows
from ..schemas import DOCUMENTS
from ..storage.shards import read_columns

ORIGIN_COLUMNS = pa.schema([DOCUMENTS.field(name) for name in ("source", "language")])
BUCKETS_PER_OCTAVE = 4
# A length, a sum of 64-bit counts, is below 2 ** 64.
NUM_BUCKETS = 64 * BUCKETS_PER_OCTAVE


class OriginMeasures:
    """The sums over the shards so far.

    `document_lengths` holds histograms int64 [2, NUM_BUCKETS] by label: bucket ``i`` counts the
    rows whose document has ``2 ** (i / BUCKETS_PER_OCTAVE)`` tokens or more. `pairs` counts rows of
    each label, int64 [2], by the names of both origins, if the directory of `documents` is at hand;
    `weights` are the times that a pass reads each origin.
    """

    def __init__(
        self, documents: str | None, weights: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        self.documents = documents
        self._weights = weights or {}
        # Label, rows of both documents, and both lengths: int32 [5, num_rows] for each slice.
        self._shard_rows: list[np.ndarray] = []
        self.document_lengths = {
            "document length of A": np.zeros((2, NUM_BUCKETS), np.int64),
            "document length of B": np.zeros((2, NUM_BUCKETS), np.int64),
        }
        self.pairs: dict[str, dict[tuple[str, str], np.ndarray]] = {"language": {}, "source": {}}

    def add(self, rows: Rows) -> None:
        """Remember some rows of a shard; `end_shard` counts them."""
        length_a = rows.segment_b_start - 2  # without [CLS] and [SEP]
        length_b = rows.lengths - rows.segment_b_start - 1
        length_b = np.maximum(length_b, 0)  # -1 in rows without B
        label = np.minimum(rows.next_sentence_label, 1)  # values above 1 have a check of their own
        assert rows.document_a is not None and rows.document_b is not None
        columns = (label, rows.document_a, rows.document_b, length_a, length_b)
        self._shard_rows.append(np.stack(columns).astype(np.int32))

    def end_shard(self, name: str) -> None:
        """Count the rows of the shard `name`: only now are the lengths of its documents known.

        Raise `UserError` if a row names a document that the shard of documents does not have.
        """
        no_rows = np.zeros((5, 0), np.int32)
        shard_rows = np.concatenate([no_rows, *self._shard_rows], axis=1)
        self._shard_rows.clear()
        label, document_a, document_b, length_a, length_b = shard_rows
        # -1 in a shard without rows.
        highest_a = document_a.max(initial=-1)
        highest_b = document_b.max(initial=-1)
        highest = int(max(highest_a, highest_b))
        num_documents = highest + 1
        origins = self._read_origins(name)
        if origins is not None:
            if highest >= len(origins.source):
                raise UserError(
                    f"{name}: a row comes from document {highest}, but the shard of "
                    f"documents has {len(origins.source)}. Rebuild the instances."
                )
            num_documents = len(origins.source)

        # Every token of a document is in one row of a pass, so its rows add up to its length (times
        # the number of passes, which moves all documents by the same number of buckets).
        lengths_D = np.bincount(document_a, length_a, num_documents)
        lengths_D += np.bincount(document_b, length_b, num_documents)
        self._add_document_lengths(label, document_a, document_b, lengths_D)
        if origins is None:
            return

        # As `build` does: a language is guessed by the lengths of documents that are read once.
        lengths_D /= document_weights(origins, self._weights)
        origins = assume_languages(origins, lengths_D)
        self._add_pairs(
            "source",
            label,
            origins.source[document_a],
            origins.source[document_b],
            origins.source_names,
        )
        self._add_pairs(
            "language",
            label,
            origins.language[document_a],
            origins.language[document_b],
            origins.language_names,
        )

    def _add_document_lengths(
        self,
        label: np.ndarray,
        document_a: np.ndarray,
        document_b: np.ndarray,
        lengths_D: np.ndarray,
    ) -> None:
        """Count the rows of a shard by label and by the lengths of the documents of A and B."""
        octaves_D = np.log2(np.maximum(lengths_D, 1))
        buckets_D = np.floor(octaves_D * BUCKETS_PER_OCTAVE).astype(np.int64)
        for document, histogram in zip(
            (document_a, document_b), self.document_lengths.values(), strict=True
        ):
            # `histogram[indices] += 1` would count an index once however often it comes.
            np.add.at(histogram, (label, buckets_D[document]), 1)

    def _read_origins(self, name: str) -> Origins | None:
        if self.documents is None:
            return None
        path = storage.join(self.documents, name)
        batches = read_columns(path, *ORIGIN_COLUMNS.names)
        return origins_of(pa.Table.from_batches(batches, ORIGIN_COLUMNS))

    def _add_pairs(
        self,
        column: str,
        label: np.ndarray,
        origin_a: np.ndarray,
        origin_b: np.ndarray,
        names: list[str],
    ) -> None:
        """Count the rows of a shard by label and by the origins of A and B, indices of `names`."""
        shape = (len(names), len(names), 2)
        # (A, B, label) as one number, so that one `bincount` counts all combinations:
        #
        #     names ko, en:   (ko, ko, 0) is 0   (ko, ko, 1) is 1   …   (en, en, 1) is 7
        keys = np.ravel_multi_index((origin_a, origin_b, label), shape)
        counts = np.bincount(keys, minlength=math.prod(shape)).reshape(shape)
        pairs = self.pairs[column]
        for index_a, index_b in np.argwhere(counts.any(axis=2)).tolist():
            # By name: the numbers of origins differ from shard to shard.
            pair = names[index_a], names[index_b]
            pairs[pair] = pairs.get(pair, 0) + counts[index_a, index_b]

    def histogram(self, column: str) -> np.ndarray:
        """Return the rows of each label by the pair of origins, int64 [2, num_pairs]."""
        rows_of_pairs = [rows for _, rows in sorted(self.pairs[column].items())]
        return np.array(rows_of_pairs, np.int64).reshape(-1, 2).T
