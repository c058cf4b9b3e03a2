"""Define the temporary tables of ingest: their columns and their cuts.

The phases, with the tables between them in brackets. Near-duplicates are found on request::

    scatter -+-> [documents] ------------------------------------------> gather
             |                                                             ^
             +-> [keys] ----------------------> deduplicate -> [left-out] -+
             |                                       ^
             +-> [bands] -> candidates -> [pairs]    |
             |                               v       |
             +-> [sketches] -----------> clusters -> [near]
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ..execution.temporary import TemporaryTable, range_of
from ..schemas import DOCUMENTS
from .minhash import NUM_HASHES

if TYPE_CHECKING:
    from .layout import IngestSetup


@dataclass(frozen=True)
class ByDocument:
    """By the hash of the document, held-out ones apart: a shard needs a few of these partitions."""

    def num_partitions(self, setup: "IngestSetup") -> int:
        """Return the number of partitions of the layout."""
        return setup.layout.num_document_partitions

    def partition_of(self, rows: pa.Table, setup: "IngestSetup") -> np.ndarray:
        """Return the partition of each row by its ``hash`` and ``validation_hash``."""
        hashes = rows["hash"].to_numpy()
        validation_hashes = rows["validation_hash"].to_numpy()
        return setup.layout.partition_of(hashes, validation_hashes)


@dataclass(frozen=True)
class ByHash:
    """By a column of hashes, so that all rows with the same value meet in one unit."""

    column: str

    def num_partitions(self, setup: "IngestSetup") -> int:
        """Return the number of partitions of the layout."""
        return setup.layout.num_key_partitions

    def partition_of(self, rows: pa.Table, setup: "IngestSetup") -> np.ndarray:
        """Return the partition of each row."""
        return range_of(rows[self.column].to_numpy(), self.num_partitions(setup))


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


_HASHES = _schema(hash=pa.uint64(), validation_hash=pa.uint64(), text_hash=pa.uint64())

SCATTERED = TemporaryTable("documents", pa.schema([*_HASHES, *DOCUMENTS]), ByDocument())

KEYS = TemporaryTable(
    "keys",
    _schema(
        text_hash=pa.uint64(),
        text_hash_low=pa.uint64(),
        hash=pa.uint64(),
        validation_hash=pa.uint64(),
        num_bytes=pa.uint32(),
        doc_id=pa.string(),
    ),
    ByHash("text_hash"),
)
"""A small row for each document, to find equal texts by."""

BANDS = TemporaryTable(
    "bands", _schema(band_hash=pa.uint64(), text_hash=pa.uint64()), ByHash("band_hash")
)
"""The bands of the documents' signatures: texts that share one may be similar."""

SKETCHES = TemporaryTable(
    "sketches",
    _schema(
        text_hash=pa.uint64(),
        hash=pa.uint64(),
        doc_id=pa.string(),
        signature=pa.list_(pa.uint8(), NUM_HASHES),
    ),
)
"""Shortened signatures, to estimate how similar two texts are."""

CANDIDATES = TemporaryTable("pairs", _schema(one=pa.uint64(), other=pa.uint64()))
"""Pairs of texts, by their hashes, that may be similar."""

NEAR_DUPLICATES = TemporaryTable(
    "near", _schema(text_hash=pa.uint64(), kept=pa.string()), ByHash("text_hash")
)
"""Texts to remove, and the document that is kept instead."""

LEFT_OUT = TemporaryTable(
    "left-out",
    _schema(
        hash=pa.uint64(),
        validation_hash=pa.uint64(),
        text_hash=pa.uint64(),
        reason=pa.string(),
        kept=pa.string(),
    ),
    ByDocument(),
)
"""Documents to remove, why, and the one that is kept instead."""
