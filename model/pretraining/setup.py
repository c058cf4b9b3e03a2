"""What pre-training needs before its first step: ranks, instances that fit together, model, optimiser, state."""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import AdamW

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ...pipeline.vocab.vocabulary import load_vocabulary
from ..bert import initialise
from ..checkpoint import read_config, read_model, read_tokenizer
from ..config import DEFAULT_STEPS, ModelConfig, PretrainConfig
from ..heads import BertForPreTraining
from ..training.device import MICRO_BATCH_TOKENS, uses_bf16
from ..training.optim import default_warmup, learning_rate, make_optimizer
from ..training.ranks import Ranks, rows_of_rank
from .batches import PretrainBatch
from .data import InstanceDirectory, open_instances, read_split, select
from .dynamic_masks import DynamicMasks
from .evaluate import NUM_SUMS, evaluation_batches
from .run import STATE, read_state
from .sequence import RowSequence

# How the work is done, not what it is: these may change when a run is resumed.
FREE_OPTIONS = (
    *("micro_batch_size", "evaluate_every", "evaluation_rows", "checkpoint_every", "keep", "compile", "device"),
)
# Where the budget is a time: the share that is warm-up, and the steps between lines of the log.
WARMUP_SHARE = 0.1
TIMED_LOG_EVERY = 10


@dataclass
class State:
    """What a run remembers besides weights and optimiser; saved with each checkpoint."""

    step: int = 0
    num_tokens: int = 0
    num_rows: int = 0
    seconds: float = 0.0
    """Time spent training, where the budget is time; else 0, so that equal runs have equal checkpoints."""
    sums: list[float] = field(default_factory=lambda: [0.0] * NUM_SUMS)
    """As `evaluate.batch_sums` gives them, since the last line of the log."""
    initial: Mapping[str, int | float] | None = None
    best: Mapping[str, int | float] | None = None
    final: Mapping[str, int | float] | None = None


@dataclass(frozen=True)
class Setup:
    """All that stays the same while a run lasts."""

    config: PretrainConfig
    output: Path
    ranks: Ranks
    phases: list[RowSequence]
    phase_ends: list[int]
    num_steps: int | None
    """None where the budget is time."""
    log_every: int
    drain_every: int
    use_bf16: bool
    validation: list[PretrainBatch]
    tokenizer: dict[str, bytes]

    def rate(self, step: int, seconds: float) -> float:
        """Return the learning rate of the update with index `step`, `seconds` of training after the first."""
        peak = self.config.learning_rate
        if self.config.hours is not None:
            budget = self.config.hours * 3600
            return max(0.0, learning_rate(seconds, peak, WARMUP_SHARE * budget, budget))
        assert self.num_steps is not None
        asked = self.config.warmup_steps
        warmup_steps = default_warmup(self.num_steps) if asked is None else asked
        return learning_rate(step, peak, warmup_steps, self.num_steps)

    def is_over(self, state: State) -> bool:
        """Tell whether the budget is spent."""
        if self.config.hours is not None:
            return state.seconds >= self.config.hours * 3600
        return state.step == self.num_steps

    def stretch(self, step: int) -> tuple[RowSequence, int]:
        """Return the sequence that the update with index `step` draws from, and the position of its first row."""
        phase = bisect_right(self.phase_ends, step)
        phase_start = self.phase_ends[phase - 1] if phase else 0
        return self.phases[phase], (step - phase_start) * self.config.batch_size

    def rows_at_once(self, sequence: RowSequence) -> int:
        """Return the size of a micro-batch of the rows of `sequence`."""
        as_many_as_fit = MICRO_BATCH_TOKENS[self.ranks.device.type] // sequence.directory.max_length
        return self.config.micro_batch_size or max(1, as_many_as_fit)

    def own_rows(self) -> np.ndarray:
        """Return the indices of this rank's rows in a global batch."""
        return rows_of_rank(self.config.batch_size, self.ranks.rank, self.ranks.num_ranks)


def open_directories(config: PretrainConfig, instances: list[str]) -> list[InstanceDirectory]:
    """Open one or two directories; raises `UserError` where they do not fit each other or the checkpoint."""
    if len(instances) not in (1, 2):
        raise UserError(f"Pre-training takes one directory of instances or two, but got {len(instances)}.")
    if config.hours is not None and len(instances) == 2:
        raise UserError(
            "--hours takes one directory of instances, as the steps are not known; train on the second one after the "
            "first, in a run of its own, with --checkpoint."
        )
    if len(instances) == 1 and config.phase_shares != PretrainConfig.phase_shares:
        raise UserError(
            f"--phase-shares is {config.phase_shares}, but there is one directory of instances; leave it out."
        )
    directories = [open_instances(path) for path in instances]
    for directory in directories:
        if config.objective == "mlm+nsp" and not directory.has_pairs:
            raise UserError(f"{directory.path} was built with --pairing none: no next sentences; give --objective mlm.")
    if len({directory.tokenizer for directory in directories}) > 1:
        raise UserError(f"{instances[1]} was built with another vocabulary than {instances[0]}.")
    if not config.checkpoint:
        return directories
    num_positions = read_config(config.checkpoint).max_position_embeddings
    for directory in directories:
        if directory.max_length > num_positions:
            limit = f"the model in {config.checkpoint} has {num_positions} positions"
            raise UserError(f"{directory.path} holds rows of up to {directory.max_length} tokens, but {limit}.")
    if read_tokenizer(config.checkpoint)["vocab.txt"] != read_tokenizer(instances[0])["vocab.txt"]:
        raise UserError(f"{instances[0]} was built with another vocabulary than {config.checkpoint} has.")
    return directories


def identity(config: PretrainConfig, directories: list[InstanceDirectory]) -> dict[str, Any]:
    """Return, as plain JSON values, what makes a run this one and no other."""
    fields = {name: value for name, value in asdict(config).items() if name not in FREE_OPTIONS}
    fields["instances"] = [directory.manifest.digest for directory in directories]
    return json.loads(json.dumps(fields))


def set_up(config: PretrainConfig, directories: list[InstanceDirectory], output: Path, ranks: Ranks) -> Setup:
    """Resolve the defaults that depend on the device and the instances, and read the validation split."""
    num_steps = number_of_steps(config, [directory.mean_length for directory in directories])
    on_gpu = ranks.device.type == "cuda"
    held_out = read_split(open_instances(directories[-1].path, "validation"))
    part = select(held_out, np.arange(ranks.rank, min(len(held_out), config.evaluation_rows), ranks.num_ranks))
    tokenizer = read_tokenizer(directories[0].path)
    return Setup(
        config=config,
        output=output,
        ranks=ranks,
        phases=[_sequence(config, directory, tokenizer) for directory in directories],
        phase_ends=[] if num_steps is None or len(directories) == 1 else [_first_phase(config, num_steps)],
        num_steps=num_steps,
        log_every=TIMED_LOG_EVERY if num_steps is None else max(1, min(100, num_steps // 200)),
        # Looking at an update's numbers makes the CPU wait for the GPU, which then waits for its next work.
        drain_every=10 if on_gpu else 1,
        use_bf16=uses_bf16(config.precision, ranks.device),
        validation=evaluation_batches(part, config.objective, config.micro_batch_size),
        tokenizer=tokenizer,
    )


def number_of_steps(config: PretrainConfig, mean_lengths: list[float]) -> int | None:
    """Return how many updates the budget allows on rows of these mean lengths; None where it is a time."""
    if config.hours is not None:
        return None
    if config.tokens is None:
        return config.steps or DEFAULT_STEPS
    shares = config.phase_shares if len(mean_lengths) == 2 else (1.0,)
    mean = sum(share * length for share, length in zip(shares, mean_lengths, strict=True))
    steps = max(1, round(config.tokens / (config.batch_size * mean)))
    if config.warmup_steps is not None and config.warmup_steps > steps:
        budget = f"--tokens {config.tokens} are only {steps} steps"
        raise UserError(f"--warmup-steps is {config.warmup_steps}, but {budget}; lower it.")
    return steps


def _first_phase(config: PretrainConfig, num_steps: int) -> int:
    if num_steps < 2:
        raise UserError("Two directories of instances need two steps or more, but the budget is one; raise it.")
    return min(max(1, round(num_steps * config.phase_shares[0])), num_steps - 1)


def _sequence(config: PretrainConfig, directory: InstanceDirectory, tokenizer: dict[str, bytes]) -> RowSequence:
    masks = None
    if config.dynamic_masking != "none":
        masks = DynamicMasks(
            masking=config.dynamic_masking,
            mask_rate=config.mask_rate,
            mask_split=config.mask_split,
            max_length=directory.max_length,
            vocabulary=load_vocabulary(tokenizer, directory.path),
        )
    return RowSequence(directory, config.seed, config.duplicates_per_epoch, masks)


def start(setup: Setup, checkpoint: Path | None) -> tuple[BertForPreTraining, AdamW, State]:
    """Return model, optimiser and state: new, from another model's weights, or where the run was interrupted."""
    config = setup.config
    begun_from = checkpoint or config.checkpoint
    model = (
        read_model(begun_from, _changes(config))
        if begun_from
        else new_model(config, [phase.directory for phase in setup.phases])
    )
    model.to(setup.ranks.device).train()
    optimizer = make_optimizer(model, config.weight_decay, bias_correction=config.bias_correction)
    return model, optimizer, _go_on(optimizer, checkpoint) if checkpoint else State()


def _go_on(optimizer: AdamW, checkpoint: Path) -> State:
    averages, state = read_state(checkpoint, State)
    try:
        optimizer.load_state_dict(averages)
        fits = len(state.sums) == NUM_SUMS and all(
            value.shape in (parameter.shape, ()) and bool(value.isfinite().all())  # () is the number of steps
            for parameter, values in optimizer.state.items()
            for value in values.values()
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        what_next = f"delete {checkpoint} to resume from the checkpoint before it"
        raise UserError(f"{checkpoint}/{STATE} is damaged or belongs to another model; {what_next}.")
    return state


def _changes(config: PretrainConfig) -> dict[str, Any]:
    rates = {"hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.dropout}
    return rates | {"is_decoder": config.objective == "ltr"}


def new_model(config: PretrainConfig, directories: list[InstanceDirectory]) -> BertForPreTraining:
    """Return the model that `config` describes, for the vocabulary of the directories, with initial weights."""
    shape = ModelConfig.named(
        config.model,
        vocab_size=directories[0].vocab_size,
        max_position_embeddings=max(512, *(directory.max_length for directory in directories)),
        num_hidden_layers=config.num_layers,
        hidden_size=config.hidden_size,
        initializer_range=config.initializer_range,
        num_attention_heads=config.num_heads,
        intermediate_size=config.intermediate_size,
        **_changes(config),
    )
    model = BertForPreTraining(shape)
    initialise(model, shape, torch.Generator().manual_seed(stable_hash(config.seed, "initial weights") >> 1))
    return model
