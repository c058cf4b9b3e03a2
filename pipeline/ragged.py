"""Hold lists of different lengths end to end in one flat array, and find the way about in it.

    lists      [4 9 7]   []   [5 2]
    values      4 9 7          5 2
    lengths     3         0    2
    offsets     0         3    3      5      list i is ``values[offsets[i]:offsets[i + 1]]``
    owners      0 0 0          2 2           the list of each value
    places      0 1 2          0 1           its index in its list

Lists are chosen, cut and put in another order by arithmetic on these: no list is ever an object of
Python. All arrays are int64 unless stated otherwise.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Number = TypeVar("Number", int, np.ndarray)


def offsets_of(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return where each list begins, and where the last one ends: [num_lists + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
    return offsets


def owners(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return the list of each value: [num_values]."""
    return np.repeat(np.arange(len(lengths)), lengths)


def places(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return each value's index in its list: [num_values]."""
    return ranges(np.zeros(len(lengths), np.int64), np.asarray(lengths, np.int64))


def ranges(
    starts: np.ndarray, lengths: np.ndarray, dtype: type[np.integer] = np.int64
) -> np.ndarray:
    """Return the indices of several ranges, one range after the other: [lengths.sum()], of `dtype`.

    >>> ranges(np.array([4, 9]), np.array([2, 3])).tolist()
    [4, 5, 9, 10, 11]
    """
    # A running index, moved by the same for all indices of a range:
    #
    #     running index    0  1   2  3  4
    #     moved by        +4 +4  +7 +7 +7      its start, less the indices of the ranges before it
    #     index            4  5   9 10 11
    indices_before = np.cumsum(lengths) - lengths
    moves = (starts - indices_before).astype(dtype)
    indices = np.repeat(moves, lengths)
    indices += np.arange(len(indices), dtype=dtype)
    return indices


def indices_of(offsets: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return where the values of the `chosen` lists lie, in the order of `chosen`.

    >>> indices_of(np.array([0, 3, 3, 5]), np.array([2, 0])).tolist()
    [3, 4, 0, 1, 2]
    """
    starts = offsets[chosen]
    return ranges(starts, offsets[chosen + 1] - starts)


def sums(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the sum of each list: [num_lists]; 0 for an empty one.

    >>> sums(np.array([4, 9, 7, 5, 2]), np.array([0, 3, 3, 5])).tolist()
    [20, 0, 7]
    """
    # `np.add.reduceat` would give an empty list the first value of the next one.
    return np.diff(offsets_of(values)[offsets])


def begins_run(*columns: np.ndarray) -> np.ndarray:
    """Return which rows of some columns differ from the row before, bool [num_rows].

    >>> begins_run(np.array([7, 7, 7, 2]), np.array([1, 1, 3, 3])).tolist()
    [True, False, True, True]
    """
    begins = np.zeros(len(columns[0]), bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def offsets_in(column: "pa.ListArray") -> np.ndarray:
    """Return the offsets of a column of lists in its ``flatten()``.

    >>> import pyarrow as pa
    >>> offsets_in(pa.array([[1], [4, 9, 7], [], [5, 2]])[1:]).tolist()
    [0, 3, 3, 5]
    """
    # `flatten`, not `values`: a slice has the whole column's `values`, and its offsets count in
    # these.
    offsets = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0]


def flat_text(strings: "pa.StringArray") -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 of a column of strings without nulls, uint8, and its offsets.

    >>> import pyarrow as pa
    >>> text, offsets = flat_text(pa.array(["a", "bcd", "", "ef"])[1:])
    >>> text.tobytes(), offsets.tolist()
    (b'bcdef', [0, 3, 3, 5])
    """
    if not len(strings):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    # A slice shares the buffers of the whole column. Arrow may leave out the text if all strings
    # are empty.
    _, offsets_buffer, data = strings.buffers()
    all_offsets = np.frombuffer(offsets_buffer, np.int32)
    first = strings.offset
    stop = first + len(strings) + 1
    offsets = all_offsets[first:stop].astype(np.int64)
    text = np.frombuffer(data or b"", np.uint8)
    return text[offsets[0] : offsets[-1]], offsets - offsets[0]


def divide_up(total: Number, size: Number | int) -> Number:
    """Return ``total / size`` rounded up, exactly for all integers, unlike `math.ceil`."""
    return -(-total // size)
