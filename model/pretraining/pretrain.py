"""Pre-train: the loop from instances to an encoder, exact and resumable.

An update takes the next `batch_size` rows of an endless sequence (see `sequence`), in micro-batches
of rows of similar length; `training.update` says how a global batch is divided between
micro-batches and ranks.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ...pipeline.errors import UserError
from ...pipeline.instances.rows import Rows, between, sequences
from ...pipeline.storage.directory import NO_SPACE, WORK, OutputDirectory, unwritable_as_user_error
from ..card import CARD
from ..checkpoint import files_digest, model_digest
from ..config import PretrainConfig
from ..encoders.heads import PretrainModel
from ..mirror import mirrored, upload
from ..training.compilation import compiles, distinct_sizes
from ..training.curve import draw_curve
from ..training.device import (
    DTYPES,
    drain_every,
    kept_generators,
    oom_as_user_error,
    peak_flops,
    peak_memory,
    pinned_attention,
    tokens_at_once,
    trim_memory,
    update_flops,
)
from ..training.logs import METRICS, Clock, ProgressCallback, RunLog, open_wandb
from ..training.loop import StopRequest, prefetch
from ..training.processor import kept_threads, print_if_emulated, use_threads
from ..training.ranks import SHARED, Ranks, join_ranks
from ..training.snapshot import SnapshotWriter
from ..training.update import Loss, Update, Updater
from .batches import PretrainBatch, make_batches, pack_batches
from .card import model_card, num_evaluated
from .data import InstanceDirectory
from .evaluate import NUM_SUMS, batch_sums, metrics, sum_losses
from .packing import packs_rows
from .run import (
    RUN,
    STATE,
    SUMMARY,
    claimed_run,
    latest_checkpoint,
    publish,
    read_summary,
    save_archive,
    save_best,
    save_checkpoint,
)
from .setup import (
    PretrainSetup,
    PretrainState,
    identity,
    identity_digest,
    open_directories,
    resolved,
    set_up,
)
from .start import start


class GlobalBatch(NamedTuple):
    """The rows of one update: this rank's micro-batches, and counts over all ranks."""

    batches: list[PretrainBatch]
    num_rows: int
    lengths: np.ndarray
    """Tokens in each row, or in each document of packed rows: what attention sees at once."""
    num_predicted: int
    num_padded: int
    """Tokens with padding, if every rank has as much padding as this one."""

    def loss(self, model: PretrainModel, batch: PretrainBatch) -> Loss:
        """Return the loss of one of the micro-batches."""
        sums = model.sums(*batch)
        # Divided by the counts of the global batch, not of the micro-batch: a mean of the
        # micro-batches' means would weigh a masked token more, the fewer there are beside it.
        share = sums.mlm_loss / self.num_predicted + sums.nsp_loss / self.num_rows
        return Loss(share, batch_sums(batch, sums))


@dataclass
class PretrainRun:
    """A run in progress."""

    output: Path
    setup: PretrainSetup
    updater: Updater[PretrainBatch]
    model: PretrainModel
    state: PretrainState
    log: RunLog | None
    """None on all ranks but the first, which alone writes."""
    writer: SnapshotWriter
    clock: Clock
    report: ProgressCallback
    stop: StopRequest
    saved_at: float
    """When the last checkpoint was begun, on the clock of `time.monotonic`."""


@dataclass(frozen=True)
class DueWork:
    """Work that is due after an update, by the number of updates alone."""

    log: bool
    evaluation: bool
    checkpoint: bool
    archive: bool
    drain: bool
    """Looking at the losses, for which a GPU has to wait."""

    @property
    def any(self) -> bool:
        """Whether anything is due."""
        return self.log or self.evaluation or self.checkpoint or self.archive or self.drain


def pretrain(
    config: PretrainConfig,
    instances: list[str],
    output: str | Path,
    progress: ProgressCallback | None = None,
    *,
    overwrite: bool = False,
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Train an encoder on one directory of `instances`, or on two one after the other, into
    `output`.

    The same call resumes an interrupted run; `overwrite` starts over, and `stop` lets another
    thread end the run early. Returns the summary: ``status`` (``finished``, ``already finished``,
    or ``interrupted`` by `stop`, once everything is saved), ``step``, ``parameters``, ``tokens``,
    ``rows``, and the metrics (see `evaluate.metrics`) ``initial``, ``final`` and ``best``.
    `progress` is called after each update (on a GPU after every tenth) with ``step``, ``steps``,
    ``learning_rate``, these metrics in training, and the figures of `Clock.rates`. Raises
    `UserError` for instances that do not match each other or the model, another run's directory, a
    loss that is not finite, a batch that does not fit into memory, and a full disk.
    """
    return train_into(output, config, instances, progress, stop, overwrite=overwrite)


def train_into(
    output: str | Path,
    config: PretrainConfig,
    instances: list[str],
    progress: ProgressCallback | None = None,
    stop: StopRequest | None = None,
    *,
    overwrite: bool = False,
    logs_online: bool = True,
) -> dict[str, Any]:
    """Do the work of `pretrain`; without `logs_online`, Weights & Biases never hears of the run."""
    _refuse_checkpoint_inside(output, config)
    config = resolved(config)
    directories = open_directories(config, instances)
    # Ranks join before the first one claims the folder: a refusal has to reach all of them.
    with (
        mirrored(output) as folder,
        unwritable_as_user_error(folder, NO_SPACE),
        join_ranks(config.device, config.batch_size) as ranks,
        kept_generators(ranks.device),
        kept_threads(),
        ranks.on_first(claimed_run(folder, identity(config, directories), overwrite)),
    ):
        if summary := read_summary(folder):
            return {**summary, "status": "already finished"}
        checkpoint = latest_checkpoint(folder)
        _agree(ranks, config, directories, folder, checkpoint)
        if checkpoint and ranks.rank == 0:
            publish(checkpoint, folder)  # the run may have been killed before it was
        setup = set_up(config, directories, ranks)
        print_if_emulated(setup.dtype, ranks.device)
        model, updater, state = start(setup, checkpoint)
        state.num_threads = use_threads(state.num_threads, ranks.device)
        setup = replace(
            setup,
            packs=packs_rows(model.config, ranks.device, setup.dtype),
            tokens_at_once=tokens_at_once(model.config, ranks.device),
        )
        first_step = -1  # no line of an earlier log is right
        if checkpoint:
            first_step = state.step
        peak = peak_flops(ranks.device) or 0
        with (
            _open_log(folder, config, first_step, ranks, online=logs_online) as log,
            SnapshotWriter() as writer,
        ):
            run = PretrainRun(
                output=folder,
                setup=setup,
                updater=updater,
                model=model,
                state=state,
                log=log,
                writer=writer,
                clock=Clock(peak * ranks.num_ranks, state.seconds),
                report=progress or (lambda figures: None),
                stop=stop or StopRequest(),
                saved_at=time.monotonic(),
            )
            return _train(run)


def _refuse_checkpoint_inside(output: str | Path, config: PretrainConfig) -> None:
    # With `overwrite` the model would be deleted before it is read.
    if config.checkpoint is None:
        return
    if Path(config.checkpoint).resolve().is_relative_to(Path(output).resolve()):
        inside = f"`checkpoint` {config.checkpoint} is inside `output` {output}"
        raise UserError(f"{inside}; choose another `output`.")


@contextmanager
def _open_log(
    folder: Path, config: PretrainConfig, first_step: int, ranks: Ranks, *, online: bool
) -> Iterator[RunLog | None]:
    if ranks.rank > 0:
        yield None
        return
    wandb = None
    if online:
        wandb = open_wandb(folder, asdict(config))
    with RunLog(folder, first_step, METRICS, wandb=wandb) as log:
        yield log


def _agree(
    ranks: Ranks,
    config: PretrainConfig,
    directories: list[InstanceDirectory],
    folder: Path,
    checkpoint: Path | None,
) -> None:
    """Raise `UserError` unless all ranks see the same files, which several machines without a
    shared disk do not.
    """
    if ranks.num_ranks == 1:
        return
    claim = folder / RUN
    claim_digest = files_digest([claim]) if claim.is_file() else "missing"
    resumes_from = "none"
    if checkpoint:
        files = [checkpoint / STATE / name for name in ("optimizer.pt", "state.json")]
        resumes_from = f"{checkpoint.name} {files_digest(files)}"
    weights = checkpoint or config.checkpoint
    facts = {
        "the configuration and the instances": identity_digest(config, directories),
        "`output`": claim_digest,
        "the checkpoint to start from": resumes_from,
        "the model to start from": model_digest(weights) if weights else "none",
    }
    ranks.agree(facts, SHARED)
    ranks.wait()  # until all have read the checkpoint: the first rank deletes older ones


def _train(run: PretrainRun) -> dict[str, Any]:
    setup = run.setup
    schedule = setup.schedule
    state = run.state
    device = setup.ranks.device
    run.model.encoder.recomputes_layers = setup.config.activation_checkpointing
    with pinned_attention(), distinct_sizes():
        if compiles(setup.config.compile, device):
            run.model.compile_parts()
        if state.initial is None:
            # On the rows of the final evaluation, so that the two compare.
            state.initial = _evaluate(run, len(setup.phases) - 1)
        steps = count(state.step)  # a budget of hours ends by the clock
        if schedule.num_steps is not None:
            steps = range(state.step, schedule.num_steps)
        run.clock.restart()  # the first evaluation is not training
        batches = prefetch(lambda step: _make_global_batch(setup, step), steps)
        with closing(batches), run.stop:
            while not schedule.is_over(state.step, state.seconds):
                with run.clock.waiting():
                    batch = next(batches)
                _update(run, batch)
                due = _due_work(run)
                # After most updates nothing is due, and a GPU gets its next one at once: to look at
                # a loss is to wait until it is computed.
                if due.any and not _settle(run, due):
                    return _summary(run, "interrupted")
    return _finish(run)


def _make_global_batch(setup: PretrainSetup, step: int) -> GlobalBatch:
    sequence, first = setup.first_row(step)
    batch_size = setup.config.batch_size
    on_gpu = setup.ranks.device.type == "cuda"
    rows = sequence.rows(first, first + batch_size)
    # All ranks read the whole batch: its counts, by which losses are divided, then need no message.
    part = setup.ranks.rows(batch_size)
    rank_rows = between(rows, part.start, part.stop)
    rows_at_once = setup.rows_at_once(sequence)
    if setup.packs:
        max_length = sequence.directory.max_length
        batches = pack_batches(rank_rows, rows_at_once, max_length, setup.objective)
    else:
        multiple = 8 if on_gpu else 1  # tensor cores want dimensions that are multiples of 8
        batches = make_batches(
            rank_rows, rows_at_once, setup.objective, multiple, always_mask=on_gpu
        )
    num_padded_here = sum(batch.input_ids.numel() for batch in batches)
    if on_gpu:
        batches = [batch.pin() for batch in batches]
    by_sequence = sequences(rows)
    return GlobalBatch(
        batches=batches,
        num_rows=len(rows),
        lengths=by_sequence.lengths,
        num_predicted=_num_predicted(by_sequence, setup.objective),
        num_padded=num_padded_here * setup.ranks.num_ranks,
    )


def _num_predicted(rows: Rows, objective: str) -> int:
    if objective == "ltr":  # every token but each row's first
        return int(rows.lengths.sum()) - len(rows)
    return int(rows.num_masked.sum())


def _update(run: PretrainRun, batch: GlobalBatch) -> None:
    """Change the weights once, and count the update."""
    state = run.state
    with oom_as_user_error("micro_batch_size"):
        run.updater.update(
            state.step,
            batch.batches,
            lambda micro_batch: batch.loss(run.model, micro_batch),
            run.setup.schedule.learning_rate(state.step, state.seconds),
            stop_asked=run.stop.is_requested,
            seconds=run.clock.elapsed(),
        )
    num_rows = batch.num_rows
    num_tokens = int(batch.lengths.sum())
    state.step += 1
    state.num_rows += num_rows
    state.num_tokens += num_tokens
    run.clock.count(
        num_rows=num_rows,
        num_tokens=num_tokens,
        num_padded=batch.num_padded,
        flops=update_flops(run.model.config, batch.lengths, batch.num_predicted),
    )
    trim_memory(run.setup.ranks.device, state.step)


def _due_work(run: PretrainRun) -> DueWork:
    config = run.setup.config
    schedule = run.setup.schedule
    step = run.state.step

    def is_due(every: int | None) -> bool:
        return every is not None and step % every == 0

    is_last = step == schedule.num_steps
    return DueWork(
        log=is_due(schedule.log_every),
        evaluation=is_due(config.evaluate_every),
        checkpoint=is_due(config.checkpoint_every),
        archive=is_due(config.archive_every),
        drain=is_last or is_due(drain_every(run.setup.ranks.device)),
    )


def _settle(run: PretrainRun, due: DueWork) -> bool:
    """Look at the last updates' losses, and log, evaluate and save; return whether to go on."""
    state = run.state
    schedule = run.setup.schedule
    updates = _drain(run)
    stops = any(update.stop_asked for update in updates)
    ends = schedule.is_over(state.step, state.seconds)

    figures = _figures(run)
    run.report(figures)
    if due.log or ends:
        if run.log:
            gradient_norm = updates[-1].gradient_norm
            run.log.metrics(state.step, "train", figures | {"gradient_norm": gradient_norm})
            run.log.speed(state.step, figures)
        state.sums = [0.0] * NUM_SUMS
        run.clock.start_interval()
    if due.evaluation or ends:
        phase, _ = schedule.phase(state.step - 1)
        with run.clock.evaluating():
            _evaluate(run, phase)
    if run.log:
        with run.clock.saving():
            if due.archive:
                _archive(run)
            # Only the first rank saves, so that its clock alone counts.
            minutes = run.setup.config.checkpoint_minutes
            is_time = time.monotonic() >= run.saved_at + 60 * minutes
            if due.checkpoint or is_time or ends or stops:
                _save(run, run.log)
    # A run that was asked to stop at its last update is finished.
    return ends or not stops


def _drain(run: PretrainRun) -> list[Update]:
    """Add up the losses of the last updates, and return these."""
    state = run.state
    updates = run.updater.drain()
    for update in updates:
        if not update.is_finite:
            raise _not_finite(run.setup, update)
        # Python's floats: JSON keeps them exactly, so that a resumed run logs the same line.
        state.sums = [before + new for before, new in zip(state.sums, update.sums, strict=True)]
        state.seconds = 0.0
        if run.setup.config.hours is not None:
            state.seconds = update.seconds
    return updates


def _not_finite(setup: PretrainSetup, update: Update) -> UserError:
    """Return an error that names the rows of a step whose loss or gradient is not finite."""
    sequence, first = setup.first_row(update.step)
    located = sorted(sequence.locate(first + row) for row in range(setup.config.batch_size))
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


def _evaluate(run: PretrainRun, phase: int) -> dict[str, float]:
    """Evaluate on the validation rows of a phase, log it, and keep the model if it is the best of
    the phase so far.
    """
    setup = run.setup
    state = run.state
    with oom_as_user_error("micro_batch_size"):
        batches = setup.evaluation_batches(phase)
        sums = sum_losses(run.model, batches, setup.ranks.device, setup.dtype)
    values = metrics(setup.ranks.sum(sums))
    state.final = values
    if run.log:
        run.log.metrics(state.step, "validation", values)
        run.log.flush()
        run.writer.submit(lambda _: draw_curve(run.output))  # takes a second, beside training
    # Before the first step there is nothing to keep: the model is the one that it starts from.
    if state.step and _is_best(run, phase, values["loss"]):
        _keep_best(run, values)
    return values


def _is_best(run: PretrainRun, phase: int, loss: float) -> bool:
    best = run.state.best
    if best is None:
        return True
    best_phase, _ = run.setup.schedule.phase(int(best["step"]) - 1)
    # Losses on the rows of different phases do not compare.
    return best_phase != phase or loss < best["loss"]


def _keep_best(run: PretrainRun, values: dict[str, float]) -> None:
    best = {"step": run.state.step, **values}
    run.state.best = best
    if run.log:
        run.writer.submit(lambda files: save_best(run.output, files, best), _model_files(run))


def _archive(run: PretrainRun) -> None:
    step = run.state.step
    optimizer = None
    if run.setup.config.can_be_prolonged:
        optimizer = run.updater.state_dict()

    def write(copy: tuple[dict[str, Any], dict[str, Any] | None]) -> None:
        model_files, optimizer_copy = copy
        save_archive(run.output, model_files, step, optimizer_copy)

    run.writer.submit(write, (_model_files(run), optimizer))


def _save(run: PretrainRun, log: RunLog) -> None:
    """Write a checkpoint in the background; its lines of the log are on the disk before it is."""
    log.flush()
    state = asdict(run.state)

    def write(copy: tuple[dict[str, Any], dict[str, Any]]) -> None:
        model_files, optimizer = copy
        save_checkpoint(run.output, model_files, optimizer, state)
        upload(run.output)

    run.writer.submit(write, (_model_files(run), run.updater.state_dict()))
    run.saved_at = time.monotonic()


def _model_files(run: PretrainRun) -> dict[str, Any]:
    shape = run.model.config.to_hf()
    return {"weights": run.model.state_dict(), "config": shape, "tokenizer": run.setup.tokenizer}


def _figures(run: PretrainRun) -> dict[str, Any]:
    """Return all figures since the last line of the log; with a budget of hours, the number of
    steps is an estimate.
    """
    state = run.state
    schedule = run.setup.schedule
    steps = schedule.num_steps
    if schedule.budget_s is not None:
        seconds_left = max(0.0, schedule.budget_s - state.seconds)
        seconds_per_step = run.clock.seconds() / run.clock.num_steps
        steps = state.step + round(seconds_left / seconds_per_step)
    losses = metrics(torch.tensor(state.sums, dtype=torch.float64))
    del losses["loss"]  # the sum of two losses, which says less than either
    last_update = state.step - 1
    return {
        "step": state.step,
        "steps": steps,
        **losses,
        "learning_rate": schedule.learning_rate(last_update, state.seconds),
        **run.clock.rates(),
        **peak_memory(run.setup.ranks.device),
    }


def _finish(run: PretrainRun) -> dict[str, Any]:
    summary = _summary(run, "finished")
    run.writer.wait()  # a finished run has all its files, or an error says what is missing
    if run.log:
        setup = run.setup
        output = OutputDirectory(str(run.output))
        output.write_json("timings.json", run.clock.totals())
        name_by_dtype = {dtype: name for name, dtype in DTYPES.items()}
        card = model_card(
            setup.config,
            run.model.config,
            [phase.directory.manifest for phase in setup.phases],
            summary,
            setup.tokenizer,
            products=name_by_dtype[setup.dtype],
        )
        output.write_bytes(CARD, card.encode())
        output.write_json(SUMMARY, summary)  # last: a run with a summary is finished
        output.remove(WORK)
    return summary


def _summary(run: PretrainRun, status: str) -> dict[str, Any]:
    state = run.state
    return {
        "status": status,
        "step": state.step,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "tokens": state.num_tokens,
        "rows": state.num_rows,
        "initial": state.initial,
        "final": state.final,
        "best": state.best,
        "validation_rows": num_evaluated(run.setup.config, run.setup.phases[-1].directory.manifest),
    }
