"""Count rows by label and by the origins of A and B: source, language, and length of the document.

The rows say from which documents A and B come and how long they are; sources and languages are
looked up in the documents themselves.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from .. import storage
from ..errors import UserError
from ..instances.origins import Origins, assume_languages, document_weights, origins_of
from ..schemas import DOCUMENTS
from ..storage.shards import read_columns
from .measures import InstanceRows

ORIGIN_COLUMNS = pa.schema([DOCUMENTS.field(name) for name in ("source", "language")])
BUCKETS_PER_OCTAVE = 4
MAX_OCTAVES = 64


class OriginMeasures:
    """The sums over the shards so far.

    `document_lengths` holds histograms int64 [2, buckets] by label: bucket ``i`` counts the rows
    whose document has ``2 ** (i / BUCKETS_PER_OCTAVE)`` tokens or more. `pairs` counts rows by
    label and the names of both origins, if the directory of `documents` is at hand; `weights` say
    how often each origin was read.
    """

    def __init__(
        self, documents: str | None, weights: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        self.documents = documents
        self._weights = weights or {}
        self._shard_rows: list[np.ndarray] = []
        num_buckets = MAX_OCTAVES * BUCKETS_PER_OCTAVE
        self.document_lengths = {
            "document length of A": np.zeros((2, num_buckets), np.int64),
            "document length of B": np.zeros((2, num_buckets), np.int64),
        }
        self.pairs: dict[str, Counter[tuple[int, str, str]]] = {
            "language": Counter(),
            "source": Counter(),
        }

    def add(self, rows: InstanceRows) -> None:
        """Remember some rows of a shard; `end_shard` counts them."""
        length_a = rows.segment_b_start - 2
        length_b = np.maximum(rows.lengths - rows.segment_b_start - 1, 0)
        label = np.minimum(rows.label, 1)
        columns = (label, rows.document_a, rows.document_b, length_a, length_b)
        self._shard_rows.append(np.stack(columns).astype(np.int32))

    def end_shard(self, name: str) -> None:
        """Count the rows of the shard `name`: only now are the lengths of its documents known."""
        empty = np.zeros((5, 0), np.int32)
        label, document_a, document_b, length_a, length_b = np.concatenate(
            [empty, *self._shard_rows], axis=1
        )
        self._shard_rows.clear()
        origins = self._read_origins(name)
        num_documents = 1 + int(max(document_a.max(initial=-1), document_b.max(initial=-1)))
        if origins is not None:
            if num_documents > len(origins.source):
                raise UserError(
                    f"{name}: a row comes from document {num_documents - 1}, but the shard of "
                    f"documents has {len(origins.source)}. Build the instances again."
                )
            num_documents = len(origins.source)
        # Every token of a document is in one row of a pass, so its rows add up to its length (times
        # the number of passes, which moves all documents by the same number of buckets).
        lengths_D = np.bincount(document_a, length_a, num_documents)
        lengths_D += np.bincount(document_b, length_b, num_documents)
        octaves_D = np.log2(np.maximum(lengths_D, 1))
        buckets_D = np.floor(octaves_D * BUCKETS_PER_OCTAVE).astype(np.int64)
        for segment, document in (("A", document_a), ("B", document_b)):
            histogram = self.document_lengths[f"document length of {segment}"]
            np.add.at(histogram, (label, buckets_D[document]), 1)
        if origins is not None:
            lengths_D /= document_weights(origins, self._weights)
            origins = assume_languages(origins, lengths_D)
            sources = (origins.source, origins.source_names)
            languages = (origins.language, origins.language_names)
            for column, (number_D, names) in (("source", sources), ("language", languages)):
                self._add_pairs(column, label, number_D[document_a], number_D[document_b], names)

    def _read_origins(self, name: str) -> Origins | None:
        if self.documents is None:
            return None
        path = storage.join(self.documents, name)
        batches = read_columns(path, *ORIGIN_COLUMNS.names)
        return origins_of(pa.Table.from_batches(batches, ORIGIN_COLUMNS))

    def _add_pairs(
        self, column: str, label: np.ndarray, a: np.ndarray, b: np.ndarray, names: list[str]
    ) -> None:
        counts = np.bincount((label * len(names) + a) * len(names) + b)
        cells = np.unravel_index(np.flatnonzero(counts), (2, len(names), len(names)))
        for row_label, number_a, number_b in np.stack(cells, axis=1).tolist():
            flat = (row_label * len(names) + number_a) * len(names) + number_b
            self.pairs[column][row_label, names[number_a], names[number_b]] += int(counts[flat])

    def histogram(self, column: str) -> np.ndarray:
        """Return the rows of each label by the pair of origins, int64 [2, num_pairs]."""
        counts = self.pairs[column]
        pairs = sorted({(name_a, name_b) for _, name_a, name_b in counts})
        by_label = [[counts[label, *pair] for pair in pairs] for label in (0, 1)]
        return np.array(by_label, np.int64).reshape(2, len(pairs))
