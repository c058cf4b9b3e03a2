"""Train a task's model on its features; an interrupted training resumes exactly.

An update takes one batch of features; `training.update` says how it is divided into micro-batches
and between ranks.

Shapes: N features, B rows, L padded length.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...pipeline.errors import UserError
from ...pipeline.seeding import rng_for
from ..checkpoint import load_tensors
from ..mirror import upload
from ..tasks.batches import Feature, TaskBatch, make_batch, num_targets
from ..tasks.head import Recipe, Scores, TaskModel
from ..training.compilation import compiles, distinct_sizes
from ..training.device import (
    drain_every,
    kept_generators,
    oom_as_user_error,
    peak_memory,
    pinned_attention,
    product_dtype,
    rows_per_micro_batch,
    tokens_at_once,
    trim_memory,
)
from ..training.logs import Clock, ProgressCallback, RunLog
from ..training.loop import StopRequest, prefetch
from ..training.optim import learning_rate, make_optimizer
from ..training.processor import kept_threads, use_threads
from ..training.ranks import Ranks
from ..training.update import Loss, Update, Updater
from .config import FinetuneConfig

CHECKPOINT = "checkpoint.pt"
METRICS = ("step", "split", "learning_rate", "loss", "gradient_norm")
SPEED = ("step", "examples_per_second", "tokens_per_second", "data_wait", "peak_memory_gb")
POOL_BATCHES = 16
REPORT_EVERY = 10


@dataclass(frozen=True)
class Training:
    """One training of a model: on what, how, and where its logs go."""

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
    evaluate: Callable[[], Scores] | None = None
    """Measures the model on dev after each epoch (or `evaluate_every` steps) and at the end."""
    evaluate_start: bool = False
    """Measure it before the first update, too."""
    whole_batches: bool = False
    """Whether the loss compares the examples of a batch, so that it cannot be divided."""

    @property
    def steps_per_epoch(self) -> int:
        """Updates of one pass over the features."""
        return math.ceil(len(self.features) / self.recipe.batch_size)

    @property
    def num_steps(self) -> int:
        """Number of updates."""
        return max(1, round(self.recipe.epochs * self.steps_per_epoch))

    def is_evaluated(self, step: int) -> bool:
        """Return whether dev is measured after `step` updates."""
        every = self.config.evaluate_every or self.steps_per_epoch
        return self.evaluate is not None and (step == self.num_steps or step % every == 0)

    def rate(self, step: int) -> float:
        """Return the learning rate of the update with index `step`."""
        warmup_steps = round(self.config.warmup_share * self.num_steps)
        return learning_rate(step, self.peak_rate, warmup_steps, self.num_steps)


@dataclass
class Best:
    """The best measurement on dev so far, by the first score; of equal ones the last."""

    score: float = -math.inf
    step: int = -1
    weights: dict[str, Tensor] | None = None
    """On the CPU; None if they are the model's own."""
    num_since: int = 0
    """Measurements since the score last rose."""
    start: dict[str, float] = field(default_factory=dict[str, float])
    """Scores before the first update; empty if they were not measured."""

    def add(self, score: float, step: int, weights: Callable[[], dict[str, Tensor]]) -> None:
        """Count a measurement; `weights` copies the model's."""
        self.num_since += 1
        if score > self.score:
            self.num_since = 0
        if score >= self.score:
            self.score = score
            self.step = step
            self.weights = weights()


class Trained(NamedTuple):
    """A finished training."""

    seconds: float
    """Without measurements on dev."""
    step: int
    """Updates made; less than planned if `patience` ended it."""
    best: Best


def train_model(
    model: TaskModel,
    training: Training,
    report: ProgressCallback = lambda figures: None,
    stop: StopRequest | None = None,
) -> Trained | None:
    """Train `model` in place, on its device, resuming an interrupted training if there is a
    checkpoint.

    Return None if `stop` interrupted it, after saving a checkpoint. The model is then as its last
    update left it; the best weights on dev are in `Trained.best`, on the first rank. `report` is
    called every tenth step with ``step``, ``steps``, ``loss`` (the mean since the last call),
    ``learning_rate``, and the figures in `SPEED`. Raises `UserError` if the loss is not finite, a
    batch does not fit into memory, or the disk is full.
    """
    config = training.config
    ranks = training.ranks
    num_steps = training.num_steps
    optimizer = make_optimizer(model, config.weight_decay, bias_correction=config.bias_correction)
    updater: Updater[TaskBatch] = Updater(
        model,
        optimizer,
        ranks,
        dtype=product_dtype(config.precision, ranks.device),
        dropout_seed=(training.seed, "finetune", "dropout"),
    )
    # The losses since the last report: with them a resumed run reports the same means.
    step, spent_s, losses, num_threads, best = _load(training, model, updater)
    stop = stop or StopRequest()
    model.train()
    if compiles(config.compile, ranks.device):
        # The head, which varies with the task, is a small part of the time.
        model.encoder.compile_parts()
    lengths = np.array([feature.length for feature in training.features])
    # All steps' rows, also those done before an interruption: then `order[step]` is the same batch
    # as in an undisturbed run.
    all_batches = batch_rows(lengths, training.recipe.batch_size, training.seed)
    order = list(islice(all_batches, num_steps))
    most_tokens = tokens_at_once(model.encoder.config, ranks.device)
    batches = prefetch(
        lambda step: _make_batches(training, order[step], most_tokens), range(step, num_steps)
    )

    with (
        kept_generators(ranks.device),
        kept_threads(),
        _open_log(training, step) as log,
        closing(batches),
        pinned_attention(),
        distinct_sizes(),
        stop,
    ):
        num_threads = use_threads(num_threads, ranks.device)
        if step == 0 and training.evaluate_start:
            best.start = _measure(training, model, step, best, log)
        clock = Clock(spent=spent_s)
        while step < num_steps:
            with clock.waiting():
                micro_batches = next(batches)
            with oom_as_user_error("batch_size" if training.whole_batches else "micro_batch_size"):
                updater.update(
                    step,
                    micro_batches,
                    lambda micro_batch: _loss(model, micro_batch),
                    training.rate(step),
                    stop_asked=stop.is_requested,
                )
            rows = order[step]
            clock.count(num_rows=len(rows), num_tokens=int(lengths[rows].sum()))
            step += 1
            trim_memory(ranks.device, step)

            is_last = step == num_steps
            is_reported = is_last or step % REPORT_EVERY == 0
            is_saved = step % config.checkpoint_every == 0
            is_evaluated = training.is_evaluated(step)
            is_drained = step % drain_every(ranks.device) == 0
            # Reading an update's loss waits for a GPU to finish it.
            if not (is_reported or is_saved or is_evaluated or is_drained):
                continue
            updates = updater.drain()
            losses += [_finite_loss(update, training.peak_rate) for update in updates]
            stops = any(update.stop_asked for update in updates)
            if is_reported:
                rates = clock.rates() | peak_memory(ranks.device)
                speed = {name: rates[name] for name in SPEED if name in rates}
                learned = {
                    "loss": sum(losses) / len(losses),
                    "learning_rate": training.rate(step - 1),
                }
                report({"step": step, "steps": num_steps, **learned, **speed})
                if log:
                    learned["gradient_norm"] = updates[-1].gradient_norm
                    log.metrics(step, "train", learned)
                    log.speed(step, speed)
                losses.clear()
                clock.start_interval()
            if is_evaluated:
                with clock.evaluating():
                    _measure(training, model, step, best, log)
                if not is_last and _is_patience_over(training, best):
                    break
            if log and (stops or (is_saved and not is_last)):
                log.flush()
                state = {
                    "model": model.state_dict(),
                    "optimizer": updater.state_dict(),
                    "step": step,
                    "seconds": clock.elapsed(),
                    "losses": losses,
                    "num_threads": num_threads,
                    "best": vars(best),
                }
                _save(training, state)
            if stops:
                return None
    return Trained(clock.elapsed(), step, best)


def _measure(
    training: Training, model: TaskModel, step: int, best: Best, log: RunLog | None
) -> Scores:
    """Return the scores on dev; the first rank measures, and the others wait at their next sum."""
    if training.ranks.rank > 0 or training.evaluate is None:
        return {}
    scores = training.evaluate()
    if log:
        log.add_columns(scores)
        log.metrics(step, "dev", scores)

    def copied_weights() -> dict[str, Tensor]:
        return {name: weight.cpu().clone() for name, weight in model.state_dict().items()}

    best.add(next(iter(scores.values())), step, copied_weights)
    return scores


def _is_patience_over(training: Training, best: Best) -> bool:
    patience = training.config.patience
    if patience is None:
        return False
    # Only the first rank has measured; its 1 or 0 reaches the others as a sum.
    ranks = training.ranks
    is_over = ranks.rank == 0 and best.num_since >= patience
    return ranks.sum(torch.tensor([float(is_over)], device=ranks.device)).item() > 0


def batch_rows(lengths: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the row indices of each batch, epoch after epoch without end; each epoch contains every
    row once.

    Rows are shuffled, sorted by length within pools of `POOL_BATCHES` batches, and then the batches
    are shuffled: a batch has rows of similar length and so little padding, but each epoch has other
    batches.
    """
    pool_rows = POOL_BATCHES * batch_size
    for epoch in count():
        rng = rng_for(seed, "finetune", "order", epoch)
        order = rng.permutation(len(lengths))
        batches = []
        # Lengths with 2 batches of 2 rows to a pool:
        #
        #     shuffled    9 3 4 8   7 2 6 1
        #     sorted      3 4 8 9   1 2 6 7
        #     batches    (3 4)(8 9)(1 2)(6 7), which are shuffled once more
        for start in range(0, len(order), pool_rows):
            pool = order[start : start + pool_rows]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            for first in range(0, len(pool), batch_size):
                batches.append(pool[first : first + batch_size])
        for index in rng.permutation(len(batches)):
            yield batches[index]


def _make_batches(training: Training, rows: np.ndarray, most_tokens: int) -> list[TaskBatch]:
    """Return this rank's part of the batch of these rows, in micro-batches of rows of similar
    length, of `most_tokens` with padding unless the config has their size.
    """
    rank, num_ranks, device = training.ranks
    features = [training.features[row] for row in rows]
    features_here = features[rank::num_ranks]
    if not features_here:
        # A rank without a row computes one that counts nothing, so that all ranks have the same
        # gradients to sum: each waits for all the others at every bucket.
        return [make_batch(features[:1])._replace(share=0.0)]

    num_batch_targets = max(1, num_targets(features))
    feature_tokens = max(feature.length * len(feature.rows) for feature in features_here)
    size = rows_per_micro_batch(training.config.micro_batch_size, feature_tokens, most_tokens)
    if training.whole_batches:
        size = len(features_here)
    micro_batches = []
    for first in range(0, len(features_here), size):
        chosen = features_here[first : first + size]
        micro_batch = make_batch(chosen)._replace(share=num_targets(chosen) / num_batch_targets)
        if device.type == "cuda":
            # Copies from pinned memory to a GPU are asynchronous.
            micro_batch = micro_batch.map(Tensor.pin_memory)
        micro_batches.append(micro_batch)
    return micro_batches


def _loss(model: TaskModel, batch: TaskBatch) -> Loss:
    outputs = model(batch)
    if batch.share:
        # The task's loss is the mean over the micro-batch's targets. Weighted by its share of the
        # batch's targets, it adds up to the mean over the batch.
        loss = model.loss(outputs, batch) * batch.share
    else:
        loss = outputs.float().sum() * 0.0  # a mean over no targets would be NaN
    return Loss(loss, loss.detach().double()[None])


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


def _open_log(training: Training, step: int) -> Any:
    if training.directory is None or training.ranks.rank > 0:
        return nullcontext()
    training.directory.mkdir(parents=True, exist_ok=True)
    columns = METRICS
    path = training.directory / "metrics.csv"
    if step and path.exists():
        # With the scores that `_measure` added before an interruption.
        header = path.read_text(encoding="utf-8").partition("\n")[0]
        columns = tuple(dict.fromkeys((*METRICS, *header.split(","))))
    return RunLog(training.directory, step or -1, columns, SPEED)


def _load(
    training: Training, model: TaskModel, updater: Updater[TaskBatch]
) -> tuple[int, float, list[float], int | None, Best]:
    """Load an interrupted training; return the steps done, their seconds, the losses since the last
    report, the number of threads, and the best measurement on dev.
    """
    path = training.directory and training.directory / CHECKPOINT
    if not path or not path.exists():
        return 0, 0.0, [], None, Best()
    advice = "Delete it to restart this run."
    saved = load_tensors(path, advice)
    try:
        model.load_state_dict(saved["model"])
        updater.load_state_dict(saved["optimizer"])
        # Checkpoints of earlier versions have no number of threads and no measurements.
        best = Best(**saved.get("best", {}))
        return saved["step"], saved["seconds"], saved["losses"], saved.get("num_threads"), best
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        raise UserError(f"{path} is damaged or belongs to another model. {advice}") from None


def _save(training: Training, values: dict[str, Any]) -> None:
    assert training.directory is not None
    path = training.directory / CHECKPOINT
    partial = path.with_suffix(".partial")
    try:
        torch.save(values, partial)
        partial.replace(path)
        upload(path)
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
        partial.unlink(missing_ok=True)
        reason = str(error).splitlines()[0]
        raise UserError(
            f"No checkpoint could be written to {path} ({reason}); the last one is kept."
        ) from None
