"""Configure fine-tuning: one documented field per option of ``clozeworks finetune``.

This module does not import torch, so that ``--help`` is fast.
"""

import math
from dataclasses import dataclass
from typing import Literal

from ...pipeline.config import check, option
from ..tasks.options import TaskOptions

_AT_LEAST_1 = (
    "micro_batch_size",
    "evaluate_every",
    "patience",
    "seeds",
)
CORRECTED_FROM = 1e-4
"""Learning rate from which Adam's moments are corrected by default: uncorrected updates are up to
6.5 times as large, and a published encoder learns nothing at 3e-4.
"""


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(TaskOptions):
    """How to fine-tune an encoder on a task; None means the task's default."""

    batch_size: tuple[int, ...] | int | None = option(
        None,
        "Examples per update of the weights; the default is 32, for SQuAD 2.0 48. "
        "Each of several, such as 16,32, has runs of its own.",
        identity=False,
    )
    epochs: tuple[float, ...] | float | None = option(
        None,
        "Passes over the training examples; the default is 3, for SQuAD 2.0 2. Each of "
        "several, such as 2,3,4, has runs of its own.",
        identity=False,
    )
    learning_rates: tuple[float, ...] | None = option(
        None,
        "Peak learning rates to try, each in its own run; the best run on dev is kept. "
        "The default is 5e-5,4e-5,3e-5,2e-5, for squad and ner 5e-5.",
        identity=False,
    )
    seeds: int = option(
        1,
        "Number of runs per learning rate, each with its own seed; you can add more later.",
        identity=False,
    )
    seed: int = option(
        0,
        "First seed: of the new layer's weights, the order of the rows, and dropout.",
        group="Optimisation",
        identity=False,
    )
    evaluate_every: int | None = option(
        None,
        "Updates between measurements on the dev examples; the default is an epoch. The best "
        "weights on dev are kept.",
        group="Optimisation",
    )
    select: str | None = option(
        None,
        "Metric on dev that chooses runs and weights, for example macro-f1 for classify; the "
        "default is the task's first.",
    )
    patience: int | None = option(
        None,
        "End a run after this many measurements without a better one; the default is never.",
        group="Optimisation",
    )
    warmup_share: float = option(
        0.1,
        "Share of the steps during which the learning rate rises; then it falls to 0.",
        group="Optimisation",
    )
    weight_decay: float = option(
        0.01, "Weight decay (not applied to biases and LayerNorm).", group="Optimisation"
    )
    bias_correction: bool | None = option(
        None,
        "Correct the initial bias of Adam's moments, which BERT does not: the first few hundred "
        "updates are smaller. By default at learning rates of 1e-4 and more.",
        group="Optimisation",
    )
    dropout: float = option(
        0.1,
        "Dropout rate, in hidden states, attention and before the new layer.",
        group="Optimisation",
    )
    random_weights: bool = option(
        False,
        "Ignore the checkpoint's weights and start from random ones, to see what pre-training "
        "is worth.",
        group="Optimisation",
    )
    micro_batch_size: int | None = option(
        None,
        "Examples computed at once; the default is as many as fit into 4,096 tokens (GPU: 32,768).",
        group="Hardware",
        identity=False,
    )
    compile: bool = option(
        False,
        "Compile the model with torch.compile, which takes a minute per run.",
        "--compile/--no-compile",
        group="Hardware",
        identity=False,
    )
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto",
        "Number format of matrix products in training. auto is bf16 on a GPU that supports it, "
        "fp16 on a V100 or T4, else fp32; dev and test examples are always computed with auto.",
        group="Hardware",
    )
    device: Literal["auto", "cpu", "cuda", "mps", "xpu"] = option(
        "auto",
        "Device to train on; auto uses an NVIDIA or AMD GPU if there is one. mps (Apple) and "
        "xpu (Intel) are untested.",
        group="Hardware",
        identity=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch_size", "epochs"):
            values = getattr(self, name)
            if isinstance(values, tuple) and len(values) == 1:
                object.__setattr__(self, name, values[0])  # as it is given in Python
            elif isinstance(values, tuple):
                are_different = len(set(values)) == len(values) > 0
                check(are_different, name, values, "must be different numbers")
        for size in all_of(self.batch_size):
            check(size >= 1, "batch_size", size, "must be at least 1")
        for number in all_of(self.epochs):
            check(0 < number < math.inf, "epochs", number, "must be above 0 and finite")
        for name in _AT_LEAST_1:
            value = getattr(self, name)
            check(value is None or value >= 1, name, value, "must be at least 1")
        rates = self.learning_rates
        rates_ok = True
        if rates is not None:
            # A run's directory is named after its rate, so no rate can have two runs.
            are_different = len(set(rates)) == len(rates) > 0
            rates_ok = are_different and all(0 < rate < 1 for rate in rates)
        check(rates_ok, "learning_rates", rates, "must be different numbers between 0 and 1")
        warmup_ok = 0 <= self.warmup_share <= 1
        check(warmup_ok, "warmup_share", self.warmup_share, "must lie between 0 and 1")
        check(self.weight_decay >= 0, "weight_decay", self.weight_decay, "must not be negative")
        dropout_ok = 0 <= self.dropout < 1
        check(dropout_ok, "dropout", self.dropout, "must be at least 0 and less than 1")

    def corrects_bias(self, learning_rate: float) -> bool:
        """Return whether Adam's averages are corrected for their start at 0."""
        if self.bias_correction is None:
            return learning_rate >= CORRECTED_FROM
        return self.bias_correction

    @property
    def selected_metric(self) -> str | None:
        """The name of the metric that chooses, as scores have it; None for the task's first."""
        return self.select and self.select.replace("-", "_")


def all_of(value: tuple[float, ...] | float | None) -> tuple[float, ...]:
    """Return one or several values, or none, as a tuple."""
    if value is None:
        return ()
    if isinstance(value, tuple):
        return value
    return (value,)
