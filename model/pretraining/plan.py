"""Plan a pre-training: complete its options, and lay out its model, its steps and its rows.

Nothing here depends on the device: `setup` adds what does.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ...pipeline.config import check, identity_fields
from ...pipeline.errors import UserError
from ...pipeline.vocabulary.vocabulary import Vocabulary
from ..checkpoint import Checkpoint
from ..config import PretrainConfig
from ..encoders.catalogue import CONFIGS
from ..encoders.config import PAPERS_WIDTH, EncoderConfig
from ..tokenizer import with_settings
from .data import InstanceDirectory, open_instances
from .evaluate import check_vocabulary_fits
from .schedule import Schedule, make_schedule, phase_shares
from .sequence import Masks, RowSequence

PAPERS_RATE = 1e-4
HIGHEST_RATE = 2e-3
COMPILE_S = 30.0
"""Seconds that compiling takes on a machine with an H100: 15 to 33."""


@dataclass(frozen=True)
class PretrainPlan:
    """What a run does, by its options, its instances and the model that it starts from."""

    config: PretrainConfig
    """The options, with all defaults."""
    identity: dict[str, Any]
    """What distinguishes the run from any other."""
    checkpoint: Checkpoint | None
    """The model to start from; None for a new one."""
    shape: EncoderConfig
    schedule: Schedule
    phases: list[RowSequence]
    """One for each directory of instances, in the order of training."""
    also: InstanceDirectory | None
    """The held-out rows that the model is measured on besides."""

    @property
    def objective(self) -> str:
        """The training objective."""
        assert self.config.objective is not None
        return self.config.objective

    @property
    def directories(self) -> list[InstanceDirectory]:
        """The instances of each phase."""
        return [phase.directory for phase in self.phases]

    def phase_steps(self) -> list[int]:
        """Return the steps of each phase of a run that is not measured in hours."""
        assert self.schedule.num_steps is not None
        ends = (0, *self.schedule.phase_ends, self.schedule.num_steps)
        return [end - first for first, end in pairwise(ends)]

    def num_tokens(self) -> float:
        """Return about how many tokens such a run is trained on."""
        total = 0.0
        for directory, num_steps in zip(self.directories, self.phase_steps(), strict=True):
            total += self.config.batch_size * num_steps * directory.mean_length
        return total

    def pays_to_compile(self) -> bool:
        """Return whether the whole run is so long that compiling its model saves time on a GPU."""
        if self.config.hours is not None:
            return self.config.hours * 3600 > 4 * COMPILE_S
        size = self.shape.num_hidden_layers * self.shape.hidden_size
        # Seconds that compiled updates save there, both as CUDA graphs, per token, layer and hidden
        # number: 2.3e-10 in mini, 1.9e-10 in ettin-17m (benchmarks/results/2026-11-27-graphs.md).
        return self.num_tokens() * size * 2e-10 > COMPILE_S

    def first_row(self, step: int) -> tuple[RowSequence, int]:
        """Return the sequence that an update draws from, and the position of its first row."""
        phase, index = self.schedule.phase(step)
        return self.phases[phase], index * self.config.batch_size

    def tokenizer_files(self) -> dict[str, bytes]:
        """Return the instances' files, which name the longest row that the model is trained on."""
        longest = max(directory.max_length for directory in self.directories)
        if self.checkpoint:
            longest = max(longest, self.checkpoint.trained_length())
        settings = {"model_max_length": longest, **self.shape.tokenizer_settings}
        return with_settings(self.directories[0].path, settings)


def make_plan(config: PretrainConfig, instances: list[str]) -> PretrainPlan:
    """Plan a run on directories of instances, a phase each."""
    checkpoint = None
    if config.checkpoint is not None:
        checkpoint = Checkpoint.open(config.checkpoint)
    defaults = model_defaults(config, checkpoint)
    objective = defaults["objective"]
    directories = _open_directories(config, objective, instances, checkpoint)
    # What follows from the instances does not distinguish runs; nor do their paths, as a directory
    # may be moved between an interruption and a resume.
    identity = identity_fields(config) | defaults
    identity["instances"] = [directory.manifest.digest for directory in directories]
    # What is set here was left out, and what was given has been checked.
    config = copy(config)
    vars(config).update(defaults, **instance_defaults(config, objective, directories))
    shape = _make_shape(config, checkpoint, directories)
    also = None if config.also is None else _open_also(config.also, directories[0], shape)
    schedule = make_schedule(config, [directory.mean_length for directory in directories])
    vocabulary = directories[0].vocabulary  # all directories have the same
    phases = []
    for phase, directory in enumerate(directories):
        masks = _masks(config, directory, vocabulary, schedule, phase)
        phases.append(RowSequence(directory, config.seed, masks))
    return PretrainPlan(
        config=config,
        identity=identity,
        checkpoint=checkpoint,
        shape=shape,
        schedule=schedule,
        phases=phases,
        also=also,
    )


def _kind(config: PretrainConfig, checkpoint: Checkpoint | None) -> type[EncoderConfig]:
    if checkpoint:
        return type(checkpoint.shape)
    return CONFIGS[config.architecture or "bert"]


def model_defaults(config: PretrainConfig, checkpoint: Checkpoint | None) -> dict[str, Any]:
    """Return the options that the kind of encoder decides."""
    kind = _kind(config, checkpoint)
    size = config.size
    fits = config.architecture in (None, kind.model_type)
    must = f"the model in {config.checkpoint} is a {kind.title}; leave it out"
    check(fits, "architecture", config.architecture, must)
    must = "that is a size of a ModernBERT; use `architecture` modernbert, or another size"
    check(size in kind.sizes, "model", size, must)
    objective = config.objective or kind.objectives[0]
    if config.objective is None and checkpoint and checkpoint.shape.is_decoder:
        objective = "ltr"
        replace(config, objective=objective)  # refuses options that do not go with it
    possible = " or ".join(kind.objectives)
    must = f"a {kind.title} is pre-trained on {possible}; leave it out"
    check(objective in kind.objectives, "objective", objective, must)
    dropout = config.dropout
    if dropout is None:
        dropout = kind.default_dropout
    rate = config.learning_rate
    if rate is None:
        _, hidden_size, _ = kind.sizes[size]
        rate = PAPERS_RATE if checkpoint else _default_rate(config.hidden_size or hidden_size)
    return {
        "objective": objective,
        "model": size,
        "dropout": dropout,
        "learning_rate": rate,
    }


def _default_rate(hidden_size: int) -> float:
    """Return the peak learning rate of a new encoder: the paper's for BERT-base and wider ones, for
    narrower ones inversely proportional to the width, and at most `HIGHEST_RATE`.

    Measured for `tiny` and `mini` (docs/experiments.md).

    >>> [_default_rate(size) for size in (128, 256, 512, 768)]
    [0.002, 0.001, 0.0005, 0.0001]
    """
    if hidden_size >= PAPERS_WIDTH:
        return PAPERS_RATE
    return min(HIGHEST_RATE, HIGHEST_RATE * 128 / hidden_size)


def _open_directories(
    config: PretrainConfig, objective: str, instances: list[str], checkpoint: Checkpoint | None
) -> list[InstanceDirectory]:
    """Open directories that match each other, the options and the checkpoint."""
    if not instances:
        raise UserError("Pre-training takes directories of instances, but got none.")
    if config.hours is not None and len(instances) > 1:
        raise UserError(
            "`hours` takes one directory of instances, because the number of steps is unknown; "
            "train on the second one afterwards, in a run of its own with `checkpoint`."
        )
    num_rates = len(config.mask_rates)
    if num_rates > 1 and num_rates != len(instances):
        raise UserError(
            f"`mask_rate` has rates for {num_rates} phases, but there are {len(instances)} "
            "directories of instances; give them for each."
        )
    directories = [open_instances(path) for path in instances]
    batch_size = config.batch_size
    for directory in directories:
        _check_same_vocabulary(directory, directories[0])
        # The default is tolerated: a first try on a few documents should train, not fail.
        most = max(directory.num_rows, PretrainConfig.batch_size)
        must = f"{directory.path} has {directory.num_rows} rows; lower it"
        check(batch_size <= most, "batch_size", batch_size, must)
        if objective == "mlm+nsp" and not directory.has_pairs:
            raise UserError(
                f"{directory.path} was built with `pairing` none: it has no next sentences; use "
                "`objective` mlm."
            )
    if checkpoint and config.vocabulary_from == "checkpoint":
        check_vocabulary_fits(checkpoint, directories[0])
    return directories


def _check_same_vocabulary(directory: InstanceDirectory, first: InstanceDirectory) -> None:
    if directory.manifest.tokenizer.fingerprint != first.manifest.tokenizer.fingerprint:
        raise UserError(
            f"{directory.path} and {first.path} were built with different vocabularies; rebuild "
            "one with the other's vocabulary."
        )


def _open_also(path: str, first: InstanceDirectory, shape: EncoderConfig) -> InstanceDirectory:
    also = open_instances(path, "validation")
    _check_same_vocabulary(also, first)
    if also.max_length > shape.num_positions:
        raise UserError(
            f"`also` {path} has rows of up to {also.max_length} tokens, but the model has "
            f"{shape.num_positions} positions; build them with this `max_length`."
        )
    return also


def instance_defaults(
    config: PretrainConfig, objective: str, directories: Sequence[InstanceDirectory]
) -> dict[str, Any]:
    """Return the options that are left to the instances."""
    first = directories[0]
    changes: dict[str, Any] = {}
    if not (config.steps or config.tokens or config.hours):
        share = phase_shares(config, len(directories))[0]
        rows_per_pass = first.num_rows / first.manifest.config.duplicates
        # The paper's 40 passes over its text, by its own count, and its steps (appendix A.2).
        steps = 40 * rows_per_pass / (share * config.batch_size)
        changes["steps"] = min(1_000_000, max(1, round(steps)))
    if config.dynamic_masking is None:
        # The same masks in each of 40 passes would be learned by heart.
        is_stored_once = all(directory.manifest.config.duplicates == 1 for directory in directories)
        draws = is_stored_once or bool(config.mask_rate or config.mask_split)
        uses_masks = objective != "ltr"
        kind = first.manifest.config.masking if draws and uses_masks else "none"
        changes["dynamic_masking"] = kind
    return changes


def run_fields(config: PretrainConfig, kind: type[EncoderConfig]) -> dict[str, Any]:
    """Return the fields of the shape that the run decides, whatever a checkpoint says."""
    fields: dict[str, Any] = dict.fromkeys(kind.dropout_fields, config.dropout)
    fields["is_decoder"] = config.objective == "ltr"
    return fields


def _make_shape(
    config: PretrainConfig, checkpoint: Checkpoint | None, directories: Sequence[InstanceDirectory]
) -> EncoderConfig:
    kind = _kind(config, checkpoint)
    longest = max(directory.max_length for directory in directories)
    tokens = directories[0].vocabulary
    vocabulary = kind.vocabulary_fields(len(tokens), tokens.pad_id, tokens.cls_id, tokens.sep_id)
    decided = run_fields(config, kind)
    if checkpoint is None:
        return kind.named(
            config.size,
            # BERT's 512 even for shorter rows; the positions beyond them stay untrained.
            max_position_embeddings=max(512, longest),
            num_hidden_layers=config.num_layers,
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_heads,
            **vocabulary,
            **decided,
        )
    if config.vocabulary_from == "checkpoint":
        vocabulary = {}
    shape = replace(checkpoint.shape, **vocabulary, **decided)
    if longest <= shape.num_positions:
        return shape
    return shape.with_positions(longest)


def _masks(
    config: PretrainConfig,
    directory: InstanceDirectory,
    vocabulary: Vocabulary,
    schedule: Schedule,
    phase: int,
) -> Masks | None:
    """Return how to mask the rows of a phase; None keeps stored masks."""
    if config.dynamic_masking == "none":
        return None
    built = directory.manifest.config
    split = config.mask_split or built.mask_split
    how = replace(built, masking=config.dynamic_masking, mask_split=split)
    rates = config.mask_rates or [()]
    is_by_phase = len(rates) > 1
    phase_rates = rates[phase if is_by_phase else 0]
    if len(phase_rates) < 2:
        return Masks(vocabulary, how, phase_rates)
    assert schedule.num_steps is not None, "checked by the config"
    start, end = (0, *schedule.phase_ends, schedule.num_steps)[phase : phase + 2]
    if not is_by_phase:  # they are the run's first and last
        at_ends = np.interp((start, end), (0, schedule.num_steps), phase_rates)
        phase_rates = tuple(at_ends.tolist())
    return Masks(vocabulary, how, phase_rates, 1 / ((end - start) * config.batch_size))
