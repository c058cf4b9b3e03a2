"""RoBERTa (arXiv 1907.11692) and its descendants XLM-RoBERTa, CamemBERT and PhoBERT: BERT's layers
without a pooler, under the keys of ``transformers.RobertaForMaskedLM``.

Tensor names end in their shape: B rows, L padded length, D hidden size, M predicted tokens, V
vocabulary, K classes.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import dropout
from .bert import BertModel
from .bert_config import RobertaConfig
from .config import EncoderConfig
from .encoder import linear
from .heads import PretrainModel, tied_logits


class RobertaModel(BertModel):
    """The encoder; keys and results as in ``transformers.RobertaModel`` without a pooler."""

    prefix = "roberta"
    optional_modules = ()

    def pool(self, states_BLD: Tensor, mask_BL: Tensor | None) -> Tensor:
        """Return the first state of each row (B, D)."""
        return states_BLD[:, 0]

    def row_classifier(self, num_outputs: int) -> nn.Module:
        """Return a new layer that gives the logits of rows (B, K), BERT's pooler in it."""
        return RowClassifier(self.config, num_outputs)


class RowClassifier(nn.Module):
    """Linear layer, tanh, dropout, linear layer."""

    def __init__(self, config: EncoderConfig, num_outputs: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out_proj = linear(config.hidden_size, num_outputs, config.classifier_sigma)
        self.rate = config.classifier_rate

    def forward(self, pooled_BD: Tensor) -> Tensor:
        """Return logits (B, K)."""
        values_BD = torch.tanh(self.dense(pooled_BD))
        return self.out_proj(dropout(values_BD, self.rate, self.training))


class MaskedLMHead(nn.Module):
    """Linear layer, GELU, LayerNorm, and logits over the vocabulary through the tied embeddings."""

    def __init__(self, config: RobertaConfig):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_MD: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Return logits (M, V)."""
        values_MD = self.layer_norm(F.gelu(self.dense(hidden_MD)))
        return tied_logits(values_MD, embeddings_VD, self.bias)


class RobertaForMaskedLM(PretrainModel):
    """RoBERTa with its masked-LM head."""

    prefix = "roberta"
    vocabulary_weights = ("roberta.embeddings.word_embeddings.weight", "lm_head.bias")
    positions_weight = "roberta.embeddings.position_embeddings.weight"
    untied_weight = "lm_head.decoder.weight"
    heads: ClassVar[Mapping[str, str]] = {"lm_head.": "masked-LM head"}

    def __init__(self, config: RobertaConfig):
        super().__init__(config)
        self.roberta = RobertaModel(config)
        self.lm_head = MaskedLMHead(config)

    def token_logits(self, hidden_MD: Tensor) -> Tensor:
        return self.lm_head(hidden_MD, self.roberta.word_embeddings.weight)
