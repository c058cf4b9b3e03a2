"""What model a run trains, decided once: by its options and by the model that it starts from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...pipeline.errors import UserError
from ..checkpoint import Checkpoint
from ..config import PretrainConfig
from ..encoders.bert_config import ModelConfig
from ..encoders.config import CONFIGS, EncoderConfig
from ..encoders.shape import PAPERS_WIDTH
from .data import InstanceDirectory
from .new_vocabulary import shape_fields

PAPERS_RATE = 1e-4
HIGHEST_RATE = 2e-3


@dataclass(frozen=True)
class ModelSpec:
    """The kind of encoder of a run, and what decides its shape."""

    config: PretrainConfig
    """The run's options, with the defaults that depend on the kind of encoder."""
    kind: type[EncoderConfig]
    checkpoint: Checkpoint | None
    """The model to start from; None for a new one."""

    @property
    def objective(self) -> str:
        """The training objective."""
        assert self.config.objective is not None
        return self.config.objective

    def run_fields(self) -> dict[str, Any]:
        """Return the fields of the shape that the run decides, whatever a checkpoint says."""
        fields: dict[str, Any] = dict.fromkeys(self.kind.dropout_fields, self.config.dropout)
        fields["is_decoder"] = self.objective == "ltr"
        if self.config.global_rope_theta is not None:
            fields["global_rope_theta"] = self.config.global_rope_theta
        return fields

    def shape(self, directories: Sequence[InstanceDirectory]) -> EncoderConfig:
        """Return the shape of the model, for the vocabulary and the rows of `directories`."""
        config = self.config
        longest = max(directory.max_length for directory in directories)
        vocabulary = shape_fields(self.kind, directories[0].vocabulary)
        if self.checkpoint is None:
            return self.kind.named(
                config.model,
                # BERT's 512 even for shorter rows; the positions beyond them stay untrained.
                max_position_embeddings=max(512, longest),
                num_hidden_layers=config.num_layers,
                hidden_size=config.hidden_size,
                initializer_range=config.initializer_range,
                num_attention_heads=config.num_heads,
                **vocabulary,
                **self.run_fields(),
            )
        if config.vocabulary_from == "checkpoint":
            vocabulary = {}
        stored = self.checkpoint.shape
        longest = max(longest, stored.max_position_embeddings)
        fields = {"max_position_embeddings": longest, **vocabulary, **self.run_fields()}
        return replace(stored, **fields)


def read_spec(config: PretrainConfig) -> ModelSpec:
    """Return the kind of encoder to train: the one asked for, or the checkpoint's.

    Raises `UserError` if they differ, and for a size or an objective that it does not have.
    """
    checkpoint = None
    kind = CONFIGS[config.architecture or "bert"]
    if config.checkpoint is not None:
        checkpoint = Checkpoint.open(config.checkpoint)
        kind = type(checkpoint.shape)
        if config.architecture not in (None, kind.model_type):
            raise UserError(
                f"`architecture` is {config.architecture}, but the model in {config.checkpoint} is "
                f"a {kind.title}; leave it out."
            )
    if config.model not in kind.sizes:
        raise UserError(
            f"`model` is {config.model}, which is a size of a ModernBERT; use `architecture` "
            "modernbert, or another size."
        )
    objective = config.objective or kind.objectives[0]
    if objective not in kind.objectives:
        possible = " or ".join(kind.objectives)
        raise UserError(
            f"`objective` is {objective}, but a {kind.title} is pre-trained on {possible}; leave "
            "it out."
        )
    if config.global_rope_theta is not None and kind is ModelConfig:
        raise UserError(
            "`global_rope_theta` is for rotary positions, which a BERT does not have; leave it "
            "out, or use `architecture` modernbert."
        )
    dropout = config.dropout
    if dropout is None:
        dropout = kind.default_dropout
    rate = config.learning_rate
    if rate is None:
        _, hidden_size, _ = kind.sizes[config.model]
        rate = PAPERS_RATE if checkpoint else default_rate(config.hidden_size or hidden_size)
    resolved = replace(config, objective=objective, dropout=dropout, learning_rate=rate)
    return ModelSpec(resolved, kind, checkpoint)


def default_rate(hidden_size: int) -> float:
    """Return the peak learning rate of a new encoder: the paper's for BERT-base and wider ones, in
    narrower ones as much higher as they are narrower.

    Measured for `tiny` and `mini` (docs/experiments.md).

    >>> [default_rate(size) for size in (128, 256, 512, 768)]
    [0.002, 0.001, 0.0005, 0.0001]
    """
    if hidden_size >= PAPERS_WIDTH:
        return PAPERS_RATE
    return min(HIGHEST_RATE, HIGHEST_RATE * 128 / hidden_size)
