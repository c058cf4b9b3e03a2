"""Hold rows of instances as flat columns.

No row is ever a Python object: columns are flat NumPy arrays, and rows are chosen by arithmetic on
offsets.

    rows       [CLS] a b [SEP]      [CLS] c [SEP]      [CLS] d e f [SEP]
    input_ids   CLS  a b  SEP        CLS  c  SEP        CLS  d e f  SEP
    lengths               4                   3                      5
    offsets     0                    4                  7                 12
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class InstanceRows:
    """Columns of some instances; list columns are flat, one row's items after another's."""

    input_ids: np.ndarray
    lengths: np.ndarray
    """int64: tokens in each row."""
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    num_masked: np.ndarray
    """int64: each row's number of items in the two columns above."""
    segment_b_start: np.ndarray
    next_sentence_label: np.ndarray

    def __len__(self) -> int:
        return len(self.segment_b_start)

    @cached_property
    def offsets(self) -> np.ndarray:
        """Each row's first index in `input_ids`, int64 (rows + 1)."""
        return np.append(0, np.cumsum(self.lengths))

    @cached_property
    def masked_offsets(self) -> np.ndarray:
        """Each row's first index in `masked_positions` and `masked_ids`, int64 (rows + 1)."""
        return np.append(0, np.cumsum(self.num_masked))

    def unmasked_ids(self) -> np.ndarray:
        """Return `input_ids` with the original tokens restored."""
        restored = self.input_ids.copy()
        row_starts = np.repeat(self.offsets[:-1], self.num_masked)
        restored[row_starts + self.masked_positions] = self.masked_ids
        return restored


def select(rows: InstanceRows, index: np.ndarray) -> InstanceRows:
    """Return the rows at `index` (int64), in that order."""
    # Two kinds of list columns, of different lengths: tokens, and tokens to predict.
    tokens = _items(rows.offsets, index)
    masked = _items(rows.masked_offsets, index)
    return InstanceRows(
        input_ids=rows.input_ids[tokens],
        lengths=rows.lengths[index],
        masked_positions=rows.masked_positions[masked],
        masked_ids=rows.masked_ids[masked],
        num_masked=rows.num_masked[index],
        segment_b_start=rows.segment_b_start[index],
        next_sentence_label=rows.next_sentence_label[index],
    )


def _items(offsets: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the flat indices of the chosen rows' items."""
    # Of the rows at the top of this module, `index` [2, 0] chooses the last and the first:
    #
    #     items         CLS  d  e  f SEP   CLS  a  b SEP
    #     target          0  1  2  3   4     5  6  7   8
    #     move by        +7 +7 +7 +7  +7    -5 -5 -5  -5     (start - target start)
    #     flat index      7  8  9 10  11     0  1  2   3
    starts = offsets[index]
    lengths = offsets[index + 1] - starts
    target_starts = np.cumsum(lengths) - lengths
    moves = np.repeat(starts - target_starts, lengths)
    return np.arange(lengths.sum()) + moves


def concatenate(parts: list[InstanceRows]) -> InstanceRows:
    """Return the rows of all `parts`, in their order."""
    if len(parts) == 1:
        return parts[0]  # most batches lie in one block, and need no copy
    columns = {}
    for field in fields(InstanceRows):
        columns[field.name] = np.concatenate([getattr(part, field.name) for part in parts])
    return InstanceRows(**columns)
