"""Arrow's functions by name, without `pyarrow.compute`: that makes and documents a Python function
for each, which takes a quarter of a worker's start. Methods of tables such as ``take`` import it.
"""

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import _compute  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray)

call_function: Any = _compute.call_function
SetLookupOptions: Any = _compute.SetLookupOptions


def take(rows: Rows, indices: np.ndarray) -> Rows:
    """Return the rows at some indices."""
    # From its memory, because `pa.array` of an array imports NumPy's masked arrays.
    memory = pa.py_buffer(np.ascontiguousarray(indices, np.int64))
    return call_function(
        "take", [rows, pa.Array.from_buffers(pa.int64(), len(indices), [None, memory])]
    )


def sort_order(rows: pa.Table, *columns: str) -> np.ndarray:
    """Return the indices of the rows in the order of some columns, ascending."""
    keys = [(column, "ascending") for column in columns]
    return call_function("sort_indices", [rows], _compute.SortOptions(keys)).to_numpy()
