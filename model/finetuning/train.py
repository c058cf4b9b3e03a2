"""Train a task's model on its features; an interrupted training resumes exactly.

An update takes one batch of features; `training.update` says how it is divided into micro-batches
and between ranks, `training.loop` what happens between updates.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...pipeline.errors import UserError
from ..checkpoint import load_tensors
from ..notices import StopRequest
from ..tasks.batches import Feature, TaskBatch
from ..tasks.task import Recipe, Scores, TaskModel
from ..training.device import (
    compiles,
    drain_every,
    peak_memory,
    product_dtype,
    tokens_at_once,
)
from ..training.logs import Clock, ProgressCallback, RunLog
from ..training.loop import Work, train
from ..training.optim import learning_rate, make_optimizer
from ..training.ranks import Ranks
from ..training.threads import kept_threads, use_threads
from ..training.update import Loss, Update, Updater
from .batches import FinetuneBatch, batch_rows, loss_of, micro_batches
from .config import FinetuneConfig

CHECKPOINT = "checkpoint.pt"
METRICS = ("step", "split", "learning_rate", "loss", "gradient_norm")
SPEED = ("step", "examples_per_second", "tokens_per_second", "data_wait", "peak_memory_gb")
REPORT_EVERY = 10


@dataclass
class Best:
    """The best measurement on dev so far, by the first score; of equal ones the last."""

    score: float = -math.inf
    step: int = -1
    weights: dict[str, Tensor] | None = None
    """On the CPU; None if they are the model's own."""
    num_since: int = 0
    """Measurements since the score last rose."""

    def add(self, score: float, step: int, weights: Callable[[], dict[str, Tensor]]) -> None:
        """Count a measurement; `weights` copies the model's."""
        self.num_since += 1
        if score > self.score:
            self.num_since = 0
        if score >= self.score:
            self.score = score
            self.step = step
            self.weights = weights()


@dataclass
class FinetuneState:
    """Everything that a training remembers besides weights and optimiser."""

    step: int = 0
    seconds: float = 0.0
    """Without measurements on dev."""
    losses: list[float] = field(default_factory=list[float])
    """Since the last report: with them a resumed run reports the same means."""
    num_threads: int | None = None
    best: Best = field(default_factory=Best)


@dataclass(kw_only=True, eq=False)
class Training(Work[FinetuneBatch, TaskBatch]):
    """One training of a model, in place and on its device: on what, how, how far it is, and what is
    due between updates.

    A training whose directory has a checkpoint is resumed.
    """

    model: TaskModel
    features: Sequence[Feature]
    config: FinetuneConfig
    recipe: Recipe
    peak_rate: float
    seed: int
    ranks: Ranks
    directory: Path | None = None
    """For ``metrics.csv``, ``speed.csv``, ``logs/`` and, until the end, the checkpoint; None writes
    nothing.
    """
    score_dev: Callable[[], Scores] | None = None
    """Measures the model on dev after each epoch (or `evaluate_every` steps) and at the end."""
    show: ProgressCallback = lambda figures: None
    """Called every tenth step with ``step``, ``steps``, ``loss`` (the mean since the last call),
    ``learning_rate``, and the figures in `SPEED`.
    """
    stop: StopRequest = field(default_factory=StopRequest)

    def __post_init__(self) -> None:
        self.device = self.ranks.device
        optimizer = make_optimizer(
            self.model,
            self.config.weight_decay,
            bias_correction=self.config.corrects_bias(self.peak_rate),
        )
        self.updater: Updater[TaskBatch] = Updater(
            self.model,
            optimizer,
            self.ranks,
            dtype=product_dtype(self.config.precision, self.device),
            dropout_seed=(self.seed, "finetune", "dropout"),
        )
        self.state = self._load()
        self.clock = Clock(spent=self.state.seconds)
        self.log: RunLog | None = None
        """None on all ranks but the first, which alone writes."""
        self.steps_per_epoch = math.ceil(len(self.features) / self.recipe.batch_size)
        self.num_steps = max(1, round(self.recipe.epochs * self.steps_per_epoch))
        self._most_tokens = tokens_at_once(self.model.encoder.config, self.device)
        lengths = np.array([feature.length for feature in self.features])
        # All steps' rows, also those done before an interruption: then `order[step]` is the same
        # batch as in an undisturbed run.
        all_batches = batch_rows(lengths, self.recipe.batch_size, self.seed)
        self._order = list(islice(all_batches, self.num_steps))

    @property
    def step(self) -> int:
        """Number of updates done."""
        return self.state.step

    def steps_left(self) -> range:
        """Return the indices of the updates to come."""
        return range(self.step, self.num_steps)

    def make_batch(self, step: int) -> FinetuneBatch:
        """Return the examples of the update with this index."""
        rows = self._order[step]
        features = [self.features[row] for row in rows]
        asked = self.config.micro_batch_size
        batches = micro_batches(features, self.ranks, asked, self._most_tokens)
        num_tokens = sum(feature.length for feature in features)
        return FinetuneBatch(batches, len(rows), num_tokens)

    def loss(self, batch: FinetuneBatch, micro_batch: TaskBatch) -> Loss:
        """Return the loss of a micro-batch."""
        return loss_of(self.model, micro_batch)

    def rate(self) -> float:
        """Return the learning rate of the next update."""
        return self._rate_at(self.step)

    def _rate_at(self, step: int) -> float:
        warmup_steps = round(self.config.warmup_share * self.num_steps)
        return learning_rate(step, self.peak_rate, warmup_steps, self.num_steps)

    def count(self, batch: FinetuneBatch) -> None:
        """Count an update: examples and tokens."""
        self.clock.count(num_rows=batch.num_examples, num_tokens=batch.num_tokens)
        self.state.step += 1

    @property
    def is_over(self) -> bool:
        """Whether all updates are done."""
        return self.step >= self.num_steps

    @property
    def _is_reported(self) -> bool:
        return self.is_over or self.step % REPORT_EVERY == 0

    @property
    def _is_evaluated(self) -> bool:
        every = self.config.evaluate_every or self.steps_per_epoch
        return self.score_dev is not None and (self.is_over or self.step % every == 0)

    @property
    def _is_saved(self) -> bool:
        return self.step % self.config.checkpoint_every == 0 and not self.is_over

    def is_due(self) -> bool:
        """Return whether anything is due after this number of updates."""
        is_drained = self.step % drain_every(self.device) == 0
        return self._is_reported or self._is_saved or self._is_evaluated or is_drained

    def add(self, update: Update) -> None:
        """Keep the loss of an update; raises `UserError` if it or the gradient is not finite."""
        self.state.losses.append(_finite_loss(update, self.peak_rate))

    def report(self, update: Update) -> None:
        """Show and log the mean loss since the last report, if one is due."""
        if not self._is_reported:
            return
        rates = self.clock.rates() | peak_memory(self.device)
        speed = {name: rates[name] for name in SPEED if name in rates}
        learned = {
            "loss": sum(self.state.losses) / len(self.state.losses),
            "learning_rate": self._rate_at(self.step - 1),
        }
        self.show({"step": self.step, "steps": self.num_steps, **learned, **speed})
        if self.log:
            learned["gradient_norm"] = update.gradient_norm
            self.log.metrics(self.step, "train", learned)
            self.log.speed(self.step, speed)
        self.state.losses.clear()
        self.clock.start_interval()

    def evaluate(self) -> bool:
        """Measure the model on dev if that is due; return whether patience is left."""
        if not self._is_evaluated:
            return True
        with self.clock.evaluating():
            self._measure()
        return self.is_over or not self._is_patience_over()

    def _measure(self) -> Scores:
        """Return the scores on dev; the first rank measures, and the others wait at their next
        sum.
        """
        if self.ranks.rank > 0 or self.score_dev is None:
            return {}
        scores = self.score_dev()
        if self.log:
            self.log.add_columns(scores)
            self.log.metrics(self.step, "dev", scores)

        def copied_weights() -> dict[str, Tensor]:
            weights = self.model.state_dict()
            return {name: weight.cpu().clone() for name, weight in weights.items()}

        self.state.best.add(next(iter(scores.values())), self.step, copied_weights)
        return scores

    def _is_patience_over(self) -> bool:
        patience = self.config.patience
        if patience is None:
            return False
        # Only the first rank has measured.
        return self.ranks.from_first(self.state.best.num_since >= patience)

    def save(self, *, stops: bool) -> None:
        """Write a checkpoint if it is due, or where the training stops."""
        if not self.log or not (stops or self._is_saved):
            return
        assert self.directory is not None
        self.log.flush()
        state = self.state
        state.seconds = self.clock.elapsed()
        _save(
            self.directory / CHECKPOINT,
            {
                "model": self.model.state_dict(),
                "optimizer": self.updater.state_dict(),
                **vars(state),
                "best": vars(state.best),
            },
        )

    def _load(self) -> FinetuneState:
        """Load an interrupted training, if there is one; return its state."""
        path = self.directory and self.directory / CHECKPOINT
        if not path or not path.exists():
            return FinetuneState()
        advice = "Delete it to restart this run."
        saved = load_tensors(path, advice)
        try:
            self.model.load_state_dict(saved["model"])
            self.updater.load_state_dict(saved["optimizer"])
            return FinetuneState(
                step=saved["step"],
                seconds=saved["seconds"],
                losses=saved["losses"],
                num_threads=saved["num_threads"],
                best=Best(**saved["best"]),
            )
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
            raise UserError(f"{path} is damaged or belongs to another model. {advice}") from None

    def open_log(self) -> AbstractContextManager[RunLog | None]:
        """Open the log after the updates done; there is none without a directory."""
        if self.directory is None or self.ranks.rank > 0:
            return nullcontext()
        self.directory.mkdir(parents=True, exist_ok=True)
        columns = METRICS
        path = self.directory / "metrics.csv"
        if self.step and path.exists():
            # With the scores that `_measure` added before an interruption.
            header = path.read_text(encoding="utf-8").partition("\n")[0]
            columns = tuple(dict.fromkeys((*METRICS, *header.split(","))))
        return RunLog(self.directory, self.step or -1, columns, SPEED)


def train_model(training: Training) -> FinetuneState | None:
    """Train a model; return the state at the end, or None if it was asked to stop, after saving a
    checkpoint.

    The model is as its last update left it; the best weights on dev are in the state's `best`, on
    the first rank. Raises `UserError` if the loss is not finite, a batch does not fit into memory,
    or the disk is full.
    """
    state = training.state
    device = training.device
    training.model.train()
    if compiles(training.config.compile, device):
        # The head, which varies with the task, is a small part of the time.
        training.model.encoder.compile_parts()
    with kept_threads(), training.open_log() as training.log:
        state.num_threads = use_threads(state.num_threads, device)
        if not train(training):
            return None
    state.seconds = training.clock.elapsed()
    return state


def _finite_loss(update: Update, peak_rate: float) -> float:
    """Return the loss of an update; raises `UserError` if it or the gradient is not finite."""
    (loss,) = update.sums
    if update.is_finite:
        return loss
    fault = f"loss is {loss}"
    if math.isfinite(loss):
        fault = f"gradient norm is {update.gradient_norm}"
    raise UserError(
        f"The {fault} at step {update.step + 1} with learning rate {peak_rate:g}; try a lower one."
    )


def _save(path: Path, values: dict[str, object]) -> None:
    partial = path.with_suffix(".partial")
    try:
        torch.save(values, partial)
        partial.replace(path)
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
        partial.unlink(missing_ok=True)
        reason = str(error).splitlines()[0]
        raise UserError(
            f"No checkpoint could be written to {path} ({reason}); the last one is kept."
        ) from None
