"""Pre-training beside `transformers` on the same rows, in one run.

    python -m benchmarks.pretrain INSTANCES... [--models mini,base] [--architecture modernbert]
        [--rows 32] [--rounds 3] [--precision bf16] [--compile]

INSTANCES are one or more directories, for example of length 128 and of length 512. An update is
forward, backward, clipping and optimiser step on as many micro-batches as the trainer makes, with
the recipe's dropout; both get the same ones. Rounds are interleaved and the fastest of each counts.

On a GPU (models base and large) all run in bf16, eager and compiled (with dynamic shapes: once for
all lengths). The model-FLOPs utilisation is relative to the device's dense bf16 peak, for real
tokens and the head at masked positions.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import transformers
from clozeworks.model.encoders.catalogue import CONFIGS, make_pretrain_model
from clozeworks.model.encoders.config import EncoderConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import PretrainBatch
from clozeworks.model.pretraining import data
from clozeworks.model.pretraining.batches import make_batches
from clozeworks.model.pretraining.sequence import RowSequence
from clozeworks.model.training.device import MICRO_BATCH_TOKENS, peak_flops, update_flops
from clozeworks.model.training.optim import MAX_GRADIENT_NORM, make_optimizer, set_learning_rate
from clozeworks.pipeline.instances.rows import Rows
from rich.console import Console
from rich.table import Column, Table
from torch import nn

from .peer import make_peer, peer_loss
from .peers import print_figure

BATCH_ROWS = 256
MEASURED_SECONDS = 2.0
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"


class Work(NamedTuple):
    """The rows of one global batch, and their micro-batches on the device."""

    rows: Rows
    batches: list[PretrainBatch]

    @property
    def num_predicted(self) -> int:
        """Tokens to predict."""
        return int(self.rows.num_masked.sum())


class Trainer(NamedTuple):
    """A model in training: `loss` is its share of the whole batch's loss on one of the
    micro-batches.
    """

    model: nn.Module
    optimizer: torch.optim.AdamW
    loss: Callable[[PretrainBatch, Work], torch.Tensor]
    bf16: bool


class Setting(NamedTuple):
    """How both are trained and measured."""

    precision: str
    compiles: bool
    rounds: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("instances", nargs="+")
    parser.add_argument("--models", default="base,large" if ON_GPU else "mini,base")
    parser.add_argument("--architecture", default="bert", choices=CONFIGS)
    parser.add_argument("--rows", type=int, default=256 if ON_GPU else 32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--precision", choices=("fp32", "bf16"), default="bf16" if ON_GPU else "fp32"
    )
    parser.add_argument("--compile", action="store_true", default=ON_GPU)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    directories = [data.open_instances(path) for path in arguments.instances]
    kind = CONFIGS[arguments.architecture]
    work = [make_work(directory, arguments.rows, kind.objectives[0]) for directory in directories]
    positions = max(512, *(directory.max_length for directory in directories))
    for size in arguments.models.split(","):
        config = kind.named(
            size,
            max_position_embeddings=positions,
            # The special tokens of BERT's own vocabularies.
            **kind.vocabulary_fields(directories[0].vocab_size, 0, 2, 3),
        )
        # A table for each, so that a later one that fails takes none of these with it.
        setting = Setting(arguments.precision, arguments.compile, arguments.rounds)
        Console().print(measure_trainers(config, work, setting))


def make_work(directory: data.InstanceDirectory, num_rows: int, objective: str) -> Work:
    rows = RowSequence(directory, 0).rows(0, num_rows)
    size = MICRO_BATCH_TOKENS[DEVICE.type] // directory.max_length
    batches = make_batches(rows, size, objective, multiple=8 if ON_GPU else 1)
    return Work(rows, [batch.to(DEVICE) for batch in batches])


def measure_trainers(config: EncoderConfig, work: list[Work], setting: Setting) -> Table:
    device = torch.cuda.get_device_name() if ON_GPU else f"CPU, {torch.get_num_threads()} threads"
    name = f"{config.model_type} of {config.num_hidden_layers} x {config.hidden_size}"
    title = f"{name}, {device}, {setting.precision}"
    columns = ("MFU", "peak GiB") if ON_GPU else ()
    trainer_column = Column("trainer", no_wrap=True)
    table = Table(
        "up to", "padding", trainer_column, "ms", "real tokens/s", "ratio", *columns, title=title
    )
    torch.compiler.reset()
    bf16 = setting.precision == "bf16"
    trainers = {"transformers": peer(config, bf16), "clozeworks": ours(config, bf16)}
    if setting.compiles:
        trainers |= {
            "transformers compiled": peer(config, bf16),
            "clozeworks compiled": ours(config, bf16, compiles=True),
        }
        trainers["transformers compiled"].model.compile(dynamic=True)
    for part in work:
        for trainer in trainers.values():
            update(trainer, part)  # compiles, and allocates what is allocated once
        seconds = dict.fromkeys(trainers, math.inf)
        for _ in range(setting.rounds):
            seconds = {
                name: min(seconds[name], measure(trainer, part))
                for name, trainer in trainers.items()
            }
        for name, taken in seconds.items():
            peer_seconds = seconds[name.replace("clozeworks", "transformers")]
            table.add_row(
                *describe(part), name, *figures(config, part, taken, peer_seconds, trainers[name])
            )
        print_fastest(f"train {title}, rows up to {part.rows.lengths.max()}", seconds)
    return table


def print_fastest(what: str, seconds: dict[str, float]) -> None:
    """Print our fastest form beside the peer's."""
    best = {
        name: min((seconds[form], form) for form in seconds if form.startswith(name))
        for name in ("clozeworks", "transformers")
    }
    (ours, our_form), (theirs, peer_form) = best.values()
    print_figure(
        what,
        f"{ours * 1000:,.0f} ms an update{our_form.removeprefix('clozeworks')}",
        peer_form.replace("transformers", f"`transformers` {transformers.__version__}")
        + ", default attention, the same padded rows",
        f"{theirs * 1000:,.0f} ms",
        theirs / ours,
    )


def describe(work: Work) -> tuple[str, str]:
    padding = 1 - work.rows.lengths.sum() / sum(batch.input_ids.numel() for batch in work.batches)
    return str(work.rows.lengths.max()), f"{padding:.1%}"


def figures(
    config: EncoderConfig, work: Work, seconds: float, peer_seconds: float, trainer: Trainer
) -> list[str]:
    num_tokens = int(work.rows.lengths.sum())
    cells = [
        f"{seconds * 1000:,.0f}",
        f"{num_tokens / seconds:,.0f}",
        f"{peer_seconds / seconds:.2f}x",
    ]
    if not ON_GPU:
        return cells
    flops = update_flops(config, work.rows.lengths, work.num_predicted)
    mfu = flops / seconds / (peak_flops(DEVICE) or math.inf)
    return [*cells, f"{mfu:.1%}", f"{peak_memory(trainer, work):.1f}"]


def ours(config: EncoderConfig, bf16: bool, compiles: bool = False) -> Trainer:
    model = make_pretrain_model(config)
    initialise(model, config, torch.Generator().manual_seed(0))
    if compiles:
        model.compile_parts()  # as `pretrain` does

    def loss(batch: PretrainBatch, work: Work) -> torch.Tensor:
        sums = model.sums(batch)
        return sums.mlm_loss / work.num_predicted + sums.nsp_loss / len(work.rows)

    return make_trainer(model, loss, bf16)


def peer(config: EncoderConfig, bf16: bool) -> Trainer:
    model = make_peer(config)

    def loss(batch: PretrainBatch, work: Work) -> torch.Tensor:
        return peer_loss(model, batch) / len(work.batches)

    return make_trainer(model, loss, bf16)


def make_trainer(
    model: nn.Module, loss: Callable[[PretrainBatch, Work], torch.Tensor], bf16: bool
) -> Trainer:
    model.to(DEVICE).train()
    optimizer = make_optimizer(model)
    set_learning_rate(optimizer, 1e-5)
    return Trainer(model, optimizer, loss, bf16)


def update(trainer: Trainer, work: Work) -> None:
    for batch in work.batches:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=trainer.bf16):
            loss = trainer.loss(batch, work)
        loss.backward()
    nn.utils.clip_grad_norm_(trainer.model.parameters(), MAX_GRADIENT_NORM)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def measure(trainer: Trainer, work: Work) -> float:
    """Return the seconds per update; on a GPU, the mean over `MEASURED_SECONDS` of updates."""
    once = seconds_of(trainer, work, 1)
    return seconds_of(trainer, work, max(3, round(MEASURED_SECONDS / once))) if ON_GPU else once


def seconds_of(trainer: Trainer, work: Work, repeats: int) -> float:
    synchronise()
    started = time.perf_counter()
    for _ in range(repeats):
        update(trainer, work)
    synchronise()
    return (time.perf_counter() - started) / repeats


def synchronise() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def peak_memory(trainer: Trainer, work: Work) -> float:
    """Return the GiB that an update needs, without those of the other trainers in memory."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    update(trainer, work)
    weights = sum(parameter.nbytes for parameter in trainer.model.parameters())
    # Adam keeps two averages of each weight.
    return (torch.cuda.max_memory_allocated() - before + 3 * weights) / 2**30


if __name__ == "__main__":
    main()
