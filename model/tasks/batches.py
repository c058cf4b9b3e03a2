"""The model's input: the features of examples, and batches of them.

An example becomes one feature, a row of tokens, or several if it is longer than a row (windows).

Shapes: B features, L padded length, T real tokens.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...pipeline.errors import UserError
from ..encoders import transfer
from ..encoders.encoder import real_tokens
from ..encoders.heads import IGNORED
from ..tokenizer import TokenRow


class Feature(NamedTuple):
    """The model's input for an example or a part of it."""

    row: TokenRow
    target: np.ndarray | None
    """int64: the index of the class, shape (); of the first and last token of an answer, (2,); or
    of the class of each token, (L,), `IGNORED` if it has none. float64: a score, shape (). float32:
    of several labels 0 or 1 for each class, (C,). None if there is no usable label.
    """
    example: int
    """Index of the example among those encoded together."""
    context: Any = None
    """The task's own data for decoding the outputs, such as the positions of words."""

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.row.input_ids)


class Scale(NamedTuple):
    """How scores are standardised for training: less their mean, divided by their spread."""

    mean: float
    spread: float
    """Their standard deviation; negative if the first score that is far from the mean is lower."""

    def standardise(self, feature: Feature) -> Feature:
        """Return the feature with its score standardised, float32."""
        assert feature.target is not None
        target = (feature.target - self.mean) / self.spread
        return feature._replace(target=np.asarray(target, dtype=np.float32))

    def restore(self, outputs: np.ndarray) -> np.ndarray:
        """Return standardised outputs in the unit of the scores, float64."""
        return self.mean + self.spread * outputs.astype(np.float64)


def scale_of(features: Sequence[Feature]) -> Scale:
    """Return the scale of the scores of examples; raises `UserError` if they are too alike."""
    # A long text has several features.
    score_by_example = {
        feature.example: float(feature.target) for feature in features if feature.target is not None
    }
    scores = list(score_by_example.values())
    # Exact sums: the same on every machine that resumes the run.
    mean = math.fsum(scores) / len(scores)
    deviations = [score - mean for score in scores]
    spread = math.sqrt(math.fsum(deviation**2 for deviation in deviations) / len(scores))
    # fp32, in which models answer, is exact to 6e-8 of the score, here to 0.6% of the spread.
    if spread <= max(1e-5 * abs(mean), 1e-30):
        raise UserError(
            f"The scores of the {len(scores):,} training examples are {mean:g} on average with a "
            f"standard deviation of {spread:g}, too little for a model to tell them apart; "
            "subtract a number from all, or check `label`."
        )
    # Scores turned round, such as distances for similarities, are learned in the same way.
    first = next(deviation for deviation in deviations if abs(deviation) > spread / 2)
    return Scale(mean, math.copysign(spread, first))


class TaskBatch(NamedTuple):
    """Padded rows as `Encoder.forward` takes them, and their targets."""

    input_ids_BL: Tensor
    token_type_ids_BL: Tensor
    attention_mask_BL: Tensor
    token_index_T: Tensor | None
    target: Tensor | None
    """As in `Feature`, with a leading dimension B; None without labels."""
    share: Tensor | None = None
    """How much of its update's targets the batch has, scalar; None if it has none."""
    piece: Tensor | None = None
    """See `transfer`."""

    def to(self, device: torch.device) -> "TaskBatch":
        """Copy the batch to `device`, without waiting for a GPU."""
        return transfer.send(self, device)

    def pin(self) -> "TaskBatch":
        """Copy the batch to pinned memory."""
        return transfer.pin(self)


def num_cut(features: Sequence[Feature]) -> int:
    """Return how many of the examples encoded together are cut."""
    return len({feature.example for feature in features if feature.row.num_cut})


def num_targets(features: Sequence[Feature]) -> int:
    """Return the number of targets: one per feature, two per answer (its ends), or one per token
    with a class.

    Losses are means over targets, so the trainer weighs each micro-batch by its share of them.
    """
    targets = [feature.target.ravel() for feature in features if feature.target is not None]
    if not targets:
        return 0
    values = np.concatenate(targets)
    return int(np.count_nonzero(values != IGNORED)) if values.dtype.kind == "i" else values.size


def filled(length: int, widths: Sequence[int]) -> int:
    """Return the first of the widths that is not below the length; without widths the length."""
    return widths[bisect_left(widths, length)] if widths else length


def make_batch(features: Sequence[Feature], widths: Sequence[int] = ()) -> TaskBatch:
    """Pad the features' rows to the longest row, and the targets to the longest target.

    With `widths`, in order, they are padded further, to the next of these, and padding is computed,
    too: batches then have few different shapes.
    """
    # A row of 4 tokens, whose segment B begins at 2, in a batch with one of 6:
    #
    #     input_ids      2 7 8 3 0 0
    #     mask           1 1 1 1 0 0
    #     types          0 0 1 1 0 0
    rows = [feature.row for feature in features]
    lengths_B1 = np.array([len(row.input_ids) for row in rows])[:, None]
    b_starts_B1 = np.array([row.segment_b_start for row in rows])[:, None]
    width = filled(int(lengths_B1.max()), widths)
    columns_L = np.arange(width)
    mask_BL = columns_L < lengths_B1
    types_BL = (columns_L >= b_starts_B1) & mask_BL
    input_ids_BL = np.zeros(mask_BL.shape, dtype=np.int64)
    # The mask selects row after row, so the rows' tokens fill it in order.
    input_ids_BL[mask_BL] = np.concatenate([row.input_ids for row in rows])
    mask = torch.from_numpy(mask_BL)
    targets = [feature.target for feature in features if feature.target is not None]
    target = None
    # All targets of a task have the same number of dimensions; targets of tokens differ in length.
    if targets and targets[0].ndim == 0:
        target = torch.from_numpy(np.array(targets))
    elif targets:
        tensors = [torch.from_numpy(target) for target in targets]
        target = nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=IGNORED)
        # Targets of tokens, not the two ends of an answer, nor several labels, which are floats.
        if not target.is_floating_point() and target.shape[1] == lengths_B1.max():
            target = F.pad(target, (0, width - target.shape[1]), value=IGNORED)
    return TaskBatch(
        input_ids_BL=torch.from_numpy(input_ids_BL),
        token_type_ids_BL=torch.from_numpy(types_BL).long(),
        attention_mask_BL=mask,
        token_index_T=real_tokens(mask) if not widths else None,
        target=target,
    )
