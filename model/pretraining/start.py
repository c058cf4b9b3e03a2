"""What a pre-training run begins with: model, optimiser and state, new or from a checkpoint."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ..checkpoint import Checkpoint, load_tensors, read_model
from ..config import PretrainConfig
from ..copies import local_copy
from ..encoders.catalogue import make_pretrain_model
from ..encoders.config import EncoderConfig
from ..encoders.encoder import initialise
from ..encoders.heads import PretrainBatch, PretrainModel
from ..notices import print_notice
from ..training.device import compiles
from ..training.optim import make_optimizer
from ..training.run import (
    OPTIMIZER,
    STATE,
    advice_if_damaged,
    read_state,
)
from ..training.update import Updater
from .evaluate import NUM_SUMS
from .new_vocabulary import move_to_vocabulary
from .plan import PretrainPlan, run_fields
from .setup import PretrainSetup
from .state import PretrainState


class Start(NamedTuple):
    """What the first update of a run, or the first after an interruption, begins with."""

    model: PretrainModel
    updater: Updater[PretrainBatch]
    state: PretrainState


def start(setup: PretrainSetup, latest: Path | None) -> Start:
    """Return what the run begins with: new, from another model's weights, or as the run's own
    `latest` checkpoint has it.
    """
    plan = setup.plan
    config = plan.config
    if latest:
        model = read_model(latest)
    elif plan.checkpoint:
        model = _model_from(plan.checkpoint, plan)
    else:
        model = initial_model(plan.shape, config.seed)
    device = setup.ranks.device
    # Before the optimiser is made, which keeps its averages where the parameters are.
    model.to(device)
    model.encoder.recomputes_layers = config.activation_checkpointing
    if compiles(config.compile, device):
        model.compile_parts()
    corrects_bias = model.config.corrects_bias
    optimizer = make_optimizer(model, config.weight_decay, bias_correction=corrects_bias)
    updater: Updater[PretrainBatch] = Updater(
        model,
        optimizer,
        setup.ranks,
        dtype=setup.dtype,
        dropout_seed=(config.seed, "dropout"),
    )
    state = PretrainState()
    if latest:
        state = _load_state(updater, latest)
    elif config.checkpoint and config.can_be_prolonged and config.vocabulary_from == "checkpoint":
        # In another vocabulary a row of the averages would be another token's.
        _continue_optimizer(updater, config.checkpoint)
    return Start(model, updater, state)


def _model_from(checkpoint: Checkpoint, plan: PretrainPlan) -> PretrainModel:
    """Return another run's model, fitted to the instances' vocabulary and lengths."""
    model = _read_encoder(checkpoint, plan.config)
    if plan.config.vocabulary_from == "instances":
        model = _move_vocabulary(model, checkpoint, plan)
    before = model.config.max_position_embeddings
    num_positions = plan.shape.max_position_embeddings
    if num_positions <= before:
        return model
    print_notice(f"Extended the model from {before} to {num_positions} positions.")
    return model.with_positions(num_positions)


def _read_encoder(checkpoint: Checkpoint, config: PretrainConfig) -> PretrainModel:
    """Return a checkpoint's model; heads that it lacks, as most published encoders do, are new, and
    reported.
    """
    shape = checkpoint.shape
    shape = replace(shape, **run_fields(config, type(shape)))
    model = initial_model(shape, config.seed)
    # Initialised whole first, so that the missing heads are what this seed gives a new model.
    missing = checkpoint.load_into(model, new=tuple(model.heads))
    new_parts: dict[str, None] = {}  # in order, each once
    for prefix, name in model.heads.items():
        if any(key.startswith(prefix) for key in missing):
            new_parts[name] = None
    if new_parts:
        lacks = " and no ".join(new_parts)
        print_notice(f"{checkpoint.name} has no {lacks}; they start from random weights.")
    return model


def _move_vocabulary(
    model: PretrainModel, checkpoint: Checkpoint, plan: PretrainPlan
) -> PretrainModel:
    """Return the checkpoint's model with the vocabulary of the instances, and say where the
    embeddings come from.
    """
    old = checkpoint.vocabulary()
    new = plan.directories[0].vocabulary
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
    if len(state.sums) != NUM_SUMS or not _load_optimizer(updater, optimizer):
        raise UserError(
            f"{checkpoint}/{STATE} is damaged or belongs to another model. "
            f"{advice_if_damaged(checkpoint)}"
        )
    return state


def _continue_optimizer(updater: Updater[PretrainBatch], checkpoint: str) -> None:
    """Take over the optimiser's averages that are stored beside a model, if there are some that
    fit.
    """
    path = local_copy(f"{checkpoint}/{STATE}") / OPTIMIZER
    if not path.is_file():
        return
    fresh = updater.state_dict()
    decays = [group["weight_decay"] for group in updater.optimizer.param_groups]
    if _load_optimizer(updater, load_tensors(path, "Use another checkpoint.")):
        # The groups came with the other run's; rates are set before each update.
        for group, decay in zip(updater.optimizer.param_groups, decays, strict=True):
            group["weight_decay"] = decay
        print_notice(f"The optimiser continues from {path}.")
        return
    # Another optimiser, or a model that was given positions.
    updater.load_state_dict(fresh)
    print_notice(f"The optimiser starts fresh: {path} is not of this model and optimiser.")


def _load_optimizer(updater: Updater[PretrainBatch], state: Mapping[str, Any]) -> bool:
    """Load an optimiser's state; return whether it is one of this model."""
    try:
        updater.load_state_dict(state)
        return _averages_fit(updater.optimizer)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return False


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


def initial_model(shape: EncoderConfig, seed: int) -> PretrainModel:
    """Return a model of this shape with its initial weights."""
    model = make_pretrain_model(shape)
    generator = torch.Generator().manual_seed(stable_hash(seed, "initial weights") >> 1)
    initialise(model, shape, generator)
    return model
