"""Measure and check what a GPU computes, in one command of at most seven minutes:

    python -m benchmarks.gpu
    python -m benchmarks.gpu inference         # one section
    python -m benchmarks.gpu experiments       # only if named: what might speed up `base`

First the checks: 50 captured updates with dropout end at the weights of 50 that Python launches, of
both encoders, in pre-training and fine-tuning; a run that is resumed in the middle is the
undisturbed one; another training in the same graphs is one in new graphs; what cannot be captured
is launched; equal runs are equal with `--deterministic`; outputs and evaluations by graphs are
those that Python launches. Then a table: updates of several encoders on the rows of `rows.npz`,
launched, captured as CUDA graphs, and captured and compiled, with tokens a second, the utilisation
(MFU, of the device's dense bf16 peak, by real tokens), memory, graphs, the share that was replayed,
and from how many tokens on compiling pays. Then fine-tuning in examples a second, beside a plain
loop with `transformers`; what `predict`, `features` and evaluations compute, and how long a process
takes to its first prediction, by part; what `--deterministic` costs; and `pretrain` itself on a
`mini`. Each line is printed when it is measured, and what no time is left for is left out.

It takes torch 2.11 or later, NumPy, pyarrow, safetensors, tokenizers, scikit-learn and msgspec;
`transformers` if it is to be compared with. Of a machine without a network, carry the wheel of
msgspec, and add it to PYTHONPATH with this checkout; Clozeworks need not be installed. On a CPU
small models are launched, and nothing is captured.
"""

import argparse
import gc
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.catalogue import make_pretrain_model
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import PretrainBatch
from clozeworks.model.encoders.modernbert_config import ModernBertConfig
from clozeworks.model.finetuning.model import infer
from clozeworks.model.finetuning.run import loss_of as task_loss
from clozeworks.model.finetuning.run import micro_batches
from clozeworks.model.pretraining.batches import make_batches, pack_batches, packs_rows
from clozeworks.model.pretraining.evaluate import sum_losses
from clozeworks.model.pretraining.plan import COMPILE_S
from clozeworks.model.pretraining.setup import loss_of as pretrain_loss
from clozeworks.model.tasks.batches import Feature, TaskBatch, make_batch
from clozeworks.model.tasks.catalogue import GLUE
from clozeworks.model.tokenizer import TokenRow
from clozeworks.model.training import device as devices
from clozeworks.model.training.graphs import Inference, make_graphs, make_inference, widths_of
from clozeworks.model.training.optim import make_optimizer
from clozeworks.model.training.ranks import Ranks
from clozeworks.model.training.update import Loss, Updater
from clozeworks.pipeline.instances.rows import Rows, select
from torch import nn

from .rows import SomeRows, carried_rows

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
DTYPE = devices.product_dtype("auto", DEVICE)
ALONE = Ranks(0, 1, DEVICE)
LENGTH = 128
NUM_CHECKED = 50 if ON_GPU else 6
NUM_BATCHES = 20 if ON_GPU else 2
"""Different ones, of which updates take one after the other: a graph for each shape among them."""
PAIRS = 32
PAIR_TOKENS = 33
RATE = 1e-4


class Case(NamedTuple):
    """An encoder, and the rows of an update."""

    architecture: str
    size: str
    num_rows: int
    dropout: float

    def config(self, vocab_size: int) -> ModelConfig | ModernBertConfig:
        if self.architecture == "bert":
            return ModelConfig.named(
                self.size,
                vocab_size=vocab_size,
                hidden_dropout_prob=self.dropout,
                attention_probs_dropout_prob=self.dropout,
            )
        special = {"pad_token_id": 0, "cls_token_id": 101, "sep_token_id": 102}
        config = ModernBertConfig.named(self.size, vocab_size=vocab_size, **special)
        return config.with_dropout(self.dropout)

    @property
    def objective(self) -> str:
        return "mlm+nsp" if self.architecture == "bert" else "mlm"

    def __str__(self) -> str:
        return f"{self.architecture} {self.size}, {self.num_rows} rows, dropout {self.dropout:g}"


CASES = (
    Case("bert", "mini", 128, 0.1),
    Case("modernbert", "mini", 128, 0.0),
    Case("modernbert", "ettin-17m", 256, 0.0),
    Case("bert", "small", 256, 0.1),
    Case("bert", "base", 256, 0.1),
    Case("modernbert", "base", 256, 0.0),
)
EXPERIMENTS = {
    "as it is, captured and compiled by layers": "the yardstick",
    "65,536 tokens a micro-batch": "+1%: optimiser and clipping, 2.4% of the time, serve twice the "
    "tokens; the products fill the card already",
    "one static graph of the whole model": "+2%, as a script measured on 27 November 2026",
    "max_autotune for the products": "+2%: GELU and bias in a product's end, 4% of the time, but "
    "Triton's products are seldom faster than cuBLAS's",
}
"""What might speed up BERT-base, each alone, and the prediction; under 2% it is not built."""
SMALL_CASES = (Case("bert", "tiny", 4, 0.1), Case("modernbert", "tiny", 4, 0.0))
CHECKED = Case("bert", "tiny", 64 if ON_GPU else 4, 0.1)
CHECKED_TOO = CHECKED._replace(architecture="modernbert")


class Trainer:
    """A model and its updates on different batches."""

    def __init__(self, model: Any, loss: Callable[[Any, Any], Loss], *, captures: bool):
        self.model = model.to(DEVICE).train()
        self.graphs = make_graphs(DEVICE, DTYPE) if captures else None
        optimizer = make_optimizer(self.model, capturable=self.graphs is not None)
        self.updater = Updater(
            self.model,
            optimizer,
            ALONE,
            partial(loss, self.model),
            dtype=DTYPE,
            dropout_seed=(0,),
            graphs=self.graphs,
        )

    def train(self, batches: Sequence[Any], steps: range) -> list[float]:
        """Do the updates with these indices; return their losses."""
        losses = []
        for step in steps:
            self.updater.update(step, batches[step % len(batches)], RATE)
            if self.updater.is_full or step == steps[-1]:
                updates = self.updater.drain()
                if not all(update.is_finite for update in updates):
                    raise ArithmeticError("the loss is not finite")
                losses += [update.sums[0] for update in updates]
        return losses

    def measure(self, batches: Sequence[Any], seconds: float) -> float:
        """Return the seconds of an update, once all shapes are prepared and captured."""
        steps = range(len(batches))
        return median_seconds(partial(self.train, batches, steps), seconds) / len(steps)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("checks", "updates", "fine-tuning", "inference", "deterministic", "pretrain")
    parser.add_argument(
        "sections", nargs="*", default=names, help=f"{', '.join(names)}, experiments."
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="Time for each measurement.")
    parser.add_argument("--minutes", type=float, default=6.8, help="Then the script ends.")
    parser.add_argument("--small", action="store_true", default=not ON_GPU)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=ON_GPU)
    given = parser.parse_args(arguments)
    end_after(60 * given.minutes)
    deadline = time.monotonic() + 60 * given.minutes
    rows = carried_rows()
    print(torch.cuda.get_device_name() if ON_GPU else f"CPU, {torch.get_num_threads()} threads")
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {DTYPE}", flush=True)
    wanted = set(given.sections)
    sizes = ("tiny",) if given.small else ("base", "mini")
    with devices.pinned_attention(), devices.distinct_sizes():  # as in training
        if "checks" in wanted:
            print("\nChecks", flush=True)
            for name, check in CHECKS.items():
                tried(name, partial(check, rows))
        if "updates" in wanted:
            print("\nUpdates", flush=True)
            for case in SMALL_CASES if given.small else CASES:
                if time.monotonic() > deadline - 120:
                    print(f"{case}: no time left")
                    continue
                tried(str(case), partial(measure_case, case, rows, given.seconds, given.compile))
                if case.architecture == "bert" and find_spec("transformers"):
                    for compiled in (False, True) if given.compile else (False,):
                        peer = partial(measure_flat_peer, case, rows, given.seconds, compiled)
                        name = "flattened, compiled" if compiled else "flattened"
                        tried(f"{case}, transformers, {name}", peer)
        if "fine-tuning" in wanted:
            print("\nFine-tuning, 32 pairs", flush=True)
            for size in sizes:
                tried(size, partial(measure_finetuning, size, given.seconds))
        if "inference" in wanted:
            print("\nWithout gradients", flush=True)
            for size in sizes:
                tried(f"pairs, {size}", partial(measure_pairs, size, given.seconds))
                tried(f"states, {size}", partial(measure_pairs, size, given.seconds, states=True))
            for case in SMALL_CASES if given.small else (CASES[0], CASES[4]):
                tried(f"held out, {case}", partial(measure_evaluation, case, rows, given.seconds))
            tried(f"start of predict, {sizes[0]}", partial(measure_start, sizes[0]))
        if "deterministic" in wanted:
            print("\nWhat --deterministic costs", flush=True)
            for case in SMALL_CASES if given.small else (CASES[0], CASES[4]):
                tried(str(case), partial(measure_deterministic, case, rows, given.seconds))
        if "experiments" in wanted:
            print("\nExperiments", flush=True)
            case = SMALL_CASES[0] if given.small else CASES[4]
            for name, prediction in EXPERIMENTS.items():
                measure = partial(measure_experiment, name, case, rows, given.seconds)
                tried(f"{name} (predicted: {prediction})", measure)
    if "pretrain" in wanted:
        print("\npretrain", flush=True)
        tried("pretrain", partial(measure_pretrain, small=given.small))


def end_after(seconds: float) -> None:
    """End the process then, even while it compiles; results so far are printed already."""

    def end() -> None:
        print("\nEnded: --minutes are over.", flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def tried(name: str, measure: Callable[[], str | None]) -> None:
    """Print what is measured, or that it failed: whatever it is, what follows is measured."""
    gc.collect()  # the model before this one, whose memory would count
    torch.compiler.reset()
    if ON_GPU:
        torch.cuda.empty_cache()
    try:
        found = measure()
    except Exception:
        traceback.print_exc()
        found = "FAILED with the error above"
    if found is not None:
        print(f"{name}: {found}", flush=True)


# What has to hold.


def pretrain_trainer(case: Case, rows: SomeRows, *, captures: bool) -> Trainer:
    config = case.config(rows.vocab_size)
    model = make_pretrain_model(config)
    initialise(model, config, torch.Generator().manual_seed(0))
    return Trainer(model, pretrain_loss, captures=captures)


def batches_of(case: Case, rows: SomeRows, num: int) -> tuple[list[list[PretrainBatch]], Rows]:
    """Return the micro-batches of different updates, and all of their rows."""
    packs = packs_rows(case.config(rows.vocab_size), DEVICE, DTYPE)
    all_rows = rows.by_length[LENGTH]
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(all_rows), (num, case.num_rows))
    updates = []
    for index in chosen:
        part = select(all_rows, index)
        if packs:
            batches = pack_batches(part, len(part), LENGTH, case.objective)
        else:
            batches = make_batches(part, len(part), case.objective, for_gpu=ON_GPU)
        counts = torch.tensor([part.num_masked.sum(), len(part)], dtype=torch.float32)
        batches = [batch._replace(counts=counts) for batch in batches]
        updates.append([batch.pin() if ON_GPU else batch for batch in batches])
    return updates, select(all_rows, chosen.ravel())


def largest_difference(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) / abs(a or 1) for a, b in zip(one, other, strict=True))


def check_captured(rows: SomeRows, case: Case, *, tunes: bool) -> str:
    """Train launched and captured; compare the weights, and the memory."""
    losses = []
    trainers = []
    memory = []
    with devices.deterministic(True):
        for captures in (False, True):
            if ON_GPU:
                torch.cuda.reset_peak_memory_stats()
            if tunes:
                trainer, batches = tuning(case, 10, captures=captures)
            else:
                trainer = pretrain_trainer(case, rows, captures=captures)
                batches, _ = batches_of(case, rows, 10)
            losses.append(trainer.train(batches, range(NUM_CHECKED)))
            trainers.append(trainer)
            memory.append(devices.peak_memory(DEVICE).get("peak_memory_gb", 0.0))
    return (
        f"{same(*trainers)} weights; losses differ by at most {largest_difference(*losses):.1e}; "
        f"graphs: {graphs_of(trainers[1])}; {memory[1]:.2f} GB, launched {memory[0]:.2f}"
    )


def tuning(case: Case, num: int, *, captures: bool) -> tuple[Trainer, list[list[TaskBatch]]]:
    """Return a task's trainer, and the batches of different updates."""
    config = case.config(8192)
    model = GLUE["stsb"].model(config)
    for part in model.children():
        initialise(part, config, torch.Generator().manual_seed(0))
    trainer = Trainer(model, task_loss, captures=captures)
    widths = widths_of(trainer.graphs, config.num_positions)
    groups = groups_of(config.vocab_size, num)
    return trainer, [micro_batches(group, ALONE, None, 32_768, widths) for group in groups]


def graphs_of(trainer: Trainer) -> str:
    return trainer.graphs.figures() if trainer.graphs is not None else "none on this device"


def check_resume(rows: SomeRows, case: Case) -> str:
    batches, _ = batches_of(case, rows, 10)
    with devices.deterministic(True):
        whole = pretrain_trainer(case, rows, captures=True)
        expected = whole.train(batches, range(NUM_CHECKED))
        first = pretrain_trainer(case, rows, captures=True)
        half = NUM_CHECKED // 2
        first.train(batches, range(half))
        second = pretrain_trainer(case, rows, captures=True)
        second.model.load_state_dict(first.model.state_dict())
        second.updater.load_state_dict(deepcopy(first.updater.state_dict()))
        found = second.train(batches, range(half, NUM_CHECKED))
    difference = largest_difference(expected[half:], found)
    return f"{same(whole, second)} weights; losses differ by at most {difference:.1e}"


def same(one: Trainer, other: Trainer) -> str:
    """Return whether the weights are the same, or how far apart, relative to their size."""
    vectors = [
        nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
        for trainer in (one, other)
    ]
    if torch.equal(*vectors):
        return "equal"
    distance = (vectors[0] - vectors[1]).norm() / vectors[0].norm()
    return f"DIFFERENT (by {distance:.1e})"


def check_equal_runs(rows: SomeRows) -> str:
    batches, _ = batches_of(CHECKED, rows, 10)
    verdicts = {}
    for wanted in (False, True):
        with devices.deterministic(wanted):
            trainers = []
            for _ in range(2):
                trainer = pretrain_trainer(CHECKED, rows, captures=True)
                trainer.train(batches, range(NUM_CHECKED))
                trainers.append(trainer)
        verdicts[wanted] = same(*trainers)
    return f"{verdicts[True]} with --deterministic, {verdicts[False]} without"


def check_shared_graphs(rows: SomeRows) -> str:
    """Train again in the graphs of another training, as the runs of a sweep do."""
    batches, _ = batches_of(CHECKED, rows, 10)
    with devices.deterministic(True):
        shared = pretrain_trainer(CHECKED, rows, captures=True)
        shared.train(batches, range(NUM_CHECKED))
        shared.updater.start_over(
            pretrain_trainer(CHECKED, rows, captures=False).model, (0,), corrects=False
        )
        shared.train(batches, range(NUM_CHECKED))
        alone = pretrain_trainer(CHECKED, rows, captures=True)
        alone.train(batches, range(NUM_CHECKED))
    return f"{same(shared, alone)} weights; {graphs_of(shared)} in both trainings"


def check_fall_back(rows: SomeRows) -> str:
    """Train with a loss that no graph can hold, as it looks at a value."""
    batches, _ = batches_of(CHECKED, rows, 10)
    with devices.deterministic(True):
        launched = pretrain_trainer(CHECKED, rows, captures=False)
        looking = pretrain_trainer(CHECKED, rows, captures=True)
        loss = looking.updater._loss  # pyright: ignore[reportPrivateUsage]

        def looking_loss(batch: PretrainBatch) -> Loss:
            value = loss(batch)
            value.share.item()
            return value

        looking.updater._loss = looking_loss  # pyright: ignore[reportPrivateUsage]
        steps = range(NUM_CHECKED)
        expected = launched.train(batches, steps)
        difference = largest_difference(expected, looking.train(batches, steps))
    return f"losses differ by at most {difference:.1e}; graphs: {graphs_of(looking)}"


def check_inference(rows: SomeRows) -> str:
    batches, _ = batches_of(CHECKED, rows, 10)
    held_out = [batch for update in batches for batch in update]
    model = pretrain_trainer(CHECKED, rows, captures=False).model
    task_model = GLUE["stsb"].model(CHECKED.config(rows.vocab_size)).to(DEVICE)
    pairs = pairs_of(rows.vocab_size, NUM_CHECKED * 20)
    sums, outputs = [], []
    for captures in (False, True):
        sums.append(sum_losses(model, held_out * 3, inference("auto", captures)))
        outputs.append(np.concatenate(infer(task_model, pairs, inference("auto", captures))))
    difference = largest_difference(sums[0].tolist(), sums[1].tolist())
    furthest = np.abs(outputs[0] - outputs[1]).max()
    return f"sums differ by at most {difference:.1e}, outputs by {furthest:.1e}"


def inference(precision: str, captures: bool) -> Inference:
    made = make_inference(DEVICE, precision)
    if not captures:
        made.graphs = None
    return made


CHECKS: dict[str, Callable[[SomeRows], str]] = {
    **{
        f"{case.architecture}, {'fine-tuning' if tunes else 'pre-training'}": partial(
            check_captured, case=case, tunes=tunes
        )
        for case in (CHECKED, CHECKED_TOO)
        for tunes in (False, True)
    },
    "bert, resumed in the middle": partial(check_resume, case=CHECKED),
    "modernbert, resumed in the middle": partial(check_resume, case=CHECKED_TOO),
    "two equal runs": check_equal_runs,
    "a second training in the same graphs": check_shared_graphs,
    "a loss that cannot be captured": check_fall_back,
    "outputs and evaluations": check_inference,
}


# How fast it is.


def measure_case(case: Case, rows: SomeRows, seconds: float, compiles: bool) -> None:
    """Print a line for each way to update; with and without compiling, from when on it pays."""
    batches, all_rows = batches_of(case, rows, NUM_BATCHES)
    config = case.config(rows.vocab_size)
    num_tokens = all_rows.lengths.sum() / NUM_BATCHES
    num_predicted = int(all_rows.num_masked.sum())
    flops = devices.update_flops(config, all_rows.lengths, num_predicted) / NUM_BATCHES
    peak = devices.peak_flops(DEVICE)
    taken: dict[str, float] = {}
    ways = {"launched": (False, False)}
    if ON_GPU:
        ways["captured"] = (True, False)
        if compiles:
            ways["captured, compiled"] = (True, True)
    for way, (captures, compiled) in ways.items():
        trainer = pretrain_trainer(case, rows, captures=captures)
        if compiled:
            trainer.model.compile_parts()
        started = time.perf_counter()
        trainer.train(batches, range(NUM_BATCHES))
        ready = time.perf_counter() - started
        taken[way] = trainer.measure(batches, seconds)
        memory = devices.peak_memory(DEVICE).get("peak_memory_gb", 0.0)
        if ON_GPU:
            memory = max(memory, torch.cuda.max_memory_reserved() / 1e9)
        utilisation = f"{flops / taken[way] / peak:.1%}" if peak else "-"
        print(
            f"{case}, {way}: {num_tokens / taken[way]:,.0f} tokens/s, MFU {utilisation}, "
            f"{1e3 * taken[way]:.2f} ms, {memory:.1f} GB reserved, first {NUM_BATCHES} updates in "
            f"{ready:.1f} s, graphs: {graphs_of(trainer)}",
            flush=True,
        )
        del trainer
        gc.collect()
    if "captured, compiled" in taken:
        saved = (taken["captured"] - taken["captured, compiled"]) / num_tokens
        size = config.num_hidden_layers * config.hidden_size
        pays = COMPILE_S / saved if saved > 0 else float("inf")
        print(
            f"{case}: compiling saves {saved:.1e} s a token ({saved / size:.1e} a layer and hidden "
            f"number), and pays from {pays:,.0f} tokens on",
            flush=True,
        )


def pairs_of(vocab_size: int, num: int) -> list[Feature]:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.normal(PAIR_TOKENS, 4, num).astype(int), 12, 64)
    features = []
    for index, length in enumerate(lengths):
        ids = rng.integers(999, vocab_size, length).astype(np.int32)
        target = np.array(rng.random(), np.float32)
        features.append(Feature(TokenRow(ids, int(length) // 2), target, index))
    return features


def groups_of(vocab_size: int, num: int) -> list[list[Feature]]:
    """Return the pairs of different updates."""
    pairs = pairs_of(vocab_size, num * PAIRS)
    return [pairs[first : first + PAIRS] for first in range(0, len(pairs), PAIRS)]


def measure_finetuning(size: str, seconds: float) -> str:
    case = Case("bert", size, PAIRS, 0.1)
    found = []
    for captures in (False, True) if ON_GPU else (False,):
        trainer, batches = tuning(case, NUM_BATCHES, captures=captures)
        taken = trainer.measure(batches, seconds)
        way = f"captured ({graphs_of(trainer)})" if captures else "launched"
        found.append(f"{way} {PAIRS / taken:,.0f} examples/s, {1e3 * taken:.2f} ms")
    config = ModelConfig.named(size, vocab_size=8192)
    groups = groups_of(config.vocab_size, NUM_BATCHES)
    if find_spec("transformers"):
        taken = peer_seconds(config, groups, seconds)
        found.append(f"transformers {PAIRS / taken:,.0f} examples/s, {1e3 * taken:.2f} ms")
    return "; ".join(found)


def peer_seconds(config: ModelConfig, groups: Sequence[list[Feature]], seconds: float) -> float:
    """Return the seconds of an update of a plain loop with `transformers`."""
    import transformers

    values: dict[str, Any] = config.to_hf() | {"num_labels": 1}
    model: Any = transformers.BertForSequenceClassification(transformers.BertConfig(**values))
    model.to(DEVICE).train()
    updates = []
    for group in groups:
        (batch,) = micro_batches(group, ALONE, None, 32_768)
        assert batch.target is not None
        arguments = {
            "input_ids": batch.input_ids_BL,
            "attention_mask": batch.attention_mask_BL.long(),
            "labels": batch.target,
        }
        updates.append({name: value.to(DEVICE) for name, value in arguments.items()})
    return loop_seconds(model, updates, seconds)


def loop_seconds(model: Any, updates: Sequence[dict[str, Any]], seconds: float) -> float:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    taken: list[float] = []
    stop = time.perf_counter() + seconds
    while len(taken) < 3 or time.perf_counter() < stop:
        started = time.perf_counter()
        loss = torch.zeros(1)
        for arguments in updates:
            with devices.autocast(DEVICE, DTYPE):
                loss = model(**arguments).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        loss.item()
        taken.append((time.perf_counter() - started) / len(updates))
    return statistics.median(taken[1:])


def attend_flat(
    module: object, query: Any, key: Any, value: Any, mask: None, **options: Any
) -> tuple[Any, None]:
    """Attend within each row, by PyTorch's FlashAttention on a GPU."""
    if not ON_GPU:
        lengths = options["cu_seq_lens_q"].diff().tolist()
        rows = zip(*(part.split(lengths, 2) for part in (query, key, value)), strict=True)
        attended = torch.cat([nn.functional.scaled_dot_product_attention(*row) for row in rows], 2)
        return attended.transpose(1, 2), None
    from torch.nn.attention.varlen import varlen_attn

    # 1, heads, tokens, size -> tokens, heads, size
    parts = [part[0].transpose(0, 1).contiguous() for part in (query, key, value)]
    names = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
    packed: Any = varlen_attn(*parts, *(options[name] for name in names))
    return packed[None], None


def flat_peer(case: Case, some_rows: SomeRows, rows: Rows) -> tuple[Any, list[Any]]:
    """Return a model of `transformers`, and the masked words of the updates of `rows`, each in one
    row without padding.
    """
    import transformers

    transformers.AttentionInterface.register("varlen", attend_flat)
    config = case.config(some_rows.vocab_size)
    values: dict[str, Any] = config.to_hf() | {"attn_implementation": "varlen"}
    model: Any = transformers.BertForMaskedLM(transformers.BertConfig(**values))
    model.to(DEVICE).train()
    labels = np.full(len(rows.input_ids), -100)
    labels[rows.masked_index] = rows.masked_ids
    features = [
        {"input_ids": rows.input_ids[a:b].tolist(), "labels": labels[a:b].tolist()}
        for a, b in pairwise(rows.offsets)
    ]
    collate = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    types_1T = torch.from_numpy(rows.token_types())[None]  # which it leaves out
    updates = []
    for first in range(0, len(features), case.num_rows):
        batch: Any = collate(features[first : first + case.num_rows])
        tokens = slice(rows.offsets[first], rows.offsets[min(first + case.num_rows, len(rows))])
        batch["token_type_ids"] = types_1T[:, tokens]
        for name, value in batch.items():
            if isinstance(value, torch.Tensor):
                batch[name] = value.to(DEVICE)
        updates.append(batch)
    return model, updates


def measure_flat_peer(case: Case, some_rows: SomeRows, seconds: float, compiled: bool) -> str:
    """Train a plain loop with `transformers` on the masked words of the same rows."""
    _, rows = batches_of(case, some_rows, NUM_BATCHES)
    model, updates = flat_peer(case, some_rows, rows)
    if compiled:
        model.compile(dynamic=True)
    taken = loop_seconds(model, updates, seconds)
    tokens = rows.lengths.sum() / NUM_BATCHES
    return (
        f"{tokens / taken:,.0f} tokens/s, {1e3 * taken:.2f} ms; masked words alone, attention "
        "without dropout"
    )


def median_seconds(work: Callable[[], object], seconds: float) -> float:
    """Return how long it takes once everything is prepared."""
    for _ in range(2):
        work()
    taken: list[float] = []
    stop = time.perf_counter() + seconds
    while not taken or time.perf_counter() < stop:
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


WAYS = {
    "fp32, launched": ("fp32", False),
    "fp32, captured": ("fp32", True),
    "bf16, launched": ("auto", False),
    "bf16, captured": ("auto", True),
}


def measure_pairs(size: str, seconds: float, *, states: bool = False) -> str:
    """Compute the outputs that `predict` needs, or the hidden states that `features` writes."""
    config = ModelConfig.named(size, vocab_size=8192)
    pairs = pairs_of(config.vocab_size, 4096 if ON_GPU else 64)
    model = GLUE["stsb"].model(config).to(DEVICE).eval()

    @torch.inference_mode()
    def hidden_states(using: Inference) -> None:
        widths = widths_of(using.graphs, config.num_positions)
        for first in range(0, len(pairs), 128):
            batch = make_batch(pairs[first : first + 128], widths)._replace(target=None)
            using.run(lambda batch: model.encoder(*batch[:4]), batch).cpu()

    pairs.sort(key=lambda pair: -pair.length)
    found = []
    ways = WAYS.copy()
    del ways["bf16, launched" if states else "fp32, captured"]
    for way, (precision, captures) in ways.items():
        using = inference(precision, captures)
        work = partial(hidden_states, using) if states else partial(infer, model, pairs, using)
        taken = median_seconds(work, seconds / 2)
        graphs = f" ({using.graphs.figures()})" if using.graphs is not None else ""
        found.append(f"{way} {len(pairs) / taken:,.0f} a second{graphs}")
    return "; ".join(found)


def measure_evaluation(case: Case, rows: SomeRows, seconds: float) -> str:
    batches, all_rows = batches_of(case, rows, NUM_BATCHES)
    held_out = [batch for update in batches for batch in update]
    model = pretrain_trainer(case, rows, captures=False).model
    found = []
    # fp32 has no FlashAttention for packed rows.
    for way, (precision, captures) in [*WAYS.items()][2:]:
        using = inference(precision, captures)
        taken = median_seconds(lambda: sum_losses(model, held_out, using).tolist(), seconds / 2)  # noqa: B023
        found.append(f"{way} {all_rows.lengths.sum() / taken:,.0f} tokens/s")
    return "; ".join(found)


START = """
import time
parts, last = [], time.perf_counter()
def done(name):
    global last
    parts.append(f"{name} {time.perf_counter() - last:.2f}")
    last = time.perf_counter()
import torch
done("import torch")
import benchmarks
from clozeworks.model.finetuning import predict
from clozeworks.model.encoders.encoder import UnsetWeights
done("other imports")
from benchmarks.gpu import DEVICE, GLUE, ModelConfig, infer, inference, pairs_of
done("imports of this script")
torch.zeros(1, device=DEVICE)
done("first tensor there")
config = ModelConfig.named("SIZE", vocab_size=8192)
with UnsetWeights():
    model = GLUE["stsb"].model(config)
done("model")
model = model.to(DEVICE).eval()
done("its weights there")
using = inference("auto", True)
for name in ("first", "second", "third"):
    infer(model, pairs_of(8192, 32), using)
    done(f"{name} batch")
print(", ".join(parts) + " s")
"""


def measure_start(size: str) -> str:
    """Start a process as `predict` starts, up to its first outputs."""
    done = subprocess.run(
        [sys.executable, "-c", START.replace("SIZE", size)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def measure_experiment(name: str, case: Case, rows: SomeRows, seconds: float) -> str:
    from torch._inductor import config as inductor  # late: it takes seconds

    num_rows = case.num_rows * 2 if "65,536" in name else case.num_rows
    batches, all_rows = batches_of(case._replace(num_rows=num_rows), rows, NUM_BATCHES)
    # All have one shape, as for a static graph.
    batches = [update for update in batches if shapes_of(update) == shapes_of(batches[0])]
    tokens = all_rows.lengths.mean() * num_rows
    started = time.perf_counter()
    with inductor.patch(max_autotune_gemm="max_autotune" in name):
        trainer = pretrain_trainer(case, rows, captures=True)
        if "static" in name and ON_GPU:
            trainer.model.sums = torch.compile(trainer.model.sums, dynamic=False)
        elif ON_GPU:
            trainer.model.compile_parts()
        taken = trainer.measure(batches, seconds)
    ready = time.perf_counter() - started - seconds
    return f"{tokens / taken:,.0f} tokens/s, ready in about {ready:.0f} s, {graphs_of(trainer)}"


def shapes_of(update: Sequence[PretrainBatch]) -> list[Any]:
    values = [value for batch in update for value in batch]
    return [value.shape for value in values if isinstance(value, torch.Tensor)]


def measure_deterministic(case: Case, rows: SomeRows, seconds: float) -> str:
    batches, _ = batches_of(case, rows, NUM_BATCHES)
    taken = {}
    for wanted in (False, True):
        with devices.deterministic(wanted):
            trainer = pretrain_trainer(case, rows, captures=True)
            taken[wanted] = trainer.measure(batches, seconds)
    return f"{taken[True] / taken[False] - 1:+.1%} of the time of an update, not compiled"


def measure_pretrain(*, small: bool) -> str:
    """Train as a user does, on the easily learned instances of the tests."""
    from clozeworks.model.pretraining.pretrain import pretrain

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))
    import instances_fixture  # pyright: ignore

    num_rows = 200 if small else 4000
    size = "tiny" if small else "mini"
    config = PretrainConfig(model=size, steps=20 if small else 900, batch_size=128)
    progress: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        rows = {"max_length": LENGTH, "rows_per_group": num_rows, "validation_rows": num_rows}
        instances = instances_fixture.write_instances(Path(folder, "instances"), **rows)
        started = time.perf_counter()
        summary = pretrain(config, [str(instances)], Path(folder, "run"), progress.append)
        taken = time.perf_counter() - started
    updates = [part for part in progress if "stage" not in part]
    second_half = updates[len(updates) // 2 :]
    speed = statistics.median(part["tokens_per_second"] for part in second_half)
    return (
        f"{size}, {summary['tokens']:,} tokens in {taken:.1f} s, {speed:,.0f} tokens/s in the "
        f"second half; masked-LM loss {summary['initial']['mlm_loss']:.3f} before, "
        f"{summary['final']['mlm_loss']:.3f} after"
    )


if __name__ == "__main__":
    main()
