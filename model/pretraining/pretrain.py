"""Pre-training: one loop from instances to an encoder, exact and resumable.

Each update takes the next `batch_size` rows of the endless sequence (see `data`), in micro-batches of rows of similar
length, on any number of ranks. Losses are divided by the counts of the whole global batch before the backward pass,
so that neither micro-batches nor ranks change the result but by rounding. Dropout is seeded by (seed, step, rank,
micro-batch), so that a checkpoint needs no random state, and a resumed run has the same weights to the last bit (CPU,
with the same number of threads).
"""

import math
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from ...pipeline.errors import UserError
from ...pipeline.execution import storage
from ...pipeline.execution.directory import NO_SPACE, OutputDirectory, unwritable_as_user_error
from ...pipeline.seeding import stable_hash
from ..config import PretrainConfig
from ..heads import BertForPreTraining
from ..mirror import mirrored, upload
from ..training.curve import draw_curve
from ..training.device import oom_as_user_error, peak_flops, trim_memory
from ..training.flops import update_flops
from ..training.logs import Clock, RunLog
from ..training.optim import MAX_GRADIENT_NORM, set_learning_rate
from ..training.prefetch import prefetch
from ..training.ranks import join_ranks
from ..training.signals import stop_signals
from .batches import PretrainBatch, by_length, make_batches
from .card import CARD, model_card
from .data import InstanceDirectory, select
from .evaluate import NUM_SUMS, batch_sums, metrics, sum_losses
from .run import (
    claimed_run,
    finish_run,
    latest_checkpoint,
    publish,
    read_summary,
    save_best,
    save_checkpoint,
)
from .setup import Setup, State, identity, open_directories, set_up, start

Progress = Callable[[dict[str, Any]], None]
LIVE_NUMBERS = (
    *("step", "steps", "loss", "mlm_accuracy", "nsp_accuracy", "learning_rate"),
    *("tokens_per_second", "data_wait", "mfu", "peak_memory_gb", "seconds_left"),
)


class Window(NamedTuple):
    """The rows of one update: this rank's batches, and counts of the whole global batch."""

    batches: list[PretrainBatch]
    lengths: np.ndarray
    """Tokens in each row."""
    num_predicted: int
    num_padded: int
    """Tokens and padding, on all ranks if each had as much padding as this one."""


class Update(NamedTuple):
    """What an update leaves to be looked at; on a GPU it may not be computed yet."""

    step: int
    sums: torch.Tensor
    """`evaluate.batch_sums` over the global batch, the number of ranks that were asked to stop, and the first rank's
    seconds of training."""
    micro_losses: torch.Tensor
    """The loss of each of this rank's micro-batches."""
    gradient_norm: torch.Tensor
    lengths: np.ndarray
    """Tokens in each row of the global batch."""


@dataclass
class Run:
    """A run in progress."""

    setup: Setup
    model: BertForPreTraining
    optimizer: AdamW
    state: State
    log: RunLog | None
    """None on all ranks but the first, which alone writes."""


def pretrain(
    config: PretrainConfig,
    instances: list[str],
    output: str | Path,
    progress: Progress | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
) -> dict[str, Any]:
    """Train an encoder on one directory of `instances`, or on two one after the other, into `output`.

    The same call goes on with an interrupted run; `resume` insists that there is one, `overwrite` starts anew. Returns
    the summary: ``status`` (``finished``, ``already finished``, or ``interrupted`` after SIGINT or SIGTERM, when
    everything is saved), ``step``, ``parameters``, ``tokens``, ``rows``, and the validation metrics ``initial``,
    ``final`` and ``best`` (see `evaluate.metrics`). `progress` is called after each update (on a GPU after every
    tenth) with ``step``, ``steps``, ``loss``, ``mlm_accuracy``, ``nsp_accuracy``, ``learning_rate``,
    ``tokens_per_second``, ``data_wait`` (share of the time) and ``seconds_left``, on a GPU also ``mfu`` (share of its
    peak, for real tokens alone) and ``peak_memory_gb``.

    Raises `UserError` for instances that do not fit together or the model, another run's directory, a loss that is
    not finite, a batch that does not fit, and a full disk.
    """
    if config.checkpoint and _lies_in(config.checkpoint, str(output)):
        # With `overwrite` the model would be thrown away before it is read.
        raise UserError(f"--checkpoint {config.checkpoint} lies in the --output {output}; give another --output.")
    directories = open_directories(config, instances)
    with mirrored(output) as directory:
        return _pretrain(config, directories, directory, progress, overwrite, resume)


def _lies_in(path: str, folder: str) -> bool:
    if storage.is_remote(folder):
        return f"{path}/".startswith(f"{folder.rstrip('/')}/")
    return Path(path).resolve().is_relative_to(Path(folder).resolve())


def _pretrain(
    config: PretrainConfig,
    directories: list[InstanceDirectory],
    output: Path,
    progress: Progress | None,
    overwrite: bool,
    resume: bool,
) -> dict[str, Any]:
    with (
        unwritable_as_user_error(output, NO_SPACE),
        join_ranks(config.device, config.batch_size) as ranks,
        claimed_run(output, identity(config, directories), overwrite, is_writer=ranks.rank == 0),
    ):
        ranks.wait()  # for the claim
        summary = read_summary(output)
        if summary:
            return {**summary, "status": "already finished"}
        checkpoint = latest_checkpoint(output)
        if resume and not checkpoint:
            raise UserError(f"{output} holds no checkpoint to resume from; leave out --resume to start.")
        if checkpoint and ranks.rank == 0:
            publish(checkpoint, output)  # the run may have been killed before it was
        setup = set_up(config, directories, output, ranks)
        model, optimizer, state = start(setup, checkpoint)
        with RunLog(output, state.step if checkpoint else -1) if ranks.rank == 0 else nullcontext() as log:
            return _train(Run(setup, model, optimizer, state, log), progress or (lambda numbers: None))


def _train(run: Run, progress: Progress) -> dict[str, Any]:
    setup, state, config = run.setup, run.state, run.setup.config
    if config.compile or (config.compile is None and setup.ranks.device.type == "cuda"):
        # Lengths differ from batch to batch: a graph for the first one's alone would be thrown away at once.
        run.model.compile(dynamic=True)
    if state.initial is None:
        state.initial = _evaluate(run)
    steps = count(state.step) if setup.num_steps is None else range(state.step, setup.num_steps)
    windows = prefetch(lambda step: _make_window(setup, step), steps)
    pending: list[Update] = []
    clock = Clock((peak_flops(setup.ranks.device) or 0) * setup.ranks.num_ranks, state.seconds)
    with stop_signals() as stop_asked, closing(windows):
        while not setup.is_over(state):
            with clock.waiting():
                window = next(windows)
            with oom_as_user_error("--micro-batch-size"):
                pending.append(_update(run, window, stop_asked.is_set(), clock.elapsed()))
            num_tokens = int(window.lengths.sum())
            state.step += 1
            trim_memory(setup.ranks.device, state.step)
            state.num_rows += len(window.lengths)
            state.num_tokens += num_tokens
            clock.count(
                num_tokens, window.num_padded, update_flops(run.model.config, window.lengths, window.num_predicted)
            )

            logs, last = state.step % setup.log_every == 0, state.step == setup.num_steps
            evaluates, saves = state.step % config.evaluate_every == 0, state.step % config.checkpoint_every == 0
            if not (last or logs or evaluates or saves or state.step % setup.drain_every == 0):
                continue
            stops, gradient_norm = _drain_updates(run, pending)
            ends = setup.is_over(state)
            numbers = _numbers(run, clock)
            progress({name: numbers[name] for name in LIVE_NUMBERS if name in numbers})
            if logs or ends:
                _write_log(run, clock, gradient_norm)
            if evaluates or ends:
                _evaluate(run)
            if saves or ends or stops:
                _save(run)
            if stops and not ends:
                return _summary(run, "interrupted")
    return _finish(run, clock)


def _make_window(setup: Setup, step: int) -> Window:
    sequence, first = setup.stretch(step)
    rows = sequence.rows(first, first + setup.config.batch_size)
    on_gpu, objective = setup.ranks.device.type == "cuda", setup.config.objective
    own = select(rows, setup.own_rows())
    batches = make_batches(own, setup.rows_at_once(sequence), objective, 8 if on_gpu else 1)
    num_predicted = int(rows.lengths.sum() - len(rows) if objective == "ltr" else rows.num_masked.sum())
    num_padded = sum(batch.input_ids_BL.numel() for batch in batches) * setup.ranks.num_ranks
    batches = [batch.pin() for batch in batches] if on_gpu else batches
    return Window(batches, rows.lengths, num_predicted, num_padded)


def _update(run: Run, window: Window, stop_asked: bool, seconds: float) -> Update:
    """Compute the gradient of the global batch and change the weights once."""
    setup, step = run.setup, run.state.step
    rank, _, device = setup.ranks
    sums = torch.zeros(NUM_SUMS + 2, dtype=torch.float64, device=device)
    sums[-2], sums[-1] = stop_asked, 0 if rank else seconds
    micro_losses = []
    for index, batch in enumerate(window.batches):
        torch.manual_seed(stable_hash(setup.config.seed, "dropout", step, rank, index) >> 1)
        with torch.autocast(device.type, torch.bfloat16, enabled=setup.use_bf16):
            parts = run.model(*batch.to(device))
        loss = parts.mlm_loss / window.num_predicted + parts.nsp_loss / len(window.lengths)
        loss.backward()
        micro_losses.append(loss.detach())
        sums[:-2] += batch_sums(batch, parts)
    parameters = list(run.model.parameters())
    setup.ranks.sum_all([parameter.grad for parameter in parameters if parameter.grad is not None])
    gradient_norm = clip_grad_norm_(parameters, MAX_GRADIENT_NORM)
    set_learning_rate(run.optimizer, setup.rate(step, run.state.seconds))
    run.optimizer.step()
    run.optimizer.zero_grad()
    return Update(step, setup.ranks.sum(sums), torch.stack(micro_losses), gradient_norm, window.lengths)


def _drain_updates(run: Run, pending: list[Update]) -> tuple[bool, float]:
    """Add up what the last updates left; return whether to stop, and the last norm of the gradient.

    Raises `UserError` naming shards and rows where a loss or a gradient is not finite.
    """
    stops, norm = False, 0.0
    for update in pending:
        *sums, num_stops, seconds = update.sums.tolist()
        norm = update.gradient_norm.item()
        if not (math.isfinite(sums[0] + sums[1]) and math.isfinite(norm)):
            _refuse(run.setup, update)
        run.state.sums = [old + new for old, new in zip(run.state.sums, sums, strict=True)]
        run.state.seconds = 0.0 if run.setup.config.hours is None else seconds
        stops = stops or num_stops > 0
    pending.clear()
    return stops, norm


def _refuse(setup: Setup, update: Update) -> None:
    sequence, first = setup.stretch(update.step)
    own = setup.own_rows()
    bad = (~update.micro_losses.isfinite()).nonzero().flatten().tolist()
    groups = by_length(update.lengths[own], setup.rows_at_once(sequence))
    # Of another rank's loss, and of the gradient, it is only known that they come from this batch.
    rows = own[groups[bad[0]]] if bad else range(setup.config.batch_size)
    places = sorted(sequence.locate(first + int(row)) for row in rows)
    named = ", ".join(places[:8]) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
    what = "gradient" if update.sums[:2].isfinite().all() else "loss"
    raise UserError(
        f"The {what} is not finite at step {update.step + 1}, on rows among {named} of {sequence.directory.path}; "
        "lower --learning-rate or look at these rows. The last checkpoint stays."
    )


def _evaluate(run: Run) -> dict[str, float]:
    """Evaluate on the validation split, log it, and keep the model if it is the best so far."""
    setup, state = run.setup, run.state
    with oom_as_user_error("--micro-batch-size"):
        sums = sum_losses(run.model, setup.validation, setup.ranks.device)
    values = metrics(setup.ranks.sum(sums))
    state.final = values
    if run.log:
        run.log.metrics(state.step, "validation", values)
        run.log.flush()
        draw_curve(setup.output)
    if state.step and (state.best is None or values["loss"] < state.best["loss"]):
        state.best = {"step": state.step, **values}
        if run.log:
            save_best(setup.output, _model_files(run), state.best)
    return values


def _save(run: Run) -> None:
    if run.log:
        run.log.flush()
        config = run.setup.config
        save_checkpoint(run.setup.output, _model_files(run), run.optimizer.state_dict(), asdict(run.state), config.keep)
        upload(run.setup.output)


def _model_files(run: Run) -> dict[str, Any]:
    shape = run.model.config.to_hf()
    return {"weights": run.model.state_dict(), "config": shape, "tokenizer": run.setup.tokenizer}


def _numbers(run: Run, clock: Clock) -> dict[str, Any]:
    step = run.state.step
    steps, seconds_left = _left(run, clock)
    return {
        "step": step,
        "steps": steps,
        **metrics(torch.tensor(run.state.sums, dtype=torch.float64)),
        "learning_rate": run.setup.rate(step - 1, run.state.seconds),
        **_speed(run, clock),
        "seconds_left": seconds_left,
    }


def _left(run: Run, clock: Clock) -> tuple[int, float]:
    # Steps in all (an estimate where the budget is time), and seconds left (an estimate where it is not).
    step, hours = run.state.step, run.setup.config.hours
    seconds_a_step = clock.seconds() / clock.num_steps
    if hours is None:
        steps = run.setup.num_steps or step
        return steps, seconds_a_step * (steps - step)
    seconds_left = max(0.0, hours * 3600 - run.state.seconds)
    return step + round(seconds_left / seconds_a_step), seconds_left


def _speed(run: Run, clock: Clock) -> dict[str, float]:
    device = run.setup.ranks.device
    memory = {"peak_memory_gb": torch.cuda.max_memory_allocated(device) / 1e9} if device.type == "cuda" else {}
    return clock.rates() | memory


def _write_log(run: Run, clock: Clock, gradient_norm: float) -> None:
    if run.log:
        run.log.metrics(run.state.step, "train", _numbers(run, clock) | {"gradient_norm": gradient_norm})
        run.log.speed(run.state.step, _speed(run, clock))
    run.state.sums = [0.0] * NUM_SUMS
    clock.begin_interval()


def _finish(run: Run, clock: Clock) -> dict[str, Any]:
    summary = _summary(run, "finished")
    if run.log:
        setup = run.setup
        seconds = clock.seconds()
        timings = {"seconds": seconds, "steps": clock.num_steps}
        timings["tokens_per_second"] = clock.num_tokens / seconds if seconds else 0.0
        output = OutputDirectory(str(setup.output))
        output.write_json("timings.json", timings)
        manifests = [phase.directory.manifest for phase in setup.phases]
        card = model_card(setup.config, run.model.config, manifests, summary, setup.tokenizer, use_bf16=setup.use_bf16)
        output.write_bytes(CARD, card.encode())
        finish_run(setup.output, summary)
    return summary


def _summary(run: Run, status: str) -> dict[str, Any]:
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
    }
