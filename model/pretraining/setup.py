"""Set up a planned run on its device: the batches of its updates, and what it begins with, new or
from a checkpoint; what it remembers between updates, and the summary at its end.

An update takes the next `batch_size` rows of an endless sequence (see `sequence`), in micro-batches
of rows of similar length; `training.update` says how a global batch is divided between
micro-batches and ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict

import numpy as np
import torch

from ...pipeline.instances.rows import Rows, between, select, sequences
from ...pipeline.parsing import Count, Finite
from ...pipeline.seeding import stable_hash
from ..checkpoint import Checkpoint, load_tensors, read_model
from ..config import EVALUATION_ROWS
from ..copies import local_copy
from ..encoders.catalogue import make_pretrain_model
from ..encoders.config import EncoderConfig
from ..encoders.encoder import initialise
from ..encoders.heads import PretrainBatch, PretrainModel
from ..notices import print_notice
from ..training.device import compiles, product_dtype, tokens_at_once
from ..training.ranks import Ranks
from ..training.run import OPTIMIZER, STATE, read_state
from ..training.update import Loss, Updater, make_updater
from .batches import make_batches, pack_batches, packs_rows
from .data import InstanceDirectory, open_instances, read_split
from .evaluate import NUM_SUMS, batch_sums, evaluation_batches
from .new_vocabulary import move_to_vocabulary
from .plan import PretrainPlan, run_fields
from .sequence import RowSequence


class Summary(TypedDict):
    """The content of ``summary.json``, which `pretrain` returns."""

    status: str
    step: Count
    parameters: Count
    tokens: Count
    rows: Count
    initial: Mapping[str, Finite]
    final: Mapping[str, Finite]
    best: Mapping[str, Finite] | None
    validation_rows: Count
    """Held-out rows that the metrics are measured on."""
    text: NotRequired[Mapping[str, Finite]]
    """What `evaluate.text_measures` says of these rows."""
    also: NotRequired["Also"]


class Also(TypedDict):
    """What was measured on the held-out rows of ``also``."""

    path: str
    initial: Mapping[str, Finite]
    final: Mapping[str, Finite]
    text: Mapping[str, Finite]


@dataclass
class PretrainState:
    """Everything that a run remembers besides weights and optimiser; saved with each checkpoint."""

    step: int = 0
    num_tokens: int = 0
    num_rows: int = 0
    seconds: float = 0.0
    """Time spent training, for a budget of hours; else 0, so that equal runs save equal states."""
    sums: list[float] = field(default_factory=lambda: [0.0] * NUM_SUMS)
    """Added up since the last line of the log; see `evaluate.batch_sums`."""
    initial: Mapping[str, int | float] | None = None
    best: Mapping[str, int | float] | None = None
    final: Mapping[str, int | float] | None = None
    also: Mapping[str, int | float] | None = None
    """What was measured before the first step on the rows of `PretrainPlan.also`."""
    also_digest: str = ""
    """The digest of these rows' manifest, as a run may resume with others."""
    num_ranks: int | None = None
    """Processes that train together; each draws its own dropout."""
    micro_batch_size: int | None = None
    """Rows of a micro-batch in the first phase; each draws its own dropout, too."""
    num_threads: int | None = None
    """Threads of each operation on a CPU, which decide the last bits; None on a GPU."""


class GlobalBatch(NamedTuple):
    """The rows of one update: this rank's micro-batches, and counts over all ranks."""

    batches: list[PretrainBatch]
    lengths: np.ndarray
    """Tokens in each row, or in each document of packed rows: what attention sees at once."""
    num_predicted: int
    num_padded: int
    """Tokens with padding, if every rank has as much padding as this one."""


def loss_of(model: PretrainModel, batch: PretrainBatch) -> Loss:
    """Return the part of an update's loss that a micro-batch has."""
    sums = model.sums(batch)
    assert batch.counts is not None
    # The counts are the global batch's, not the micro-batch's: a mean of means would weigh a
    # masked token more, the fewer there are beside it.
    num_predicted, num_rows = batch.counts.unbind()
    share = sums.mlm_loss / num_predicted + sums.nsp_loss / num_rows
    return Loss(share, batch_sums(batch, sums))


@dataclass(frozen=True)
class PretrainSetup:
    """Everything that stays the same throughout a run on a device."""

    plan: PretrainPlan
    ranks: Ranks
    validation: list[Rows]
    """This rank's part of the rows that are evaluated, for each phase."""
    also: Rows | None
    """Its part of those that are evaluated besides."""
    dtype: torch.dtype
    packs: bool
    tokens_at_once: int
    """The size of a micro-batch, unless the config has one in rows."""

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
        separated = sequences(rows)  # documents that are packed into one row
        num_predicted = int(separated.num_masked.sum())
        if self.plan.objective == "ltr":  # every token but each row's first
            num_predicted = int(separated.lengths.sum()) - len(separated)
        counts = torch.from_numpy(np.array([num_predicted, len(rows)], np.float32))
        batches = [batch._replace(counts=counts) for batch in batches]
        if ranks.device.type == "cuda":
            batches = [batch.pin() for batch in batches]
        return GlobalBatch(
            batches=batches,
            lengths=separated.lengths,
            num_predicted=num_predicted,
            num_padded=num_padded_here * ranks.num_ranks,
        )

    def held_out_batches(self, phase: int) -> list[PretrainBatch]:
        """Return this rank's part of the rows that are evaluated in a phase."""
        rows = self.validation[phase]
        if self.packs and len(rows):
            return self._cut(rows, self.plan.phases[phase])
        return self.padded_batches(rows, self.plan.objective)

    def padded_batches(self, rows: Rows, objective: str) -> list[PretrainBatch]:
        """Return rows to be evaluated where they are not packed."""
        asked = self.plan.config.micro_batch_size
        return evaluation_batches(rows, objective, self.tokens_at_once, asked)

    def rows_at_once(self, sequence: RowSequence) -> int:
        """Return the size of a micro-batch of rows of `sequence`."""
        asked = self.plan.config.micro_batch_size
        return asked or max(1, self.tokens_at_once // sequence.directory.max_length)

    def _cut(self, rows: Rows, sequence: RowSequence) -> list[PretrainBatch]:
        """Cut rows of a sequence into micro-batches."""
        objective = self.plan.objective
        num_rows = self.rows_at_once(sequence)
        if self.packs:
            return pack_batches(rows, num_rows, sequence.directory.max_length, objective)
        return make_batches(rows, num_rows, objective, for_gpu=self.ranks.device.type == "cuda")


def set_up(plan: PretrainPlan, ranks: Ranks, num_rows: int = EVALUATION_ROWS) -> PretrainSetup:
    """Resolve what depends on the device, and read `num_rows` of the validation split."""
    dtype = product_dtype(plan.config.precision, ranks.device)

    def own_part(directory: InstanceDirectory) -> Rows:
        rows = read_split(directory)
        # Ranks take turns, so that each has the same number of rows.
        own = np.arange(ranks.rank, min(len(rows), num_rows), ranks.num_ranks)
        return select(rows, own)

    paths = [directory.path for directory in plan.directories]
    return PretrainSetup(
        plan=plan,
        ranks=ranks,
        validation=[own_part(open_instances(path, "validation")) for path in paths],
        also=own_part(plan.also) if plan.also else None,
        dtype=dtype,
        packs=packs_rows(plan.shape, ranks.device, dtype),
        tokens_at_once=tokens_at_once(plan.shape, ranks.device),
    )


class StartedRun(NamedTuple):
    """A run that is set up, at its first step or where it resumes."""

    setup: PretrainSetup
    model: PretrainModel
    updater: Updater
    state: PretrainState


def start(plan: PretrainPlan, ranks: Ranks, latest: Path | None) -> StartedRun:
    """Set up a run: new, from another model's weights, or from its `latest` checkpoint."""
    setup = set_up(plan, ranks)
    config = plan.config
    if latest:
        model = read_model(latest)
    elif plan.checkpoint:
        model = _model_from(plan.checkpoint, plan)
    else:
        model = initial_model(plan.shape, config.seed)
    device = ranks.device
    # Before the optimiser is made, which keeps its averages where the parameters are.
    model.to(device)
    if compiles(config.compile, device, pays=plan.pays_to_compile()):
        model.compile_parts()
    updater = make_updater(
        model,
        ranks,
        partial(loss_of, model),
        corrects=model.config.corrects_bias,
        dtype=setup.dtype,
        dropout_seed=(config.seed, "dropout"),
    )
    state = PretrainState()
    if latest:
        _, state = read_state(latest, PretrainState, updater)
    elif config.checkpoint and config.is_constant and config.vocabulary_from == "checkpoint":
        # In another vocabulary a row of the averages would be another token's.
        _continue_optimizer(updater, config.checkpoint)
    return StartedRun(setup, model, updater, state)


def _model_from(checkpoint: Checkpoint, plan: PretrainPlan) -> PretrainModel:
    """Return another run's model, fitted to the instances; say what is new in it."""
    config = plan.config
    shape = checkpoint.shape
    shape = replace(shape, **run_fields(config, type(shape)))
    # Initialised whole first, so that the heads that it lacks, as most published encoders do, are
    # what this seed gives a new model.
    model = initial_model(shape, config.seed)
    missing = checkpoint.load_into(model, new=tuple(model.heads))
    new_parts: dict[str, None] = {}  # in order, each once
    for prefix, name in model.heads.items():
        if any(key.startswith(prefix) for key in missing):
            new_parts[name] = None
    if new_parts:
        lacks = " and no ".join(new_parts)
        print_notice(f"{checkpoint.name} has no {lacks}; they start from random weights.")
    if config.vocabulary_from == "instances":
        new = plan.directories[0].vocabulary
        model = move_to_vocabulary(model, checkpoint.vocabulary(), new)
    before = model.config.num_positions
    num_positions = plan.shape.num_positions
    if num_positions > before:
        print_notice(f"Extended the model from {before} to {num_positions} positions.")
        model = model.with_positions(num_positions)
    return model


def _continue_optimizer(updater: Updater, checkpoint: str) -> None:
    """Take over the optimiser's averages that are stored beside a model, if they fit."""
    path = local_copy(f"{checkpoint}/{STATE}") / OPTIMIZER
    if not path.is_file():
        return
    fresh = updater.state_dict()
    if updater.restore(load_tensors(path, "Use another checkpoint.")):
        print_notice(f"The optimiser continues from {path}.")
        return
    # Another optimiser, or a model that was given positions.
    updater.load_state_dict(fresh)
    print_notice(f"The optimiser starts fresh: {path} is not of this model and optimiser.")


def initial_model(shape: EncoderConfig, seed: int) -> PretrainModel:
    """Return a model of this shape with its initial weights."""
    model = make_pretrain_model(shape)
    generator = torch.Generator().manual_seed(stable_hash(seed, "initial weights") >> 1)
    initialise(model, shape, generator)
    return model
