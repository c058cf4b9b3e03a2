"""The shapes of BERT and of its descendants that have the same layers: RoBERTa's family."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...pipeline.config import Count, NotNegative, Share, check
from .config import PAPERS_WIDTH, EncoderConfig, TokenId

if TYPE_CHECKING:
    import numpy as np

EXACT_GELU = ("gelu", "gelu_python")
ACTIVATIONS = (*EXACT_GELU, "gelu_new", "gelu_fast", "gelu_pytorch_tanh")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(EncoderConfig):
    """The shape of a BERT; the defaults are BERT-base's, uncased.

    >>> ModelConfig.named("tiny", num_hidden_layers=3, vocab_size=8000).intermediate_size
    512
    """

    model_type: ClassVar[str] = "bert"
    title: ClassVar[str] = "BERT"
    hf_prefix: ClassVar[str] = "Bert"
    objectives: ClassVar[tuple[str, ...]] = ("mlm+nsp", "mlm", "ltr")
    default_dropout: ClassVar[float] = 0.1
    dropout_fields: ClassVar[tuple[str, ...]] = (
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
    )
    fixed: ClassVar[Mapping[str, Any]] = {"position_embedding_type": "absolute"}
    type_vocab_size: Count = 2
    hidden_act: str = "gelu"
    """``gelu`` is the exact one (erf); ``gelu_new`` google-research's, with tanh."""
    hidden_dropout_prob: Share = 0.1
    attention_probs_dropout_prob: Share = 0.1
    layer_norm_eps: NotNegative = 1e-12

    def __post_init__(self) -> None:
        super().__post_init__()
        must = f"must be one of {', '.join(ACTIVATIONS)}"
        check(self.hidden_act in ACTIVATIONS, "hidden_act", self.hidden_act, must)

    def num_parameters(self) -> int:
        hidden = self.hidden_size
        intermediate = self.intermediate_size
        num_embeddings = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer_norm = 2 * hidden  # weights and biases
        attention = 4 * hidden * (hidden + 1)  # queries, keys, values, output; each with biases
        feed_forward = 2 * hidden * intermediate + intermediate + hidden
        layer = attention + feed_forward + 2 * layer_norm
        return hidden * num_embeddings + layer_norm + self.num_hidden_layers * layer

    def encoder_flops(self, lengths: "np.ndarray") -> float:
        hidden = self.hidden_size
        # Queries, keys, values and output; then the two products of the feed-forward part.
        projections_per_token = 8 * hidden**2 + 4 * hidden * self.intermediate_size
        projections = projections_per_token * lengths.sum()
        # Scores, and the mean of the values: each token with each of its row.
        attention = 4 * hidden * (lengths.astype(float) ** 2).sum()
        # On the first token of each row.
        pooler = 2 * hidden**2 * len(lengths)
        return float(self.num_hidden_layers * (projections + attention) + pooler)

    def activation_bytes(self) -> float:
        # Two bytes each: input, queries, keys, values, attention's output, the sum before each
        # LayerNorm, the states between both halves; before and after GELU. A byte for each of two
        # dropout masks.
        layer = 18 * self.hidden_size + 4 * self.intermediate_size
        return self.num_hidden_layers * layer + self.logit_bytes()

    @property
    def corrects_bias(self) -> bool:
        """See `EncoderConfig`; the paper's does not."""
        return self.hidden_size < PAPERS_WIDTH

    @property
    def classifier_rate(self) -> float:
        return self.hidden_dropout_prob


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(ModelConfig):
    """The shape of a RoBERTa (arXiv 1907.11692): BERT's without segments, pairs and a pooler."""

    model_type: ClassVar[str] = "roberta"
    title: ClassVar[str] = "RoBERTa"
    hf_prefix: ClassVar[str] = "Roberta"
    objectives: ClassVar[tuple[str, ...]] = ("mlm",)
    tokenizer_settings: ClassVar[Mapping[str, Any]] = {
        "model_input_names": ["input_ids", "attention_mask"]
    }
    vocab_size: Count = 50265
    type_vocab_size: Count = 1
    max_position_embeddings: Count = 514
    layer_norm_eps: NotNegative = 1e-5
    pad_token_id: TokenId = 1
    bos_token_id: TokenId = 0
    eos_token_id: TokenId = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.max_position_embeddings
        must = f"a {self.title} counts positions from {self.first_position} on"
        check(self.num_positions >= 1, "max_position_embeddings", size, must)

    @property
    def first_position(self) -> int:
        """See `EncoderConfig`; ``transformers`` gives all padding the position before it."""
        return self.pad_token_id + 1


@dataclass(frozen=True, kw_only=True)
class XlmRobertaConfig(RobertaConfig):
    """The shape of an XLM-RoBERTa, which is a RoBERTa."""

    model_type: ClassVar[str] = "xlm-roberta"
    title: ClassVar[str] = "XLM-RoBERTa"
    hf_prefix: ClassVar[str] = "XLMRoberta"


@dataclass(frozen=True, kw_only=True)
class CamembertConfig(RobertaConfig):
    """The shape of a CamemBERT, which is a RoBERTa."""

    model_type: ClassVar[str] = "camembert"
    title: ClassVar[str] = "CamemBERT"
    hf_prefix: ClassVar[str] = "Camembert"
