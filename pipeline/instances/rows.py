"""Hold rows of instances as flat columns.

No row is ever a Python object: columns are flat NumPy arrays, and rows are chosen by arithmetic on
offsets.

    rows       [CLS] a b [SEP]      [CLS] c [SEP]      [CLS] d e f [SEP]
    input_ids   CLS  a b  SEP        CLS  c  SEP        CLS  d e f  SEP
    lengths               4                   3                      5
    offsets     0                    4                  7                 12

A packed row holds several documents, each a sequence of its own that sees no other; `sequences`
makes a row of each.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Rows:
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
    sequence_starts: np.ndarray | None = None
    """Only of packed rows: where in its row each sequence starts."""
    num_sequences: np.ndarray | None = None
    """int64, only of packed rows: each row's number of items in the column above."""

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


def select(rows: Rows, index: np.ndarray) -> Rows:
    """Return the rows at `index` (int64), in that order."""
    # Two kinds of list columns, of different lengths: tokens, and tokens to predict.
    tokens = _items(rows.offsets, index)
    masked = _items(rows.masked_offsets, index)
    sequence_starts = None
    num_sequences = None
    if rows.sequence_starts is not None:
        assert rows.num_sequences is not None
        sequence_offsets = np.append(0, np.cumsum(rows.num_sequences))
        sequence_starts = rows.sequence_starts[_items(sequence_offsets, index)]
        num_sequences = rows.num_sequences[index]
    return Rows(
        input_ids=rows.input_ids[tokens],
        lengths=rows.lengths[index],
        masked_positions=rows.masked_positions[masked],
        masked_ids=rows.masked_ids[masked],
        num_masked=rows.num_masked[index],
        segment_b_start=rows.segment_b_start[index],
        next_sentence_label=rows.next_sentence_label[index],
        sequence_starts=sequence_starts,
        num_sequences=num_sequences,
    )


def sequences(rows: Rows) -> Rows:
    """Return a row for each sequence of packed rows; other rows as they are."""
    # A row of two sequences, with two tokens to predict:
    #
    #     input_ids           CLS  a  M SEP CLS  M  b SEP
    #     sequence_starts       0             4
    #     masked_positions           2           5
    #     in the sequences           2           1
    if rows.sequence_starts is None:
        return rows
    assert rows.num_sequences is not None
    row_starts = rows.offsets[:-1]
    starts = rows.sequence_starts + np.repeat(row_starts, rows.num_sequences)
    offsets = np.append(starts, rows.offsets[-1])
    masked_M = rows.masked_positions + np.repeat(row_starts, rows.num_masked)
    num_masked = np.diff(np.searchsorted(masked_M, offsets))
    lengths = np.diff(offsets)
    return Rows(
        input_ids=rows.input_ids,
        lengths=lengths,
        masked_positions=masked_M - np.repeat(starts, num_masked),
        masked_ids=rows.masked_ids,
        num_masked=num_masked,
        segment_b_start=lengths,
        next_sentence_label=np.zeros(len(lengths), np.uint8),
    )


def cut_rows(rows: Rows, num_tokens: int) -> Rows:
    """Return rows ``[CLS] text [SEP]`` cut into rows of at most `num_tokens`, which predict the
    same tokens from less text.
    """
    #     row       [CLS] a b c d e [SEP]                cut into rows of 4
    #     pieces    [CLS] a b [SEP]  [CLS] c d [SEP]  [CLS] e [SEP]
    room = num_tokens - 2
    text_lengths = rows.lengths - 2
    num_pieces = -(-text_lengths // room)
    first_pieces = np.cumsum(num_pieces) - num_pieces
    row_of_piece = np.repeat(np.arange(len(rows)), num_pieces)
    number_in_row = np.arange(len(row_of_piece)) - first_pieces[row_of_piece]
    lengths = np.minimum(text_lengths[row_of_piece] - number_in_row * room, room) + 2
    starts = np.cumsum(lengths) - lengths
    # Where a text's tokens lie: each piece is a range of the row, [CLS] or its last token before it
    # and [SEP] or its next token behind it, which the special tokens then replace.
    row_starts = rows.offsets[:-1]
    sources = row_starts[row_of_piece] + number_in_row * room
    index = np.arange(int(lengths.sum())) + np.repeat(sources - starts, lengths)
    input_ids = rows.input_ids[index]
    input_ids[starts] = rows.input_ids[row_starts[row_of_piece]]
    input_ids[starts + lengths - 1] = rows.input_ids[rows.offsets[1:][row_of_piece] - 1]
    row_of_mask = np.repeat(np.arange(len(rows)), rows.num_masked)
    piece_in_row, place = np.divmod(rows.masked_positions.astype(np.int64) - 1, room)
    piece_of_mask = first_pieces[row_of_mask] + piece_in_row
    return Rows(
        input_ids=input_ids,
        lengths=lengths,
        masked_positions=place + 1,
        masked_ids=rows.masked_ids,
        num_masked=np.bincount(piece_of_mask, minlength=len(row_of_piece)),
        segment_b_start=lengths,
        next_sentence_label=np.zeros(len(row_of_piece), np.uint8),
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


def concatenate(parts: list[Rows]) -> Rows:
    """Return the rows of all `parts`, in their order."""
    if len(parts) == 1:
        return parts[0]  # most batches lie in one block, and need no copy
    columns = {}
    for field in fields(Rows):
        values = [getattr(part, field.name) for part in parts]
        if values[0] is not None:  # only packed rows have all columns
            columns[field.name] = np.concatenate(values)
    return Rows(**columns)
