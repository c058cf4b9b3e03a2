"""What pre-training needs before its first step: matching instances, model, optimiser, state."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ...pipeline.vocabulary.vocabulary import Vocabulary, read_vocabulary, vocabulary_files
from ..bert import initialise
from ..checkpoint import load_weights, read_config, read_model
from ..config import ModelConfig, PretrainConfig
from ..heads import BertForPreTraining
from ..tokenizer import trained_length
from ..training.device import find_device, host_memory, product_dtype, rows_per_micro_batch
from ..training.optim import make_optimizer
from ..training.ranks import Ranks, print_notice
from ..training.update import Updater
from .batches import PretrainBatch, pack_batches
from .data import InstanceDirectory, open_instances, read_split
from .evaluate import NUM_SUMS, check_fits, evaluation_batches
from .new_vocabulary import move_to_vocabulary
from .rows import InstanceRows, select
from .run import STATE, check_metrics, read_state
from .schedule import Schedule, make_schedule
from .sequence import RowSequence

# A batch is rows and their tensors, padded; while one is computed, others are prepared.
BATCHES_IN_MEMORY = 6
BYTES_PER_TOKEN = 30

POSITIONS = "bert.embeddings.position_embeddings.weight"

# These decide how the work is done, not its result, so they may change when a run is resumed.
FREE_OPTIONS = (
    "micro_batch_size",
    "evaluate_every",
    "evaluation_rows",
    "checkpoint_every",
    "checkpoint_minutes",
    "archive_every",
    "license",
    "keep",
    "compile",
    "activation_checkpointing",
    "extend_positions",
    "wandb",
    "device",
)


@dataclass
class PretrainState:
    """What a run remembers besides weights and optimiser; saved with each checkpoint."""

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
    probe: Mapping[str, Mapping[str, float]] | None = None
    """The metrics of ``--probe``: ``initial`` and ``final``."""

    def __post_init__(self) -> None:
        check_metrics(self.initial, self.final, self.best)


@dataclass(frozen=True)
class PretrainSetup:
    """What stays the same throughout a run."""

    config: PretrainConfig
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

    def first_row(self, step: int) -> tuple[RowSequence, int]:
        """Return the sequence that the update with index `step` draws from, and the position of its
        first row.
        """
        phase, index = self.schedule.phase(step)
        return self.phases[phase], index * self.config.batch_size

    def rows_at_once(self, sequence: RowSequence) -> int:
        """Return the size of a micro-batch of rows of `sequence`."""
        return rows_per_micro_batch(
            self.config.micro_batch_size, sequence.directory.max_length, self.ranks.device
        )

    def evaluation_batches(self, phase: int) -> list[PretrainBatch]:
        """Return this rank's part of the rows that are evaluated in a phase."""
        rows, objective = self.validation[phase], self.config.objective
        if self.packs and len(rows):
            sequence = self.phases[phase]
            return pack_batches(
                rows, self.rows_at_once(sequence), sequence.directory.max_length, objective
            )
        return evaluation_batches(rows, objective, self.config.micro_batch_size)


def open_directories(config: PretrainConfig, instances: list[str]) -> list[InstanceDirectory]:
    """Open one or two directories; raises `UserError` unless they match each other, the options and
    the checkpoint.
    """
    if len(instances) not in (1, 2):
        raise UserError(
            f"Pre-training takes one or two directories of instances, but got {len(instances)}."
        )
    if config.hours is not None and len(instances) == 2:
        raise UserError(
            "--hours takes one directory of instances, because the number of steps is unknown; train on the second "
            "one afterwards, in a run of its own with --checkpoint."
        )
    if len(instances) == 1 and config.phase_shares != PretrainConfig.phase_shares:
        raise UserError(
            f"--phase-shares is {config.phase_shares}, but there is one directory of instances; leave it out."
        )
    directories = [open_instances(path) for path in instances]
    for directory in directories:
        _check_batch(config.batch_size, directory)
    if len({directory.manifest.tokenizer.fingerprint for directory in directories}) > 1:
        names = f"{instances[1]} and {instances[0]}"
        raise UserError(
            f"{names} were built with different vocabularies; rebuild one with that of the other."
        )
    for directory in directories:
        if config.objective == "mlm+nsp" and not directory.has_pairs:
            reason = "built with --pairing none: it has no next sentences"
            raise UserError(f"{directory.path} was {reason}; use --objective mlm.")
        if config.checkpoint:
            own_vocabulary, own_positions = (
                config.vocabulary_from == "checkpoint",
                not config.extend_positions,
            )
            check_fits(
                config.checkpoint,
                directory,
                own_vocabulary=own_vocabulary,
                own_positions=own_positions,
            )
    return directories


def _check_batch(batch_size: int, directory: InstanceDirectory) -> None:
    """Raise `UserError` for an update on more rows than there are (unless it is the default), or
    than fit in memory.
    """
    # The default is tolerated: a first try on a few documents should train, not fail.
    most = max(directory.num_rows, PretrainConfig.batch_size)
    if batch_size > most:
        raise UserError(
            f"--batch-size is {batch_size}, but {directory.path} has {directory.num_rows} rows; lower it."
        )
    num_bytes = BATCHES_IN_MEMORY * batch_size * directory.max_length * BYTES_PER_TOKEN
    if num_bytes > (memory := host_memory()):
        needs = f"needs up to {num_bytes / 1e9:,.0f} GB of memory, but there are only {memory / 1e9:,.0f} GB"
        raise UserError(f"--batch-size is {batch_size}, which {needs}; lower it.")


def identity(config: PretrainConfig, directories: list[InstanceDirectory]) -> dict[str, Any]:
    """Return, as plain JSON values, what distinguishes a run from any other."""
    fields = {name: value for name, value in asdict(config).items() if name not in FREE_OPTIONS}
    fields["instances"] = [directory.manifest.digest for directory in directories]
    return json.loads(json.dumps(fields))


def set_up(
    config: PretrainConfig, directories: list[InstanceDirectory], ranks: Ranks
) -> PretrainSetup:
    """Resolve the defaults that depend on the device and the instances, and read the validation
    split.
    """
    vocabulary = read_vocabulary(directories[0].path)
    return PretrainSetup(
        config=config,
        ranks=ranks,
        schedule=make_schedule(config, [directory.mean_length for directory in directories]),
        phases=[_sequence(config, directory, vocabulary) for directory in directories],
        validation=[
            _held_out(directory, config.evaluation_rows, ranks) for directory in directories
        ],
        tokenizer=vocabulary_files(vocabulary, _trained_length(config.checkpoint, directories)),
        dtype=product_dtype(config.precision, ranks.device),
    )


def _trained_length(checkpoint: str | None, directories: list[InstanceDirectory]) -> int:
    before = (
        trained_length(checkpoint, read_config(checkpoint).max_position_embeddings)
        if checkpoint
        else 0
    )
    return max(before, *(directory.max_length for directory in directories))


def _held_out(directory: InstanceDirectory, num_rows: int, ranks: Ranks) -> InstanceRows:
    rows = read_split(open_instances(directory.path, "validation"))
    return select(rows, np.arange(ranks.rank, min(len(rows), num_rows), ranks.num_ranks))


def _sequence(
    config: PretrainConfig, directory: InstanceDirectory, vocabulary: Vocabulary
) -> RowSequence:
    masks = None
    if config.dynamic_masking != "none":
        drawn = {
            "masking": config.dynamic_masking,
            "mask_rate": config.mask_rate,
            "mask_split": config.mask_split,
        }
        masks = vocabulary, replace(directory.manifest.config, **drawn)
    return RowSequence(directory, config.seed, config.duplicates_per_epoch, masks)


def start(
    setup: PretrainSetup, checkpoint: Path | None
) -> tuple[BertForPreTraining, Updater[PretrainBatch], PretrainState]:
    """Return model, updater and state: new, from another model's weights, or as the run's
    `checkpoint` has them.
    """
    config = setup.config
    if checkpoint:
        model = read_model(checkpoint, _overrides(config))
    elif config.checkpoint:
        model = _read_encoder(config.checkpoint, config)
        if config.vocabulary_from == "instances":
            model = _moved(model, setup)
        if config.extend_positions:
            model = extended(model, max(phase.directory.max_length for phase in setup.phases))
    else:
        model = new_model(config, [phase.directory for phase in setup.phases])
    model.to(setup.ranks.device).train()
    optimizer = make_optimizer(model, config.weight_decay, bias_correction=config.bias_correction)
    updater: Updater[PretrainBatch] = Updater(
        model, optimizer, setup.ranks, dtype=setup.dtype, dropout_seed=(config.seed, "dropout")
    )
    return model, updater, _load(updater, checkpoint) if checkpoint else PretrainState()


def _read_encoder(checkpoint: str, config: PretrainConfig) -> BertForPreTraining:
    """Return a checkpoint's model; heads that it lacks, as most published encoders do, are new, and
    reported.
    """
    model = _initialised(replace(read_config(checkpoint), **_overrides(config)), config.seed)
    missing = load_weights(model, checkpoint, new=("cls.", "bert.pooler."))
    names = {
        "cls.predictions.": "masked-LM head",
        "cls.seq_relationship.": "next-sentence head",
        "bert.pooler.": "pooler",
    }
    if new := [
        name for prefix, name in names.items() if any(key.startswith(prefix) for key in missing)
    ]:
        print_notice(f"{checkpoint} has no {' and no '.join(new)}; they start from random weights.")
    return model


def extended(model: BertForPreTraining, num_positions: int) -> BertForPreTraining:
    """Return `model` with at least `num_positions`: further ones are copies of its first ones, in
    their order.

    So Longformer starts from a shorter model (arXiv 2004.05150, section 5): attention to near
    tokens works at once.
    """
    before = model.config.max_position_embeddings
    if num_positions <= before:
        return model
    weights = model.state_dict()
    table = weights[POSITIONS]
    weights[POSITIONS] = table[torch.arange(num_positions) % before]
    longer = BertForPreTraining(replace(model.config, max_position_embeddings=num_positions))
    longer.load_state_dict(weights)
    print_notice(f"Extended the model from {before} to {num_positions} positions.")
    return longer


def _moved(model: BertForPreTraining, setup: PretrainSetup) -> BertForPreTraining:
    """Return the checkpoint's model with the vocabulary of the instances, and say where the
    embeddings come from.
    """
    old, new = (
        read_vocabulary(str(setup.config.checkpoint)),
        read_vocabulary(setup.phases[0].directory.path),
    )
    model, moved = move_to_vocabulary(model, old, new)
    counts = (
        f"{moved.copied:,} embeddings copied, {moved.averaged:,} averaged over a token's old pieces"
    )
    rest = f", {moved.without_pieces:,} over all tokens" if moved.without_pieces else ""
    print_notice(
        f"Moved the model from a vocabulary of {len(old):,} tokens to one of {len(new):,}: {counts}{rest}."
    )
    return model


def _load(updater: Updater[PretrainBatch], checkpoint: Path) -> PretrainState:
    averages, state = read_state(checkpoint, PretrainState)
    try:
        updater.load_state_dict(averages)
        fits = len(state.sums) == NUM_SUMS and all(
            value.shape in (parameter.shape, ())
            and bool(value.isfinite().all())  # () is the number of steps
            for parameter, values in updater.optimizer.state.items()
            for value in values.values()
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        what_next = f"delete {checkpoint} to resume from the checkpoint before it, or to start over if there is none"
        raise UserError(
            f"{checkpoint}/{STATE} is damaged or belongs to another model; {what_next}."
        )
    return state


def _overrides(config: PretrainConfig) -> dict[str, Any]:
    rates = {"hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.dropout}
    return rates | {"is_decoder": config.objective == "ltr"}


def new_model(config: PretrainConfig, directories: list[InstanceDirectory]) -> BertForPreTraining:
    """Return the model that `config` describes, for the directories' vocabulary, with its initial
    weights.
    """
    shape = ModelConfig.named(
        config.model,
        vocab_size=directories[0].vocab_size,
        max_position_embeddings=max(512, *(directory.max_length for directory in directories)),
        num_hidden_layers=config.num_layers,
        hidden_size=config.hidden_size,
        initializer_range=config.initializer_range,
        num_attention_heads=config.num_heads,
        intermediate_size=config.intermediate_size,
        **_overrides(config),
    )
    # Training holds a parameter four times on its device: weight, gradient and two averages; it
    # starts on the CPU.
    num_copies = 1 if find_device(config.device).type == "cuda" else 4
    needed, memory = 4 * num_copies * shape.num_parameters(), host_memory()
    if needed > memory:
        needs = f"needs {needed / 1e9:,.0f} GB of memory, but there are only {memory / 1e9:,.0f} GB"
        raise UserError(
            f"A model of {shape.num_parameters():,} parameters {needs}; make it smaller."
        )
    return _initialised(shape, config.seed)


def _initialised(shape: ModelConfig, seed: int) -> BertForPreTraining:
    model = BertForPreTraining(shape)
    initialise(
        model, shape, torch.Generator().manual_seed(stable_hash(seed, "initial weights") >> 1)
    )
    return model
