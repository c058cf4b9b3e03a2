"""Prepare a pre-training run: check the instances, then make the model, optimiser and state.

Shapes: P positions, D hidden size.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...pipeline.config import identity_fields
from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ...pipeline.vocabulary.vocabulary import Vocabulary, read_vocabulary, vocabulary_files
from ..checkpoint import load_tensors, load_weights, read_config, read_model
from ..config import PretrainConfig
from ..encoders.bert_config import ModelConfig
from ..encoders.catalogue import make_pretrain_model
from ..encoders.config import CONFIGS, EncoderConfig
from ..encoders.encoder import initialise
from ..encoders.heads import PretrainModel
from ..encoders.modernbert_config import ModernBertConfig
from ..mirror import local_copy
from ..tokenizer import trained_length, with_settings
from ..training.device import (
    MICRO_BATCH_TOKENS,
    find_device,
    host_memory,
    product_dtype,
    rows_per_micro_batch,
)
from ..training.optim import make_muon, make_optimizer
from ..training.ranks import Ranks, print_notice
from ..training.update import Updater
from .batches import PretrainBatch, pack_batches
from .data import InstanceDirectory, open_instances, read_split
from .evaluate import NUM_SUMS, check_vocabulary_fits, evaluation_batches
from .new_vocabulary import move_to_vocabulary, shape_fields
from .rows import InstanceRows, select
from .run import OPTIMIZER, STATE, advice_if_damaged, check_metrics, read_state
from .schedule import Schedule, make_schedule
from .sequence import Masks, RowSequence

# A batch is rows and their tensors, padded; while one is computed, others are prepared.
BATCHES_IN_MEMORY = 6
BYTES_PER_TOKEN = 30


@dataclass
class PretrainState:
    """Everything that a run remembers besides weights and optimiser; saved with each checkpoint."""

    step: int = 0
    num_tokens: int = 0
    num_rows: int = 0
    seconds: float = 0.0
    """Time spent training, for a budget of hours; otherwise 0, so that equal runs have equal
    checkpoints.
    """
    sums: list[float] = field(default_factory=lambda: [0.0] * NUM_SUMS)
    """Added up since the last line of the log; see `evaluate.batch_sums`."""
    initial: Mapping[str, int | float] | None = None
    best: Mapping[str, int | float] | None = None
    final: Mapping[str, int | float] | None = None
    num_threads: int | None = None
    """Threads of each operation on a CPU, which decide the last bits; None on a GPU."""

    def __post_init__(self) -> None:
        check_metrics(self.initial, self.final, self.best)


@dataclass(frozen=True)
class PretrainSetup:
    """Everything that stays the same throughout a run."""

    config: PretrainConfig
    """As `resolved` returns it."""
    ranks: Ranks
    schedule: Schedule
    phases: list[RowSequence]
    validation: list[InstanceRows]
    """This rank's part of the rows that are evaluated, for each phase."""
    tokenizer: dict[str, bytes]
    dtype: torch.dtype = torch.float32
    """Number format of matrix products."""
    packs: bool = False
    """Whether batches of rows are packed, not padded."""
    tokens_at_once: int = MICRO_BATCH_TOKENS["cpu"]
    """Of a micro-batch, unless the config has its size in rows."""

    @property
    def objective(self) -> str:
        """The training objective."""
        assert self.config.objective is not None
        return self.config.objective

    def first_row(self, step: int) -> tuple[RowSequence, int]:
        """Return the sequence that the update with index `step` draws from, and the position of its
        first row.
        """
        phase, index = self.schedule.phase(step)
        return self.phases[phase], index * self.config.batch_size

    def rows_at_once(self, sequence: RowSequence) -> int:
        """Return the size of a micro-batch of rows of `sequence`."""
        max_length = sequence.directory.max_length
        return rows_per_micro_batch(self.config.micro_batch_size, max_length, self.tokens_at_once)

    def evaluation_batches(self, phase: int) -> list[PretrainBatch]:
        """Return this rank's part of the rows that are evaluated in a phase."""
        rows = self.validation[phase]
        if not self.packs or not len(rows):
            return evaluation_batches(rows, self.objective, self.config.micro_batch_size)
        sequence = self.phases[phase]
        rows_at_once = self.rows_at_once(sequence)
        return pack_batches(rows, rows_at_once, sequence.directory.max_length, self.objective)


def encoder_kind(config: PretrainConfig) -> type[ModelConfig] | type[ModernBertConfig]:
    """Return the kind of encoder to train: the one asked for, or the checkpoint's; raises
    `UserError` if they differ.
    """
    if config.checkpoint is None:
        return CONFIGS[config.architecture or "bert"]
    kind = type(read_config(config.checkpoint))
    if config.architecture not in (None, kind.model_type):
        raise UserError(
            f"`architecture` is {config.architecture}, but the model in {config.checkpoint} is a "
            f"{kind.title}; leave it out."
        )
    return kind


def resolved(config: PretrainConfig) -> PretrainConfig:
    """Return `config` with the defaults that depend on the kind of encoder; raises `UserError` for
    an objective that it cannot be trained on.
    """
    kind = encoder_kind(config)
    objective = config.objective or kind.objectives[0]
    if objective not in kind.objectives:
        possible = " or ".join(kind.objectives)
        raise UserError(
            f"`objective` is {objective}, but a {kind.title} is pre-trained on {possible} alone; "
            "leave it out."
        )
    dropout = config.dropout
    if dropout is None:
        dropout = kind.default_dropout
    return replace(config, objective=objective, dropout=dropout)


def open_directories(config: PretrainConfig, instances: list[str]) -> list[InstanceDirectory]:
    """Open one or two directories; raises `UserError` unless they match each other, the options and
    the checkpoint.
    """
    _check_phases(config, len(instances))
    directories = [open_instances(path) for path in instances]
    for directory in directories:
        _check_batch(config.batch_size, directory)
    if len({directory.manifest.tokenizer.fingerprint for directory in directories}) > 1:
        names = f"{instances[1]} and {instances[0]}"
        advice = "rebuild one with the other's vocabulary"
        raise UserError(f"{names} were built with different vocabularies; {advice}.")
    for directory in directories:
        if config.objective == "mlm+nsp" and not directory.has_pairs:
            reason = "built with `pairing` none: it has no next sentences"
            raise UserError(f"{directory.path} was {reason}; use `objective` mlm.")
        if config.checkpoint and config.vocabulary_from == "checkpoint":
            check_vocabulary_fits(config.checkpoint, directory)
    return directories


def _check_phases(config: PretrainConfig, num_directories: int) -> None:
    if num_directories not in (1, 2):
        given = f"but got {num_directories}"
        raise UserError(f"Pre-training takes one or two directories of instances, {given}.")
    if config.hours is not None and num_directories == 2:
        raise UserError(
            "`hours` takes one directory of instances, because the number of steps is unknown; "
            "train on the second one afterwards, in a run of its own with `checkpoint`."
        )
    if num_directories == 1 and config.phase_shares != PretrainConfig.phase_shares:
        shares = f"`phase_shares` is {config.phase_shares}"
        raise UserError(f"{shares}, but there is one directory of instances; leave it out.")


def _check_batch(batch_size: int, directory: InstanceDirectory) -> None:
    """Raise `UserError` for an update on more rows than there are (unless it is the default), or
    than fit in memory.
    """
    # The default is tolerated: a first try on a few documents should train, not fail.
    most = max(directory.num_rows, PretrainConfig.batch_size)
    if batch_size > most:
        available = f"{directory.path} has {directory.num_rows} rows"
        raise UserError(f"`batch_size` is {batch_size}, but {available}; lower it.")
    needed = BATCHES_IN_MEMORY * batch_size * directory.max_length * BYTES_PER_TOKEN
    available = host_memory()
    if needed > available:
        needs = f"needs up to {_gigabytes(needed)} of memory"
        there_are = f"there are only {_gigabytes(available)}"
        raise UserError(f"`batch_size` is {batch_size}, which {needs}, but {there_are}; lower it.")


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.0f} GB"


def identity(config: PretrainConfig, directories: list[InstanceDirectory]) -> dict[str, Any]:
    """Return, as plain JSON values, what distinguishes a run from any other."""
    fields = identity_fields(config)
    # Their content, not their paths: a directory may be moved between an interruption and a resume.
    fields["instances"] = [directory.manifest.digest for directory in directories]
    # Tuples become lists, as they are when the claim is read again.
    return json.loads(json.dumps(fields))


def identity_digest(config: PretrainConfig, directories: list[InstanceDirectory]) -> str:
    """Return a short hash of `identity`."""
    return f"{stable_hash(json.dumps(identity(config, directories))):016x}"


def set_up(
    config: PretrainConfig, directories: list[InstanceDirectory], ranks: Ranks
) -> PretrainSetup:
    """Resolve the defaults that depend on the device and the instances, and read the validation
    split.
    """
    vocabulary = read_vocabulary(directories[0].path)  # all directories have the same
    tokenizer = vocabulary_files(vocabulary, _trained_length(config.checkpoint, directories))
    held_out = [_held_out(directory, config.evaluation_rows, ranks) for directory in directories]
    mean_lengths = [directory.mean_length for directory in directories]
    schedule = make_schedule(config, mean_lengths)
    first_steps = (0, *schedule.phase_ends)
    sequences = []
    for directory, first_step in zip(directories, first_steps, strict=True):
        masks = _masks(config, directory, vocabulary, schedule, first_step)
        sequence = RowSequence(directory, config.seed, config.duplicates_per_epoch, masks)
        sequences.append(sequence)
    return PretrainSetup(
        config=config,
        ranks=ranks,
        schedule=schedule,
        phases=sequences,
        validation=held_out,
        tokenizer=with_settings(tokenizer, encoder_kind(config).tokenizer_settings),
        dtype=product_dtype(config.precision, ranks.device),
    )


def _trained_length(checkpoint: str | None, directories: Sequence[InstanceDirectory]) -> int:
    """Return the length of the longest rows that the model was or will be trained on."""
    longest = max(directory.max_length for directory in directories)
    if checkpoint is None:
        return longest
    num_positions = read_config(checkpoint).max_position_embeddings
    return max(longest, trained_length(checkpoint, num_positions))


def _held_out(directory: InstanceDirectory, num_rows: int, ranks: Ranks) -> InstanceRows:
    rows = read_split(open_instances(directory.path, "validation"))
    # Ranks take turns, so that each has the same number of rows.
    return select(rows, np.arange(ranks.rank, min(len(rows), num_rows), ranks.num_ranks))


def _masks(
    config: PretrainConfig,
    directory: InstanceDirectory,
    vocabulary: Vocabulary,
    schedule: Schedule,
    first_step: int,
) -> Masks | None:
    """Return how to mask the rows of the phase that begins with `first_step`; None keeps the stored
    masks.
    """
    if config.dynamic_masking == "none":
        return None
    built = directory.manifest.config
    split = config.mask_split or built.mask_split
    how = replace(built, masking=config.dynamic_masking, mask_split=split)
    rates = config.mask_rate or ()
    if len(rates) < 2:
        return Masks(vocabulary, how, rates)
    assert schedule.num_steps is not None, "checked by the config"
    return Masks(
        vocabulary,
        how,
        rates,
        start=first_step / schedule.num_steps,
        share_per_row=1 / (schedule.num_steps * config.batch_size),
    )


def start(
    setup: PretrainSetup, checkpoint: Path | None
) -> tuple[PretrainModel, Updater[PretrainBatch], PretrainState]:
    """Return model, updater and state: new, from another model's weights, or as the run's
    `checkpoint` has them.
    """
    config = setup.config
    if checkpoint:
        model = read_model(checkpoint, _run_fields(config, read_config(checkpoint)))
    elif config.checkpoint:
        model = _model_from(config.checkpoint, setup)
    else:
        model = new_model(config, [phase.directory for phase in setup.phases])
    # Before the optimiser is made, which keeps its averages where the parameters are.
    model.to(setup.ranks.device).train()
    make = make_muon if config.optimizer == "muon" else make_optimizer
    optimizer = make(model, config.weight_decay, bias_correction=model.config.corrects_bias)
    updater: Updater[PretrainBatch] = Updater(
        model,
        optimizer,
        setup.ranks,
        dtype=setup.dtype,
        dropout_seed=(config.seed, "dropout"),
    )
    state = PretrainState()
    if checkpoint:
        state = _load_state(updater, checkpoint)
    elif config.checkpoint and config.can_be_prolonged:
        _continue_optimizer(updater, config.checkpoint)
    return model, updater, state


def _model_from(checkpoint: str, setup: PretrainSetup) -> PretrainModel:
    """Return another run's model, fitted to the instances' vocabulary and lengths."""
    model = _read_encoder(checkpoint, setup.config)
    if setup.config.vocabulary_from == "instances":
        model = _move_vocabulary(model, checkpoint, setup)
    longest = max(phase.directory.max_length for phase in setup.phases)
    return extended(model, longest)


def _read_encoder(checkpoint: str, config: PretrainConfig) -> PretrainModel:
    """Return a checkpoint's model; heads that it lacks, as most published encoders do, are new, and
    reported.
    """
    stored = read_config(checkpoint)
    shape = replace(stored, **_run_fields(config, stored))
    model = _initialised(shape, config.seed)
    # Initialised whole first, so that the missing heads are what this seed gives a new model.
    missing = load_weights(model, checkpoint, new=tuple(model.heads))
    new_parts: dict[str, None] = {}  # in order, each once
    for prefix, name in model.heads.items():
        if any(key.startswith(prefix) for key in missing):
            new_parts[name] = None
    if new_parts:
        lacks = " and no ".join(new_parts)
        print_notice(f"{checkpoint} has no {lacks}; they start from random weights.")
    return model


def extended(model: PretrainModel, num_positions: int) -> PretrainModel:
    """Return `model` for rows of at least `num_positions` tokens."""
    before = model.config.max_position_embeddings
    if num_positions <= before:
        return model
    print_notice(f"Extended the model from {before} to {num_positions} positions.")
    return model.with_positions(num_positions)


def _move_vocabulary(model: PretrainModel, checkpoint: str, setup: PretrainSetup) -> PretrainModel:
    """Return the checkpoint's model with the vocabulary of the instances, and say where the
    embeddings come from.
    """
    old = read_vocabulary(checkpoint)
    new = read_vocabulary(setup.phases[0].directory.path)
    model, moved = move_to_vocabulary(model, old, new)
    counts = [
        f"{moved.copied:,} embeddings copied",
        f"{moved.averaged:,} averaged over a token's old pieces",
    ]
    if moved.without_pieces:
        counts.append(f"{moved.without_pieces:,} over all tokens")
    sizes = f"from a vocabulary of {len(old):,} tokens to one of {len(new):,}"
    print_notice(f"Moved the model {sizes}: {', '.join(counts)}.")
    return model


def _load_state(updater: Updater[PretrainBatch], checkpoint: Path) -> PretrainState:
    optimizer, state = read_state(checkpoint, PretrainState)
    try:
        updater.load_state_dict(optimizer)
        fits = len(state.sums) == NUM_SUMS and _averages_fit(updater.optimizer)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        damaged = f"{checkpoint}/{STATE} is damaged or belongs to another model"
        raise UserError(f"{damaged}. {advice_if_damaged(checkpoint)}")
    return state


def _continue_optimizer(updater: Updater[PretrainBatch], checkpoint: str) -> None:
    """Take over the optimiser's state that is stored beside a model, if there is one that fits."""
    path = local_copy(f"{checkpoint}/{STATE}") / OPTIMIZER
    if not path.is_file():
        return
    fresh = updater.state_dict()
    try:
        updater.load_state_dict(load_tensors(path, "Use another checkpoint."))
        fits = _averages_fit(updater.optimizer)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        fits = False
    if fits:
        print_notice(f"The optimiser continues from {path}.")
        return
    # Another optimiser, or a model that was given positions or a vocabulary.
    updater.load_state_dict(fresh)
    print_notice(f"The optimiser starts fresh: {path} is not of this model and optimiser.")


def _averages_fit(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether Adam's averages are finite and have their parameters' shapes."""
    for parameter, averages in optimizer.state.items():
        for average in averages.values():
            is_count = average.shape == ()  # the number of steps
            if not is_count and average.shape != parameter.shape:
                return False
            if not average.isfinite().all():
                return False
    return True


def _run_fields(config: PretrainConfig, shape: EncoderConfig | type) -> dict[str, Any]:
    """Return the fields of a model's shape that the run decides, whatever a checkpoint says."""
    resolved_config = resolved(config)
    assert resolved_config.objective is not None and resolved_config.dropout is not None
    return shape.run_fields(
        resolved_config.objective, resolved_config.dropout, config.global_rope_theta
    )


def new_model(config: PretrainConfig, directories: list[InstanceDirectory]) -> PretrainModel:
    """Return the model that `config` describes, for the directories' vocabulary, with its initial
    weights.
    """
    longest = max(directory.max_length for directory in directories)
    kind = encoder_kind(config)
    shape = kind.named(
        config.model,
        # BERT's 512 even for shorter rows; the positions beyond them stay untrained.
        max_position_embeddings=max(512, longest),
        num_hidden_layers=config.num_layers,
        hidden_size=config.hidden_size,
        initializer_range=config.initializer_range,
        num_attention_heads=config.num_heads,
        **shape_fields(kind, read_vocabulary(directories[0].path)),
        **_run_fields(config, kind),
    )
    # Training holds a parameter four times on its device: weight, gradient and two averages. For a
    # GPU the CPU only holds the initial weights.
    num_copies = 4
    if find_device(config.device).type == "cuda":
        num_copies = 1
    needed = 4 * num_copies * shape.num_parameters()  # fp32
    available = host_memory()
    if needed > available:
        model = f"A model of {shape.num_parameters():,} parameters"
        needs = f"needs {_gigabytes(needed)} of memory"
        there_are = f"there are only {_gigabytes(available)}"
        raise UserError(f"{model} {needs}, but {there_are}; make it smaller.")
    return _initialised(shape, config.seed)


def _initialised(shape: EncoderConfig, seed: int) -> PretrainModel:
    model = make_pretrain_model(shape)
    generator = torch.Generator().manual_seed(stable_hash(seed, "initial weights") >> 1)
    initialise(model, shape, generator)
    return model
