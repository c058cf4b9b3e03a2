"""Set up a planned run on its device, and make its batches, padded or packed.

An update takes the next `batch_size` rows of an endless sequence (see `sequence`), in micro-batches
of rows of similar length; `training.update` says how a global batch is divided between
micro-batches and ranks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ...pipeline.instances.rows import Rows, between, select, sequences
from ..config import EVALUATION_ROWS
from ..encoders.heads import PretrainBatch, PretrainModel
from ..training.device import product_dtype, rows_per_micro_batch, tokens_at_once
from ..training.ranks import Ranks
from ..training.update import Loss
from .batches import make_batches, pack_batches
from .data import InstanceDirectory, open_instances, read_split
from .evaluate import batch_sums, evaluation_batches
from .packing import packs_rows
from .plan import PretrainPlan, check_memory
from .sequence import RowSequence


class GlobalBatch(NamedTuple):
    """The rows of one update: this rank's micro-batches, and counts over all ranks."""

    batches: list[PretrainBatch]
    num_rows: int
    lengths: np.ndarray
    """Tokens in each row, or in each document of packed rows: what attention sees at once."""
    num_predicted: int
    num_padded: int
    """Tokens with padding, if every rank has as much padding as this one."""

    def loss(self, model: PretrainModel, batch: PretrainBatch) -> Loss:
        """Return the loss of one of the micro-batches."""
        sums = model.sums(batch)
        # Divided by the counts of the global batch, not of the micro-batch: a mean of the
        # micro-batches' means would weigh a masked token more, the fewer there are beside it.
        share = sums.mlm_loss / self.num_predicted + sums.nsp_loss / self.num_rows
        return Loss(share, batch_sums(batch, sums))


@dataclass(frozen=True)
class PretrainSetup:
    """Everything that stays the same throughout a run on a device."""

    plan: PretrainPlan
    ranks: Ranks
    validation: list[Rows]
    """This rank's part of the rows that are evaluated, for each phase."""
    dtype: torch.dtype
    """Number format of matrix products."""
    packs: bool
    """Whether rows are packed, not padded."""
    tokens_at_once: int
    """Of a micro-batch, unless the config has its size in rows."""

    def global_batch(self, step: int) -> GlobalBatch:
        """Return the rows of the update with this index."""
        sequence, first = self.plan.first_row(step)
        batch_size = self.plan.config.batch_size
        ranks = self.ranks
        rows = sequence.rows(first, first + batch_size)
        # All ranks read the whole batch: its counts, by which losses are divided, then need no
        # message.
        part = ranks.rows(batch_size)
        batches = self._cut(between(rows, part.start, part.stop), sequence)
        num_padded_here = sum(batch.input_ids.numel() for batch in batches)
        if ranks.device.type == "cuda":
            batches = [batch.pin() for batch in batches]
        separated = sequences(rows)  # documents that are packed into one row
        return GlobalBatch(
            batches=batches,
            num_rows=len(rows),
            lengths=separated.lengths,
            num_predicted=_num_predicted(separated, self.plan.objective),
            num_padded=num_padded_here * ranks.num_ranks,
        )

    def held_out_batches(self, phase: int) -> list[PretrainBatch]:
        """Return this rank's part of the rows that are evaluated in a phase."""
        rows = self.validation[phase]
        if self.packs and len(rows):
            return self._cut(rows, self.plan.phases[phase])
        return evaluation_batches(rows, self.plan.objective, self.plan.config.micro_batch_size)

    def rows_at_once(self, sequence: RowSequence) -> int:
        """Return the size of a micro-batch of rows of `sequence`."""
        max_length = sequence.directory.max_length
        asked = self.plan.config.micro_batch_size
        return rows_per_micro_batch(asked, max_length, self.tokens_at_once)

    def _cut(self, rows: Rows, sequence: RowSequence) -> list[PretrainBatch]:
        """Cut rows of a sequence into micro-batches."""
        objective = self.plan.objective
        num_rows = self.rows_at_once(sequence)
        if self.packs:
            return pack_batches(rows, num_rows, sequence.directory.max_length, objective)
        on_gpu = self.ranks.device.type == "cuda"
        multiple = 8 if on_gpu else 1  # tensor cores want dimensions that are multiples of 8
        return make_batches(rows, num_rows, objective, multiple, always_mask=on_gpu)


def set_up(plan: PretrainPlan, ranks: Ranks, num_rows: int = EVALUATION_ROWS) -> PretrainSetup:
    """Resolve what depends on the device, and read `num_rows` of the validation split.

    Raises `UserError` for a model that does not fit into memory.
    """
    # Training holds a parameter four times on its device: weight, gradient and two averages. For a
    # GPU the CPU only holds the initial weights.
    num_parameters = plan.shape.num_parameters()
    num_copies = 1 if ranks.device.type == "cuda" else 4
    needed = 4 * num_copies * num_parameters  # fp32
    check_memory(f"A model of {num_parameters:,} parameters needs", needed, "make it smaller")
    dtype = product_dtype(plan.config.precision, ranks.device)
    return PretrainSetup(
        plan=plan,
        ranks=ranks,
        validation=[_held_out(directory, num_rows, ranks) for directory in plan.directories],
        dtype=dtype,
        packs=packs_rows(plan.shape, ranks.device, dtype),
        tokens_at_once=tokens_at_once(plan.shape, ranks.device),
    )


def _held_out(directory: InstanceDirectory, num_rows: int, ranks: Ranks) -> Rows:
    rows = read_split(open_instances(directory.path, "validation"))
    # Ranks take turns, so that each has the same number of rows.
    return select(rows, np.arange(ranks.rank, min(len(rows), num_rows), ranks.num_ranks))


def _num_predicted(rows: Rows, objective: str) -> int:
    if objective == "ltr":  # every token but each row's first
        return int(rows.lengths.sum()) - len(rows)
    return int(rows.num_masked.sum())
