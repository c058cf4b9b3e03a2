"""Give instances to other training loops: a PyTorch data set in the row order of `pretrain`, and
its collator.

The order is a formula (see `sequence`), so a state is a position, and resuming is exact and
immediate.

Shapes: B rows, L tokens of a row, T tokens of all rows, M tokens to predict.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import IterableDataset, get_worker_info

from ...pipeline.errors import UserError
from ...pipeline.instances.rows import Rows, select, sequences
from ...pipeline.ragged import places
from ..encoders.heads import IGNORED
from .data import open_instances
from .sequence import RowSequence


class InstanceRow(TypedDict):
    """One instance of L tokens, without padding."""

    input_ids: Tensor
    """int64 (L,), masked."""
    token_type_ids: Tensor
    """int64 (L,): 0 in segment A, 1 in segment B."""
    labels: Tensor
    """int64 (L,): the original token if it is to be predicted, else `IGNORED`."""
    next_sentence_label: NotRequired[int]
    """0 is IsNext, 1 is NotNext; absent if `pairing` was none."""
    position_ids: NotRequired[Tensor]
    """int64 (L,), only in packed rows: from 0 on in each document, which must see no other."""


class InstanceDataset(IterableDataset[InstanceRow]):
    """The instances in a directory, in the order of `pretrain` with the same seed; raises
    `UserError` if it is damaged.

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
        duplicates_per_epoch: int | None = None,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"`batch_size` is {batch_size}, but must be at least 1.")
        if not 0 <= rank < num_ranks:
            must = f"must be at least 0 and less than `num_ranks` ({num_ranks})"
            raise UserError(f"`rank` is {rank}, but {must}.")
        self.directory = open_instances(str(path), split)
        self.batch_size = batch_size
        self.rank = rank
        self.num_ranks = num_ranks
        self._sequence = RowSequence(self.directory, seed, duplicates_per_epoch)
        self._end = None if epochs is None else self._sequence.epoch_start(epochs)
        self._order = {
            "digest": self.directory.manifest.digest,
            "split": split,
            "seed": seed,
            "duplicates_per_epoch": duplicates_per_epoch,
        }
        # The next iteration starts at a position in the sequence of all ranks' rows, and skips
        # some of this process's rows behind it.
        self._position = 0
        self._num_skipped = 0
        self._num_yielded = 0

    @property
    def rows_per_epoch(self) -> int:
        """Rows of all ranks in the first epoch."""
        return self._sequence.epoch_start(1)

    def __iter__(self) -> Iterator[InstanceRow]:
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

    def _rows(self, batch: int) -> list[InstanceRow]:
        """Return this rank's rows of a batch, counted from `_position`; fewer than `batch_size` at
        the end.
        """
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
        rows = select(self._sequence.rows(start, stop), rank_rows)
        return _split_rows(rows, has_pairs=self.directory.has_pairs)

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return the state after `num_batches` batches of the current iteration, from which another
        one can resume.

        Give `num_batches` if a ``DataLoader`` has worker processes: only its user knows how many
        batches were used. By default it is the state after the rows that were iterated in this
        process.
        """
        if num_batches is None:
            return {**self._order, "position": self._position, "num_rows": self._num_yielded}
        position = self._position + num_batches * self.batch_size * self.num_ranks
        return {**self._order, "position": position, "num_rows": self._num_skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration resume at a state; raises `UserError` if it is of other instances
        or another order.

        The batch size and the number of ranks may change if the state was taken with `num_batches`.
        """
        for name, value in self._order.items():
            if state[name] != value:
                raise UserError(
                    f"The state has {name} {state[name]}, but the data set has {value}."
                )
        self._position, self._num_skipped = state["position"], state["num_rows"]


def _split_rows(rows: Rows, *, has_pairs: bool) -> list[InstanceRow]:
    """Cut flat columns into a dict of tensors for each row."""
    # Of two rows [CLS] x [SEP] y [SEP] and [CLS] z [SEP], where y is to be predicted:
    #
    #     offsets     0                    5          8
    #     input_ids   CLS x SEP MASK SEP   CLS z SEP
    #     labels       -  -  -   y    -     -  -  -
    #     types        0  0  0   1    1     0  0  0
    labels_T = np.full(len(rows.input_ids), IGNORED, np.int64)
    labels_T[rows.masked_index] = rows.masked_ids
    segment_b_start_T = np.repeat(rows.segment_b_start, rows.lengths)
    types_T = (places(rows.lengths) >= segment_b_start_T).astype(np.int64)

    lengths = rows.lengths.tolist()
    ids_by_row = torch.from_numpy(rows.input_ids.astype(np.int64)).split(lengths)
    types_by_row = torch.from_numpy(types_T).split(lengths)
    labels_by_row = torch.from_numpy(labels_T).split(lengths)
    columns = zip(ids_by_row, types_by_row, labels_by_row, strict=True)
    split_rows = [
        InstanceRow(input_ids=ids_L, token_type_ids=types_L, labels=labels_L)
        for ids_L, types_L, labels_L in columns
    ]
    if has_pairs:
        for row, label in zip(split_rows, rows.next_sentence_label.tolist(), strict=True):
            row["next_sentence_label"] = label
    if rows.sequence_starts is not None:
        positions_T = places(sequences(rows).lengths)
        positions_by_row = torch.from_numpy(positions_T).split(lengths)
        for row, positions_L in zip(split_rows, positions_by_row, strict=True):
            row["position_ids"] = positions_L
    return split_rows


def collate(rows: Sequence[InstanceRow]) -> dict[str, Tensor]:
    """Pad rows to the longest and stack them: the arguments of ``transformers.BertForPreTraining``,
    int64 (B, L).

    These are input_ids, token_type_ids, attention_mask, labels (`IGNORED` if not to be predicted)
    and, if the instances have pairs, next_sentence_label (B,).
    """
    paddings = {"input_ids": 0, "token_type_ids": 0, "labels": IGNORED}
    if "position_ids" in rows[0]:
        paddings["position_ids"] = 0
    batch = {}
    for name, padding in paddings.items():
        columns = [row[name] for row in rows]
        batch[name] = pad_sequence(columns, batch_first=True, padding_value=padding)
    # From the lengths, not from the ids: token 0 is [PAD] by convention alone.
    real_tokens = [torch.ones_like(row["input_ids"]) for row in rows]
    batch["attention_mask"] = pad_sequence(real_tokens, batch_first=True)
    if "next_sentence_label" in rows[0]:
        next_sentence_labels = [row.get("next_sentence_label", 0) for row in rows]
        batch["next_sentence_label"] = torch.tensor(next_sentence_labels)
    return batch
