"""Pre-training on one GPU in under ten minutes, beside `transformers` compiled in bf16 on the same rows.

    python -m benchmarks.gpu [INSTANCES] [--models base,large] [--lengths 128,512] [--dropouts 0.1,0]

An update is forward, backward, clipping and optimiser step. Its rows are random tokens of 70 to 100 % of the length;
15 % of them are predicted. The utilisation (MFU) is relative to the device's dense bf16 peak and counts real tokens
only. Then
`pretrain` runs for a minute on INSTANCES, or on small ones that the script writes, for the shares of its time that
evaluation, checkpoints and waiting for data take. What does not fit into `--minutes` is left out, and said to be.

The script runs from a checkout, without installation: it needs torch (2.11 or later), numpy, pyarrow, msgspec,
safetensors, tokenizers, tensorboard and rich, and `transformers` for the comparison. On a CPU it measures small models.
"""

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
if not importlib.util.find_spec("clozeworks"):
    sys.modules["clozeworks"] = ModuleType("clozeworks")
    sys.modules["clozeworks"].__path__ = [str(ROOT)]

from clozeworks.model.bert import initialise  # noqa: E402
from clozeworks.model.config import ModelConfig, PretrainConfig  # noqa: E402
from clozeworks.model.heads import IGNORED, BertForPreTraining  # noqa: E402
from clozeworks.model.pretraining.batches import PretrainBatch, make_batches, pack_batches  # noqa: E402
from clozeworks.model.pretraining.data import InstanceRows  # noqa: E402
from clozeworks.model.pretraining.evaluate import batch_sums  # noqa: E402
from clozeworks.model.pretraining.packing import packs_rows  # noqa: E402
from clozeworks.model.pretraining.pretrain import pretrain  # noqa: E402
from clozeworks.model.training import device as devices  # noqa: E402
from clozeworks.model.training.optim import make_optimizer  # noqa: E402
from clozeworks.model.training.ranks import Ranks  # noqa: E402
from clozeworks.model.training.update import Loss, Updater  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = devices.product_dtype("auto", DEVICE)
UPDATE_TOKENS = 32_768 if DEVICE.type == "cuda" else 512
HEADINGS = f"{'model':<6} {'length':>6} {'dropout':>7} {'trainer':<22} {'tokens/s':>10} {'MFU':>6} {'peak GB':>8}"


class Case(NamedTuple):
    """One row of the table."""

    size: str
    length: int
    dropout: float
    config: ModelConfig
    rows: InstanceRows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="?")
    on_gpu = DEVICE.type == "cuda"
    parser.add_argument("--models", default="base,large" if on_gpu else "tiny,mini")
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument("--dropouts", default="0.1,0")
    parser.add_argument("--vocab-size", type=int, default=30522)
    parser.add_argument("--seconds", type=float, default=4.0, help="Time for each measurement.")
    parser.add_argument("--minutes", type=float, default=9.0, help="Time for everything but the run.")
    parser.add_argument("--run-minutes", type=float, default=1.0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=on_gpu)
    options = parser.parse_args(arguments)
    name = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, Python {sys.version.split()[0]}, {DTYPE}\n\n{HEADINGS}", flush=True)
    devices.pin_attention()
    deadline = time.monotonic() + 60 * options.minutes
    for size in options.models.split(","):
        for dropout in map(float, options.dropouts.split(",")):
            measure_cases(size, dropout, options, deadline)
    measure_run(options)


def measure_cases(size: str, dropout: float, options: argparse.Namespace, deadline: float) -> None:
    """Print the rows of one model and dropout rate: of both trainers, which each compile once, at all lengths."""
    lengths = [int(length) for length in options.lengths.split(",")]
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    positions = max(512, *lengths)
    config = ModelConfig.named(size, vocab_size=options.vocab_size, max_position_embeddings=positions, **rates)
    makers: dict[str, Callable[[ModelConfig], Any]] = {"clozeworks": BertForPreTraining}
    if importlib.util.find_spec("transformers"):
        makers["transformers"] = make_peer
    for trainer, make in makers.items():
        torch.compiler.reset()
        model = make(config)
        if trainer == "clozeworks":
            initialise(model, config, torch.Generator().manual_seed(0))
        model.to(DEVICE).train()
        if options.compile:
            model.compile(dynamic=True)
        packs = trainer == "clozeworks" and packs_rows(config, DEVICE, DTYPE)
        loss = our_loss if trainer == "clozeworks" else peer_loss
        for length in lengths:
            case = Case(size, length, dropout, config, random_rows(length, options.vocab_size))
            if time.monotonic() > deadline:
                print(f"{size:<6} {length:>6} {dropout:>7} {trainer:<22} left out: --minutes are over", flush=True)
            else:
                name = f"{trainer}{', packed' if packs else ''}"
                print(measure(case, name, model, batches_of(case, packs=packs), loss, options.seconds), flush=True)


def random_rows(length: int, vocab_size: int) -> InstanceRows:
    """Return rows of 70 to 100 % of `length`, together about `UPDATE_TOKENS` with padding."""
    rng = np.random.default_rng(length)
    lengths = rng.integers(int(0.7 * length), length + 1, max(2, UPDATE_TOKENS // length))
    ids = rng.integers(5, vocab_size, lengths.sum())
    num_masked = np.maximum(1, np.round(0.15 * lengths)).astype(np.int64)
    positions = np.concatenate([np.sort(rng.permutation(n)[:m]) for n, m in zip(lengths, num_masked, strict=True)])
    labels = rng.integers(5, vocab_size, num_masked.sum())
    return InstanceRows(ids, lengths, positions, labels, num_masked, lengths // 2, np.arange(len(lengths)) % 2)


def batches_of(case: Case, *, packs: bool) -> list[PretrainBatch]:
    rows, num_rows = case.rows, len(case.rows)
    batches = pack_batches(rows, num_rows, case.length) if packs else make_batches(rows, num_rows, multiple=8)
    return [batch.pin() if DEVICE.type == "cuda" else batch for batch in batches]


def our_loss(model: Any, batch: PretrainBatch) -> Loss:
    sums = model(*batch)
    counts = batch_sums(batch, sums)
    return Loss(sums.mlm_loss / counts[4].float() + sums.nsp_loss / counts[5].float(), counts)


def make_peer(config: ModelConfig) -> Any:
    from transformers import BertConfig, BertForPreTraining

    return BertForPreTraining(BertConfig(**config.to_hf()))  # pyright: ignore


def peer_loss(model: Any, batch: PretrainBatch) -> Loss:
    labels = torch.full_like(batch.input_ids, IGNORED).flatten()
    labels = labels.scatter(0, batch.masked_index, batch.masked_ids).view_as(batch.input_ids)
    mask = torch.ones_like(labels) if batch.attention_mask_BL is None else batch.attention_mask_BL.long()
    output = model(
        input_ids=batch.input_ids,
        token_type_ids=batch.token_type_ids,
        attention_mask=mask,
        labels=labels,
        next_sentence_label=batch.next_sentence_label_B,
    )
    return Loss(output.loss, output.loss.detach().double()[None])


def measure(
    case: Case,
    trainer: str,
    model: Any,
    batches: list[PretrainBatch],
    loss: Callable[[Any, PretrainBatch], Loss],
    seconds: float,
) -> str:
    """Return the table's row of updates for about `seconds`, after those that compile and allocate."""
    updater: Updater[PretrainBatch] = Updater(
        model, make_optimizer(model), Ranks(0, 1, DEVICE), dtype=DTYPE, dropout_seed=(0,)
    )

    def update() -> None:
        updater.update(0, batches, lambda batch: loss(model, batch), 1e-5)

    for _ in range(3):
        update()
    updater.drain()
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    started, num_updates = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for _ in range(5):
            update()
        updater.drain()  # waits for the device
        num_updates += 5
    taken = (time.perf_counter() - started) / num_updates
    flops = devices.update_flops(case.config, case.rows.lengths, int(case.rows.num_masked.sum()))
    peak, memory = devices.peak_flops(DEVICE), devices.peak_memory(DEVICE).get("peak_memory_gb")
    cells = [f"{case.rows.lengths.sum() / taken:>10,.0f}", f"{flops / taken / peak:>6.1%}" if peak else f"{'-':>6}"]
    cells.append(f"{memory:>8.1f}" if memory else f"{'-':>8}")
    return f"{case.size:<6} {case.length:>6} {case.dropout:>7} {trainer:<22} {' '.join(cells)}"


def measure_run(options: argparse.Namespace) -> None:
    """Train for `--run-minutes` as a user does, and print the shares of the time."""
    with tempfile.TemporaryDirectory() as folder:
        instances = options.instances or write_rows(Path(folder, "instances"))
        size = options.models.split(",")[0]
        config = PretrainConfig(
            model=size,
            hours=options.run_minutes / 60,
            compile=options.compile,
            checkpoint_minutes=options.run_minutes / 3,
        )
        speeds: list[dict[str, Any]] = []
        started = time.perf_counter()
        summary = pretrain(config, [instances], Path(folder, "run"), speeds.append)
        total = time.perf_counter() - started
        timings = json.loads(Path(folder, "run", "timings.json").read_text())
    shares = {name: timings[f"{name}_s"] / total for name in ("evaluation", "checkpoint", "data_wait")}
    shown = ", ".join(f"{name.replace('_', ' ')} {share:.1%}" for name, share in shares.items())
    before, after = summary["initial"]["mlm_loss"], summary["final"]["mlm_loss"]
    print(f"\n`pretrain` of {size} for {total:.0f} s with start and end, {summary['step']} steps: {shown}")
    print(
        f"{timings['tokens_per_second']:,.0f} tokens/s, masked-LM loss held out {before:.3f} before, {after:.3f} after"
    )


def write_rows(path: Path) -> str:
    """Write the instances of the tests, which a model learns at once, in rows of up to 128 tokens."""
    sys.path.insert(0, str(ROOT / "tests" / "fixtures"))
    from instances_fixture import write_instances  # pyright: ignore

    rows = 4000 if DEVICE.type == "cuda" else 200
    return str(write_instances(path, max_length=128, rows_per_group=rows, validation_rows=rows))


if __name__ == "__main__":
    main()
