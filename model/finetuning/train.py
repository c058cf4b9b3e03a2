"""The loop of fine-tuning: from a model and its features to trained weights, exact and resumable.

Each update takes one batch of features, in micro-batches, on any number of ranks. The mean loss of a micro-batch counts
by its share of the targets of the whole batch, so that neither micro-batches nor ranks change the result but by
rounding. Dropout is seeded by (seed, step, rank, micro-batch), so that a checkpoint needs no random state, and a run
that was killed and goes on has the same weights to the last bit (CPU, with the same number of threads).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from ...pipeline.errors import UserError
from ...pipeline.seeding import rng_for, stable_hash
from ..mirror import upload
from ..tasks.task import Feature, Recipe, TaskBatch, TaskModel, make_batch, num_targets
from ..training.device import MICRO_BATCH_TOKENS, oom_as_user_error, trim_memory, uses_bf16
from ..training.logs import Clock, RunLog
from ..training.optim import MAX_GRADIENT_NORM, learning_rate, make_optimizer, set_learning_rate
from ..training.prefetch import prefetch
from ..training.ranks import Ranks
from ..training.signals import stop_signals
from .config import FinetuneConfig

CHECKPOINT = "checkpoint.pt"
METRICS = ("step", "split", "learning_rate", "loss", "gradient_norm")
SPEED = ("step", "examples_per_second", "tokens_per_second", "data_wait", "peak_memory_gb")
POOL_BATCHES = 16
REPORT_EVERY = 10

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Training:
    """One training of a model: on what, how, and where its records go."""

    features: Sequence[Feature]
    config: FinetuneConfig
    recipe: Recipe
    peak_rate: float
    seed: int
    ranks: Ranks
    directory: Path | None = None
    """Of ``metrics.csv``, ``speed.csv``, ``logs/`` and, until the end, the checkpoint; None to leave nothing."""

    @property
    def num_steps(self) -> int:
        """Number of updates."""
        return max(1, round(self.recipe.epochs * math.ceil(len(self.features) / self.recipe.batch_size)))

    def rate(self, step: int) -> float:
        """Return the learning rate of the update with index `step`."""
        warmup_steps = round(self.config.warmup_share * self.num_steps)
        return learning_rate(step, self.peak_rate, warmup_steps, self.num_steps)


class Part(NamedTuple):
    """A micro-batch."""

    batch: TaskBatch
    share: float
    """Of the targets of the whole batch."""


class Update(NamedTuple):
    """What an update leaves to be looked at; on a GPU it may not be computed yet."""

    loss: Tensor
    num_stops: Tensor
    """Ranks that were asked to stop."""
    gradient_norm: Tensor


@dataclass
class State:
    """Where a training is."""

    model: TaskModel
    optimizer: AdamW
    step: int = 0
    seconds: float = 0.0
    """Spent before an interruption."""
    pending: list[Update] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    """Of the updates since the last report, as the next one."""
    num_examples: int = 0


def train_model(model: TaskModel, training: Training, report: Progress = lambda live: None) -> float | None:
    """Train `model` in place, on its device, from where an interrupted training of the same kind was.

    Return the seconds that it took; None where SIGINT or SIGTERM asked to stop, when everything is saved. `report` is
    called every tenth step with ``step``, ``steps``, ``loss`` (the mean since the last call), ``learning_rate``,
    ``examples_per_second``, ``tokens_per_second``, ``data_wait`` and on a GPU ``peak_memory_gb``.

    Raises `UserError` where the loss is not finite, where a batch does not fit, and where the disk is full.
    """
    state = _start(model, training)
    on_gpu = training.ranks.device.type == "cuda"
    lengths = np.array([feature.length for feature in training.features])
    batches = batch_rows(lengths, training.recipe.batch_size, training.seed)
    order = list(islice(batches, training.num_steps))
    coming = prefetch(lambda step: _make_parts(training, order[step]), range(state.step, training.num_steps))
    devices = [training.ranks.device] if on_gpu else []
    with torch.random.fork_rng(devices), _new_log(training, state) as log, closing(coming):
        if training.config.compile:
            model.compile()
        clock = Clock(spent=state.seconds)
        with stop_signals() as stop_asked:
            while state.step < training.num_steps:
                with clock.waiting():
                    parts = next(coming)
                with oom_as_user_error("--micro-batch-size"):
                    state.pending.append(_update(state, training, parts, stop_asked.is_set()))
                rows = order[state.step]
                state.num_examples += len(rows)
                clock.count(int(lengths[rows].sum()), 0, 0.0)
                state.step += 1
                trim_memory(training.ranks.device, state.step)
                ends = state.step == training.num_steps
                reports, saves = state.step % REPORT_EVERY == 0, state.step % training.config.checkpoint_every == 0
                # On a GPU looking at an update's numbers makes the CPU wait.
                if on_gpu and not (ends or reports or saves):
                    continue
                stops, gradient_norm = _drain_updates(state, training)
                if reports or ends:
                    _report(state, training, clock, gradient_norm, log, report)
                if (saves or stops) and not ends:
                    _save(state, training, clock, log)
                if stops and not ends:
                    return None
    return clock.elapsed()


def _start(model: TaskModel, training: Training) -> State:
    config = training.config
    state = State(model, make_optimizer(model, config.weight_decay, bias_correction=config.bias_correction))
    path = training.directory and training.directory / CHECKPOINT
    if path and path.exists():
        try:
            saved = torch.load(path, map_location=training.ranks.device, weights_only=True)
            model.load_state_dict(saved["model"])
            state.optimizer.load_state_dict(saved["optimizer"])
        except (OSError, RuntimeError, KeyError, ValueError, UnpicklingError, EOFError):
            raise UserError(f"{path} is damaged; delete it to begin this run anew.") from None
        state.step, state.seconds, state.losses = saved["step"], saved["seconds"], saved["losses"]
    model.train()
    if not any(parameter.requires_grad for parameter in model.bert.parameters()):
        model.bert.eval()
    return state


def _new_log(training: Training, state: State) -> Any:
    if training.directory is None or training.ranks.rank > 0:
        return nullcontext()
    training.directory.mkdir(parents=True, exist_ok=True)
    return RunLog(training.directory, state.step or -1, METRICS, SPEED)


def batch_rows(lengths: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the row numbers of each batch, epoch after epoch without end; each epoch has every row once.

    Rows are in a random order, in which every `POOL_BATCHES` batches are sorted by length among themselves, so that
    a batch has little padding; the order of the batches is random again. The last, partial batch is kept.
    """
    for epoch in count():
        rng = rng_for(seed, "finetune", "order", epoch)
        order = rng.permutation(len(lengths))
        batches = []
        for start in range(0, len(order), POOL_BATCHES * batch_size):
            pool = order[start : start + POOL_BATCHES * batch_size]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches.extend(pool[first : first + batch_size] for first in range(0, len(pool), batch_size))
        for index in rng.permutation(len(batches)):
            yield batches[index]


def _make_parts(training: Training, rows: np.ndarray) -> list[Part]:
    """Return this rank's part of a batch, in micro-batches of rows of similar length."""
    rank, num_ranks, device = training.ranks
    features = [training.features[row] for row in rows]
    total = max(1, num_targets(features))
    own = features[rank::num_ranks]
    if not own:
        # A rank without a row computes one that counts nothing, so that all have the same gradients to sum.
        return [Part(_pinned(make_batch(features[:1]), device), 0.0)]
    num_tokens = max(feature.length * len(feature.rows) for feature in own)
    size = training.config.micro_batch_size or max(1, MICRO_BATCH_TOKENS[device.type] // num_tokens)
    micro_batches = [own[first : first + size] for first in range(0, len(own), size)]
    return [Part(_pinned(make_batch(part), device), num_targets(part) / total) for part in micro_batches]


def _pinned(batch: TaskBatch, device: torch.device) -> TaskBatch:
    return batch.pin() if device.type == "cuda" else batch


def _update(state: State, training: Training, parts: Sequence[Part], stop_asked: bool) -> Update:
    """Compute the gradient of the whole batch and change the weights once."""
    rank, _, device = training.ranks
    use_bf16 = uses_bf16(training.config.precision, device)
    sums = torch.tensor([0.0, float(stop_asked)], dtype=torch.float64, device=device)
    for index, part in enumerate(parts):
        torch.manual_seed(stable_hash(training.seed, "finetune", "dropout", state.step, rank, index) >> 1)
        batch = part.batch.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=use_bf16):
            outputs = state.model(batch)
            # The mean over no targets at all is not a number.
            loss = state.model.loss(outputs, batch) * part.share if part.share else outputs.float().sum() * 0.0
        loss.backward()
        sums[0] += loss.detach()
    parameters = list(state.model.parameters())
    training.ranks.sum_all([parameter.grad for parameter in parameters if parameter.grad is not None])
    gradient_norm = nn.utils.clip_grad_norm_(parameters, MAX_GRADIENT_NORM)
    set_learning_rate(state.optimizer, training.rate(state.step))
    state.optimizer.step()
    state.optimizer.zero_grad()
    loss_sum, num_stops = training.ranks.sum(sums)
    return Update(loss_sum, num_stops, gradient_norm)


def _drain_updates(state: State, training: Training) -> tuple[bool, float]:
    """Take note of the last updates; return whether to stop, and the last norm of the gradient.

    Raises `UserError` where a loss or a gradient is not finite.
    """
    stops, norm = False, 0.0
    for back, (loss, num_stops, gradient_norm) in zip(range(len(state.pending), 0, -1), state.pending, strict=True):
        value, norm = loss.item(), gradient_norm.item()
        if not (math.isfinite(value) and math.isfinite(norm)):
            what = f"loss is {value}" if not math.isfinite(value) else f"gradient's norm is {norm}"
            rate = f"learning rate {training.peak_rate:g}"
            raise UserError(f"The {what} at step {state.step - back + 1} with {rate}; take a lower one.")
        state.losses.append(value)
        stops = stops or num_stops.item() > 0
    state.pending.clear()
    return stops, norm


def _report(
    state: State, training: Training, clock: Clock, gradient_norm: float, log: RunLog | None, report: Progress
) -> None:
    device, rates = training.ranks.device, clock.rates()
    speed = {name: rates[name] for name in ("tokens_per_second", "data_wait")}
    speed["examples_per_second"] = speed["tokens_per_second"] * state.num_examples / clock.interval_tokens
    if device.type == "cuda":
        speed["peak_memory_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
    learned = {"loss": sum(state.losses) / len(state.losses), "learning_rate": training.rate(state.step - 1)}
    report({"step": state.step, "steps": training.num_steps, **learned, **speed})
    if log:
        log.metrics(state.step, "train", learned | {"gradient_norm": gradient_norm})
        log.speed(state.step, speed)
    state.losses.clear()
    state.num_examples = 0
    clock.begin_interval()


def _save(state: State, training: Training, clock: Clock, log: RunLog | None) -> None:
    if log is None or training.directory is None:
        return
    log.flush()
    path = training.directory / CHECKPOINT
    partial = path.with_suffix(".partial")
    weights = {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}
    place = {"step": state.step, "seconds": clock.elapsed(), "losses": state.losses}
    try:
        torch.save(weights | place, partial)
        partial.replace(path)
        upload(path)
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
        partial.unlink(missing_ok=True)
        reason = str(error).splitlines()[0]
        raise UserError(f"No checkpoint could be written to {path} ({reason}); the last one stays.") from None
