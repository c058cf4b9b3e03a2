"""Updates of a BERT on masked words, beside the same encoder of `transformers`, on the same rows.

An update is forward, backward, clipping and optimiser step on as many micro-batches as the trainer
makes, with the recipe's dropout. `transformers` gets the same padded batches, in which rows are
sorted by length; and the same rows packed into sequences of 512 tokens, with a mask that keeps each
to itself (its own search for packed rows by `position_ids` is for decoders). The fastest update
counts. `benchmarks.gpu` does the same on a GPU.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from clozeworks.model.encoders.catalogue import CONFIGS, make_pretrain_model
from clozeworks.model.encoders.config import EncoderConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import IGNORED, PretrainBatch
from clozeworks.model.pretraining import data
from clozeworks.model.pretraining.batches import make_batches
from clozeworks.model.pretraining.sequence import RowSequence
from clozeworks.model.training.device import MICRO_BATCH_TOKENS
from clozeworks.model.training.optim import MAX_GRADIENT_NORM, make_optimizer, set_learning_rate
from clozeworks.pipeline.instances.rows import Rows
from torch import nn

from .inputs import Inputs
from .peer import peer_loss
from .table import Row

PACKED_LENGTH = 512


class Trainer(NamedTuple):
    """A model in training, and its share of an update's loss for each micro-batch."""

    model: nn.Module
    optimizer: torch.optim.AdamW
    losses: list[Callable[[], torch.Tensor]]


def rows(inputs: Inputs) -> Iterator[Row]:
    torch.set_num_threads(os.cpu_count() or 1)
    transformers.logging.set_verbosity_error()
    directory = data.open_instances(str(inputs.instances))
    kind = CONFIGS["bert"]
    for size, num_rows, num_rounds in (("mini", 32, 5), ("base", 16, 2)):
        # The paper's vocabulary, whatever that of the rows.
        config = kind.named(size, **kind.vocabulary_fields(30_522, 0, 2, 3))
        yield from training_rows(config, directory, num_rows, num_rounds)


def training_rows(
    config: EncoderConfig, directory: data.InstanceDirectory, num_rows: int, num_rounds: int
) -> Iterator[Row]:
    rows = RowSequence(directory, 0).rows(0, num_rows)
    micro_rows = MICRO_BATCH_TOKENS["cpu"] // directory.max_length
    batches = make_batches(rows, micro_rows, "mlm")
    packed = pack(rows, micro_rows * directory.max_length)
    padded = [lambda model, batch=batch: peer_loss(model, batch) for batch in batches]
    together = [lambda model, batch=batch: model(**batch).loss for batch in packed]
    num_predicted = int(rows.num_masked.sum())
    trainers: dict[str, Callable[[], Trainer]] = {
        "ours": lambda: ours(config, batches, num_predicted),
        "padded rows sorted by length": lambda: peer(config, padded),
        f"rows packed to {PACKED_LENGTH}": lambda: peer(config, together),
    }
    # One after the other: three of `base` would take 8 GB.
    seconds = {name: fastest_update(make(), num_rounds) for name, make in trainers.items()}
    rates = {name: int(rows.lengths.sum()) / taken for name, taken in seconds.items()}
    shape = f"{config.num_hidden_layers} x {config.hidden_size}"
    cores = f"{torch.get_num_threads()} threads"
    for setting in list(trainers)[1:]:
        what = f"train BERT of {shape} on a CPU, beside {setting}"
        name = f"`transformers` {transformers.__version__}, sdpa, {setting}, {cores}"
        yield Row(what, rates["ours"], name, rates[setting], "tokens/s")


def fastest_update(trainer: Trainer, num_rounds: int) -> float:
    update(trainer)  # allocates what is allocated once
    seconds = math.inf
    for _ in range(num_rounds):
        begin = time.perf_counter()
        update(trainer)
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds


def ours(config: EncoderConfig, batches: list[PretrainBatch], num_predicted: int) -> Trainer:
    model = make_pretrain_model(config)
    initialise(model, config, torch.Generator().manual_seed(0))
    losses = [lambda batch=batch: model.sums(batch).mlm_loss / num_predicted for batch in batches]
    return make_trainer(model, losses)


def peer(config: EncoderConfig, losses: list[Callable[[Any], torch.Tensor]]) -> Trainer:
    values: dict[str, Any] = config.to_hf() | {"attn_implementation": "sdpa"}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**values))
    return make_trainer(model, [lambda loss=loss: loss(model) / len(losses) for loss in losses])


def make_trainer(model: nn.Module, losses: list[Callable[[], torch.Tensor]]) -> Trainer:
    model.train()
    optimizer = make_optimizer(model)
    set_learning_rate(optimizer, 1e-5)
    return Trainer(model, optimizer, losses)


def update(trainer: Trainer) -> None:
    for loss in trainer.losses:
        loss().backward()
    nn.utils.clip_grad_norm_(trainer.model.parameters(), MAX_GRADIENT_NORM)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def pack(rows: Rows, batch_tokens: int) -> list[dict[str, torch.Tensor]]:
    """Return the rows in their order in sequences of up to `PACKED_LENGTH`, in batches."""
    sequences: list[list[int]] = []
    room = 0
    for row, length in enumerate(rows.lengths.tolist()):
        if length > room:
            sequences.append([])
            room = PACKED_LENGTH
        sequences[-1].append(row)
        room -= length
    size = max(1, batch_tokens // PACKED_LENGTH)
    return [
        _packed_batch(rows, sequences[first : first + size])
        for first in range(0, len(sequences), size)
    ]


def _packed_batch(rows: Rows, sequences: list[list[int]]) -> dict[str, torch.Tensor]:
    ids = np.zeros((len(sequences), PACKED_LENGTH), np.int64)
    labels = np.full_like(ids, IGNORED)
    positions = np.zeros_like(ids)
    owners = np.full_like(ids, -1)
    mask_offsets = np.append(0, np.cumsum(rows.num_masked))
    for place, sequence in enumerate(sequences):
        start = 0
        for row in sequence:
            length = int(rows.lengths[row])
            tokens = slice(start, start + length)
            ids[place, tokens] = rows.input_ids[rows.offsets[row] : rows.offsets[row + 1]]
            masks = slice(mask_offsets[row], mask_offsets[row + 1])
            labels[place, start + rows.masked_positions[masks]] = rows.masked_ids[masks]
            positions[place, tokens] = np.arange(length)
            owners[place, tokens] = row
            start += length
    mask = owners[:, None, :, None] == owners[:, None, None, :]
    arrays = {
        "input_ids": ids,
        "labels": labels,
        "position_ids": positions,
        "attention_mask": mask,
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
