"""Hold rows of instances as flat columns (see `ragged`), for the trainer, the audit and `show`.

    rows       [CLS] a b [SEP]      [CLS] c [SEP]      [CLS] d e f [SEP]
    input_ids   CLS  a b  SEP        CLS  c  SEP        CLS  d e f  SEP
    lengths               4                   3                      5
    offsets     0                    4                  7                 12

A packed row holds several documents, each a sequence of its own that sees no other; `sequences`
makes a row of each.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..ragged import indices_of, offsets_in, offsets_of, places

if TYPE_CHECKING:
    # The benchmark on a GPU machine has its rows at hand, and no PyArrow.
    import pyarrow as pa

Index = np.ndarray | slice


@dataclass(frozen=True)
class Rows:
    """Columns of some instances, of the types they are stored in; list columns are flat, one row's
    items after another's, and numbers of items are int64.
    """

    input_ids: np.ndarray
    lengths: np.ndarray
    """Tokens in each row."""
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    num_masked: np.ndarray
    """Each row's number of items in the two columns above."""
    segment_b_start: np.ndarray
    next_sentence_label: np.ndarray
    sequence_starts: np.ndarray | None = None
    """Only of packed rows: where in its row each sequence starts."""
    num_sequences: np.ndarray | None = None
    """Only of packed rows: each row's number of items in the column above."""
    document_a: np.ndarray | None = None
    """The document that A comes from, of packed rows that of each sequence. Training does not read
    this column and those below.
    """
    document_b: np.ndarray | None = None
    duplicate: np.ndarray | None = None
    """The pass over the documents."""

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def offsets(self) -> np.ndarray:
        """Each row's first index in `input_ids`, [num_rows + 1]."""
        return offsets_of(self.lengths)

    @cached_property
    def masked_offsets(self) -> np.ndarray:
        """Each row's first index in `masked_positions` and `masked_ids`, [num_rows + 1]."""
        return offsets_of(self.num_masked)

    @cached_property
    def masked_index(self) -> np.ndarray:
        """The index in `input_ids` of each token to predict."""
        return self.masked_positions + np.repeat(self.offsets[:-1], self.num_masked)

    def token_types(self) -> np.ndarray:
        """Return 1 for each token of segment B, 0 for the others, int64."""
        segment_b_start = np.repeat(self.segment_b_start, self.lengths)
        return (places(self.lengths) >= segment_b_start).astype(np.int64)

    def unmasked_ids(self) -> np.ndarray:
        """Return `input_ids` with the original tokens restored."""
        restored = self.input_ids.copy()
        restored[self.masked_index] = self.masked_ids
        return restored


_DOCUMENT_COLUMNS = ("document_a", "document_b")


def rows_of(batch: "pa.RecordBatch | pa.Table") -> Rows:
    """Return instances as they are stored, without their documents and pass if the batch lacks
    these columns; raise `ValueError` if two columns do not fit together.
    """
    input_ids, offsets = _flat(batch, "input_ids")
    masked_positions, masked_offsets = _flat(batch, "masked_lm_positions")
    masked_ids, masked_id_offsets = _flat(batch, "masked_lm_ids")
    if not np.array_equal(masked_offsets, masked_id_offsets):
        raise ValueError("masked_lm_positions and masked_lm_ids have different lengths")
    lengths = np.diff(offsets)
    columns = {
        "input_ids": input_ids,
        "lengths": lengths,
        "masked_positions": masked_positions,
        "masked_ids": masked_ids,
        "num_masked": np.diff(masked_offsets),
    }
    if "sequence_starts" in batch.schema.names:
        sequence_starts, sequence_offsets = _flat(batch, "sequence_starts")
        columns |= {
            "segment_b_start": lengths,
            "next_sentence_label": np.zeros(len(lengths), np.uint8),
            "sequence_starts": sequence_starts,
            "num_sequences": np.diff(sequence_offsets),
        }
        if "documents" in batch.schema.names:
            documents, document_offsets = _flat(batch, "documents")
            if not np.array_equal(sequence_offsets, document_offsets):
                raise ValueError("sequence_starts and documents have different lengths")
            columns |= {"document_a": documents, "document_b": documents}
    else:
        names = ("segment_b_start", "next_sentence_label", *_DOCUMENT_COLUMNS)
        columns |= {name: batch[name].to_numpy() for name in names if name in batch.schema.names}
    if "duplicate" in batch.schema.names:
        columns["duplicate"] = batch["duplicate"].to_numpy()
    return Rows(**columns)


def _flat(batch: "pa.RecordBatch | pa.Table", name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column of lists, in their own type, and its offsets."""
    column = batch[name]
    if hasattr(column, "combine_chunks"):  # of a table
        column = column.combine_chunks()
    return column.flatten().to_numpy(), offsets_in(column)


def check_rows(rows: Rows, vocab_size: int) -> None:
    """Raise `ValueError`, naming the column, for rows that training would fail at."""
    for name, ids in (("input_ids", rows.input_ids), ("masked_lm_ids", rows.masked_ids)):
        largest = int(ids.max(initial=0))
        if largest >= vocab_size:
            raise ValueError(
                f"column {name} contains token {largest}, but its vocabulary has {vocab_size} "
                "tokens"
            )
    if rows.sequence_starts is None or rows.num_sequences is None:
        return
    bounds = offsets_of(rows.num_sequences)
    has_none = rows.num_sequences == 0
    if has_none.any() or rows.sequence_starts[bounds[:-1]].any():
        raise ValueError("column sequence_starts: a row has no sequence at its start")
    # Each sequence ends where the next one starts, the last one of a row where the row ends.
    ends = np.append(rows.sequence_starts[1:].astype(np.int64), 0)
    ends[bounds[1:] - 1] = rows.lengths
    if (ends <= rows.sequence_starts).any():
        raise ValueError("column sequence_starts: they do not ascend, or lie outside of their row")
    does_not_ascend = np.diff(rows.masked_index) <= 0
    if does_not_ascend.any() or are_outside(rows).any():
        raise ValueError("column masked_lm_positions: they do not ascend, or lie outside of a row")


def are_outside(rows: Rows) -> np.ndarray:
    """Return which of the positions to predict lie beyond the end of their row, bool."""
    return rows.masked_positions >= np.repeat(rows.lengths, rows.num_masked)


def are_misdivided(rows: Rows) -> np.ndarray:
    """Return which rows have their segment B at a place where it cannot begin, bool."""
    b_start = rows.segment_b_start.astype(np.int64)
    # Not below 2: [CLS] and the [SEP] after A stand before B.
    return (b_start < 2) | (b_start > rows.lengths)


def select(rows: Rows, index: np.ndarray) -> Rows:
    """Return the rows at `index` (int64), in that order."""
    return _chosen(rows, index, lambda offsets: indices_of(offsets, index))


def between(rows: Rows, first: int, stop: int) -> Rows:
    """Return the rows from `first` up to `stop`, without copying them."""
    if stop - first == len(rows):
        return rows  # with the offsets that it has computed
    return _chosen(rows, slice(first, stop), lambda offsets: slice(offsets[first], offsets[stop]))


def _chosen(rows: Rows, index: Index, items_of: Callable[[np.ndarray], Index]) -> Rows:
    """Return the rows at `index`; `items_of` says where the items of their lists lie."""
    places = {"input_ids": items_of(rows.offsets)}
    masks = items_of(rows.masked_offsets)
    places |= {"masked_positions": masks, "masked_ids": masks}
    if rows.num_sequences is not None:
        of_sequences = items_of(offsets_of(rows.num_sequences))
        for name in ("sequence_starts", *_DOCUMENT_COLUMNS):
            places[name] = of_sequences
    columns = {}
    for field in fields(Rows):
        values = getattr(rows, field.name)
        if values is not None:
            columns[field.name] = values[places.get(field.name, index)]
    return Rows(**columns)


def sequences(rows: Rows) -> Rows:
    """Return a row for each sequence of packed rows; other rows as they are."""
    # A row of two sequences, with two tokens to predict:
    #
    #     input_ids           CLS  a  M SEP CLS  M  b SEP
    #     sequence_starts       0             4
    #     masked_positions           2           5
    #     in the sequences           2           1
    if rows.sequence_starts is None or rows.num_sequences is None:
        return rows
    starts = rows.sequence_starts + np.repeat(rows.offsets[:-1], rows.num_sequences)
    offsets = np.append(starts, rows.offsets[-1])
    num_masked = np.diff(np.searchsorted(rows.masked_index, offsets))
    lengths = np.diff(offsets)
    duplicate = rows.duplicate
    if duplicate is not None:
        duplicate = np.repeat(duplicate, rows.num_sequences)
    return Rows(
        input_ids=rows.input_ids,
        lengths=lengths,
        masked_positions=rows.masked_index - np.repeat(starts, num_masked),
        masked_ids=rows.masked_ids,
        num_masked=num_masked,
        segment_b_start=lengths,
        next_sentence_label=np.zeros(len(lengths), np.uint8),
        document_a=rows.document_a,
        document_b=rows.document_b,
        duplicate=duplicate,
    )


def concatenate(parts: list[Rows]) -> Rows:
    """Return the rows of all `parts`, in their order."""
    if len(parts) == 1:
        return parts[0]  # most batches lie in one block, and need no copy
    columns = {}
    for field in fields(Rows):
        values = [getattr(part, field.name) for part in parts]
        if values[0] is not None:
            columns[field.name] = np.concatenate(values)
    return Rows(**columns)
