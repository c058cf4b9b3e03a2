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

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ..execution.temporary import TemporaryTable, range_of
from ..schemas import DOCUMENTS
from .minhash import NUM_HASHES

if TYPE_CHECKING:
    from .layout import IngestSetup


def _by_document(setup: "IngestSetup") -> tuple[int, Callable[[pa.Table], np.ndarray]]:
    """Cut by the hash of the document, held-out ones apart: a shard needs a few partitions."""
    return setup.layout.num_document_partitions, setup.layout.partition_of


def _by_hash(column: str, setup: "IngestSetup") -> tuple[int, Callable[[pa.Table], np.ndarray]]:
    """Cut by a column of hashes, so that all rows with the same value meet in one unit."""
    num_partitions = setup.layout.num_key_partitions
    return num_partitions, lambda rows: range_of(rows[column].to_numpy(), num_partitions)


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


_HASHES = _schema(hash=pa.uint64(), validation_hash=pa.uint64(), text_hash=pa.uint64())

SCATTERED = TemporaryTable("documents", "scatter", pa.schema([*_HASHES, *DOCUMENTS]), _by_document)

KEYS = TemporaryTable(
    "keys",
    "scatter",
    _schema(
        text_hash=pa.uint64(),
        text_hash_low=pa.uint64(),
        hash=pa.uint64(),
        validation_hash=pa.uint64(),
        num_bytes=pa.uint32(),
        doc_id=pa.string(),
    ),
    partial(_by_hash, "text_hash"),
)
"""A small row for each document, to find equal texts by."""

BANDS = TemporaryTable(
    "bands",
    "scatter",
    _schema(band_hash=pa.uint64(), text_hash=pa.uint64()),
    partial(_by_hash, "band_hash"),
)
"""The bands of the documents' signatures: texts that share one may be similar."""

SKETCHES = TemporaryTable(
    "sketches",
    "scatter",
    _schema(
        text_hash=pa.uint64(),
        hash=pa.uint64(),
        doc_id=pa.string(),
        signature=pa.list_(pa.uint8(), NUM_HASHES),
    ),
)
"""Shortened signatures, to estimate how similar two texts are."""

CANDIDATES = TemporaryTable("pairs", "candidates", _schema(one=pa.uint64(), other=pa.uint64()))
"""Pairs of texts, by their hashes, that may be similar."""

NEAR_DUPLICATES = TemporaryTable(
    "near",
    "clusters",
    _schema(text_hash=pa.uint64(), kept=pa.string()),
    partial(_by_hash, "text_hash"),
)
"""Texts to remove, and the document that is kept instead."""

LEFT_OUT = TemporaryTable(
    "left-out",
    "deduplicate",
    _schema(
        hash=pa.uint64(),
        validation_hash=pa.uint64(),
        text_hash=pa.uint64(),
        reason=pa.string(),
        kept=pa.string(),
    ),
    _by_document,
)
"""Documents to remove, why, and the one that is kept instead."""
