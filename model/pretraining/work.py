"""What a pre-training logs, evaluates and saves between its updates."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ...pipeline.errors import UserError
from ..checkpoint import ModelFiles
from ..encoders.heads import PretrainBatch, PretrainModel
from ..notices import StopRequest
from ..training.device import oom_as_run_error, peak_flops, peak_memory, update_flops
from ..training.logs import Clock, ProgressCallback, RunLog
from ..training.loop import Work
from ..training.run import MODEL_FILES, link_files, save_archive, save_best, save_checkpoint
from ..training.threads import SnapshotWriter
from ..training.update import Update, Updater
from .evaluate import NUM_SUMS, metrics, sum_losses
from .plan import PretrainPlan
from .setup import GlobalBatch, PretrainSetup, PretrainState


@dataclass(kw_only=True, eq=False)
class PretrainWork(Work):
    """The updates of a pre-training, and what is due in between."""

    setup: PretrainSetup
    model: PretrainModel
    updater: Updater
    state: PretrainState
    output: Path
    log: RunLog | None
    """None on all ranks but the first, which alone writes."""
    writer: SnapshotWriter
    show: ProgressCallback
    stop: StopRequest

    def __post_init__(self) -> None:
        self.plan = self.setup.plan
        self.ranks = self.setup.ranks
        self.device = self.ranks.device
        self.num_steps = self.plan.schedule.num_steps
        peak = peak_flops(self.device) or 0
        self.clock = Clock(peak * self.ranks.num_ranks, self.state.seconds)
        self._tokenizer = self.plan.tokenizer_files()
        self._saved_at = time.monotonic()
        """When the last checkpoint was begun."""

    @property
    def is_over(self) -> bool:
        return self.plan.schedule.is_over(self.state.step, self.state.seconds)

    def measure_start(self) -> None:
        """Measure the model on the rows of the final evaluation, so that the two compare."""
        if self.state.initial is None:
            self.state.initial = self.evaluate_phase(len(self.plan.phases) - 1)
            self.state.also = self.measure_also()
            if self.plan.also:
                self.state.also_digest = self.plan.also.manifest.digest

    def measure_also(self) -> dict[str, float] | None:
        """Return the metrics on the rows of `PretrainPlan.also`, of masked words alone."""
        rows = self.setup.also
        if rows is None:
            return None
        objective = "ltr" if self.plan.objective == "ltr" else "mlm"
        return self._measure(self.setup.padded_batches(rows, objective))

    def _measure(self, batches: list[PretrainBatch]) -> dict[str, float]:
        with oom_as_run_error("micro_batch_size"):
            inference = self.updater.inference(self.setup.dtype)
            sums = sum_losses(self.model, self._shown(batches), inference)
        values = metrics(self.ranks.sum(sums))
        if not math.isfinite(values["loss"]):
            raise UserError(
                f"The loss on held-out rows is not finite after step {self.step}; lower "
                "`learning_rate` or use another `precision`. The last checkpoint is kept."
            )
        return values

    def _shown(self, batches: list[PretrainBatch]) -> Iterator[PretrainBatch]:
        """Yield the batches, and show how many of them are measured."""
        for number, batch in enumerate(batches):
            self.show({"stage": "measuring batches", "step": number, "steps": len(batches)})
            yield batch

    def make_batch(self, step: int) -> GlobalBatch:
        return self.setup.global_batch(step)

    def rate(self) -> float:
        return self.plan.schedule.learning_rate(self.state.step, self.state.seconds)

    def count(self, batch: GlobalBatch) -> None:
        num_rows = self.plan.config.batch_size
        num_tokens = int(batch.lengths.sum())
        self.state.step += 1
        self.state.num_rows += num_rows
        self.state.num_tokens += num_tokens
        self.clock.count(
            num_rows=num_rows,
            num_tokens=num_tokens,
            num_padded=batch.num_padded,
            flops=update_flops(self.model.config, batch.lengths, batch.num_predicted),
        )

    def is_due(self) -> bool:
        config = self.plan.config
        every = (config.evaluate_every, config.checkpoint_every, config.archive_every)
        is_last = self.step == self.num_steps
        return is_last or any(map(self._is_multiple_of, every))

    def _is_multiple_of(self, every: int | None) -> bool:
        return every is not None and self.step % every == 0

    def look(self, updates: list[Update]) -> None:
        """Show the figures since the last line of the log; log and measure if that is due."""
        learned: dict[str, float] = {}
        is_logged = False
        for update in updates:
            if not update.is_finite:
                raise _not_finite(self.plan, update)
            # Python's floats: JSON keeps them exactly, so that a resumed run logs the same line.
            sums = zip(self.state.sums, update.sums, strict=True)
            self.state.sums = [before + new for before, new in sums]
            # Otherwise 0: equal runs have equal checkpoints, unless time decides.
            if self.plan.config.hours is not None:
                self.state.seconds = update.seconds
            step = update.step + 1
            is_last = step == self.step
            ends_line = step % self.plan.schedule.log_every == 0 or (is_last and self.is_over)
            if ends_line or is_last:
                learned = self._learned(update)
            if ends_line:
                is_logged = True
                if self.log:
                    logged = learned | {"gradient_norm": update.gradient_norm}
                    self.log.metrics(step, "train", logged)
                self.state.sums = [0.0] * NUM_SUMS
        speed = self.clock.rates() | peak_memory(self.device)
        self.show({"step": self.step, "steps": self._steps(), **learned, **speed})
        if is_logged:
            if self.log:
                self.log.speed(self.step, speed)
            self.clock.start_interval()
        if self._is_multiple_of(self.plan.config.evaluate_every) or self.is_over:
            phase, _ = self.plan.schedule.phase(self.step - 1)
            with self.clock.evaluating():
                self.evaluate_phase(phase)

    def _steps(self) -> int | None:
        """Return the number of all steps; with a budget of hours, it is an estimate."""
        schedule = self.plan.schedule
        if schedule.budget_s is None:
            return schedule.num_steps
        seconds_left = max(0.0, schedule.budget_s - self.state.seconds)
        seconds_per_step = self.clock.seconds() / self.clock.num_steps
        return self.step + round(seconds_left / seconds_per_step)

    def _learned(self, update: Update) -> dict[str, float]:
        """Return the means since the last line of the log, and the rate of the update."""
        learned = metrics(torch.tensor(self.state.sums, dtype=torch.float64))
        del learned["loss"]  # the sum of two losses, which says less than either
        rate = self.plan.schedule.learning_rate(update.step, self.state.seconds)
        return learned | {"learning_rate": rate}

    def evaluate_phase(self, phase: int) -> dict[str, float]:
        """Return the metrics on the held-out rows of a phase; keep the best model of the phase."""
        values = self._measure(self.setup.held_out_batches(phase))
        self.state.final = values
        if self.log:
            self.log.metrics(self.step, "validation", values)
            self.log.flush()
        # Before the first step there is nothing to keep: the model is the one that it starts from.
        if self.step == 0:
            return values
        best = self.state.best
        if best is not None:
            best_phase, _ = self.plan.schedule.phase(int(best["step"]) - 1)
            # Losses on the rows of different phases do not compare.
            is_better = values["loss"] < best["loss"]
            if best_phase == phase and not is_better:
                return values
        better = {"step": self.step, **values}
        self.state.best = better
        if self.log:
            files = self._model_files()
            self.writer.submit(lambda copy: save_best(self.output, copy, better), files)
        return values

    def save(self, *, stops: bool) -> None:
        """Write the archive and a checkpoint if they are due: by steps, minutes, and at the end."""
        if not self.log:
            return
        config = self.plan.config
        if self._is_multiple_of(config.archive_every):
            step = self.step
            optimizer = self.updater.state_dict() if config.is_constant else None
            self.writer.submit(
                lambda copy: save_archive(self.output, copy[0], step, copy[1]),
                (self._model_files(), optimizer),
            )
        # Only the first rank saves, so only its clock counts.
        is_time = time.monotonic() >= self._saved_at + 60 * config.checkpoint_minutes
        is_due = self._is_multiple_of(config.checkpoint_every) or is_time
        if not (is_due or stops or self.is_over):
            return
        self.log.flush()  # its lines are on the disk before the checkpoint
        state = replace(self.state)

        def write(copy: tuple[ModelFiles, Mapping[str, object]]) -> None:
            files, optimizer = copy
            checkpoint = save_checkpoint(self.output, state.step, files, optimizer, asdict(state))
            link_files(MODEL_FILES, checkpoint, self.output)

        self.writer.submit(write, (self._model_files(), self.updater.state_dict()))
        self._saved_at = time.monotonic()

    def _model_files(self) -> ModelFiles:
        config = self.model.config.to_hf()
        return ModelFiles(self.model.state_dict(), config, self._tokenizer)


def _not_finite(plan: PretrainPlan, update: Update) -> UserError:
    """Return an error that names the rows of a step whose loss or gradient is not finite."""
    sequence, first = plan.first_row(update.step)
    located = sorted(sequence.locate(first + row) for row in range(plan.config.batch_size))
    named = ", ".join(located[:8])
    if len(located) > 8:
        named += f" and {len(located) - 8} more"
    # A gradient can overflow although the loss does not.
    what = "gradient" if np.isfinite(update.sums).all() else "loss"
    return UserError(
        f"The {what} is not finite at step {update.step + 1}, on a batch of the rows {named} of "
        f"{sequence.directory.path}; lower `learning_rate` or look at these rows. "
        "The last checkpoint is kept."
    )
