"""The first hour on a GPU, in three commands of under eight minutes each:

    python -m benchmarks.gpu base
    python -m benchmarks.gpu large
    python -m benchmarks.gpu run

The first two measure updates of a model of that size, beside `transformers` compiled in bf16 if it
is installed, and show the kernels that take the most time. An update is forward, backward, clipping
and optimiser step on the rows of INSTANCES (directories of different lengths), or of `rows.npz`.
The utilisation (MFU) is relative to the device's dense bf16 peak and counts real tokens only. Each
line is printed when it is measured. The most important come first, and those that no time is left
for are left out. What fails compiled, for whatever reason, is tried once more uncompiled.

The last one trains `base` as a user does, on the first of INSTANCES or on small ones that it
writes, and prints the shares of its time that evaluation, checkpoints and waiting for data take.
Without the packages that this takes (`RUN_NEEDS`), it measures the three by themselves.

Torch (2.7 or later), NumPy and msgspec are enough; Clozeworks need not be installed. On a CPU small
models are measured, such as `tiny`.
"""

import argparse
import gc
import importlib.util
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clozeworks.model.config import EVALUATION_ROWS, PretrainConfig
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.config import SIZES
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import IGNORED, PretrainBatch
from clozeworks.model.pretraining.batches import make_batches, pack_batches, packs_rows
from clozeworks.model.training import device as devices
from clozeworks.model.training.device import (
    compiles,
    distinct_sizes,
    uncompiled,
)
from clozeworks.model.training.optim import make_optimizer
from clozeworks.model.training.ranks import Ranks
from clozeworks.model.training.threads import SnapshotWriter, prefetch
from clozeworks.model.training.update import Loss, Updater
from clozeworks.pipeline.instances.rows import Rows, select

from .peer import make_peer, peer_loss
from .rows import FILE, SomeRows, carried_rows, rows_of

RUN_NEEDS = ("pyarrow", "safetensors", "tokenizers")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
DTYPE = devices.product_dtype("auto", DEVICE)
UPDATE_TOKENS = 32_768 if ON_GPU else 512
TRAINED = "base" if ON_GPU else "tiny"
PROFILED_UPDATES = 3
SHOWN_KERNELS = 20
HEADINGS = (
    f"{'model':<6} {'length':>6} {'dropout':>7} {'trainer':<13} {'how':<17} "
    f"{'tokens/s':>10} {'MFU':>6} {'peak GB':>8}"
)


@dataclass(frozen=True)
class Options:
    """What to measure, from the command line."""

    what: str
    instances: list[str]
    lengths: list[int]
    dropouts: list[float]
    seconds: float
    run_minutes: float
    compiles: bool
    deadline: float
    """On the clock of `time.monotonic`."""


@dataclass(frozen=True)
class Case:
    """A trainer and its model, which is compiled once for rows of all lengths."""

    size: str
    dropout: float
    trainer: str
    compiled: bool

    @property
    def is_ours(self) -> bool:
        return self.trainer == "clozeworks"

    def config(self, rows: SomeRows, lengths: list[int]) -> ModelConfig:
        return ModelConfig.named(
            self.size,
            vocab_size=rows.vocab_size,
            max_position_embeddings=max(512, *lengths),
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
        )

    def print(self, length: int, packs: bool, *cells: str) -> None:
        compiled = "compiled" if self.compiled else "eager"
        how = f"{compiled}, packed" if packs else compiled
        case = f"{self.size:<6} {length:>6} {self.dropout:>7} {self.trainer:<13} {how:<17}"
        print(case, *cells, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    rows = rows_of(options.instances) if options.instances else carried_rows()
    if missing := set(options.lengths) - rows.by_length.keys():
        sys.exit(
            f"There are no rows of up to {min(missing)} tokens; give INSTANCES of this length."
        )
    print_setting(options)
    with devices.pinned_attention(), distinct_sizes():  # as in training
        if options.what == "run":
            measure_run(options, rows)
        else:
            measure_size(options, rows)


def parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*SIZES, "run"])
    parser.add_argument("instances", nargs="*")
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument("--dropouts", default="0.1,0")
    parser.add_argument("--seconds", type=float, default=4.0, help="Time for each measurement.")
    parser.add_argument("--minutes", type=float, default=7.5, help="Then the script ends.")
    parser.add_argument("--run-minutes", type=float, default=4.0, help="Time for the training.")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction)
    given = parser.parse_args(arguments)
    stop_after(60 * given.minutes)
    return Options(
        what=given.what,
        instances=given.instances,
        lengths=[int(length) for length in given.lengths.split(",")],
        dropouts=[float(rate) for rate in given.dropouts.split(",")],
        seconds=given.seconds,
        run_minutes=given.run_minutes,
        compiles=compiles(given.compile, DEVICE),
        deadline=time.monotonic() + 60 * given.minutes,
    )


def stop_after(seconds: float) -> None:
    """End the process then, even while it compiles; results so far are printed already."""

    def stop() -> None:
        print("\nStopped: --minutes are over.", flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()


def print_setting(options: Options) -> None:
    """Print what the figures depend on, and what a failure to compile may come from."""
    if ON_GPU:
        gpu = torch.cuda.get_device_properties(DEVICE)
        memory = f"{gpu.total_memory / 1e9:.1f} GB"
        print(f"{gpu.name}, {memory}, compute capability {gpu.major}.{gpu.minor}")
        peak = devices.peak_flops(DEVICE)
        print(f"peak {peak / 1e12:.0f} TFLOP/s" if peak else "of unknown peak")
    else:
        print(f"CPU, {torch.get_num_threads()} threads")
    names = ("numpy", "triton", "transformers")
    versions = ", ".join(f"{name} {version_of(name)}" for name in names)
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {versions}")
    print(f"Python {platform.python_version()}, {compiler()}")
    print(f"{DTYPE}, {'compiled' if options.compiles else 'not compiled'}")
    print(f"Rows: {', '.join(options.instances) or FILE.name}", flush=True)


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"


def compiler() -> str:
    path = shutil.which(os.environ.get("CC", "gcc"))
    if path is None:
        return "no gcc"
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def measure_size(options: Options, rows: SomeRows) -> None:
    """Print the lines of a model, and the kernels of an update."""
    print(f"\n{HEADINGS}", flush=True)
    trainers = ["clozeworks"]
    if importlib.util.find_spec("transformers"):
        trainers.append("transformers")
    for dropout in options.dropouts:
        for trainer in trainers:
            case = Case(options.what, dropout, trainer, options.compiles)
            measured = try_case(case, rows, options)
            if not measured and case.compiled:
                try_case(Case(options.what, dropout, trainer, compiled=False), rows, options)


def try_case(case: Case, rows: SomeRows, options: Options) -> bool:
    """Measure a case; return whether that worked."""
    try:
        measure_case(case, rows, options)
    except Exception:  # whatever it is, the cases after it are measured
        traceback.print_exc()
        how = "compiled" if case.compiled else "eager"
        print(f"{case.size}, {case.trainer}, {how}: failed with the error above", flush=True)
        return False
    return True


def measure_case(case: Case, rows: SomeRows, options: Options) -> None:
    gc.collect()  # the model before this one, whose memory would count
    torch.compiler.reset()
    if ON_GPU:
        torch.cuda.empty_cache()
    config = case.config(rows, options.lengths)
    packs = case.is_ours and packs_rows(config, DEVICE, DTYPE)
    updates = Updates(case, config)
    parts = {}
    for length in options.lengths:
        all_rows = rows.by_length[length]
        part = select(all_rows, np.arange(min(len(all_rows), max(1, UPDATE_TOKENS // length))))
        parts[length] = part, batches_of(part, length, packs=packs)

    # All lengths, as training meets them; a compiled model is compiled here.
    started = time.perf_counter()
    for _, batches in parts.values():
        updates.seconds_per_update(batches, 2)
    if case.compiled:
        took = time.perf_counter() - started
        print(f"{case.size}, {case.trainer}: compiled in {took:.0f} s", flush=True)
    for length, (part, batches) in parts.items():
        if time.monotonic() > options.deadline - 2 * options.seconds:
            case.print(length, packs, "left out: no time")
            continue
        taken = updates.measure(batches, options.seconds)
        case.print(length, packs, *figures(config, part, taken))
    if case.is_ours and case.dropout == options.dropouts[0]:
        _, batches = parts[options.lengths[0]]
        updates.print_kernels(batches)


class Updates:
    """Updates of one model."""

    def __init__(self, case: Case, config: ModelConfig):
        model: Any = make_ours(config) if case.is_ours else make_peer(config)
        self.model = model.to(DEVICE).train()
        self._loss = our_loss if case.is_ours else their_loss
        if case.compiled and case.is_ours:
            self.model.compile_parts()
        elif case.compiled:
            self.model.compile(dynamic=True)
        self.updater: Updater = Updater(
            self.model,
            make_optimizer(self.model),
            Ranks(0, 1, DEVICE),
            dtype=DTYPE,
            dropout_seed=(0,),
        )

    def update(self, batches: list[PretrainBatch]) -> None:
        self.updater.update(0, batches, lambda batch: self._loss(self.model, batch), 1e-5)

    def drain(self) -> None:
        """Wait for the device; raise an error if a loss is not finite."""
        if not all(update.is_finite for update in self.updater.drain()):
            raise ArithmeticError("the loss is not finite")

    def seconds_per_update(self, batches: list[PretrainBatch], num_updates: int) -> float:
        started = time.perf_counter()
        for _ in range(num_updates):
            self.update(batches)
        self.drain()
        return (time.perf_counter() - started) / num_updates

    def measure(self, batches: list[PretrainBatch], seconds: float) -> float:
        """Return the seconds of an update: the median over groups, between which a GPU is waited
        for, as in training.
        """
        self.seconds_per_update(batches, 2)
        if ON_GPU:
            torch.cuda.reset_peak_memory_stats()
        stop = time.perf_counter() + seconds
        groups = []
        while not groups or time.perf_counter() < stop:
            groups.append(self.seconds_per_update(batches, devices.drain_every(DEVICE)))
        return statistics.median(groups)

    def print_kernels(self, batches: list[PretrainBatch]) -> None:
        """Print the kernels that take the most time."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if ON_GPU:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as profile:
            self.seconds_per_update(batches, PROFILED_UPDATES)
        column = "self_device_time_total" if ON_GPU else "self_cpu_time_total"
        table = profile.key_averages().table(
            sort_by=column, row_limit=SHOWN_KERNELS, max_name_column_width=60
        )
        print(f"\n{PROFILED_UPDATES} updates:\n{table}", flush=True)


def batches_of(rows: Rows, length: int, *, packs: bool) -> list[PretrainBatch]:
    if packs:
        batches = pack_batches(rows, len(rows), length)
    else:
        batches = make_batches(rows, len(rows), multiple=8, always_mask=ON_GPU)
    return [batch.pin() if ON_GPU else batch for batch in batches]


def make_ours(config: ModelConfig) -> BertForPreTraining:
    model = BertForPreTraining(config)
    initialise(model, config, torch.Generator().manual_seed(0))
    return model


def our_loss(model: BertForPreTraining, batch: PretrainBatch) -> Loss:
    sums = model.sums(batch)
    assert batch.next_sentence_label_B is not None
    num_predicted = (batch.masked_ids != IGNORED).sum()
    num_labels = (batch.next_sentence_label_B != IGNORED).sum()
    return as_loss(sums.mlm_loss / num_predicted + sums.nsp_loss / num_labels)


def their_loss(model: Any, batch: PretrainBatch) -> Loss:
    return as_loss(peer_loss(model, batch))


def as_loss(loss: torch.Tensor) -> Loss:
    return Loss(loss, loss.detach().double()[None])


def figures(config: ModelConfig, rows: Rows, seconds: float) -> list[str]:
    """Return the cells of a line: tokens per second, MFU, and GB of memory at the peak."""
    flops = devices.update_flops(config, rows.lengths, int(rows.num_masked.sum()))
    peak = devices.peak_flops(DEVICE)
    memory = devices.peak_memory(DEVICE).get("peak_memory_gb")
    utilisation = f"{flops / seconds / peak:.1%}" if peak else "-"
    gigabytes = f"{memory:.1f}" if memory else "-"
    return [f"{rows.lengths.sum() / seconds:>10,.0f}", f"{utilisation:>6}", f"{gigabytes:>8}"]


def measure_run(options: Options, rows: SomeRows) -> None:
    """Train for a while; print the shares of time not spent training."""
    missing = [name for name in RUN_NEEDS if not importlib.util.find_spec(name)]
    for compiled in (True, False) if options.compiles else (False,):
        try:
            if missing:
                print(f"\n`pretrain` needs {', '.join(missing)}; its parts, by themselves:")
                measure_parts(options, rows, compiled)
            else:
                measure_pretrain(options, compiled)
        except Exception:
            traceback.print_exc()
            print(f"{'compiled' if compiled else 'eager'}: failed with the error above", flush=True)
        else:
            return


def measure_pretrain(options: Options, compiled: bool) -> None:
    from clozeworks.model.pretraining.pretrain import pretrain

    config = PretrainConfig(model=TRAINED, hours=options.run_minutes / 60, compile=compiled)
    progress: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        if options.instances:
            instances = options.instances[0]
        else:
            instances = write_instances(Path(folder, "instances"))
        summary = pretrain(config, [instances], Path(folder, "run"), progress.append)
        timings = json.loads(Path(folder, "run", "timings.json").read_text())
    steady = progress[len(progress) // 2 :]  # after compiling

    def median(name: str) -> float:
        return statistics.median(part[name] for part in steady)

    num_evaluations = math.ceil(summary["step"] / config.evaluate_every)
    print_shares(
        step_s=config.batch_size / median("examples_per_second"),
        evaluation_s=timings["evaluation_s"] / num_evaluations,
        checkpoint_s=timings["checkpoint_s"],  # one, at the end
        data_wait=median("data_wait"),
    )
    utilisation = f", MFU {median('mfu'):.1%}" if "mfu" in steady[0] else ""
    speed = f"{median('tokens_per_second'):,.0f} tokens/s{utilisation}"
    print(f"`pretrain` of {TRAINED}, {summary['step']} steps: {speed}")
    before, after = summary["initial"]["mlm_loss"], summary["final"]["mlm_loss"]
    print(f"masked-LM loss held out: {before:.3f} before, {after:.3f} after", flush=True)


def write_instances(path: Path) -> str:
    """Write the easily learned instances of the tests, in rows of up to 128 tokens."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))
    import instances_fixture  # pyright: ignore

    num_rows = 4000 if ON_GPU else 200
    sizes = {"max_length": 128, "rows_per_group": num_rows, "validation_rows": num_rows}
    return str(instances_fixture.write_instances(path, **sizes))


def measure_parts(options: Options, rows: SomeRows, compiled: bool) -> None:
    """Train on rows in memory; evaluate and save a checkpoint now and then."""
    length = options.lengths[0]
    case = Case(TRAINED, PretrainConfig.dropout or 0.1, "clozeworks", compiled)
    config = case.config(rows, options.lengths)
    packs = packs_rows(config, DEVICE, DTYPE)
    updates = Updates(case, config)
    part = rows.by_length[length]
    num_rows = max(1, UPDATE_TOKENS // length)

    def make(step: int) -> list[PretrainBatch]:
        chosen = np.random.default_rng(step).integers(0, len(part), num_rows)
        return batches_of(select(part, chosen), length, packs=packs)

    updates.seconds_per_update(make(0), 3)  # compiles
    started = time.perf_counter()
    wait_s = 0.0
    num_updates = 0
    batches = prefetch(make, range(1_000_000))
    with closing(batches):
        while time.perf_counter() < started + 15 * options.run_minutes:
            for _ in range(devices.drain_every(DEVICE)):
                asked = time.perf_counter()
                next_batches = next(batches)
                wait_s += time.perf_counter() - asked
                updates.update(next_batches)
                num_updates += 1
            updates.drain()
    total_s = time.perf_counter() - started
    step_s = total_s / num_updates
    seconds_per_row = evaluation_seconds(updates.model, make(1)) / num_rows
    print_shares(
        step_s=step_s,
        evaluation_s=EVALUATION_ROWS * seconds_per_row,
        checkpoint_s=checkpoint_seconds(updates, make(2), step_s),
        data_wait=wait_s / total_s,
    )


def evaluation_seconds(model: Any, batches: list[PretrainBatch]) -> float:
    """Return the seconds that an evaluation of these batches takes."""
    model.eval()
    started = 0.0
    for _ in range(2):  # the first prepares kernels
        started = time.perf_counter()
        total = torch.zeros((), device=DEVICE)
        with torch.no_grad(), devices.autocast(DEVICE, DTYPE), uncompiled():
            for batch in batches:
                total += model.sums(batch.to(DEVICE)).mlm_loss
        total.item()  # waits for the device
    model.train()
    return time.perf_counter() - started


def checkpoint_seconds(updates: Updates, batches: list[PretrainBatch], step_s: float) -> float:
    """Return the seconds that training loses by a checkpoint that is written beside it."""
    num_updates = 5 * devices.drain_every(DEVICE)
    state = {"model": updates.model.state_dict(), "optimizer": updates.updater.state_dict()}
    with tempfile.TemporaryDirectory() as folder, SnapshotWriter() as writer:
        started = time.perf_counter()
        writer.submit(lambda copy: torch.save(copy, Path(folder, "checkpoint.pt")), state)
        updates.seconds_per_update(batches, num_updates)
        return max(0.0, time.perf_counter() - started - num_updates * step_s)


def print_shares(
    *, step_s: float, evaluation_s: float, checkpoint_s: float, data_wait: float
) -> None:
    """Print how much of a run's time is not spent training, at the default intervals."""
    training_s = PretrainConfig.evaluate_every * step_s
    evaluation = evaluation_s / (evaluation_s + training_s)
    checkpoints = checkpoint_s / (60 * PretrainConfig.checkpoint_minutes)
    print(
        f"\nof its time: evaluation {evaluation:.1%}, checkpoints {checkpoints:.1%}, "
        f"data wait {data_wait:.1%}; an update takes {step_s:.3f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
