"""Give instances to other training loops: a PyTorch data set in the row order of `pretrain`, and
its collator.

The order is a formula (see `sequence`), so a state is a position, and resuming is exact and
immediate.

Shapes: B rows, L tokens of a row, T tokens of all rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import IterableDataset, get_worker_info

from ...pipeline.config import check
from ...pipeline.errors import UserError
from ...pipeline.instances.rows import Rows, select, sequences
from ...pipeline.ragged import places
from ..encoders.heads import IGNORED
from .data import open_instances
from .sequence import RowSequence


class InstanceDataset(IterableDataset[dict[str, Any]]):
    """The instances in a directory, in the order of `pretrain` with the same seed; raises
    `UserError` if it is damaged.

    A row of L tokens, without padding, is a dict of tensors, int64 (L,):

    - ``input_ids``: masked;
    - ``token_type_ids``: 0 in segment A, 1 in segment B;
    - ``labels``: the original token if it is to be predicted, else -100;
    - ``position_ids``: only in packed rows, from 0 on in each document, which must see no other;

    and of pairs ``next_sentence_label``: 0 is IsNext, 1 is NotNext.

    Epochs follow each other endlessly, each in a new order, or `epochs` of them. Of each
    `num_ranks` x `batch_size` rows, rank r gets the rows r, r + `num_ranks`, ... The workers of a
    ``DataLoader`` with the same `batch_size` take turns batch by batch, so the order does not
    depend on their number.
    """

    def __init__(
        self,
        path: str,
        split: str = "train",
        *,
        batch_size: int,
        seed: int = 0,
        epochs: int | None = None,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        check(batch_size >= 1, "batch_size", batch_size, "must be at least 1")
        must = f"must be at least 0 and less than `num_ranks` ({num_ranks})"
        check(0 <= rank < num_ranks, "rank", rank, must)
        self.directory = open_instances(str(path), split)
        self.batch_size = batch_size
        self.rank = rank
        self.num_ranks = num_ranks
        self._sequence = RowSequence(self.directory, seed)
        self._end = None if epochs is None else epochs * self.directory.num_rows
        self._order = {
            "digest": self.directory.manifest.digest,
            "split": split,
            "seed": seed,
        }
        # The next iteration starts at a position in the sequence of all ranks' rows, and skips
        # some of this process's rows after it.
        self._position = 0
        self._num_skipped = 0
        self._num_yielded = 0

    @property
    def rows_per_epoch(self) -> int:
        """Rows of all ranks in an epoch."""
        return self.directory.num_rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        worker_index = worker.id if worker else 0
        num_workers = worker.num_workers if worker else 1
        self._num_yielded = self._num_skipped
        num_batches, first_row = divmod(self._num_skipped, self.batch_size)
        # Of two workers, one reads the batches 0, 2, 4, ... and the other 1, 3, 5, ...
        first_batch = worker_index + num_batches * num_workers
        for batch in count(first_batch, num_workers):
            rows = self._rows(batch)
            for row in rows[first_row:]:
                self._num_yielded += 1
                yield row
            if len(rows) < self.batch_size:
                return  # the last batch of the last epoch
            first_row = 0

    def _rows(self, batch: int) -> list[dict[str, Any]]:
        """Return this rank's rows of a batch, counted from `_position`; fewer at the end."""
        # Of 2 ranks with batches of 3 rows, rank 1 has in batch 1 the rows marked x:
        #
        #     position    0 1 2 3 4 5   6 7 8 9 10 11
        #     batch       |--- 0 ---|   |---- 1 ----|
        #                                 x   x    x
        size = self.batch_size * self.num_ranks
        start = self._position + batch * size
        stop = start + size
        if self._end is not None:
            stop = min(stop, self._end)
        rank_rows = np.arange(self.rank, max(0, stop - start), self.num_ranks)
        if not len(rank_rows):
            return []
        rows = self._sequence.rows(start, stop)
        if self.num_ranks > 1:
            rows = select(rows, rank_rows)
        return _split_rows(rows, has_pairs=self.directory.has_pairs)

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return the state after `num_batches` batches of the current iteration, by default after
        the rows iterated in this process. With worker processes only the user of a ``DataLoader``
        knows their number.
        """
        if num_batches is None:
            return {**self._order, "position": self._position, "num_rows": self._num_yielded}
        position = self._position + num_batches * self.batch_size * self.num_ranks
        return {**self._order, "position": position, "num_rows": self._num_skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at a state; raises `UserError` if it is of other instances or another order. The
        batch size and the number of ranks may change if the state was taken with `num_batches`.
        """
        for name, value in self._order.items():
            if state[name] != value:
                raise UserError(
                    f"The state has {name} {state[name]}, but the data set has {value}."
                )
        self._position = state["position"]
        self._num_skipped = state["num_rows"]
        self._num_yielded = self._num_skipped


def _split_rows(rows: Rows, *, has_pairs: bool) -> list[dict[str, Any]]:
    # Of two rows [CLS] x [SEP] y [SEP] and [CLS] z [SEP], where y is to be predicted:
    #
    #     input_ids   CLS x SEP MASK SEP   CLS z SEP
    #     labels       -  -  -   y    -     -  -  -
    #     types        0  0  0   1    1     0  0  0
    labels_T = np.full(len(rows.input_ids), IGNORED, np.int64)
    labels_T[rows.masked_index] = rows.masked_ids
    columns = {
        "input_ids": rows.input_ids.astype(np.int64),
        "token_type_ids": rows.token_types(),
        "labels": labels_T,
    }
    if rows.sequence_starts is not None:
        columns["position_ids"] = places(sequences(rows).lengths)
    lengths = rows.lengths.tolist()
    split_rows: list[dict[str, Any]] = [{} for _ in lengths]
    for name, values_T in columns.items():
        pieces = torch.from_numpy(values_T).split(lengths)
        for row, piece in zip(split_rows, pieces, strict=True):
            row[name] = piece
    if has_pairs:
        for row, label in zip(split_rows, rows.next_sentence_label.tolist(), strict=True):
            row["next_sentence_label"] = label
    return split_rows


def collate(
    rows: Sequence[Mapping[str, Any]], *, local_attention: int | None = 128, flatten: bool = False
) -> dict[str, Any]:
    """Return rows of an `InstanceDataset` as the arguments of a model of ``transformers``.

    Rows are padded to the longest, int64 (B, L): input_ids, labels and attention_mask; of pairs
    also token_type_ids and next_sentence_label (B,).

    In packed rows no document sees another: position_ids start at 0 in each, and attention_mask is
    bool (B, 1, L, L), as the attention ``sdpa`` takes it; for a ModernBERT one for each kind of
    layer by its `local_attention`, for a BERT, with None, a single one.

    With `flatten` all documents or pairs lie in a single row (1, T), for ``flash_attention_2``,
    which sees from cu_seq_lens_q where each ends; there is no next_sentence_label.
    """
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if flatten:
        return _flat_arguments(columns)
    padded = partial(pad_sequence, batch_first=True)
    arguments: dict[str, Any] = {
        "input_ids": padded(columns["input_ids"]),
        "labels": padded(columns["labels"], padding_value=IGNORED),
    }
    if "position_ids" in columns:
        return arguments | _packed_arguments(padded(columns["position_ids"]), local_attention)
    # Not from the ids: token 0 is [PAD] by convention alone.
    arguments["attention_mask"] = padded([torch.ones_like(ids) for ids in columns["input_ids"]])
    if "next_sentence_label" in columns:
        arguments["token_type_ids"] = padded(columns["token_type_ids"])
        arguments["next_sentence_label"] = torch.tensor(columns["next_sentence_label"])
    return arguments


def _packed_arguments(position_BL: Tensor, local_attention: int | None) -> dict[str, Any]:
    # A row of two documents and padding, and what its tokens see. Each token of padding is a
    # document of its own: attention to nothing at all is not a number.
    #
    #     position_BL    0  1  0  1  2  0  0          x x . . . . .
    #     document_BL    1  1  2  2  2  3  4          x x . . . . .
    #                                                 . . x x x . .
    document_BL = (position_BL == 0).cumsum(1)
    same_document = document_BL[:, None, :, None] == document_BL[:, None, None, :]
    if local_attention is None:
        return {"position_ids": position_BL, "attention_mask": same_document}
    column_L = torch.arange(position_BL.shape[1])
    distance_LL = column_L[:, None] - column_L
    is_near_LL = distance_LL.abs() <= local_attention // 2
    masks = {
        "full_attention": same_document,
        "sliding_attention": same_document & is_near_LL,
    }
    return {"position_ids": position_BL, "attention_mask": masks}


def _flat_arguments(columns: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return all documents or pairs in one row, as FlashAttention takes them."""
    positions = columns.get("position_ids")
    if positions is None:
        positions = [torch.arange(len(ids)) for ids in columns["input_ids"]]
    position_T = torch.cat(positions)
    starts = (position_T == 0).nonzero()[:, 0]
    offsets = F.pad(starts, (0, 1), value=len(position_T)).int()
    longest = int(offsets.diff().max())
    arguments: dict[str, Any] = {
        "input_ids": torch.cat(columns["input_ids"])[None],
        "labels": torch.cat(columns["labels"])[None],
        "position_ids": position_T[None],
    }
    if "next_sentence_label" in columns:
        arguments["token_type_ids"] = torch.cat(columns["token_type_ids"])[None]
    return arguments | {
        "cu_seq_lens_q": offsets,
        "cu_seq_lens_k": offsets,
        "max_length_q": longest,
        "max_length_k": longest,
    }
