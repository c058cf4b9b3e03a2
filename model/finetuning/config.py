"""Configure fine-tuning: one documented field per option of ``clozeworks finetune``.

This module does not import torch, so that ``--help`` is fast.
"""

from dataclasses import dataclass
from typing import Literal

from ...pipeline.config import Count, DropoutRate, LearningRate, Positive, check, option
from ..config import Device, deterministic_option, device_option
from ..tasks.options import TaskOptions


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(TaskOptions):
    """How to fine-tune an encoder on a task; None means the task's default."""

    batch_size: tuple[Count, ...] | Count | None = option(
        None,
        "Examples per update of the weights; the default is 32, for SQuAD 2.0 48. "
        "Each of several, such as 16,32, has runs of its own.",
        identity=False,
    )
    epochs: tuple[Positive, ...] | Positive | None = option(
        None,
        "Passes over the training examples; the default is 3, for SQuAD 2.0 2. Each of "
        "several, such as 2,3,4, has runs of its own.",
        identity=False,
    )
    learning_rates: tuple[LearningRate, ...] | None = option(
        None,
        "Peak learning rates to try, each in its own run; the best run on dev is kept. "
        "The default is 5e-5,4e-5,3e-5,2e-5, for squad and ner 5e-5.",
        identity=False,
    )
    seeds: Count = option(
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
    evaluate_every: Count | None = option(
        None,
        "Updates between measurements on the dev examples; the default is an epoch. The best "
        "weights on dev are kept.",
        group="Optimisation",
    )
    dropout: DropoutRate = option(
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
    micro_batch_size: Count | None = option(
        None,
        "Examples computed at once; the default is as many as fit into 4,096 tokens (GPU: 32,768).",
        group="Hardware",
        identity=False,
    )
    deterministic: bool = deterministic_option()
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto",
        "Number format of matrix products in training. auto is bf16 on a GPU that supports it "
        "and, from a hidden size of 256, on a CPU with AMX, fp16 on a V100 or T4, else fp32. Dev "
        "and test examples are computed in fp32 on a CPU, with auto on a GPU.",
        group="Hardware",
    )
    device: Device = device_option("train on")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch_size", "epochs", "learning_rates"):
            values = getattr(self, name)
            if isinstance(values, tuple):
                # A run's directory is named after its rate, so no rate can have two runs.
                are_different = len(set(values)) == len(values) > 0
                check(are_different, name, values, "must be different numbers")


def all_of(value: tuple[float, ...] | float | None) -> tuple[float, ...]:
    """Return one or several values, or none, as a tuple."""
    if value is None:
        return ()
    if isinstance(value, tuple):
        return value
    return (value,)
