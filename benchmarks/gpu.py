"""Pre-training on one GPU in under ten minutes, beside `transformers` compiled in bf16 on the same
rows.

    python -m benchmarks.gpu [INSTANCES...] [--models base,large] [--lengths 128,512]
        [--dropouts 0.1,0]

An update is forward, backward, clipping and optimiser step on rows of INSTANCES (directories of
different lengths), or of `rows.npz`. The utilisation (MFU) is relative to the device's dense bf16
peak and counts real tokens only. The most important cases come first; those that do not fit into
`--minutes` are left out, and the table says so.

Then `pretrain` runs on the first of INSTANCES, or on small ones that the script writes, to measure
the shares of its time that evaluation, checkpoints and waiting for data take.

The table needs torch (2.11 or later), numpy, and `transformers` for the comparison; the run needs
`RUN_NEEDS` too. Clozeworks need not be installed. On a CPU small models are measured.
"""

import argparse
import gc
import importlib.util
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.config import ModelConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import IGNORED
from clozeworks.model.pretraining.batches import PretrainBatch, make_batches, pack_batches
from clozeworks.model.pretraining.packing import packs_rows
from clozeworks.model.pretraining.rows import InstanceRows, select
from clozeworks.model.training import device as devices
from clozeworks.model.training.optim import make_optimizer
from clozeworks.model.training.ranks import Ranks
from clozeworks.model.training.update import Loss, Updater

from .peer import make_peer, peer_loss
from .rows import FILE, SomeRows, carried_rows, rows_of

RUN_NEEDS = ("msgspec", "pyarrow", "safetensors", "tensorboard", "tokenizers")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
DTYPE = devices.product_dtype("auto", DEVICE)
UPDATE_TOKENS = 32_768 if ON_GPU else 512
HEADINGS = (
    f"{'model':<6} {'length':>6} {'dropout':>7} {'trainer':<19} "
    f"{'tokens/s':>10} {'MFU':>6} {'peak GB':>8}"
)


class Case(NamedTuple):
    """What is measured: up to `length` tokens in a row."""

    size: str
    length: int
    dropout: float
    trainer: str

    def print(self, *cells: str) -> None:
        case = f"{self.size:<6} {self.length:>6} {self.dropout:>7} {self.trainer:<19}"
        print(case, *cells, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("instances", nargs="*")
    parser.add_argument("--models", default="base,large" if ON_GPU else "tiny,mini")
    parser.add_argument("--lengths", help="Of the rows; by default all that there are.")
    parser.add_argument("--dropouts", default="0.1,0")
    parser.add_argument("--seconds", type=float, default=4.0, help="Time for each measurement.")
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="Time for everything; then the script ends."
    )
    parser.add_argument(
        "--run-minutes", type=float, default=2.0, help="Time of these for the run of `pretrain`."
    )
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=ON_GPU)
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * options.minutes
    stop_after(60 * options.minutes)
    rows = rows_of(options.instances) if options.instances else carried_rows()
    lengths = (
        [int(length) for length in options.lengths.split(",")]
        if options.lengths
        else sorted(rows.by_length)
    )
    if missing := set(lengths) - rows.by_length.keys():
        parser.error(
            f"there are no rows of up to {min(missing)} tokens; give INSTANCES of this length."
        )
    trainers = [
        "clozeworks",
        *(["transformers"] if importlib.util.find_spec("transformers") else []),
    ]
    print_setting(options, trainers)
    torch.backends.cuda.enable_cudnn_sdp(False)  # as training does
    for dropout, size, trainer in itertools.product(
        options.dropouts.split(","), options.models.split(","), trainers
    ):
        cases = [Case(size, length, float(dropout), trainer) for length in lengths]
        # A minute in hand: the first update compiles, and so does the run.
        try:
            measure_cases(cases, rows, options, deadline - 60 * (options.run_minutes + 1))
        except RuntimeError:  # of the compiler, or out of memory
            traceback.print_exc()
            print(f"{size}, {trainer}: failed with the error above", flush=True)
    measure_run(options, deadline)


def stop_after(seconds: float) -> None:
    """End the process then, even while it compiles; results so far are printed already."""

    def stop() -> None:
        print("\nStopped: --minutes are over.", flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()


def print_setting(options: argparse.Namespace, trainers: list[str]) -> None:
    name = torch.cuda.get_device_name() if ON_GPU else f"CPU, {torch.get_num_threads()} threads"
    compiled = "compiled" if options.compile else "not compiled"
    peers = (
        f"transformers {version('transformers')}"
        if "transformers" in trainers
        else "transformers is not installed"
    )
    versions = f"torch {torch.__version__}, Python {sys.version.split()[0]}"
    print(f"{name}, {versions}, {DTYPE}, {compiled}, {peers}")
    print(f"Rows: {', '.join(options.instances) or FILE.name}\n\n{HEADINGS}", flush=True)


def measure_cases(
    cases: list[Case], rows: SomeRows, options: argparse.Namespace, deadline: float
) -> None:
    """Print the lines of one trainer, which compiles once for all lengths; none are measured after
    the deadline.
    """
    if time.monotonic() > deadline:
        for case in cases:
            case.print("left out: no time")
        return
    gc.collect()  # the model before this one, of which the peak memory would be part
    torch.compiler.reset()
    size, _, dropout, trainer = cases[0]
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    positions = max(512, *(case.length for case in cases))
    config = ModelConfig.named(
        size, vocab_size=rows.vocab_size, max_position_embeddings=positions, **rates
    )
    is_ours = trainer == "clozeworks"
    model = (make_ours if is_ours else make_peer)(config).to(DEVICE).train()
    if options.compile:
        model.compile(dynamic=True)  # as `pretrain` does
    packs = is_ours and packs_rows(config, DEVICE, DTYPE)
    for case in cases:
        part = first_rows(rows.by_length[case.length], case.length)
        batches = batches_of(part, case.length, packs=packs)
        shown = case._replace(trainer="clozeworks, packed") if packs else case
        taken = seconds_of(
            model, batches, our_loss if is_ours else their_loss, options.seconds, deadline
        )
        shown.print(
            *(figures(config, part, taken) if taken else ["left out: no time after compiling"])
        )


def first_rows(rows: InstanceRows, length: int) -> InstanceRows:
    return select(rows, np.arange(min(len(rows), max(1, UPDATE_TOKENS // length))))


def batches_of(rows: InstanceRows, length: int, *, packs: bool) -> list[PretrainBatch]:
    batches = (
        pack_batches(rows, len(rows), length)
        if packs
        else make_batches(rows, len(rows), multiple=8)
    )
    return [batch.pin() if ON_GPU else batch for batch in batches]


def make_ours(config: ModelConfig) -> BertForPreTraining:
    model = BertForPreTraining(config)
    initialise(model, config, torch.Generator().manual_seed(0))
    return model


def our_loss(model: BertForPreTraining, batch: PretrainBatch) -> Loss:
    sums = model(*batch)
    assert batch.next_sentence_label_B is not None
    num_predicted, num_labels = (
        (ids != IGNORED).sum() for ids in (batch.masked_ids, batch.next_sentence_label_B)
    )
    return as_loss(sums.mlm_loss / num_predicted + sums.nsp_loss / num_labels)


def their_loss(model: Any, batch: PretrainBatch) -> Loss:
    return as_loss(peer_loss(model, batch))


def as_loss(loss: torch.Tensor) -> Loss:
    return Loss(loss, loss.detach().double()[None])


def seconds_of(
    model: Any,
    batches: list[PretrainBatch],
    loss: Callable[[Any, PretrainBatch], Loss],
    seconds: float,
    deadline: float,
) -> float | None:
    """Return the time of an update, measured for about `seconds`; None if the first ones, which
    compile, take too long.

    As in `pretrain`, a GPU is waited for every few updates; the time is the median over these
    groups.
    """
    updater: Updater[PretrainBatch] = Updater(
        model, make_optimizer(model), Ranks(0, 1, DEVICE), dtype=DTYPE, dropout_seed=(0,)
    )

    def seconds_per_update(num_updates: int) -> float:
        started = time.perf_counter()
        for _ in range(num_updates):
            updater.update(0, batches, lambda batch: loss(model, batch), 1e-5)
        assert all(update.is_finite for update in updater.drain()), (
            "the loss is not finite"
        )  # waits for the device
        return (time.perf_counter() - started) / num_updates

    seconds_per_update(3)
    if time.monotonic() > deadline:
        return None
    if ON_GPU:
        torch.cuda.reset_peak_memory_stats()
    stop, groups = time.perf_counter() + seconds, []
    while not groups or time.perf_counter() < stop:
        groups.append(seconds_per_update(devices.drain_every(DEVICE)))
    return statistics.median(groups)


def figures(config: ModelConfig, rows: InstanceRows, seconds: float) -> list[str]:
    """Return the cells of a line: tokens per second, MFU, and GB of memory at the peak."""
    flops = devices.update_flops(config, rows.lengths, int(rows.num_masked.sum()))
    peak, memory = devices.peak_flops(DEVICE), devices.peak_memory(DEVICE).get("peak_memory_gb")
    utilisation, gigabytes = (
        f"{flops / seconds / peak:.1%}" if peak else "-",
        f"{memory:.1f}" if memory else "-",
    )
    return [f"{rows.lengths.sum() / seconds:>10,.0f}", f"{utilisation:>6}", f"{gigabytes:>8}"]


def measure_run(options: argparse.Namespace, deadline: float) -> None:
    """Train for `--run-minutes` as a user does; print the shares of time not spent training."""
    minutes = min(options.run_minutes, (deadline - time.monotonic()) / 60 - 0.5)
    if missing := [name for name in RUN_NEEDS if not importlib.util.find_spec(name)]:
        print(f"\n`pretrain` is left out: it needs {', '.join(missing)}.")
        return
    if minutes <= 0:
        print("\n`pretrain` is left out: no time.")
        return
    from clozeworks.model.pretraining.pretrain import pretrain

    size = options.models.split(",")[0]
    config = PretrainConfig(model=size, hours=minutes / 60, compile=options.compile)
    progress: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        instances = (
            options.instances[0]
            if options.instances
            else write_instances(Path(folder, "instances"))
        )
        summary = pretrain(config, [instances], Path(folder, "run"), progress.append)
        timings = json.loads(Path(folder, "run", "timings.json").read_text())
    steady = progress[len(progress) // 2 :]  # after compiling
    speed, waiting = (
        statistics.median(part[name] for part in steady)
        for name in ("tokens_per_second", "data_wait")
    )
    step_s = config.batch_size / statistics.median(part["examples_per_second"] for part in steady)
    evaluation_s = timings["evaluation_s"] / math.ceil(summary["step"] / config.evaluate_every)
    share = evaluation_s / (evaluation_s + config.evaluate_every * step_s)
    saving_s, saves_every = (
        timings["checkpoint_s"],
        60 * config.checkpoint_minutes,
    )  # one, at the end
    before, after = summary["initial"]["mlm_loss"], summary["final"]["mlm_loss"]
    utilisation = (
        f", MFU {statistics.median(part['mfu'] for part in steady):.1%}"
        if "mfu" in steady[0]
        else ""
    )
    print(
        f"\n`pretrain` of {size}, {summary['step']} steps in {minutes:.1f} min: "
        f"{speed:,.0f} tokens/s{utilisation}"
    )
    print(
        f"of its time: evaluation {share:.1%}, checkpoints {saving_s / saves_every:.1%}, "
        f"data wait {waiting:.1%}"
    )
    print(f"masked-LM loss held out: {before:.3f} before, {after:.3f} after")


def write_instances(path: Path) -> str:
    """Write the easily learned instances of the tests, in rows of up to 128 tokens."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))
    import instances_fixture  # pyright: ignore

    rows = 4000 if ON_GPU else 200
    return str(
        instances_fixture.write_instances(
            path, max_length=128, rows_per_group=rows, validation_rows=rows
        )
    )


if __name__ == "__main__":
    main()
