"""Choose the examples of each update, and make them into this rank's micro-batches.

Shapes: B rows, L padded length.
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ...pipeline.seeding import rng_for
from ..tasks.batches import Feature, TaskBatch, make_batch, num_targets
from ..tasks.task import TaskModel
from ..training.device import rows_per_micro_batch, sum_dtype
from ..training.ranks import Ranks
from ..training.update import Loss

POOL_BATCHES = 16


class FinetuneBatch(NamedTuple):
    """The examples of one update."""

    batches: list[TaskBatch]
    """This rank's micro-batches."""
    num_examples: int
    num_tokens: int
    """Over all ranks, without padding."""


def batch_rows(lengths: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the row indices of each batch, epoch after epoch without end; each epoch contains every
    row once.

    Rows are shuffled, sorted by length within pools of `POOL_BATCHES` batches, and then the batches
    are shuffled: a batch has rows of similar length and so little padding, but each epoch has other
    batches.
    """
    pool_rows = POOL_BATCHES * batch_size
    for epoch in count():
        rng = rng_for(seed, "finetune", "order", epoch)
        order = rng.permutation(len(lengths))
        batches = []
        # Lengths with 2 batches of 2 rows to a pool:
        #
        #     shuffled    9 3 4 8   7 2 6 1
        #     sorted      3 4 8 9   1 2 6 7
        #     batches    (3 4)(8 9)(1 2)(6 7), which are shuffled once more
        for start in range(0, len(order), pool_rows):
            pool = order[start : start + pool_rows]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            for first in range(0, len(pool), batch_size):
                batches.append(pool[first : first + batch_size])
        for index in rng.permutation(len(batches)):
            yield batches[index]


def micro_batches(
    features: list[Feature], ranks: Ranks, asked: int | None, most_tokens: int
) -> list[TaskBatch]:
    """Return this rank's part of the `features` of an update, in micro-batches: of `asked` rows, or
    of `most_tokens` with padding.
    """
    rank, num_ranks, device = ranks
    features_here = features[rank::num_ranks]
    if not features_here:
        # A rank without a row computes one that counts nothing, so that all ranks have the same
        # gradients to sum: each waits for all the others at every bucket.
        return [make_batch(features[:1])._replace(share=0.0)]

    num_batch_targets = max(1, num_targets(features))
    feature_tokens = max(feature.length for feature in features_here)
    size = rows_per_micro_batch(asked, feature_tokens, most_tokens)
    batches: list[TaskBatch] = []
    for first in range(0, len(features_here), size):
        chosen = features_here[first : first + size]
        batch = make_batch(chosen)._replace(share=num_targets(chosen) / num_batch_targets)
        if device.type == "cuda":
            # Copies from pinned memory to a GPU are asynchronous.
            batch = batch.map(Tensor.pin_memory)
        batches.append(batch)
    return batches


def loss_of(model: TaskModel, batch: TaskBatch) -> Loss:
    """Return the part of an update's loss that a micro-batch has."""
    outputs = model(batch)
    if batch.share:
        # The task's loss is the mean over the micro-batch's targets. Weighted by its share of the
        # batch's targets, it adds up to the mean over the batch.
        loss = model.loss(outputs, batch) * batch.share
    else:
        loss = outputs.float().sum() * 0.0  # a mean over no targets would be NaN
    return Loss(loss, loss.detach().to(sum_dtype(loss.device))[None])
