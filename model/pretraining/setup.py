"""Prepare a pre-training run: check the options and the instances, and lay out its phases."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...pipeline.config import identity_fields
from ...pipeline.errors import UserError
from ...pipeline.instances.rows import Rows, select
from ...pipeline.vocabulary.files import vocabulary_files
from ...pipeline.vocabulary.vocabulary import Vocabulary
from ..config import PretrainConfig
from ..encoders.config import EncoderConfig
from ..tokenizer import with_settings
from ..training.device import host_memory, product_dtype, tokens_at_once
from ..training.ranks import Ranks
from .data import InstanceDirectory, open_instances, read_split
from .evaluate import check_vocabulary_fits
from .packing import packs_rows
from .schedule import Schedule, make_schedule
from .sequence import Masks, RowSequence
from .spec import ModelSpec

# A batch is rows and their tensors, padded; while one is computed, others are prepared.
BATCHES_IN_MEMORY = 6
BYTES_PER_TOKEN = 30
PAPERS_PASSES = 40
"""Over its text, by the paper's count (appendix A.2)."""
PAPERS_STEPS = 1_000_000


@dataclass(frozen=True)
class PretrainSetup:
    """Everything that stays the same throughout a run."""

    spec: ModelSpec
    shape: EncoderConfig
    """Of the model."""
    ranks: Ranks
    schedule: Schedule
    phases: list[RowSequence]
    validation: list[Rows]
    """This rank's part of the rows that are evaluated, for each phase."""
    tokenizer: dict[str, bytes]
    dtype: torch.dtype
    """Number format of matrix products."""
    packs: bool
    """Whether rows are packed, not padded."""
    tokens_at_once: int
    """Of a micro-batch, unless the config has its size in rows."""

    @property
    def config(self) -> PretrainConfig:
        """The run's options."""
        return self.spec.config

    def first_row(self, step: int) -> tuple[RowSequence, int]:
        """Return the sequence that the update with index `step` draws from, and the position of its
        first row.
        """
        phase, index = self.schedule.phase(step)
        return self.phases[phase], index * self.config.batch_size


def open_directories(spec: ModelSpec, instances: list[str]) -> list[InstanceDirectory]:
    """Open one or two directories; raises `UserError` unless they match each other, the options and
    the checkpoint.
    """
    config = spec.config
    _check_phases(config, len(instances))
    directories = [open_instances(path) for path in instances]
    for directory in directories:
        _check_batch(config.batch_size, directory)
    if len({directory.manifest.tokenizer.fingerprint for directory in directories}) > 1:
        raise UserError(
            f"{instances[1]} and {instances[0]} were built with different vocabularies; rebuild "
            "one with the other's vocabulary."
        )
    for directory in directories:
        if config.objective == "mlm+nsp" and not directory.has_pairs:
            raise UserError(
                f"{directory.path} was built with `pairing` none: it has no next sentences; use "
                "`objective` mlm."
            )
    if spec.checkpoint and config.vocabulary_from == "checkpoint":
        check_vocabulary_fits(spec.checkpoint, directories[0])
    return directories


def _check_phases(config: PretrainConfig, num_directories: int) -> None:
    if num_directories not in (1, 2):
        raise UserError(
            f"Pre-training takes one or two directories of instances, but got {num_directories}."
        )
    if config.hours is not None and num_directories == 2:
        raise UserError(
            "`hours` takes one directory of instances, because the number of steps is unknown; "
            "train on the second one afterwards, in a run of its own with `checkpoint`."
        )
    if num_directories == 1 and config.phase_shares != PretrainConfig.phase_shares:
        raise UserError(
            f"`phase_shares` is {config.phase_shares}, but there is one directory of instances; "
            "leave it out."
        )


def _check_batch(batch_size: int, directory: InstanceDirectory) -> None:
    """Raise `UserError` for an update on more rows than there are (unless it is the default), or
    than fit in memory.
    """
    # The default is tolerated: a first try on a few documents should train, not fail.
    most = max(directory.num_rows, PretrainConfig.batch_size)
    if batch_size > most:
        raise UserError(
            f"`batch_size` is {batch_size}, but {directory.path} has {directory.num_rows} rows; "
            "lower it."
        )
    needed = BATCHES_IN_MEMORY * batch_size * directory.max_length * BYTES_PER_TOKEN
    _check_memory(f"`batch_size` is {batch_size}, which needs up to", needed, "lower it")


def _check_memory(needs: str, num_bytes: int, advice: str) -> None:
    """Raise `UserError` if this machine has less memory."""
    available = host_memory()
    if num_bytes > available:
        raise UserError(
            f"{needs} {num_bytes / 1e9:,.0f} GB of memory, but there are only "
            f"{available / 1e9:,.0f} GB; {advice}."
        )


def identity(config: PretrainConfig, directories: list[InstanceDirectory]) -> dict[str, Any]:
    """Return what distinguishes a run from any other."""
    fields = identity_fields(config)
    # Their content, not their paths: a directory may be moved between an interruption and a resume.
    fields["instances"] = [directory.manifest.digest for directory in directories]
    return fields


def set_up(spec: ModelSpec, directories: list[InstanceDirectory], ranks: Ranks) -> PretrainSetup:
    """Resolve what depends on the device and the instances, and read the validation split.

    Raises `UserError` for a model that does not fit into memory.
    """
    config = with_defaults(spec.config, directories)
    spec = replace(spec, config=config)
    shape = spec.shape(directories)
    # Training holds a parameter four times on its device: weight, gradient and two averages. For a
    # GPU the CPU only holds the initial weights.
    num_parameters = shape.num_parameters()
    num_copies = 1 if ranks.device.type == "cuda" else 4
    needed = 4 * num_copies * num_parameters  # fp32
    _check_memory(f"A model of {num_parameters:,} parameters needs", needed, "make it smaller")
    dtype = product_dtype(config.precision, ranks.device)
    vocabulary = directories[0].vocabulary  # all directories have the same
    longest = max(directory.max_length for directory in directories)
    held_out = [_held_out(directory, config.evaluation_rows, ranks) for directory in directories]
    mean_lengths = [directory.mean_length for directory in directories]
    schedule = make_schedule(config, mean_lengths)
    first_steps = (0, *schedule.phase_ends)
    sequences = []
    for directory, first_step in zip(directories, first_steps, strict=True):
        masks = _masks(config, directory, vocabulary, schedule, first_step)
        sequences.append(RowSequence(directory, config.seed, masks))
    return PretrainSetup(
        spec=spec,
        shape=shape,
        ranks=ranks,
        schedule=schedule,
        phases=sequences,
        validation=held_out,
        tokenizer=_tokenizer_files(spec, vocabulary, longest),
        dtype=dtype,
        packs=packs_rows(shape, ranks.device, dtype),
        tokens_at_once=tokens_at_once(shape, ranks.device),
    )


def with_defaults(
    config: PretrainConfig, directories: Sequence[InstanceDirectory]
) -> PretrainConfig:
    """Return the options with the defaults that depend on the instances."""
    first = directories[0]
    changes: dict[str, Any] = {}
    if not (config.steps or config.tokens or config.hours):
        share = config.phase_shares[0] if len(directories) == 2 else 1.0
        rows_per_pass = first.num_rows / first.manifest.config.duplicates
        steps = PAPERS_PASSES * rows_per_pass / (share * config.batch_size)
        changes["steps"] = min(PAPERS_STEPS, max(1, round(steps)))
    if config.dynamic_masking is None:
        # The same masks in each of 40 passes would be learned by heart.
        is_stored_once = all(directory.manifest.config.duplicates == 1 for directory in directories)
        draws = is_stored_once or bool(config.mask_rate or config.mask_split)
        uses_masks = config.objective != "ltr"
        kind = first.manifest.config.masking if draws and uses_masks else "none"
        changes["dynamic_masking"] = kind
    return replace(config, **changes)


def _tokenizer_files(spec: ModelSpec, vocabulary: Vocabulary, longest: int) -> dict[str, bytes]:
    """Return the files of the model's tokenizer, which name the longest rows that the model was or
    will be trained on.
    """
    if spec.checkpoint:
        longest = max(longest, spec.checkpoint.trained_length())
    files = vocabulary_files(vocabulary, longest)
    return with_settings(files, spec.kind.tokenizer_settings)


def _held_out(directory: InstanceDirectory, num_rows: int, ranks: Ranks) -> Rows:
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
