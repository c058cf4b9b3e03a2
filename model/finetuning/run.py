"""One run of fine-tuning, in a directory that is claimed, saved and resumed as pre-training's is.

`train_run` claims the directory, makes the model or loads its last checkpoint, trains it
(`training.loop`, on the updates of `FinetuneWork`), and writes the weights that were the best on
dev. An update takes one batch of features; `training.update` says how it is divided into
micro-batches and between ranks.

Shapes: B rows, L padded length.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import torch
from msgspec import structs
from torch import Tensor

from ...pipeline.errors import UserError
from ...pipeline.seeding import rng_for
from ...pipeline.storage.directory import WORK, OutputDirectory
from ..checkpoint import TASK, Checkpoint, save_model, write_json
from ..encoders.attention import few_lengths
from ..notices import StopRequest
from ..tasks.batches import Feature, Scale, TaskBatch, make_batch, num_targets
from ..tasks.catalogue import task_settings
from ..tasks.classify import Classification, SequenceClassifier
from ..tasks.splits import DEV_SETS
from ..tasks.task import Answer, Scores, Task, TaskModel, prefixed
from ..training.device import (
    peak_memory,
    product_dtype,
    sum_dtype,
    tokens_at_once,
)
from ..training.graphs import widths_of
from ..training.logs import Clock, ProgressCallback, RunLog
from ..training.loop import Work, train
from ..training.optim import learning_rate
from ..training.ranks import Ranks
from ..training.run import (
    BEST,
    SUMMARY,
    agree_on_run,
    claimed_run,
    read_state,
    read_summary,
    save_checkpoint,
)
from ..training.threads import kept_threads, use_threads
from ..training.update import Loss, Update, Updater, make_updater
from .model import infer, make_model, model_files, read_weights
from .results import Hyperparameters, RunSummary
from .setup import FinetuneSetup

METRICS = ("step", "split", "learning_rate", "loss", "gradient_norm")
SPEED = ("step", "examples_per_second", "tokens_per_second", "data_wait", "peak_memory_gb")
CHECKPOINT_MINUTES = 5.0
"""A kill costs at most so much work."""


def batch_rows(lengths: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the row indices of each batch, epoch after epoch without end; each epoch contains every
    row once.

    Rows are shuffled, sorted by length within pools of 50 batches, and then the batches are
    shuffled: a batch has rows of similar length and so little padding, but each epoch has other
    batches.
    """
    pool_rows = 50 * batch_size
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


def training_dtype(
    precision: str,
    device: torch.device,
    hidden_size: int,
    *,
    has_amx: bool = torch.cpu._is_amx_tile_supported(),
) -> torch.dtype:
    """Return the number format of matrix products in training."""
    # Products of smaller encoders take less time than the conversions to bf16 and back.
    is_large = hidden_size >= 256
    if precision == "auto" and device.type == "cpu" and has_amx and is_large:
        return torch.bfloat16
    return product_dtype(precision, device)


def few_widths(num_positions: int) -> tuple[int, ...]:
    """Return widths of rows, in order: eight from each power of two to the next.

    >>> few_widths(40)
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40)
    """
    widths = {min(few_lengths(length, 8), num_positions) for length in range(1, num_positions + 1)}
    return tuple(sorted(widths))


def micro_batches(
    features: list[Feature],
    ranks: Ranks,
    asked: int | None,
    most_tokens: int,
    widths: Sequence[int] = (),
) -> list[TaskBatch]:
    """Return this rank's part of an update, in parts of `asked` rows, or of `most_tokens`."""
    rank, num_ranks, device = ranks
    features_here = features[rank::num_ranks]
    if not features_here:
        # A rank without a row computes one that counts nothing, so that all ranks have the same
        # gradients to sum: each waits for all the others at every bucket.
        return [make_batch(features[:1])]

    num_batch_targets = num_targets(features)
    feature_tokens = max(feature.length for feature in features_here)
    size = asked or max(1, most_tokens // feature_tokens)
    batches: list[TaskBatch] = []
    for first in range(0, len(features_here), size):
        chosen = features_here[first : first + size]
        batch = make_batch(chosen, widths)
        chosen_targets = num_batch_targets
        if len(chosen) < len(features):
            chosen_targets = num_targets(chosen)
        # A tensor, as a number would be part of the shape by which graphs are kept.
        if share := chosen_targets / max(1, num_batch_targets):
            batch = batch._replace(share=torch.tensor(share))
        if device.type == "cuda":
            # Copies from pinned memory to a GPU are asynchronous.
            batch = batch.pin()
        batches.append(batch)
    return batches


def loss_of(model: TaskModel, batch: TaskBatch) -> Loss:
    """Return the part of an update's loss that a micro-batch has."""
    outputs = model(batch)
    if batch.share is not None:
        # The task's loss is the mean over the micro-batch's targets. Weighted by its share of the
        # batch's targets, it adds up to the mean over the batch.
        loss = model.loss(outputs, batch) * batch.share
    else:
        loss = outputs.float().sum() * 0.0  # a mean over no targets would be NaN
    return Loss(loss, loss.detach().to(sum_dtype(loss.device))[None])


class FinetuneBatch(NamedTuple):
    """The examples of one update."""

    batches: list[TaskBatch]
    """This rank's micro-batches."""
    num_examples: int
    num_tokens: int
    """Over all ranks, without padding."""


@dataclass
class FinetuneState:
    """Everything that a run remembers besides weights and optimiser; saved with each checkpoint."""

    step: int = 0
    seconds: float = 0.0
    """Without measurements on dev."""
    losses: list[float] = field(default_factory=list[float])
    """Since the last report: with them a resumed run reports the same means."""
    num_threads: int | None = None
    best_score: float | None = None
    """On dev, by the first metric; of equal ones the last counts."""
    best_step: int = 0
    scale: Scale | None = None
    """Of the scores that are learned; None if they are learned as they are."""


@dataclass(kw_only=True, eq=False)
class FinetuneWork(Work):
    """The updates of a run; nothing is logged and saved without a `directory`."""

    setup: FinetuneSetup
    run: Hyperparameters
    model: TaskModel
    """Trained in place, on its device."""
    ranks: Ranks
    directory: Path | None = None
    show: ProgressCallback = lambda figures: None
    """Called every tenth step, on a GPU less often, with ``step``, ``steps``, ``loss`` (the mean of
    ten steps), ``learning_rate``, and the figures in `SPEED`.
    """
    stop: StopRequest = field(default_factory=StopRequest)

    def __post_init__(self) -> None:
        self.config = self.setup.config
        self.device = self.ranks.device
        shape = self.model.encoder.config
        self._dtype = training_dtype(self.config.precision, self.device, shape.hidden_size)
        if isinstance(self.setup.task, Classification):
            self.setup.task.weigh_classes(self.model, self.setup.train)
        self.updater = self._make_updater()
        self.model = cast(TaskModel, self.updater.model).train()
        self.state = FinetuneState()
        # A head of the user's own may end in anything, such as a sigmoid: its scores stay.
        if type(self.model).forward is SequenceClassifier.forward:
            self.state.scale = self.setup.scale
        self.model.scale = self.state.scale
        self.clock = Clock()
        self.log: RunLog | None = None
        """None on all ranks but the first, which alone writes."""
        self.best_weights: dict[str, Tensor] | None = None
        """On the CPU."""
        self.task: Task = self.setup.task
        """With the thresholds that suit the last outputs on dev."""
        self.outputs: dict[str, list[np.ndarray]] = {}
        """The last ones, of each dev set."""
        self.scores: Scores = {}
        self.last_scores: Scores = {}
        """At the end of the training, when `scores` are those of the best weights."""
        features = self.setup.train
        self.steps_per_epoch = math.ceil(len(features) / self.run.batch_size)
        self.num_steps = max(1, round(self.run.epochs * self.steps_per_epoch))
        self._widths = widths_of(self.updater.graphs, shape.num_positions)
        if self._dtype == torch.bfloat16 and self.device.type == "cpu":
            self._widths = few_widths(shape.num_positions)
        self._most_tokens = tokens_at_once(shape, self.device)
        self._lengths = np.array([feature.length for feature in features])
        # All steps' rows, also those done before an interruption: then `order[step]` is the same
        # batch as in an undisturbed run.
        all_batches = batch_rows(self._lengths, self.run.batch_size, self.run.seed)
        self._order = list(islice(all_batches, self.num_steps))
        self._saved_at = time.monotonic()

    def _make_updater(self) -> Updater:
        """Return a new updater, or that of the run before with these weights, for its graphs."""
        seed = (self.run.seed, "finetune", "dropout")
        # Uncorrected for the moments' start at 0, Adam's updates are up to 6.5 times as large, and
        # a published encoder learns nothing at 3e-4.
        corrects = self.run.learning_rate >= 1e-4
        if self.setup.updaters:
            updater = self.setup.updaters[0]
            updater.start_over(self.model, seed, corrects=corrects)
            return updater
        updater = make_updater(
            self.model,
            self.ranks,
            partial(loss_of, self.model),
            corrects=corrects,
            dtype=self._dtype,
            dropout_seed=seed,
        )
        if updater.graphs is not None:
            self.setup.updaters.append(updater)
        return updater

    @property
    def is_over(self) -> bool:
        return self.step >= self.num_steps

    def measure_start(self) -> None:
        """Measure nothing: a new head cannot answer yet."""

    def make_batch(self, step: int) -> FinetuneBatch:
        rows = self._order[step]
        features = [self.setup.train[row] for row in rows.tolist()]
        if self.state.scale:
            features = [self.state.scale.standardise(feature) for feature in features]
        batches = micro_batches(
            features,
            self.ranks,
            asked=self.config.micro_batch_size,
            most_tokens=self._most_tokens,
            widths=self._widths,
        )
        return FinetuneBatch(
            batches,
            num_examples=len(features),
            num_tokens=int(self._lengths[rows].sum()),
        )

    def rate(self) -> float:
        return self._rate_at(self.step)

    def _rate_at(self, step: int) -> float:
        warmup_steps = round(0.1 * self.num_steps)  # as in google-research/bert
        return learning_rate(step, self.run.learning_rate, warmup_steps, self.num_steps)

    def count(self, batch: FinetuneBatch) -> None:
        self.clock.count(num_rows=batch.num_examples, num_tokens=batch.num_tokens)
        self.state.step += 1

    @property
    def _is_evaluated(self) -> bool:
        every = self.config.evaluate_every or self.steps_per_epoch
        return bool(self.setup.dev) and (self.is_over or self.step % every == 0)

    def is_due(self) -> bool:
        return self.is_over or self._is_evaluated

    def look(self, updates: list[Update]) -> None:
        """Report the mean loss of each ten updates; measure on dev when due, keep the best."""
        learned: dict[str, float] = {}
        for update in updates:
            (loss,) = update.sums
            if not update.is_finite:
                raise UserError(
                    f"The loss or the gradient is not finite at step {update.step + 1} with "
                    f"learning rate {self.run.learning_rate:g}; try a lower one."
                )
            self.state.losses.append(loss)
            step = update.step + 1
            if step % 10 == 0 or step == self.num_steps:  # as `show` promises
                learned = self._report(update)
        if learned:
            rates = self.clock.rates() | peak_memory(self.device)
            speed = {name: rates[name] for name in SPEED if name in rates}
            self.show({"step": self.step, "steps": self.num_steps, **learned, **speed})
            if self.log:
                self.log.speed(self.step, speed)
            self.clock.start_interval()
        # The first rank measures, and the others wait at their next sum.
        if not self._is_evaluated or self.ranks.rank > 0:
            return
        with self.clock.evaluating():
            scores = self.measure()
            if self.log:
                self.log.add_columns(scores)
                self.log.metrics(self.step, "dev", scores)
            state = self.state
            score = next(iter(scores.values()))
            if state.best_score is None or score >= state.best_score:
                state.best_score = score
                state.best_step = self.step
                weights = self.model.state_dict()
                self.best_weights = {name: weight.cpu().clone() for name, weight in weights.items()}

    def _report(self, update: Update) -> dict[str, float]:
        """Log the mean loss since the last report; return it with the rate of the update."""
        losses = self.state.losses
        learned = {
            "loss": sum(losses) / len(losses),
            "learning_rate": self._rate_at(update.step),
        }
        losses.clear()
        if self.log:
            logged = learned | {"gradient_norm": update.gradient_norm}
            self.log.metrics(update.step + 1, "train", logged)
        return learned

    def measure(self) -> Scores:
        """Return the scores on dev of the model as it is now; the first chooses."""
        dev = self.setup.splits.dev
        self.outputs = {}
        inference = self.updater.inference(product_dtype("auto", self.device))
        for prefix, features in self.setup.dev.items():
            self.outputs[prefix] = infer(self.model, features, inference)
        # Thresholds, such as SQuAD 2.0's for no answer, are chosen on the first dev set, and hold
        # for all that is scored or predicted with this model.
        given = self.setup.task
        self.task = given.tuned(self.outputs[""], self.setup.dev[""], dev[""])
        scores: Scores = {}
        for prefix, features in self.setup.dev.items():
            measured = self.task.scores(self.outputs[prefix], features, dev[prefix])
            scores |= prefixed(prefix, measured)
        self.scores = scores
        return scores

    def save(self, *, stops: bool) -> None:
        """Write a checkpoint every `CHECKPOINT_MINUTES`, and when the training stops."""
        if not self.log or self.is_over:
            return
        is_time = time.monotonic() >= self._saved_at + 60 * CHECKPOINT_MINUTES
        if not (stops or is_time):
            return
        assert self.directory is not None
        # Its lines of the log are on the disk before it.
        self.log.flush()
        self.state.seconds = self.clock.elapsed()
        files = model_files(self.model, self.task, self.setup.checkpoint)
        optimizer = {**self.updater.state_dict(), "best_weights": self.best_weights}
        save_checkpoint(self.directory, self.step, files, optimizer, asdict(self.state))
        self._saved_at = time.monotonic()

    def resume(self, checkpoint: Path) -> None:
        """Go on from a checkpoint of this run."""
        read_weights(self.model, Checkpoint.open(checkpoint))
        stored, self.state = read_state(checkpoint, FinetuneState, self.updater)
        self.model.scale = self.state.scale
        self.best_weights = stored.get("best_weights")
        self.clock = Clock(spent=self.state.seconds)

    def train(self) -> bool:
        """Do the updates that are left; return False if asked to stop, after saving all.

        The model is then as it was at its best on dev.
        """
        open_log = nullcontext()
        if self.directory and self.ranks.rank == 0:
            open_log = RunLog(self.directory, self.step or -1, METRICS, SPEED)
        with kept_threads(), open_log as self.log:
            self.state.num_threads = use_threads(self.state.num_threads, self.device)
            if not train(self):
                return False
        self.state.seconds = self.clock.elapsed()
        self.last_scores = self.scores
        is_changed = False
        if self.best_weights and self.state.best_step < self.step:
            self.model.load_state_dict(self.best_weights)
            is_changed = True
        if self.state.scale and self.ranks.rank == 0:
            # Only now, as a checkpoint has the very weights that the optimiser knows.
            cast(SequenceClassifier, self.model).fold(self.state.scale)
            self.model.scale = None
            is_changed = True
        if is_changed:
            self.measure()
        return True

    def answers(self, prefix: str) -> list[Answer]:
        """Return the last answers to the examples of a dev set."""
        examples = self.setup.splits.dev[prefix]
        return self.task.answers(self.outputs[prefix], self.setup.dev[prefix], examples)

    def write_model(self, folder: Path) -> None:
        """Write a model with ``task.json``, and the answers to the dev examples in ``dev/``."""
        save_model(folder, model_files(self.model, self.task, self.setup.checkpoint))
        write_json(folder / TASK, task_settings(self.task))
        dev = folder / "dev"
        dev.mkdir()
        for prefix, examples in self.setup.splits.dev.items():
            split = DEV_SETS[prefix]
            answers = self.answers(prefix)
            with (dev / f"{split}.jsonl").open("w", encoding="utf-8") as file:
                for example, answer in zip(examples, answers, strict=True):
                    file.write(self._answer_line(example, answer))
            for name, content in self.task.official(answers, examples, split).items():
                (dev / name).write_bytes(content)

    def _answer_line(self, example: Any, answer: Answer) -> str:
        values = self.task.texts(example) | answer
        values.pop("n_best", None)  # SQuAD has it in a file of its own
        values["truth"] = self.task.truth(example)
        return json.dumps(values, ensure_ascii=False) + "\n"

    def summary(self) -> RunSummary:
        """Return the summary of the finished run."""
        checkpoint = self.setup.checkpoint.name
        given = self.setup.task.settings()
        settings = self.task.settings().items()
        direction = "left-to-right" if self.model.encoder.config.is_decoder else ""
        return RunSummary(
            **structs.asdict(self.run),
            task=self.task.name,
            variant=f"{self.task.variant} {direction}".strip(),
            checkpoint="random weights" if self.config.random_weights else checkpoint,
            step=self.state.best_step,
            tuned={name: value for name, value in settings if value != given[name]},
            scores=self.scores,
            dev_classes=self.task.class_report(self.answers(""), self.setup.splits.dev[""]),
            seconds=round(self.state.seconds, 3),
            last_scores=self.last_scores,
        )


def train_run(
    setup: FinetuneSetup,
    run: Hyperparameters,
    ranks: Ranks,
    directory: Path,
    show: ProgressCallback,
    stop: StopRequest,
) -> bool:
    """Train and measure once, unless that is done; return False if asked to stop."""
    identity = setup.identity | structs.asdict(run)
    with ranks.on_first(claimed_run(directory, identity, overwrite=False)):
        latest = agree_on_run(ranks, identity, directory, setup.checkpoint)
        # Only the first rank looks for it, for it may be writing it when the others look.
        is_done = ranks.rank == 0 and read_summary(directory, RunSummary) is not None
        if ranks.from_first(is_done):
            return True
        work = FinetuneWork(
            setup=setup,
            run=run,
            # Not a variable, in which a model that only lends its weights would stay on the GPU.
            model=make_model(setup.task, setup.checkpoint, setup.config, run.seed).to(ranks.device),
            ranks=ranks,
            directory=directory,
            show=show,
            stop=stop,
        )
        if latest:
            work.resume(latest)
        if not work.train():
            return False
        # One rank writes; the others wait for it at the next run's claim.
        if ranks.rank == 0:
            output = OutputDirectory(str(directory))
            with output.write_folder(BEST) as folder:
                work.write_model(folder)
            # Last: a run with a summary is finished.
            output.write_json(SUMMARY, msgspec.to_builtins(work.summary()))
            output.remove(WORK)
    return True
