"""Configure pre-training: one documented field per option.

`PretrainConfig` makes the command line of ``clozeworks pretrain``; `encoders.config` has the shapes
of the encoders. This module imports nothing heavy, to keep ``--help`` fast.
"""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from msgspec import Meta

from ..pipeline.config import (
    Count,
    DropoutRate,
    LearningRate,
    MaskRate,
    Positive,
    Share,
    check,
    check_mask_split,
    check_ranges,
    option,
)
from ..pipeline.errors import UserError

# https://huggingface.co/docs/hub/repositories-licenses
_LICENSE = re.compile(r"[a-z0-9]+([.+-]+[a-z0-9]+)*\+*")
ModelSize = Literal[
    "tiny", "mini", "small", "medium", "base", "large", "ettin-17m", "ettin-32m", "ettin-68m"
]
SHAPE_OPTIONS = ("model", "num_layers", "hidden_size", "num_heads")
Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]
DEVICE_HELP = (
    "Device to {}; auto uses an NVIDIA or AMD GPU if there is one. mps (Apple) and xpu (Intel) are "
    "untested."
)
BASELINE = "baseline_"
"""Begins the names of the metrics of the best constant answers."""
EVALUATION_ROWS = 4000
"""An evaluation during training reads the first rows of the validation split, which is shuffled."""


def device_option(purpose: str) -> Any:
    """Declare the field ``device``, of a command that needs one to ``train on``, for example."""
    return option("auto", DEVICE_HELP.format(purpose), group="Hardware", identity=False)


def deterministic_option() -> Any:
    """Declare the field ``deterministic``."""
    return option(
        False,
        "On a GPU, compute the same weights in every run, which takes longer; on a CPU they always "
        "are.",
        group="Hardware",
        identity=False,
    )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Options of pre-training on instances; the defaults are the paper's (appendix A.2)."""

    architecture: Literal["bert", "modernbert"] | None = option(
        None,
        "Encoder: bert, or modernbert, which learns masked words alone, from fewer tokens; by "
        "default bert, or that of --checkpoint.",
    )
    model: ModelSize | None = option(
        None,
        "Size of a new encoder, by default base: layers x hidden size 2x128, 4x256, 4x512, 8x512, "
        "12x768 or 24x1024; of a ModernBERT the last two are 22x768 and 28x1024, and it may have "
        "Ettin's shapes, deep and narrow: 7x256, 10x384 or 19x512.",
    )
    checkpoint: str | None = option(
        None,
        "Model directory to start from, which sets the encoder's size. The optimiser starts fresh, "
        "unless --schedule is constant-with-decay and the directory is an archived model of such a "
        "run. "
        "Rows longer than its number of positions extend it by copies of its first positions.",
    )
    also: str | None = option(
        None,
        "Other instances, such as general text, with the same vocabulary: the model "
        "is measured on its held-out rows, too, before the first step and after the last.",
        group="Evaluation and checkpoints",
        identity=False,
    )
    steps: Count | None = option(
        None,
        "Number of optimiser steps; without --tokens or --hours by default as many as read every "
        "document 40 times, as in the paper, but at most its 1,000,000.",
    )
    tokens: Count | None = option(
        None,
        "Number of tokens to train on, excluding padding; converted to steps by the mean row "
        "length.",
    )
    hours: Positive | None = option(
        None,
        "Training time, including the parts of an interrupted run. The learning rate follows the "
        "clock, so the weights differ from run to run, and after a resume.",
    )
    batch_size: Count = option(256, "Rows per optimiser step, over all GPUs and micro-batches.")
    phase_shares: tuple[Positive, ...] | None = option(
        None,
        "Share of the steps on each directory, such as 0.9,0.07,0.03; of two directories by "
        "default 0.9,0.1, as in the paper.",
    )
    learning_rate: LearningRate | None = option(
        None,
        "Peak learning rate, which the warm-up misses by one step, as in BERT; --schedule says how "
        "it decays to 0. By default the paper's 1e-4 from a hidden size of 768 on, and with "
        "--checkpoint; in narrower new encoders 0.256 / hidden size, at most 2e-3 (1e-3 in mini).",
    )
    seed: int = option(0, "Seed for the initial weights, the order of the rows, and dropout.")
    num_layers: Count | None = option(None, "Number of layers; overrides --model.", group="Encoder")
    hidden_size: Count | None = option(None, "Hidden size; overrides --model.", group="Encoder")
    num_heads: Count | None = option(
        None, "Number of attention heads; overrides --model.", group="Encoder"
    )
    vocabulary_from: Literal["checkpoint", "instances"] = option(
        "checkpoint",
        "Vocabulary of a model that starts from --checkpoint: its own, or the instances' "
        "vocabulary, onto which its embeddings are moved (a new token starts as the mean of its "
        "old pieces).",
        group="Encoder",
    )
    objective: Literal["mlm+nsp", "mlm", "ltr"] | None = option(
        None,
        "Training objective: masked tokens and next sentences (BERT's default), masked tokens only "
        "(a ModernBERT's), or left to right (of a BERT; a --checkpoint trained so stays so).",
        group="Objective and masking",
    )
    dynamic_masking: Literal["none", "token", "whole-word"] | None = option(
        None,
        "Draw new masks for each epoch, of single tokens or whole words; none uses the stored "
        "masks. By default those are used if each document is stored with several (build "
        "--duplicates), unless --mask-rate or --mask-split is given.",
        group="Objective and masking",
    )
    mask_split: tuple[int, int, int] | None = option(
        None,
        "Percentages of the predicted tokens that are replaced by [MASK], replaced by a random "
        "token, or kept, in new masks; by default as in the instances.",
        group="Objective and masking",
    )
    mask_rate: tuple[MaskRate | tuple[MaskRate, ...], ...] | None = option(
        None,
        "Share of the tokens to predict, in new masks; two numbers such as 0.3,0.15 are the first "
        "and the last, between which it falls or rises linearly over the run. For each phase of "
        "its own: 0.3/0.15/0.1,0.05. By default as in the instances.",
        group="Objective and masking",
    )
    warmup_steps: Annotated[int, Meta(ge=0)] | None = option(
        None,
        "Steps of learning-rate warm-up; by default a tenth of all steps, at most 10,000.",
        group="Optimisation",
    )
    schedule: Literal["linear", "constant-with-decay"] = option(
        "linear",
        "Learning rate after the warm-up: falling linearly to 0, as BERT's; or constant, and "
        "falling to 0 at the end only, as ModernBERT's, so that a run can be prolonged.",
        group="Optimisation",
    )
    decay_share: Share = option(
        0.1,
        "Share of the steps in which the rate of --schedule constant-with-decay falls: the last "
        "ones. 0 leaves it constant, 1 falls from the start.",
        group="Optimisation",
    )
    dropout: DropoutRate | None = option(
        None,
        "Dropout rate, in hidden states and attention; by default 0.1, in a ModernBERT 0.",
        group="Optimisation",
    )
    evaluate_every: Count = option(
        1000,
        "Steps between evaluations on the validation split; it is also evaluated at the start and "
        "the end.",
        group="Evaluation and checkpoints",
        identity=False,
    )
    checkpoint_minutes: Positive = option(
        10.0,
        "Minutes between checkpoints, from which an interrupted run resumes; written while "
        "training continues.",
        group="Evaluation and checkpoints",
        identity=False,
    )
    checkpoint_every: Count | None = option(
        None,
        "Steps between further checkpoints; by default only --checkpoint-minutes counts.",
        group="Evaluation and checkpoints",
        identity=False,
    )
    archive_every: Count | None = option(
        None,
        "Steps between models kept for later study, in archive/step-N; by default none are.",
        group="Evaluation and checkpoints",
        identity=False,
    )
    license: str | None = option(
        None,
        "Licence of the model, for its card: an identifier of the Hugging Face Hub such as "
        "apache-2.0 or cc-by-sa-4.0.",
        group="Evaluation and checkpoints",
        identity=False,
    )
    micro_batch_size: Count | None = option(
        None,
        "Rows computed at once per GPU or CPU; by default as many as fit in 4,096 tokens (GPU: "
        "32,768).",
        group="Hardware",
        identity=False,
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option(
        "auto",
        "Number format of matrix products; auto is bf16 on a GPU that supports it, fp16 with loss "
        "scaling on a V100 or T4, else fp32. On a CPU with AVX-512 BF16 or AMX, bf16 is faster "
        "too, but results differ between machines.",
        group="Hardware",
    )
    compile: bool | None = option(
        None,
        "Compile the model with torch.compile; by default only on a GPU, in a run that is long "
        "enough to make up for the half minute that it takes.",
        "--compile/--no-compile",
        group="Hardware",
        identity=False,
    )
    deterministic: bool = deterministic_option()
    device: Device = device_option("train on")

    def __post_init__(self) -> None:
        check_license(self.license)
        check_ranges(self)
        if self.checkpoint is None:
            keeps = self.vocabulary_from == "checkpoint"
            self._check(keeps, "vocabulary_from", "needs `checkpoint`")
        else:
            # Its weights would not fit into another shape.
            for name in SHAPE_OPTIONS:
                is_left_out = getattr(self, name) is None
                self._check(is_left_out, name, "`checkpoint` sets the shape; leave it out")
        budget = [name for name in ("steps", "tokens", "hours") if getattr(self, name) is not None]
        if len(budget) > 1:
            both = f"`{budget[0]}` and `{budget[1]}` are both given"
            raise UserError(f"{both}, but a run has one budget; drop one.")
        if self.warmup_steps is not None:
            # The number of steps that any other budget allows is known only with the instances.
            possible = self.warmup_steps <= (self.steps or math.inf)
            self._check(possible, "warmup_steps", f"must be at most `steps` ({self.steps})")
            must = "with `hours` the warm-up is a tenth of the time; leave it out"
            self._check(self.hours is None, "warmup_steps", must)
        is_used = self.is_constant or self.decay_share == PretrainConfig.decay_share
        must = "it has no effect without `schedule` constant-with-decay"
        self._check(is_used, "decay_share", must)
        if self.phase_shares is not None:
            is_whole = math.isclose(sum(self.phase_shares), 1, abs_tol=1e-3)  # 0.333 three times
            self._check(is_whole, "phase_shares", "must add up to 1")
        self._check_masking()

    def _check(self, holds: bool, name: str, must: str) -> None:
        check(holds, name, getattr(self, name), must)

    @property
    def size(self) -> ModelSize:
        """The size of a new encoder."""
        return self.model or "base"

    @property
    def mask_rates(self) -> list[tuple[float, ...]]:
        """One or two rates for each phase, or once for the whole run; none: as built."""
        rates = self.mask_rate or ()
        if any(isinstance(rate, tuple) for rate in rates):
            return [rate if isinstance(rate, tuple) else (rate,) for rate in rates]
        return [cast(tuple[float, ...], rates)] if rates else []

    @property
    def is_constant(self) -> bool:
        """Whether the rate stays, so that another run can continue the schedule."""
        return self.schedule == "constant-with-decay"

    def _check_masking(self) -> None:
        given = [name for name in ("mask_split", "mask_rate") if getattr(self, name) is not None]
        for name in given:
            draws = self.dynamic_masking != "none"
            self._check(draws, name, "it has no effect with `dynamic_masking` none")
        if self.dynamic_masking not in (None, "none"):
            given.append("dynamic_masking")
        for name in given:
            self._check(self.objective != "ltr", name, "`objective` ltr uses no masks; drop it")
        if self.mask_split is not None:
            check_mask_split(self.mask_split)
        if self.mask_rate is not None:
            rates = self.mask_rates or [()]
            fits = all(len(phase_rates) in (1, 2) for phase_rates in rates)
            self._check(fits, "mask_rate", "must be one number, or two; with / between phases")
            is_known = rates[0][1:] == () or self.hours is None
            must = "with `hours` the number of steps is unknown; give one number"
            self._check(is_known, "mask_rate", must)


def check_license(license: str | None) -> None:
    """Raise `UserError` unless this has the form of the Hub's identifiers of licences."""
    if license is not None and not _LICENSE.fullmatch(license):
        raise UserError(
            f"`license` is {license}, which is not the identifier of a licence on the Hugging Face "
            "Hub; common ones are apache-2.0, mit, cc-by-4.0, cc-by-sa-4.0 and other."
        )
