"""The training loop of pre-training: from instances to an encoder, exact and resumable.

An update takes the next `batch_size` rows of an endless sequence (see `sequence`), in micro-batches
of rows of similar length; `training.update` says how a global batch is divided between
micro-batches and ranks.
"""

import json
import time
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ...pipeline.storage.directory import NO_SPACE, WORK, OutputDirectory, unwritable_as_user_error
from ..card import CARD
from ..checkpoint import files_digest, model_digest
from ..config import PretrainConfig
from ..heads import BertForPreTraining
from ..mirror import mirrored, upload
from ..training.curve import draw_curve
from ..training.device import (
    DTYPES,
    compiles,
    drain_every,
    oom_as_user_error,
    peak_flops,
    peak_memory,
    pin_attention,
    trim_memory,
    update_flops,
)
from ..training.logs import METRICS, Clock, ProgressCallback, RunLog, open_wandb
from ..training.loop import prefetch, stop_signals
from ..training.ranks import SHARED, Ranks, join_ranks
from ..training.snapshot import SnapshotWriter
from ..training.update import Loss, Update, Updater
from .batches import PretrainBatch, make_batches, pack_batches
from .card import model_card
from .data import InstanceDirectory
from .evaluate import NUM_SUMS, batch_sums, metrics, sum_losses
from .packing import packs_rows
from .rows import select
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
from .setup import PretrainSetup, PretrainState, identity, open_directories, set_up, start

if TYPE_CHECKING:
    from .probe import Probe


class GlobalBatch(NamedTuple):
    """The rows of one update: this rank's micro-batches, and counts over all ranks."""

    batches: list[PretrainBatch]
    lengths: np.ndarray
    """Tokens in each row."""
    num_predicted: int
    num_padded: int
    """Tokens with padding, if every rank has as much padding as this one."""

    def loss(self, model: BertForPreTraining, batch: PretrainBatch) -> Loss:
        """Return the loss of one of the micro-batches."""
        sums = model(*batch)
        # Divided by the counts of the global batch, not of the micro-batch: a mean of the
        # micro-batches' means would weigh a masked token more, the fewer there are beside it.
        share = sums.mlm_loss / self.num_predicted + sums.nsp_loss / len(self.lengths)
        return Loss(share, batch_sums(batch, sums))


@dataclass
class PretrainRun:
    """A run in progress."""

    output: Path
    setup: PretrainSetup
    updater: Updater[PretrainBatch]
    model: BertForPreTraining
    state: PretrainState
    log: RunLog | None
    """None on all ranks but the first, which alone writes."""
    writer: SnapshotWriter
    saved_at: float
    """When the last checkpoint was begun, on the clock of `time.monotonic`."""
    probe: "Probe | None" = None


def pretrain(
    config: PretrainConfig,
    instances: list[str],
    output: str | Path,
    progress: ProgressCallback | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
) -> dict[str, Any]:
    """Train an encoder on one directory of `instances`, or on two one after the other, into
    `output`.

    The same call resumes an interrupted run; `resume` insists that there is one, `overwrite` starts
    over. Returns the summary: ``status`` (``finished``, ``already finished``, or ``interrupted`` by
    a signal, once everything is saved), ``step``, ``parameters``, ``tokens``, ``rows``, and the
    metrics (see `evaluate.metrics`) ``initial``, ``final`` and ``best``. `progress` is called after
    each update (on a GPU after every tenth) with ``step``, ``steps``, ``learning_rate``, these
    metrics in training, and the figures of `Clock.rates`. Raises `UserError` for instances that do
    not match each other or the model, another run's directory, a loss that is not finite, a batch
    that does not fit into memory, and a full disk.
    """
    if config.checkpoint and Path(config.checkpoint).resolve().is_relative_to(
        Path(output).resolve()
    ):
        # With `overwrite` the model would be deleted before it is read.
        raise UserError(
            f"--checkpoint {config.checkpoint} is inside --output {output}; choose another --output."
        )
    directories = open_directories(config, instances)
    with (
        mirrored(output) as folder,
        unwritable_as_user_error(folder, NO_SPACE),
        join_ranks(config.device, config.batch_size) as ranks,
        ranks.on_first(claimed_run(folder, identity(config, directories), overwrite)),
    ):
        if summary := read_summary(folder):
            return {**summary, "status": "already finished"}
        checkpoint = latest_checkpoint(folder)
        if resume and not checkpoint:
            raise UserError(
                f"{output} contains no checkpoint to resume from; leave out --resume to start."
            )
        _agree(ranks, config, directories, folder, checkpoint)
        if checkpoint and ranks.rank == 0:
            publish(checkpoint, folder, config.keep)  # the run may have been killed before it was
        setup = set_up(config, directories, ranks)
        model, updater, state = start(setup, checkpoint)
        setup = replace(setup, packs=packs_rows(model.config, ranks.device, setup.dtype))
        probe = _read_probe(config, directories[0].path)
        columns = (*METRICS, *map(_probe_column, probe.constant if probe else ()))
        first_step = state.step if checkpoint else -1
        with (
            _open_log(folder, config, first_step, columns)
            if ranks.rank == 0
            else nullcontext() as log,
            SnapshotWriter() as writer,
        ):
            run = PretrainRun(
                folder, setup, updater, model, state, log, writer, time.monotonic(), probe
            )
            return _train(run, progress or (lambda figures: None))


def _open_log(
    folder: Path, config: PretrainConfig, first_step: int, columns: tuple[str, ...]
) -> RunLog:
    return RunLog(
        folder, first_step, columns, wandb=open_wandb(folder, config.wandb, asdict(config))
    )


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
    source = checkpoint or config.checkpoint
    files = (
        [checkpoint / STATE / name for name in ("optimizer.pt", "state.json")] if checkpoint else []
    )
    ranks.agree(
        {
            "the configuration and the instances": f"{stable_hash(json.dumps(identity(config, directories))):016x}",
            "--output": files_digest([claim]) if claim.is_file() else "missing",
            "the checkpoint to start from": f"{checkpoint.name} {files_digest(files)}"
            if checkpoint
            else "none",
            "the model to start from": model_digest(source) if source else "none",
        },
        SHARED,
    )
    ranks.wait()  # until all have read the checkpoint: the first rank deletes older ones


def _train(run: PretrainRun, report: ProgressCallback) -> dict[str, Any]:
    setup, schedule, state, config = run.setup, run.setup.schedule, run.state, run.setup.config
    device = setup.ranks.device
    pin_attention()
    run.model.bert.recomputes_layers = config.activation_checkpointing
    if compiles(config.compile, device):
        _compile(run.model, by_layer=setup.ranks.num_ranks > 1)
    if state.initial is None:
        state.initial = _evaluate(
            run, len(setup.phases) - 1
        )  # on the rows of the final evaluation, to compare
    steps = (
        count(state.step) if schedule.num_steps is None else range(state.step, schedule.num_steps)
    )
    batches = prefetch(lambda step: _make_global_batch(setup, step), steps)
    clock = Clock((peak_flops(device) or 0) * setup.ranks.num_ranks, state.seconds)
    with stop_signals() as stop, closing(batches):
        while not schedule.is_over(state.step, state.seconds):
            with clock.waiting():
                batch = next(batches)
            with oom_as_user_error("--micro-batch-size"):
                run.updater.update(
                    state.step,
                    batch.batches,
                    lambda micro_batch, batch=batch: batch.loss(run.model, micro_batch),
                    schedule.learning_rate(state.step, state.seconds),
                    stop_asked=stop.is_set(),
                    seconds=clock.elapsed(),
                )
            num_rows, num_tokens = len(batch.lengths), int(batch.lengths.sum())
            state.step += 1
            state.num_rows += num_rows
            state.num_tokens += num_tokens
            flops = update_flops(run.model.config, batch.lengths, batch.num_predicted)
            clock.count(
                num_rows=num_rows, num_tokens=num_tokens, num_padded=batch.num_padded, flops=flops
            )
            trim_memory(device, state.step)

            logs, last = state.step % schedule.log_every == 0, state.step == schedule.num_steps
            evaluates = state.step % config.evaluate_every == 0
            saves, archives = (
                bool(every) and state.step % every == 0
                for every in (config.checkpoint_every, config.archive_every)
            )
            if not (
                last
                or logs
                or evaluates
                or saves
                or archives
                or state.step % drain_every(device) == 0
            ):
                continue
            stops, gradient_norm = _drain(run)
            ends = schedule.is_over(state.step, state.seconds)
            figures = _figures(run, clock)
            report(figures)
            if logs or ends:
                if run.log:
                    run.log.metrics(state.step, "train", figures | {"gradient_norm": gradient_norm})
                    run.log.speed(state.step, figures)
                state.sums = [0.0] * NUM_SUMS
                clock.start_interval()
            if evaluates or ends:
                with clock.evaluating():
                    _evaluate(run, schedule.phase(state.step - 1)[0])
            with clock.saving():
                if archives and run.log:
                    step = state.step
                    run.writer.submit(
                        lambda files, step=step: save_archive(run.output, files, step),
                        _model_files(run),
                    )
                # Only the first rank saves, so that its clock alone counts.
                due = time.monotonic() >= run.saved_at + 60 * config.checkpoint_minutes
                if run.log and (saves or ends or stops or due):
                    _save(run, run.log)
            if stops and not ends:
                return _summary(run, "interrupted")
    return _finish(run, clock)


def _compile(model: BertForPreTraining, *, by_layer: bool) -> None:
    """Compile the model in one graph or, so that a layer's gradients can be sent before the next
    layer's are known, in one for each layer.
    """
    # Batches differ in their number of tokens: a graph for the first one's would be recompiled at
    # once.
    if by_layer:
        for module in (model.bert.embeddings, *model.bert.encoder.layer, model.cls.predictions):
            module.compile(dynamic=True)
    else:
        model.compile(dynamic=True)


def _make_global_batch(setup: PretrainSetup, step: int) -> GlobalBatch:
    sequence, first = setup.first_row(step)
    rows = sequence.rows(first, first + setup.config.batch_size)
    on_gpu, objective = setup.ranks.device.type == "cuda", setup.config.objective
    own = select(rows, setup.ranks.rows(setup.config.batch_size))
    if setup.packs:
        batches = pack_batches(
            own, setup.rows_at_once(sequence), sequence.directory.max_length, objective
        )
    else:
        batches = make_batches(own, setup.rows_at_once(sequence), objective, 8 if on_gpu else 1)
    num_predicted = int(
        rows.lengths.sum() - len(rows) if objective == "ltr" else rows.num_masked.sum()
    )
    num_padded = sum(batch.input_ids.numel() for batch in batches) * setup.ranks.num_ranks
    batches = [batch.pin() for batch in batches] if on_gpu else batches
    return GlobalBatch(batches, rows.lengths, num_predicted, num_padded)


def _drain(run: PretrainRun) -> tuple[bool, float]:
    """Add up the losses of the last updates; return whether to stop, and the last gradient norm."""
    state, updates = run.state, run.updater.drain()
    for update in updates:
        if not update.is_finite:
            _refuse(run.setup, update)
        state.sums = [old + new for old, new in zip(state.sums, update.sums, strict=True)]
        state.seconds = 0.0 if run.setup.config.hours is None else update.seconds
    return any(update.stop_asked for update in updates), updates[-1].gradient_norm


def _refuse(setup: PretrainSetup, update: Update) -> None:
    """Name the rows of a step whose loss or gradient is not finite."""
    sequence, first = setup.first_row(update.step)
    located = sorted(sequence.locate(first + row) for row in range(setup.config.batch_size))
    named = ", ".join(located[:8]) + (f" and {len(located) - 8} more" if len(located) > 8 else "")
    what = "gradient" if np.isfinite(update.sums).all() else "loss"
    raise UserError(
        f"The {what} is not finite at step {update.step + 1}, on a batch of the rows {named} of "
        f"{sequence.directory.path}; lower --learning-rate or look at these rows. The last checkpoint is kept."
    )


def _evaluate(run: PretrainRun, phase: int) -> dict[str, float]:
    """Evaluate on the validation rows of a phase, log it, and keep the model if it is the best of
    the phase so far.
    """
    setup, state = run.setup, run.state
    with oom_as_user_error("--micro-batch-size"):
        sums = sum_losses(
            run.model, setup.evaluation_batches(phase), setup.ranks.device, setup.dtype
        )
    values = metrics(setup.ranks.sum(sums))
    state.final = values
    if run.log:
        probed = run.probe.scores(run.model.bert) if run.probe else {}
        if probed:
            state.probe = {"initial": probed, **(state.probe or {}), "final": probed}
        run.log.metrics(
            state.step,
            "validation",
            values | {_probe_column(name): probed[name] for name in probed},
        )
        run.log.flush()
        run.writer.submit(lambda _: draw_curve(run.output))
    if not state.step:
        return values
    # Losses on the rows of different phases do not compare.
    best = (
        state.best
        if state.best and setup.schedule.phase(int(state.best["step"]) - 1)[0] == phase
        else None
    )
    if best is None or values["loss"] < best["loss"]:
        state.best = found = {"step": state.step, **values}
        if run.log:
            run.writer.submit(lambda files: save_best(run.output, files, found), _model_files(run))
    return values


def _read_probe(config: PretrainConfig, vocabulary: str) -> "Probe | None":
    if config.probe is None:
        return None
    from .probe import (
        read_probe,
    )  # imported here because the tasks and scikit-learn take three seconds

    return read_probe(config, vocabulary)


def _probe_column(name: str) -> str:
    return f"probe_{name}"


def _save(run: PretrainRun, log: RunLog) -> None:
    """Write a checkpoint in the background; its lines of the log are on the disk before it is."""
    log.flush()
    state, keep = asdict(run.state), run.setup.config.keep

    def write(copy: tuple[dict[str, Any], dict[str, Any]]) -> None:
        save_checkpoint(run.output, *copy, state, keep)
        upload(run.output)

    run.writer.submit(write, (_model_files(run), run.updater.state_dict()))
    run.saved_at = time.monotonic()


def _model_files(run: PretrainRun) -> dict[str, Any]:
    shape = run.model.config.to_hf()
    return {"weights": run.model.state_dict(), "config": shape, "tokenizer": run.setup.tokenizer}


def _figures(run: PretrainRun, clock: Clock) -> dict[str, Any]:
    """Return all figures since the last line of the log; with a budget of hours, the number of
    steps is an estimate.
    """
    state, schedule = run.state, run.setup.schedule
    steps = schedule.num_steps
    if schedule.budget_s is not None:
        seconds_left = max(0.0, schedule.budget_s - state.seconds)
        steps = state.step + round(seconds_left / (clock.seconds() / clock.num_steps))
    figures = metrics(torch.tensor(state.sums, dtype=torch.float64))
    del figures["loss"]  # the sum of two losses, which says less than either
    return {
        "step": state.step,
        "steps": steps,
        **figures,
        "learning_rate": schedule.learning_rate(state.step - 1, state.seconds),
        **(
            {"probe": next(iter(state.probe["final"].values()))}
            if run.probe and state.probe
            else {}
        ),
        **clock.rates(),
        **peak_memory(run.setup.ranks.device),
    }


def _finish(run: PretrainRun, clock: Clock) -> dict[str, Any]:
    summary = _summary(run, "finished")
    run.writer.wait()
    if run.log:
        setup, output, seconds = run.setup, OutputDirectory(str(run.output)), clock.seconds()
        tokens_per_second = clock.num_tokens / seconds if seconds else 0.0
        timings = {
            "seconds": seconds,
            "steps": clock.num_steps,
            "tokens_per_second": tokens_per_second,
        }
        timings |= {
            name: getattr(clock, name) for name in ("data_wait_s", "evaluation_s", "checkpoint_s")
        }
        output.write_json("timings.json", timings)
        manifests = [phase.directory.manifest for phase in setup.phases]
        products = next(name for name, dtype in DTYPES.items() if dtype == setup.dtype)
        card = model_card(
            setup.config, run.model.config, manifests, summary, setup.tokenizer, products=products
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
        **(
            {"probe": {"constant": run.probe.constant, **state.probe}}
            if run.probe and state.probe
            else {}
        ),
    }
