"""The configuration of fine-tuning: one documented field an option.

It makes the command line of ``clozeworks finetune``. This module imports no torch, so that ``--help`` is quick.
"""

from dataclasses import dataclass
from typing import Literal

from ...pipeline.config import check, option


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """How an encoder is fine-tuned on a task; what is None is the task's own default, the paper's."""

    max_length: int | None = option(
        None, "Longest row in tokens, with [CLS] and [SEP]; by default 128, for squad 384 (longer texts in windows)."
    )
    batch_size: int | None = option(
        None, "Examples in each update of the weights; by default 32, for SQuAD 2.0 48, for swag 16."
    )
    micro_batch_size: int | None = option(
        None, "Examples computed at once; by default as many as hold 4,096 tokens (GPU: 32,768)."
    )
    epochs: float | None = option(
        None, "Passes over the training examples; by default 3, for SQuAD 2.0 2, with --features 10."
    )
    learning_rates: tuple[float, ...] | None = option(
        None,
        "Highest learning rates to try, each in its own run; the best on dev is kept. By default 5e-5,4e-5,3e-5,2e-5, "
        "for squad and ner 5e-5, for swag 2e-5, with --features 1e-3.",
    )
    seeds: int = option(
        1, "Number of runs with each learning rate, each with its own seed; more may be asked for later."
    )
    seed: int = option(0, "First seed: of the new layer's weights, the order of the rows, and dropout.")
    warmup_share: float = option(0.1, "Share of the steps over which the learning rate rises; it then falls to 0.")
    weight_decay: float = option(0.01, "Decay of the weights in each update (not of biases and LayerNorm).")
    bias_correction: bool = option(False, "Correct Adam's averages for their start at 0, which BERT does not.")
    dropout: float = option(0.1, "Share of values dropped, in hidden states, in attention and before the new layer.")
    text: str | None = option(None, "Column of the text, for classify; by default text or sentence.")
    text_pair: str | None = option(None, "Column of the second text of a pair, for classify; by default there is none.")
    label: str | None = option(None, "Column of the class or the score, for classify; by default label.")
    checkpoint_every: int = option(500, "Steps between checkpoints from which an interrupted run goes on.")
    compile: bool = option(
        False, "Compile the model with torch.compile, which takes a minute a run.", "--compile/--no-compile"
    )
    features: (
        Literal[
            "embeddings", "second-to-last", "last", "weighted-sum-last-four", "concat-last-four", "weighted-sum-all"
        ]
        | None
    ) = option(
        None, "For ner, train a BiLSTM on these hidden states of the frozen encoder; by default all is fine-tuned."
    )
    lstm_size: int | None = option(None, "Units of that BiLSTM in each direction; by default 768.")
    stride: int | None = option(
        None, "Tokens from one window of a long passage to the next, for squad; by default 128."
    )
    max_question_length: int | None = option(
        None, "Tokens of a question that are kept, from its start, for squad; by default 64."
    )
    max_answer_length: int | None = option(None, "Longest predicted answer in tokens, for squad; by default 30.")
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto",
        "Number format of the matrix products in training; auto is bf16 on a GPU that has it, else fp32, which is also "
        "how dev and test examples are computed.",
    )
    device: Literal["auto", "cpu", "cuda"] = option("auto", "Where to train; auto takes a GPU if there is one.")

    def __post_init__(self) -> None:
        check(self.max_length is None or self.max_length >= 8, "max_length", self.max_length, "must be at least 8")
        check(self.batch_size is None or self.batch_size >= 1, "batch_size", self.batch_size, "must be at least 1")
        micro = self.micro_batch_size
        check(micro is None or micro >= 1, "micro_batch_size", micro, "must be at least 1")
        check(self.checkpoint_every >= 1, "checkpoint_every", self.checkpoint_every, "must be at least 1")
        check(self.epochs is None or self.epochs > 0, "epochs", self.epochs, "must be above 0")
        check(self.lstm_size is None or self.lstm_size >= 1, "lstm_size", self.lstm_size, "must be at least 1")
        rates = self.learning_rates
        rates_ok = rates is None or (
            len(rates) > 0 and len(set(rates)) == len(rates) and all(0 < rate < 1 for rate in rates)
        )
        check(rates_ok, "learning_rates", rates, "must be different numbers between 0 and 1")
        for name in ("stride", "max_question_length", "max_answer_length"):
            value = getattr(self, name)
            check(value is None or value >= 1, name, value, "must be at least 1")
        check(self.seeds >= 1, "seeds", self.seeds, "must be at least 1")
        check(0 <= self.warmup_share <= 1, "warmup_share", self.warmup_share, "must lie between 0 and 1")
        check(self.weight_decay >= 0, "weight_decay", self.weight_decay, "must not be negative")
        check(0 <= self.dropout < 1, "dropout", self.dropout, "must be at least 0 and less than 1")
