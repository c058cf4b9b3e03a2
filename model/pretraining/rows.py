"""Rows of instances as flat columns.

No row is ever a Python object: columns are flat NumPy arrays, and rows are chosen by arithmetic on
offsets.
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
        restored[np.repeat(self.offsets[:-1], self.num_masked) + self.masked_positions] = (
            self.masked_ids
        )
        return restored


def select(rows: InstanceRows, index: np.ndarray) -> InstanceRows:
    """Return the rows at `index` (int64), in that order."""
    tokens, masked = _items(rows.offsets, index), _items(rows.masked_offsets, index)
    return InstanceRows(
        rows.input_ids[tokens],
        rows.lengths[index],
        rows.masked_positions[masked],
        rows.masked_ids[masked],
        rows.num_masked[index],
        rows.segment_b_start[index],
        rows.next_sentence_label[index],
    )


def _items(offsets: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the flat indices of the chosen rows' items."""
    starts, lengths = offsets[index], offsets[index + 1] - offsets[index]
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)


def concatenate(parts: list[InstanceRows]) -> InstanceRows:
    """Return the rows of all `parts`, in their order."""
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(InstanceRows)]
    return InstanceRows(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )
