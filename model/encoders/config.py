"""What the shapes of all encoders share; imports nothing heavy, to keep ``--help`` fast."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from msgspec import Meta

from ...pipeline.config import Count, NotNegative, check, check_ranges
from ...pipeline.errors import UserError
from ...pipeline.parsing import convert

if TYPE_CHECKING:
    import numpy as np

# Layers, hidden size, heads. "base" and "large" are the paper's (section 3), the smaller ones those
# of arXiv 1908.08962. A head always has 64 numbers, and the feed-forward part is four times as wide
# as the hidden size.
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
TokenId = Annotated[int, Meta(ge=0)]
PAPERS_WIDTH = 768
"""BERT-base's hidden size; narrower encoders get settings that they learn with sooner."""
PAPERS_SIGMA = 0.02
"""Standard deviation of the paper's initial weights."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(ABC):
    """An encoder's shape, with the names of ``transformers``; the defaults are BERT-base's."""

    model_type: ClassVar[str]
    title: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]]
    """What it can be pre-trained on; the first is the default."""
    hf_prefix: ClassVar[str]
    """How the names of its classes in ``transformers`` begin."""
    default_dropout: ClassVar[float]
    """In pre-training."""
    dropout_fields: ClassVar[tuple[str, ...]]
    """The rates that a run sets alike."""
    tokenizer_settings: ClassVar[Mapping[str, Any]] = {}
    """What ``tokenizer_config.json`` has to say for this kind of model."""
    fixed: ClassVar[Mapping[str, Any]] = {}
    """What a ``config.json`` may say, but not otherwise."""
    sizes: ClassVar[Mapping[str, tuple[int, int, int]]] = SIZES
    """Layers, hidden size and heads by name."""

    vocab_size: Count = 30522
    hidden_size: Count = 768
    num_hidden_layers: Count = 12
    num_attention_heads: Count = 12
    intermediate_size: Count = 3072
    max_position_embeddings: Count = 512
    initializer_range: NotNegative = 0.02
    pad_token_id: TokenId = 0
    is_decoder: bool = False
    """Each token sees only itself and those on its left, to learn the next one (``ltr``)."""

    def __post_init__(self) -> None:
        # A config.json may come from anywhere.
        check_ranges(self)
        if self.is_decoder and "ltr" not in self.objectives:
            raise UserError(f"A {self.title} cannot be left to right; `is_decoder` is for a BERT.")
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"A hidden size of {self.hidden_size} cannot be split over "
                f"{self.num_attention_heads} attention heads; make it a multiple."
            )
        must = f"the vocabulary has {self.vocab_size} tokens"
        check(self.pad_token_id < self.vocab_size, "pad_token_id", self.pad_token_id, must)

    @classmethod
    def named(cls, size: str, **changes: Any) -> Self:
        """Return one of `sizes` with some fields changed (None leaves a field as it is)."""
        layers, hidden, heads = cls.sizes[size]
        shape: dict[str, Any] = {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
        }
        shape |= {name: value for name, value in changes.items() if value is not None}
        return cls(**(cls._fields_by_size(size, shape) | shape))

    @classmethod
    def _fields_by_size(cls, size: str, shape: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a new encoder that depend on the others."""
        hidden = shape["hidden_size"]
        # The fewer numbers a product adds up, the larger its weights have to be.
        by_width = PAPERS_SIGMA * (PAPERS_WIDTH / hidden) ** 0.5
        return {
            "intermediate_size": 4 * hidden,
            "initializer_range": max(PAPERS_SIGMA, round(by_width, 4)),
        }

    def with_dropout(self, rate: float) -> Self:
        return replace(self, **dict.fromkeys(self.dropout_fields, rate))

    @property
    def first_position(self) -> int:
        """Row of the table of positions that the first token has."""
        return 0

    @property
    def num_positions(self) -> int:
        """Number of tokens of the longest rows."""
        return self.max_position_embeddings - self.first_position

    def with_positions(self, num_positions: int) -> Self:
        """Return the shape for rows of up to `num_positions` tokens, more than before."""
        return replace(self, max_position_embeddings=num_positions + self.first_position)

    @property
    def corrects_bias(self) -> bool:
        """Whether its pre-training corrects Adam's averages for their start at 0."""
        return True

    @property
    def windows(self) -> tuple[int | None, ...]:
        """How many tokens away its layers attend to; None for whole rows."""
        return (None,)

    @property
    def classifier_sigma(self) -> float:
        """Initial standard deviation of a task's last layer."""
        return self.initializer_range

    @property
    @abstractmethod
    def classifier_rate(self) -> float:
        """Dropout rate before a task's last layer."""

    @property
    def span_rate(self) -> float:
        """The same for questions, whose answers are spans."""
        return 0.0

    @abstractmethod
    def num_parameters(self) -> int:
        """Return the number of weights of the encoder without its pooler and heads."""

    @abstractmethod
    def encoder_flops(self, lengths: "np.ndarray") -> float:
        """Return the FLOPs of a forward pass without heads on rows of these `lengths`: 2 n k m for
        a product of (n, k) and (k, m) matrices.
        """

    @abstractmethod
    def activation_bytes(self) -> float:
        """Return a token's bytes that the backward pass needs, compiled, in bf16 or fp16."""

    @classmethod
    def vocabulary_fields(cls, size: int, pad_id: int, cls_id: int, sep_id: int) -> dict[str, Any]:
        """Return the fields that depend on a vocabulary and its special tokens."""
        known = {field.name for field in fields(cls)}
        values = {
            "vocab_size": size,
            "pad_token_id": pad_id,
            "bos_token_id": cls_id,
            "cls_token_id": cls_id,
            "eos_token_id": sep_id,
            "sep_token_id": sep_id,
        }
        return {name: value for name, value in values.items() if name in known}

    @classmethod
    def from_hf(cls, values: dict[str, Any], path: object = "config.json") -> Self:
        """Return the shape in a ``config.json``; raise `UserError` for what is not built here."""
        for name, only in cls.fixed.items():
            value = values.get(name, only)
            if value != only:
                raise UserError(f"{path} has {name} {value}, but only {only} is read.")
        return convert(values, cls, path, "Use another checkpoint.")

    def to_hf(self, architecture: str | None = None) -> dict[str, Any]:
        """Return the model's ``config.json``, by default with the heads of pre-training."""
        pretraining = "ForPreTraining" if "mlm+nsp" in self.objectives else "ForMaskedLM"
        names = [architecture or f"{self.hf_prefix}{pretraining}"]
        return {"architectures": names, "model_type": self.model_type, **asdict(self)}

    @property
    def predicts_in_chunks(self) -> bool:
        """Whether logits are computed in parts: those of 4,096 tokens of 256,000 are 4 GB."""
        return self.vocab_size > 2**16

    def logit_bytes(self) -> float:
        """Return the bytes of a token's logits and their gradient, in half precision."""
        if self.predicts_in_chunks:
            return 0.0
        # Of masked tokens up to 30% are predicted, from left to right all.
        share = 1.0 if self.is_decoder else 0.3
        return share * 4 * self.vocab_size
