"""Pre-training and its loader beside `transformers` and `datasets`, on the same rows, in one run.

    python benchmarks/pretrain.py INSTANCES [--models mini,base] [--rows 32] [--rounds 3]

An update is forward, backward, clipping and the optimiser's step, with the recipe's dropout. Rounds are interleaved
and the quickest of each counts; loaders are measured in the processor's time. On a GPU all run in bf16, ours compiled
and the peer eager and compiled; the model-FLOPs utilisation is of the device's dense bf16 peak, for real tokens and
the head at masked positions only.
"""

import argparse
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from clozeworks.model import data
from clozeworks.model.bert import initialise
from clozeworks.model.config import ModelConfig
from clozeworks.model.device import peak_flops
from clozeworks.model.flops import update_flops
from clozeworks.model.heads import BertForPreTraining
from clozeworks.model.optim import MAX_GRADIENT_NORM, make_optimizer, set_learning_rate
from clozeworks.model.sequence import Sequence
from datasets import IterableDataset, load_dataset
from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import AutoTokenizer, BertConfig, DataCollatorForLanguageModeling

LOADER_ROWS = 100_000
PEER_LOADER_ROWS = 2_000
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances")
    parser.add_argument("--models", default="mini,base")
    parser.add_argument("--rows", type=int, default=256 if ON_GPU else 32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    logging.getLogger("datasets").setLevel(logging.ERROR)
    directory = data.open_instances(arguments.instances)
    print_loaders(directory)
    rows = Sequence(directory, 0).rows(0, arguments.rows)
    table = Table("model", "trainer", "ms an update", "real tokens/s", "ratio", title=describe(rows))
    for column in ("MFU", "peak GiB") if ON_GPU else ():
        table.add_column(column)
    for size in arguments.models.split(","):
        add_rows(table, size, directory, rows, arguments.rounds)
    Console().print(table)


def describe(rows: data.Rows) -> str:
    padding = 1 - rows.lengths.sum() / (len(rows) * rows.lengths.max())
    name = torch.cuda.get_device_name() if ON_GPU else f"CPU, {torch.get_num_threads()} threads"
    return f"{len(rows)} rows of up to {rows.lengths.max()} tokens, {padding:.1%} padding, {name}"


def add_rows(table: Table, size: str, directory: data.InstanceDirectory, rows: data.Rows, rounds: int) -> None:
    config = ModelConfig.named(
        size, vocab_size=directory.vocab_size, max_position_embeddings=max(512, directory.max_length)
    )
    (batch,) = data.make_batches(rows, len(rows), multiple=8 if ON_GPU else 1)
    batch = batch.to(DEVICE)
    updates = {"transformers": peer_update(config, batch), "clozeworks": our_update(config, batch)}
    if ON_GPU:
        updates["transformers compiled"] = peer_update(config, batch, compiled=True)
    seconds = {name: measure(update) for name, update in updates.items()}
    for _ in range(rounds - 1):
        seconds = {name: min(seconds[name], measure(update)) for name, update in updates.items()}
    num_tokens, flops = int(rows.lengths.sum()), update_flops(config, rows.lengths, int(rows.num_masked.sum()))
    for name, taken in seconds.items():
        cells = [f"{taken * 1000:,.0f}", f"{num_tokens / taken:,.0f}", f"{seconds['transformers'] / taken:.2f}x"]
        if ON_GPU:
            cells += [f"{flops / taken / (peak_flops(DEVICE) or math.inf):.1%}", f"{peak_memory(updates[name]):.1f}"]
        table.add_row(f"{config.num_hidden_layers} x {config.hidden_size}", name, *cells)


def our_update(config: ModelConfig, batch: data.Batch) -> Callable[[], None]:
    model = BertForPreTraining(config)
    initialise(model, config, torch.Generator().manual_seed(0))
    model.to(DEVICE).train()
    if ON_GPU:
        model.compile()
    num_predicted, num_rows = len(batch.masked_ids_M), len(batch.input_ids_BL)

    def loss() -> torch.Tensor:
        sums = model(*batch)
        return sums.mlm_loss / num_predicted + sums.nsp_loss / num_rows

    return make_update(model, loss)


def peer_update(config: ModelConfig, batch: data.Batch, *, compiled: bool = False) -> Callable[[], None]:
    values: dict[str, Any] = config.to_hf()
    model: Any = transformers.BertForPreTraining(BertConfig(**values))
    model.to(DEVICE).train()
    if compiled:
        model.compile()
    labels = torch.full_like(batch.input_ids_BL, -100)
    labels.view(-1)[batch.masked_index_M] = batch.masked_ids_M
    mask = torch.ones_like(labels) if batch.attention_mask_BL is None else batch.attention_mask_BL.long()

    def loss() -> torch.Tensor:
        return model(
            input_ids=batch.input_ids_BL,
            token_type_ids=batch.token_type_ids_BL,
            attention_mask=mask,
            labels=labels,
            next_sentence_label=batch.next_sentence_label_B,
        ).loss

    return make_update(model, loss)


def make_update(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
    optimizer = make_optimizer(model)
    set_learning_rate(optimizer, 1e-5)

    def update() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=ON_GPU):
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        optimizer.zero_grad()

    update()  # compiles, and allocates what is allocated once
    return update


def measure(update: Callable[[], None]) -> float:
    repeats = 20 if ON_GPU else 1
    synchronise()
    started = time.perf_counter()
    for _ in range(repeats):
        update()
    synchronise()
    return (time.perf_counter() - started) / repeats


def synchronise() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def peak_memory(update: Callable[[], None]) -> float:
    torch.cuda.reset_peak_memory_stats()
    update()
    return torch.cuda.max_memory_allocated() / 2**30


def print_loaders(directory: data.InstanceDirectory) -> None:
    ours, theirs = our_loader(directory), peer_loader(directory)
    table = Table("loader", "instances/s", "ratio", title="one thread, shuffled, padded batches of 256")
    table.add_row("datasets + DataCollatorForLanguageModeling", f"{theirs:,.0f}", "1.0x")
    table.add_row("clozeworks", f"{ours:,.0f}", f"{ours / theirs:.1f}x")
    Console().print(table)


def our_loader(directory: data.InstanceDirectory) -> float:
    sequence = Sequence(directory, 0)
    started = time.process_time()
    for first in range(0, LOADER_ROWS, 256):
        data.make_batches(sequence.rows(first, first + 256), 256)
    return LOADER_ROWS / (time.process_time() - started)


def peer_loader(directory: data.InstanceDirectory) -> float:
    files = f"{directory.path}/train-*.parquet"
    stream: Any = load_dataset("parquet", data_files=files, split="train", streaming=True, columns=["input_ids"])
    assert isinstance(stream, IterableDataset)
    collate = DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(directory.path))
    batches = iter(stream.shuffle(seed=0, buffer_size=1000).batch(256))
    next(batches)  # opens the files and fills the buffer
    started, num_rows = time.process_time(), 0
    while num_rows < PEER_LOADER_ROWS and (batch := next(batches, None)):
        num_rows += len(collate([{"input_ids": ids} for ids in batch["input_ids"]])["input_ids"])
    return num_rows / (time.process_time() - started)


if __name__ == "__main__":
    main()
