"""Make the batches of a run, padded or packed: the rows of each update, and those held out.

An update takes the next `batch_size` rows of an endless sequence (see `sequence`), in micro-batches
of rows of similar length; `training.update` says how a global batch is divided between
micro-batches and ranks.
"""

from typing import NamedTuple

import numpy as np

from ...pipeline.instances.rows import Rows, between, sequences
from ..encoders.heads import PretrainBatch, PretrainModel
from ..training.device import rows_per_micro_batch
from ..training.update import Loss
from .batches import make_batches, pack_batches
from .evaluate import batch_sums, evaluation_batches
from .sequence import RowSequence
from .setup import PretrainSetup


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


def make_global_batch(setup: PretrainSetup, step: int) -> GlobalBatch:
    """Return the rows of the update with this index."""
    sequence, first = setup.first_row(step)
    batch_size = setup.config.batch_size
    ranks = setup.ranks
    rows = sequence.rows(first, first + batch_size)
    # All ranks read the whole batch: its counts, by which losses are divided, then need no message.
    part = ranks.rows(batch_size)
    batches = _cut(setup, between(rows, part.start, part.stop), sequence)
    num_padded_here = sum(batch.input_ids.numel() for batch in batches)
    if ranks.device.type == "cuda":
        batches = [batch.pin() for batch in batches]
    by_sequence = sequences(rows)
    return GlobalBatch(
        batches=batches,
        num_rows=len(rows),
        lengths=by_sequence.lengths,
        num_predicted=_num_predicted(by_sequence, setup.spec.objective),
        num_padded=num_padded_here * ranks.num_ranks,
    )


def held_out_batches(setup: PretrainSetup, phase: int) -> list[PretrainBatch]:
    """Return this rank's part of the rows that are evaluated in a phase."""
    rows = setup.validation[phase]
    if setup.packs and len(rows):
        return _cut(setup, rows, setup.phases[phase])
    return evaluation_batches(rows, setup.spec.objective, setup.config.micro_batch_size)


def rows_at_once(setup: PretrainSetup, sequence: RowSequence) -> int:
    """Return the size of a micro-batch of rows of `sequence`."""
    max_length = sequence.directory.max_length
    return rows_per_micro_batch(setup.config.micro_batch_size, max_length, setup.tokens_at_once)


def _cut(setup: PretrainSetup, rows: Rows, sequence: RowSequence) -> list[PretrainBatch]:
    """Cut rows of a sequence into micro-batches."""
    objective = setup.spec.objective
    max_length = sequence.directory.max_length
    num_rows = rows_at_once(setup, sequence)
    if setup.packs:
        return pack_batches(rows, num_rows, max_length, objective)
    on_gpu = setup.ranks.device.type == "cuda"
    multiple = 8 if on_gpu else 1  # tensor cores want dimensions that are multiples of 8
    return make_batches(rows, num_rows, objective, multiple, always_mask=on_gpu)


def _num_predicted(rows: Rows, objective: str) -> int:
    if objective == "ltr":  # every token but each row's first
        return int(rows.lengths.sum()) - len(rows)
    return int(rows.num_masked.sum())
