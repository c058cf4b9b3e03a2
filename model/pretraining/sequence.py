"""Order the rows by a formula of (seed, epoch, position), so that a checkpoint need not store it.

The rows of a directory form one endless sequence, epoch after epoch. Row groups come in an order
that depends on (seed, epoch); consecutive row groups form a block of about 65,536 rows, which is
shuffled by (seed, epoch, block). Rows are stored shuffled already, so this is as good as a full
shuffle; and the row at any position is found without reading those before it. Step k takes the
positions from k * batch size on, and each rank its part of them. Dynamic masks are drawn for
2,048 rows at once, by a generator seeded with their position.

    position    0 ... 65,600     ... 131,000    ... 180,000    ...
    epoch       |-------------------- 0 -------------------|---- 1 ...
    block       |----- 0 -----|------ 1 ------|---- 2 -----|-- 0 ---
    row group    7   2   9   4   0   3   8   1   6   5      3   9 ...   (in any order, as units)
    row          each block's rows are shuffled as one
"""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...pipeline.config import BuildConfig
from ...pipeline.instances.rows import Rows, between, concatenate, select
from ...pipeline.ragged import offsets_of
from ...pipeline.seeding import rng_for
from ...pipeline.vocabulary.vocabulary import Vocabulary
from .data import NUM_READERS, InstanceDirectory, RowGroup, mask_anew, read_group


@dataclass(frozen=True)
class Masks:
    """How a sequence draws its masks: as `config` says, but for the rate."""

    vocabulary: Vocabulary
    config: BuildConfig
    rates: tuple[float, ...] = ()
    """One for all rows, or the first and the last, linear in the position; none: `config`'s."""
    share_per_row: float = 0.0
    """The share of the way between the two that a row takes."""

    def rates_at(self, positions: np.ndarray) -> np.ndarray | None:
        """Return the rates of the rows at these positions; None for `config`'s."""
        if not self.rates:
            return None
        shares = np.minimum(1.0, positions * self.share_per_row)
        first, last = self.rates[0], self.rates[-1]
        return first + (last - first) * shares


class RowSequence:
    """A directory's rows, endlessly, with stored or new masks; the next block is read ahead."""

    def __init__(
        self,
        directory: InstanceDirectory,
        seed: int,
        masks: Masks | None = None,
        block_rows: int = 65_536,
        masked_together: int = 2048,  # few enough that no batch waits long for its masks
    ):
        self.directory = directory
        self.seed = seed
        self.masks = masks
        self._sizes = (block_rows, masked_together)
        # The same for all blocks, so that a block's row groups are found by arithmetic.
        mean_rows = directory.num_rows / len(directory.row_groups)
        shrink = 1.0
        if directory.is_packed:
            # Rows of thousands of tokens are read and masked in fewer rows: in as many tokens as
            # these numbers of rows have at the usual length.
            shrink = 128 / directory.max_length
        self.groups_per_block = max(1, round(shrink * block_rows / mean_rows))
        self.masked_together = max(1, round(shrink * masked_together))
        self._group_rows = np.array([group.num_rows for group in directory.row_groups])
        self._coming: dict[tuple[int, int], list[Future[Rows]]] = {}
        """Row groups of the next block, which are read while the current one is used."""
        self._readers: ThreadPoolExecutor | None = None
        self._process_id = os.getpid()
        # Batches of ascending positions need the latest only. A decorator would cache for all
        # objects of the class together, and keep their rows in memory.
        self._block_offsets = lru_cache(1)(self._count_blocks)
        self._block = lru_cache(1)(self._read_block)
        self._masked = lru_cache(1)(self._mask)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave threads and rows behind, for the workers of a ``DataLoader``."""
        return RowSequence, (self.directory, self.seed, self.masks, *self._sizes)

    def rows(self, start: int, stop: int) -> Rows:
        """Return the rows at the positions from `start` up to `stop`, maybe of several epochs."""
        return concatenate([self._piece_rows(*piece) for piece in self._pieces(start, stop)])

    def locate(self, position: int) -> str:
        """Return the shard and row number of the row at `position`, for messages."""
        epoch, block, first, _ = next(self._pieces(position, position + 1))
        row = int(self._row_order(epoch, block)[first])
        # `row` counts through the groups of the block; what is left in the last counts within it.
        for group in self._block_groups(epoch, block):
            if row < group.num_rows:
                return f"{group.shard} row {group.first_row + row}"
            row -= group.num_rows
        raise AssertionError("a block's order names only its own rows")

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield epoch, block, and the first row and the end in the block's shuffled order."""
        #     positions    start                                              stop
        #     epoch        0 ..................| 1 ...............................
        #     block        4 ..................| 0 ...............................
        #     masked       30 .......| 31 .....| 0 ........| 1 ........| 2 .......
        #     pieces       [---------|---------|-----------|-----------|---------)
        while start < stop:
            epoch, offset = divmod(start, self.directory.num_rows)
            block_offsets = self._block_offsets(epoch)
            block = int(np.searchsorted(block_offsets, offset, side="right")) - 1
            first = offset - int(block_offsets[block])
            rows_left_in_block = int(block_offsets[block + 1]) - offset
            num_rows = min(stop - start, rows_left_in_block)
            if self.masks:
                rows_left_to_mask = self.masked_together - first % self.masked_together
                num_rows = min(num_rows, rows_left_to_mask)
            yield epoch, block, first, first + num_rows
            start += num_rows

    def _group_order(self, epoch: int) -> np.ndarray:
        return rng_for(self.seed, "order", epoch).permutation(len(self.directory.row_groups))

    def _block_groups(self, epoch: int, block: int) -> list[RowGroup]:
        first = block * self.groups_per_block
        indices = self._group_order(epoch)[first : first + self.groups_per_block]
        return [self.directory.row_groups[index] for index in indices]

    def _count_blocks(self, epoch: int) -> np.ndarray:
        """Return where each block starts within its epoch, and where the last one ends."""
        # Row groups of 5 5 3 5 4 rows, two per block: blocks of 10 8 4 rows, offsets 0 10 18 22.
        group_rows = self._group_rows[self._group_order(epoch)]
        first_groups = np.arange(0, len(group_rows), self.groups_per_block)
        block_rows = np.add.reduceat(group_rows, first_groups)
        return offsets_of(block_rows)

    def _row_order(self, epoch: int, block: int) -> np.ndarray:
        num_rows = sum(group.num_rows for group in self._block_groups(epoch, block))
        return rng_for(self.seed, "order", epoch, block).permutation(num_rows)

    def _read_block(self, epoch: int, block: int) -> tuple[Rows, np.ndarray]:
        """Return a block's rows as they are stored, and their order; begin to read the next one."""
        if self._process_id != os.getpid():
            # A forked process lacks its parent's threads, and so the groups that they were reading.
            self._process_id = os.getpid()
            self._readers = None
            self._coming = {}
        groups = self._coming.pop((epoch, block), None)
        if groups is None:
            groups = self._start_reading(epoch, block)
        rows = concatenate([group.result() for group in groups])
        following = (epoch, block + 1)
        if block + 2 == len(self._block_offsets(epoch)):
            following = (epoch + 1, 0)
        # Alone: what was read ahead for another block is not needed any more.
        self._coming = {following: self._start_reading(*following)}
        return rows, self._row_order(epoch, block)

    def _start_reading(self, epoch: int, block: int) -> "list[Future[Rows]]":
        if self._readers is None:
            self._readers = ThreadPoolExecutor(NUM_READERS, thread_name_prefix="reader")
        futures = []
        for group in self._block_groups(epoch, block):
            futures.append(self._readers.submit(read_group, self.directory, group))
        return futures

    def _mask(self, epoch: int, block: int, number: int) -> Rows:
        """Return the rows of a block that are masked together with this number, with new masks."""
        assert self.masks is not None
        rows, order = self._block(epoch, block)
        first = number * self.masked_together
        chosen = select(rows, order[first : first + self.masked_together])
        # Seeded by where the rows are, not by the batch: masks do not depend on the batch size, on
        # the number of ranks, or on where a run was interrupted.
        rng = rng_for(self.seed, "masks", epoch, block, number)
        epoch_start = epoch * self.directory.num_rows
        block_start = epoch_start + int(self._block_offsets(epoch)[block])
        positions = block_start + first + np.arange(len(chosen))
        masks = self.masks
        mask_rates = masks.rates_at(positions)
        return mask_anew(chosen, masks.vocabulary, masks.config, rng, mask_rates)

    def _piece_rows(self, epoch: int, block: int, first: int, stop: int) -> Rows:
        if self.masks is None:
            rows, order = self._block(epoch, block)
            return select(rows, order[first:stop])
        # From an index within the block to one within the rows that are masked together; a piece
        # never crosses the border between two such numbers.
        number, first_masked = divmod(first, self.masked_together)
        rows = self._masked(epoch, block, number)
        return between(rows, first_masked, first_masked + stop - first)
