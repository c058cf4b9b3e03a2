"""The shape of the encoder, and the configuration of pre-training: one documented field an option.

`ModelConfig` has the names of ``transformers.BertConfig`` and is saved as its ``config.json``. `PretrainConfig`
makes the command line of ``clozeworks pretrain``. This module imports no torch, so that ``--help`` is quick.
"""

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

from msgspec import Meta

from ..pipeline.config import check, option
from ..pipeline.errors import UserError
from ..pipeline.parsing import Count, Fraction, convert

# Layers, hidden size, heads; the feed-forward part is four times as wide as the hidden size.
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
MASK_RATE = 0.15
MASK_SPLIT = (80, 10, 10)
DEFAULT_STEPS = 1_000_000
Positive = Annotated[int, Meta(ge=1)]
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The encoder's shape, with the names and the defaults of ``transformers.BertConfig`` (BERT-base, uncased)."""

    vocab_size: Positive = 30522
    hidden_size: Positive = 768
    num_hidden_layers: Positive = 12
    num_attention_heads: Positive = 12
    intermediate_size: Positive = 3072
    max_position_embeddings: Positive = 512
    type_vocab_size: Positive = 2
    hidden_act: str = "gelu"
    """``gelu`` is the exact (erf) one; ``gelu_new`` google-research's tanh approximation."""
    hidden_dropout_prob: Fraction = 0.1
    attention_probs_dropout_prob: Fraction = 0.1
    layer_norm_eps: Annotated[float, Meta(ge=0)] = 1e-12
    initializer_range: Annotated[float, Meta(ge=0)] = 0.02
    pad_token_id: Count = 0
    is_decoder: bool = False
    """Each token sees only those on its left (the paper's left-to-right ablation)."""

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            heads = f"{self.num_attention_heads} attention heads"
            raise UserError(f"A hidden size of {self.hidden_size} cannot be split over {heads}; make it a multiple.")
        if self.hidden_act not in ACTIVATIONS:
            raise UserError(f"hidden_act is {self.hidden_act!r}, but must be one of {', '.join(ACTIVATIONS)}.")
        if self.pad_token_id >= self.vocab_size:
            raise UserError(f"pad_token_id is {self.pad_token_id}, but the vocabulary has {self.vocab_size} tokens.")

    def num_parameters(self) -> int:
        """Return the number of weights of the encoder without its pooler and heads."""
        hidden, intermediate = self.hidden_size, self.intermediate_size
        num_embeddings = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer = 4 * hidden * (hidden + 1) + 2 * hidden * intermediate + intermediate + 5 * hidden
        return hidden * (num_embeddings + 2) + self.num_hidden_layers * layer

    @classmethod
    def named(cls, size: str, **changes: Any) -> Self:
        """Return one of `SIZES` with some fields changed (None leaves a field as it is).

        >>> ModelConfig.named("tiny", num_hidden_layers=3, vocab_size=8000).intermediate_size
        512
        """
        layers, hidden, heads = SIZES[size]
        shape: dict[str, Any] = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
        shape |= {name: value for name, value in changes.items() if value is not None}
        return cls(**{"intermediate_size": 4 * shape["hidden_size"]} | shape)

    @classmethod
    def from_hf(cls, values: dict[str, Any], path: object = "config.json") -> Self:
        """Return the configuration in the ``config.json`` of a BERT model; unknown fields are ignored.

        Raises `UserError` naming `path` for another kind of model, and for a field that does not fit.
        """
        kind = values.get("model_type", "bert")
        positions = values.get("position_embedding_type", "absolute")
        if kind != "bert" or positions != "absolute":
            raise UserError(f"The model is {kind!r} with {positions} positions; only BERT with absolute ones is read.")
        return convert(values, cls, path, "Use another checkpoint.")

    def to_hf(self, architecture: str = "BertForPreTraining") -> dict[str, Any]:
        """Return what goes into ``config.json`` so that ``transformers`` builds the same model."""
        return {"architectures": [architecture], "model_type": "bert", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """How an encoder is pre-trained on instances; the defaults are the paper's (appendix A.2)."""

    model: Literal["tiny", "mini", "small", "medium", "base", "large"] = option(
        "base", "Size of the encoder: layers x hidden size 2x128, 4x256, 4x512, 8x512, 12x768 or 24x1024."
    )
    num_layers: int | None = option(None, "Number of layers, instead of the named size's.")
    hidden_size: int | None = option(None, "Hidden size, instead of the named size's.")
    num_heads: int | None = option(None, "Number of attention heads, instead of the named size's.")
    intermediate_size: int | None = option(None, "Width of the feed-forward part; by default 4 x the hidden size.")
    initializer_range: float = option(
        0.02,
        "Standard deviation of the initial weights; encoders narrower than 256 learn much sooner from about 0.08.",
    )
    checkpoint: str | None = option(
        None, "Model directory to go on from; the encoder's size is then its own, and the optimiser starts anew."
    )
    objective: Literal["mlm+nsp", "mlm", "ltr"] = option(
        "mlm+nsp",
        "What is learned: masked tokens and next sentences, masked tokens alone, or every token from its left.",
    )
    steps: int | None = option(
        None, "Number of updates of the weights: 1,000,000, where neither --tokens nor --hours is given instead."
    )
    tokens: int | None = option(
        None, "Number of tokens to train on, padding not counted; gives the steps by the mean length of the rows."
    )
    hours: float | None = option(
        None,
        "Time to train for; the learning rate follows the clock, and the time of earlier parts of an interrupted run "
        "counts. As the clock differs from run to run, so do the weights, and a resumed run's too.",
    )
    phase_shares: tuple[float, float] = option(
        (0.9, 0.1), "Shares of the steps on the first and on the second directory, where two are given."
    )
    dynamic_masking: Literal["none", "token", "whole-word", "span"] = option(
        "none", "Draw masks anew for each epoch, of single tokens, whole words, or spans; none takes those stored."
    )
    mask_rate: float = option(MASK_RATE, "Share of each row's tokens to predict, with --dynamic-masking.")
    mask_split: tuple[int, int, int] = option(
        MASK_SPLIT,
        "Percentages of predicted tokens that become [MASK], become a random token, or are kept, with "
        "--dynamic-masking.",
    )
    duplicates_per_epoch: int | None = option(
        None, "Go in each epoch over so many of the stored passes over the documents, in turn; by default over all."
    )
    batch_size: int = option(256, "Rows in each update, over all GPUs and micro-batches together.")
    micro_batch_size: int | None = option(
        None, "Rows computed at once on each GPU or CPU; by default as many as hold 4,096 tokens (GPU: 32,768)."
    )
    learning_rate: float = option(1e-4, "Highest learning rate, reached after the warm-up; it then falls to 0.")
    warmup_steps: int | None = option(
        None, "Steps over which the learning rate rises; by default a tenth of all, and at most 10,000."
    )
    weight_decay: float = option(0.01, "Decay of the weights in each update (not of biases and LayerNorm).")
    bias_correction: bool = option(False, "Correct Adam's averages for their start at 0, which BERT does not.")
    dropout: float = option(0.1, "Share of values dropped, in hidden states and in attention.")
    evaluate_every: int = option(1000, "Steps between evaluations on the validation split; also at start and end.")
    evaluation_rows: int = option(
        10_000, "Rows that each evaluation measures: the first ones of the validation split, which is shuffled."
    )
    checkpoint_every: int = option(1000, "Steps between checkpoints from which an interrupted run goes on.")
    keep: int = option(1, "Number of latest checkpoints to keep, besides the best.")
    seed: int = option(0, "Seed of the initial weights, the order of the rows, and dropout.")
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto",
        "Number format of the matrix products; auto is bf16 on a GPU that has it, else fp32. On a CPU with AVX-512 "
        "BF16 or AMX, bf16 is quicker too, but not equal on every machine.",
    )
    compile: bool | None = option(
        None, "Compile the model with torch.compile; by default on a GPU only.", "--compile/--no-compile"
    )
    device: Literal["auto", "cpu", "cuda"] = option("auto", "Where to train; auto takes a GPU if there is one.")

    def __post_init__(self) -> None:
        self._check_budget()
        self._check_masking()
        shape = ("num_layers", "hidden_size", "num_heads", "intermediate_size")
        for name in (*shape, "micro_batch_size", "duplicates_per_epoch"):
            value = getattr(self, name)
            check(value is None or value >= 1, name, value, "must be at least 1")
        for name in ("batch_size", "evaluate_every", "evaluation_rows", "checkpoint_every", "keep"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        check(self.initializer_range > 0, "initializer_range", self.initializer_range, "must be above 0")
        check(self.learning_rate > 0, "learning_rate", self.learning_rate, "must be above 0")
        check(self.weight_decay >= 0, "weight_decay", self.weight_decay, "must not be negative")
        check(0 <= self.dropout < 1, "dropout", self.dropout, "must be at least 0 and less than 1")
        free = self.checkpoint is None or not any(getattr(self, name) for name in shape)
        check(free, "checkpoint", self.checkpoint, "its model's shape cannot be changed; leave out the shape options")

    def _check_budget(self) -> None:
        given = [name for name in ("steps", "tokens", "hours") if getattr(self, name) is not None]
        for name in given:
            check(0 < getattr(self, name) < math.inf, name, getattr(self, name), "must be above 0")
        if len(given) > 1:
            raise UserError(f"--{given[0]} and --{given[1]} are both given, but a run has one budget; leave one out.")
        steps = self.steps or DEFAULT_STEPS
        warmup_ok = self.warmup_steps is None or 0 <= self.warmup_steps <= steps or self.tokens
        check(bool(warmup_ok), "warmup_steps", self.warmup_steps, f"must lie between 0 and --steps ({steps})")
        no_warmup = self.hours is None or self.warmup_steps is None
        check(no_warmup, "warmup_steps", self.warmup_steps, "with --hours a tenth of the time is the warm-up")
        shares_ok = len(self.phase_shares) == 2 and all(share > 0 for share in self.phase_shares)
        shares_ok = shares_ok and abs(sum(self.phase_shares) - 1) < 1e-6
        check(shares_ok, "phase_shares", self.phase_shares, "must be two shares that add up to 1")

    def _check_masking(self) -> None:
        check(0 < self.mask_rate <= 0.4, "mask_rate", self.mask_rate, "must lie above 0 and up to 0.4")
        parts_ok = len(self.mask_split) == 3 and all(part >= 0 for part in self.mask_split)
        check(parts_ok and sum(self.mask_split) == 100, "mask_split", self.mask_split, "must be three parts of 100")
        draws = self.dynamic_masking != "none"
        for name, default in (("mask_rate", MASK_RATE), ("mask_split", MASK_SPLIT)):
            value = getattr(self, name)
            check(draws or value == default, name, value, "the stored masks stay without --dynamic-masking")
        possible = not (draws and self.objective == "ltr")
        check(possible, "dynamic_masking", self.dynamic_masking, "--objective ltr reads no masks; leave it out")
