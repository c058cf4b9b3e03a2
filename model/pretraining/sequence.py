"""The order of the rows: a formula of (seed, epoch, position), so that a checkpoint need not store
it.

The rows of a directory form one endless sequence, epoch after epoch. Row groups come in an order
that depends on (seed, epoch); consecutive row groups form a block of about 65,536 rows, which is
shuffled by (seed, epoch, block). Rows are stored shuffled already, so this is as good as a full
shuffle; and the row at any position is found without reading those before it. Step k takes the
positions from k * batch size on, and each rank its part of them. Dynamic masks are drawn for
`MASKED_TOGETHER` rows at once, by a generator seeded with their position.
"""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from ...pipeline.config import BuildConfig
from ...pipeline.errors import UserError
from ...pipeline.seeding import rng_for
from ...pipeline.vocabulary.vocabulary import Vocabulary
from .data import InstanceDirectory, RowGroup, mask_anew, read_group
from .rows import InstanceRows, concatenate, select

BLOCK_ROWS = 65_536
NUM_READERS = (
    8  # requests under way at once, as an object store answers each after tens of milliseconds
)
# Few enough that no batch waits long for its masks.
MASKED_TOGETHER = 2048


class RowSequence:
    """The endless sequence of the rows of a directory, epoch after epoch.

    An epoch uses `duplicates_per_epoch` of the stored passes (the next epoch the next ones), by
    default all. Masks are the stored ones, or drawn for each epoch with `masks`: a vocabulary, and
    how to mask. The block last used stays in memory, which is all that batches of ascending
    positions need, and the next one is read meanwhile.
    """

    def __init__(
        self,
        directory: InstanceDirectory,
        seed: int,
        duplicates_per_epoch: int | None = None,
        masks: tuple[Vocabulary, BuildConfig] | None = None,
    ):
        self.directory = directory
        self.seed = seed
        self.masks = masks
        self._duplicates_per_epoch = duplicates_per_epoch
        mean_rows = directory.num_rows / len(directory.row_groups)
        self.groups_per_block = max(1, round(BLOCK_ROWS / mean_rows))
        self._group_rows = np.array([group.num_rows for group in directory.row_groups])
        self._epochs = _epochs(directory, duplicates_per_epoch)
        """Indices of the row groups of each epoch, until they repeat."""
        self._epoch_ends = np.cumsum([self._group_rows[groups].sum() for groups in self._epochs])
        self._coming: dict[tuple[int, int], list[Future[InstanceRows]]] = {}
        """Row groups of the next block, which are read while the current one is used."""
        self._readers: ThreadPoolExecutor | None = None
        self._process_id = os.getpid()
        # Batches of ascending positions need the latest only.
        self._block_ends = lru_cache(1)(self._count_blocks)
        self._block = lru_cache(1)(self._read_block)
        self._masked = lru_cache(1)(self._mask)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave threads and rows behind, for the workers of a ``DataLoader``."""
        return RowSequence, (self.directory, self.seed, self._duplicates_per_epoch, self.masks)

    def rows(self, start: int, stop: int) -> InstanceRows:
        """Return the rows at the positions from `start` up to `stop`, which may lie in several
        epochs.
        """
        return concatenate([self._piece(*piece) for piece in self._pieces(start, stop)])

    def epoch_start(self, epoch: int) -> int:
        """Return the position of the first row of an epoch."""
        rounds, rest = divmod(epoch, len(self._epochs))
        return rounds * int(self._epoch_ends[-1]) + (int(self._epoch_ends[rest - 1]) if rest else 0)

    def locate(self, position: int) -> str:
        """Return the shard and row number of the row at `position`, for messages."""
        epoch, block, first, _ = next(self._pieces(position, position + 1))
        row = int(self._row_order(epoch, block)[first])
        for group in self._block_groups(epoch, block):
            if row < group.num_rows:
                return f"{group.shard} row {group.first_row + row}"
            row -= group.num_rows
        raise AssertionError("a block's order names only its own rows")

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        # Cut the positions by epoch, block and rows masked together: (epoch, block, first, last + 1
        # in the block).
        while start < stop:
            epoch, offset = self._epoch_of(start)
            ends = self._block_ends(epoch)
            block = int(np.searchsorted(ends, offset, side="right"))
            first = offset - (int(ends[block - 1]) if block else 0)
            num_left = min(stop - start, int(ends[block]) - offset)
            num_taken = (
                min(num_left, MASKED_TOGETHER - first % MASKED_TOGETHER) if self.masks else num_left
            )
            yield epoch, block, first, first + num_taken
            start += num_taken

    def _epoch_of(self, position: int) -> tuple[int, int]:
        # The epoch that contains a position, and the offset within it.
        rounds, rest = divmod(position, int(self._epoch_ends[-1]))
        number = int(np.searchsorted(self._epoch_ends, rest, side="right"))
        first = int(self._epoch_ends[number - 1]) if number else 0
        return rounds * len(self._epochs) + number, rest - first

    def _group_order(self, epoch: int) -> np.ndarray:
        groups = self._epochs[epoch % len(self._epochs)]
        return groups[rng_for(self.seed, "order", epoch).permutation(len(groups))]

    def _block_groups(self, epoch: int, block: int) -> list[RowGroup]:
        first = block * self.groups_per_block
        chosen = self._group_order(epoch)[first : first + self.groups_per_block]
        return [self.directory.row_groups[index] for index in chosen]

    def _count_blocks(self, epoch: int) -> np.ndarray:
        # The offset behind each block within its epoch.
        num_rows = self._group_rows[self._group_order(epoch)]
        return np.cumsum(
            np.add.reduceat(num_rows, np.arange(0, len(num_rows), self.groups_per_block))
        )

    def _row_order(self, epoch: int, block: int) -> np.ndarray:
        num_rows = sum(group.num_rows for group in self._block_groups(epoch, block))
        return rng_for(self.seed, "order", epoch, block).permutation(num_rows)

    def _read_block(self, epoch: int, block: int) -> tuple[InstanceRows, np.ndarray]:
        if (
            self._process_id != os.getpid()
        ):  # in a fork, the parent's threads and what they read are missing
            self._process_id, self._readers, self._coming = os.getpid(), None, {}
        groups = self._coming.pop((epoch, block), None) or self._read((epoch, block))
        rows = concatenate([group.result() for group in groups])
        is_last = block + 1 == len(self._block_ends(epoch))
        following = (epoch + 1, 0) if is_last else (epoch, block + 1)
        self._coming = {following: self._read(following)}
        return rows, self._row_order(epoch, block)

    def _read(self, block: tuple[int, int]) -> "list[Future[InstanceRows]]":
        self._readers = self._readers or ThreadPoolExecutor(
            NUM_READERS, thread_name_prefix="reader"
        )
        return [
            self._readers.submit(read_group, self.directory, group)
            for group in self._block_groups(*block)
        ]

    def _mask(self, epoch: int, block: int, part: int) -> InstanceRows:
        assert self.masks is not None
        rows, order = self._block(epoch, block)
        chosen = select(rows, order[part * MASKED_TOGETHER : (part + 1) * MASKED_TOGETHER])
        return mask_anew(chosen, *self.masks, rng_for(self.seed, "masks", epoch, block, part))

    def _piece(self, epoch: int, block: int, first: int, stop: int) -> InstanceRows:
        if self.masks:
            part, start = divmod(first, MASKED_TOGETHER)
            return select(self._masked(epoch, block, part), np.arange(start, start + stop - first))
        rows, order = self._block(epoch, block)
        return select(rows, order[first:stop])


def _epochs(directory: InstanceDirectory, duplicates_per_epoch: int | None) -> list[np.ndarray]:
    # Indices of the row groups of each epoch, until they repeat.
    if duplicates_per_epoch is None:
        return [np.arange(len(directory.row_groups))]
    known = np.array(
        [-1 if group.duplicate is None else group.duplicate for group in directory.row_groups]
    )
    stored = np.unique(known)
    if stored[0] < 0:
        where = f"{directory.path}/{directory.row_groups[int(known.argmin())].shard}"
        reason = f"the footer of {where} does not say which pass its rows belong to"
        raise UserError(
            f"`duplicates_per_epoch` cannot be used because {reason}; rebuild the instances."
        )
    if duplicates_per_epoch > len(stored):
        raise UserError(
            f"`duplicates_per_epoch` is {duplicates_per_epoch}, but {directory.path} was built "
            f"with `duplicates` {len(stored)}; lower it."
        )
    num_epochs = len(stored) // gcd(len(stored), duplicates_per_epoch)
    turns = np.arange(num_epochs * duplicates_per_epoch).reshape(num_epochs, -1) % len(stored)
    return [np.flatnonzero(np.isin(known, stored[turn])) for turn in turns]
