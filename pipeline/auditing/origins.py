"""Count rows by label and by the origins of A and B: source, language, and length of the document.

The rows say which documents A and B come from, and how long these are; sources and languages are
looked up in the documents themselves. `_D` marks arrays with one entry per document of a shard::

    rows          A of document 0 (5 tokens), B of 1 (3 tokens);  A of 1 (2 tokens), B of 0 (4)
    lengths_D     9  5
"""

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from .. import storage
from ..errors import UserError
from ..instances.origins import assume_languages, document_weights, origins_of
from ..instances.rows import Rows
from ..manifests import DocumentsManifest, InstancesManifest
from ..schemas import DOCUMENTS
from ..storage.shards import read_columns
from ..storage.state import MANIFEST, read_manifest

ORIGIN_COLUMNS = pa.schema([DOCUMENTS.field(name) for name in ("source", "language")])
BUCKETS_PER_OCTAVE = 4
# A length, a sum of 64-bit counts, is below 2 ** 64.
NUM_BUCKETS = 64 * BUCKETS_PER_OCTAVE


def documents_of(instances: str, manifest: InstancesManifest, documents: str | None) -> str | None:
    """Return the directory of documents that instances were built from: `documents`, or one in the
    same folder, if the instances are local. Raises `UserError` if `documents` are others.
    """
    digests = [each.get("digest") for each in manifest.inputs if each.get("stage") == "ingest"]
    if documents is not None:
        if read_manifest(documents, DocumentsManifest).digest not in digests:
            raise UserError(
                f"{instances} was not built from {documents}, but from other documents."
            )
        return documents
    if storage.is_remote(instances):
        return None
    parent = Path(os.path.abspath(instances)).parent
    for file in sorted(parent.glob(f"*/{MANIFEST}")):
        directory = str(file.parent)
        with suppress(UserError):  # another stage, or its shards are deleted
            if read_manifest(directory, DocumentsManifest).digest in digests:
                return directory
    return None


Pairs = dict[tuple[str, str], np.ndarray]
"""The rows of each label, int64 [2], by the names of the origins of A and B."""


class OriginMeasures:
    """The sums over the shards so far; sources and languages are known if the directory of
    `documents` is at hand. `weights` are the times that a pass reads each origin.
    """

    def __init__(self, documents: str | None, weights: Mapping[tuple[str, str], float]) -> None:
        self.documents = documents
        # One for A and one for B: bucket i counts the rows whose document has
        # 2 ** (i / BUCKETS_PER_OCTAVE) tokens or more.
        self.document_lengths = [np.zeros((2, NUM_BUCKETS), np.int64) for _ in "AB"]
        self.sources: Pairs = {}
        self.languages: Pairs = {}
        self._weights = weights
        # Label, rows of both documents, and both lengths: int32 [5, num_rows] for each slice.
        self._shard_rows: list[np.ndarray] = []

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
        """Count the rows of the shard `name`: only now are the lengths of its documents known."""
        no_rows = np.zeros((5, 0), np.int32)
        shard_rows = np.concatenate([no_rows, *self._shard_rows], axis=1)
        self._shard_rows.clear()
        label, document_a, document_b, length_a, length_b = shard_rows
        # -1 in a shard without rows.
        num_documents = max(document_a.max(initial=-1), document_b.max(initial=-1)) + 1
        origins = None
        if self.documents is not None:
            batches = read_columns(storage.join(self.documents, name), *ORIGIN_COLUMNS.names)
            origins = origins_of(pa.Table.from_batches(batches, ORIGIN_COLUMNS))
            if num_documents > len(origins.source):
                raise UserError(
                    f"{name}: a row comes from document {num_documents - 1}, but the shard of "
                    f"documents has {len(origins.source)}. Rebuild the instances."
                )
            num_documents = len(origins.source)

        # Every token of a document is in one row of a pass, so its rows add up to its length (times
        # the number of passes, which moves all documents by the same number of buckets).
        # `bincount` of no rows returns integers, whatever the weights.
        lengths_D = np.bincount(document_a, length_a, num_documents).astype(float)
        lengths_D += np.bincount(document_b, length_b, num_documents)
        octaves_D = np.log2(np.maximum(lengths_D, 1))
        buckets_D = np.floor(octaves_D * BUCKETS_PER_OCTAVE).astype(np.int64)
        for document, histogram in zip(
            (document_a, document_b), self.document_lengths, strict=True
        ):
            # `histogram[indices] += 1` would count an index once however often it comes.
            np.add.at(histogram, (label, buckets_D[document]), 1)
        if origins is None:
            return

        # As `build` does: a language is guessed by the lengths of documents that are read once.
        lengths_D /= document_weights(origins, self._weights)
        origins = assume_languages(origins, lengths_D)
        for pairs, origin_D, names in (
            (self.sources, origins.source, origins.source_names),
            (self.languages, origins.language, origins.language_names),
        ):
            shape = (len(names), len(names), 2)
            # (A, B, label) as one number, so that one `bincount` counts all combinations:
            #
            #     names ko, en:   (ko, ko, 0) is 0   (ko, ko, 1) is 1   …   (en, en, 1) is 7
            keys = np.ravel_multi_index((origin_D[document_a], origin_D[document_b], label), shape)
            counts = np.bincount(keys, minlength=math.prod(shape)).reshape(shape)
            for index_a, index_b in np.argwhere(counts.any(axis=2)).tolist():
                # By name: the numbers of origins differ from shard to shard.
                pair = names[index_a], names[index_b]
                pairs[pair] = pairs.get(pair, 0) + counts[index_a, index_b]
