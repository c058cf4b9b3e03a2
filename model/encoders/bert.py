"""BERT, in plain PyTorch: the encoder and its heads for pre-training. RoBERTa (arXiv 1907.11692)
and its descendants XLM-RoBERTa, CamemBERT and PhoBERT are BERT's layers without a pooler.

Modules are named so that the state dict has the keys of ``transformers.BertForPreTraining``, or of
``RobertaForMaskedLM``.

Under autocast on a GPU the hidden states between layers are bf16 (or fp16), and LayerNorm computes
in fp32 (see `add_and_norm`).

Tensor names end in their shape: B rows, L padded length, T tokens computed (the real ones, or B *
L), G blocks of N packed tokens, D hidden size, E = 3 * D, F feed-forward size, S segments, M
predicted tokens, V vocabulary, P positions, K classes.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import TOKEN_BLOCK, PackedRows, PaddedRows, dropout
from .bert_config import EXACT_GELU, ModelConfig, RobertaConfig
from .config import EncoderConfig
from .encoder import Encoder, linear
from .heads import PretrainModel, tied_logits

HALF_STREAM_DEVICES = ("cuda",)
"""Devices on which autocast extends to the states between layers; the CPU keeps them in fp32."""


def add_and_norm(layer_norm: nn.LayerNorm, added_TD: Tensor, residual_TD: Tensor) -> Tensor:
    """Return the LayerNorm of the sum, in fp32; on a GPU in the number format of `added_TD`."""
    if added_TD.device.type not in HALF_STREAM_DEVICES:
        return layer_norm(added_TD + residual_TD)
    # `added_TD` comes from a matrix product, so under autocast it is bf16 or fp16. The compiler
    # fuses all conversions into the kernel: the sum is rounded because the backward pass reads it
    # again, and half the bytes are written and read; mean and variance are those of fp32.
    half = added_TD.dtype
    sum_TD = (added_TD.float() + residual_TD).to(half)
    return layer_norm(sum_TD.float()).to(half)


def segment_embeddings(token_type_ids: Tensor, weight_SD: Tensor) -> Tensor:
    """Return the embedding of each token's segment (..., D)."""
    # With one kind of segment, whatever the tokens' are.
    has_one = len(weight_SD) == 1
    if token_type_ids.device.type not in HALF_STREAM_DEVICES and not has_one:
        return F.embedding(token_type_ids, weight_SD)
    # A GPU adds up a table's gradient by atomic operations, which wait for each other if thousands
    # of tokens share a row, as they do here. The gradient of `where` is a sum over the tokens.
    chosen = weight_SD[0].expand(*token_type_ids.shape, -1)
    for segment in range(1, len(weight_SD)):
        is_segment = (token_type_ids == segment)[..., None]
        chosen = torch.where(is_segment, weight_SD[segment], chosen)
    return chosen


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, LayerNorm, dropout."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(
            config.vocab_size, size, padding_idx=config.pad_token_id
        )
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.first_position = config.first_position
        self.rate = config.hidden_dropout_prob

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Return the embedded tokens (..., D)."""
        words = self.word_embeddings(input_ids)
        segments = segment_embeddings(token_type_ids, self.token_type_embeddings.weight)
        positions = self.position_embeddings(position_ids + self.first_position)
        # In the order of `transformers`: a sum of floats depends on it.
        embedded = self.LayerNorm(words + segments + positions)
        embedded = dropout(embedded, self.rate, self.training)
        device_type = embedded.device.type
        if device_type in HALF_STREAM_DEVICES and torch.is_autocast_enabled(device_type):
            # The states between layers have autocast's number format.
            return embedded.to(torch.get_autocast_dtype(device_type))
        return embedded


class SelfAttention(nn.Module):
    """Multi-head attention; padding is never attended."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        size = config.hidden_size
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.num_heads = config.num_attention_heads
        self.rate = config.attention_probs_dropout_prob

    def forward(self, hidden_TD: Tensor, layout: PaddedRows | PackedRows) -> Tensor:
        """Return the values that each token gathers (T, D)."""
        # One product for all three is faster than three; they are apart for the checkpoint's keys.
        # Copying the weights together costs little beside a product over thousands of tokens.
        parts = (self.query, self.key, self.value)
        weight_ED = torch.cat([part.weight for part in parts])
        bias_E = torch.cat([part.bias for part in parts])
        qkv_TE = F.linear(hidden_TD, weight_ED, bias_E)
        rate = self.rate if self.training else 0.0
        return layout.attend(qkv_TE, self.num_heads, rate)


class ResidualOutput(nn.Module):
    """Linear layer, dropout, and LayerNorm of the sum with the residual."""

    def __init__(self, config: ModelConfig, input_size: int):
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.rate = config.hidden_dropout_prob

    def forward(self, values: Tensor, residual_TD: Tensor) -> Tensor:
        """Return (T, D) from `values` (T, D or F) and the residual."""
        added_TD = dropout(self.dense(values), self.rate, self.training)
        return add_and_norm(self.LayerNorm, added_TD, residual_TD)


class DenseGelu(nn.Module):
    """Linear layer and GELU."""

    def __init__(self, config: ModelConfig, output_size: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, output_size)
        self.approximate = "none" if config.hidden_act in EXACT_GELU else "tanh"

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (T, F) from (T, D), or (G, N, F) from blocks of tokens (G, N, D)."""
        # Compared with the constant, so that the compiler knows the size of a block.
        is_in_blocks = hidden.dim() == 3 and hidden.shape[1] == TOKEN_BLOCK
        inner = self._dense_of_blocks(hidden) if is_in_blocks else self.dense(hidden)
        return F.gelu(inner, approximate=self.approximate)

    def _dense_of_blocks(self, hidden_GND: Tensor) -> Tensor:
        # The bias's gradient is a sum over the tokens. As a linear layer has it, a kernel of its
        # own reads the largest gradient of a layer once more. With a copy of the bias for each
        # block, the kernel of GELU's gradient adds up a block's tokens itself, and only the sums
        # of the blocks are left.
        inner_GNF = F.linear(hidden_GND, self.dense.weight)
        bias_F = self.dense.bias.to(inner_GNF.dtype)
        bias_GF = bias_F.expand(len(hidden_GND), -1)
        return inner_GNF + bias_GF[:, None]


class Layer(nn.Module):
    """One post-LN transformer layer."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        # A dictionary gives its parts their keys in the checkpoint, attention.self and so on.
        self.attention = nn.ModuleDict(
            {"self": SelfAttention(config), "output": ResidualOutput(config, config.hidden_size)}
        )
        self.intermediate = DenseGelu(config, config.intermediate_size)
        self.output = ResidualOutput(config, config.intermediate_size)

    def forward(self, states: Tensor, layout: PaddedRows | PackedRows) -> Tensor:
        """Return the next hidden states, of the same shape: (T, D) or in blocks (G, N, D)."""
        hidden_TD = states.flatten(0, -2)
        context_TD = self.attention["self"](hidden_TD, layout)
        hidden_TD = self.attention["output"](context_TD, hidden_TD)
        inner = self.intermediate(hidden_TD.view_as(states))
        next_TD = self.output(inner.flatten(0, -2), hidden_TD)
        return next_TD.view_as(states)


class Pooler(nn.Module):
    """Linear layer and tanh on the hidden state of [CLS]."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        """Return (B, D)."""
        return torch.tanh(self.dense(hidden_BLD[:, 0]))


class BertModel(Encoder):
    """The encoder with its pooler; keys and results as in ``transformers.BertModel``."""

    prefix = "bert"
    optional_modules = ("pooler",)
    span_layer = "qa_outputs"

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})
        if "pooler" in self.optional_modules:
            self.pooler = Pooler(config)

    @property
    def word_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    @property
    def layers(self) -> Iterable[nn.Module]:
        return self.encoder["layer"].children()

    @property
    def parts(self) -> Iterable[nn.Module]:
        return (self.embeddings, *self.layers)

    def compute_states(
        self, tokens: Tensor, types: Tensor, positions: Tensor, layout: PaddedRows | PackedRows
    ) -> list[Tensor]:
        states = [self.embeddings(tokens, types, positions)]
        for layer in self.layers:
            states.append(layer(states[-1], layout))
        return states

    def pool(self, states_BLD: Tensor, mask_BL: Tensor | None) -> Tensor:
        return self.pooler(states_BLD)


class Transform(DenseGelu):
    """Linear layer, GELU and LayerNorm, before the masked-LM head's logits."""

    def __init__(self, config: ModelConfig):
        super().__init__(config, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (M, D)."""
        return self.LayerNorm(super().forward(hidden))


class MaskedLMHead(nn.Module):
    """Logits over the vocabulary through the tied embedding matrix."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.transform = Transform(config)

    def forward(self, hidden_MD: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Return logits (M, V)."""
        return tied_logits(self.transform(hidden_MD), embeddings_VD, self.bias)


class BertForPreTraining(PretrainModel):
    """BERT with its masked-LM and next-sentence heads."""

    bert: BertModel
    encoder_class = BertModel
    vocabulary_weights = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
    positions_weight = "bert.embeddings.position_embeddings.weight"
    untied_weight = "cls.predictions.decoder.weight"
    heads: ClassVar[Mapping[str, str]] = {
        "cls.predictions.": "masked-LM head",
        "cls.seq_relationship.": "next-sentence head",
        "bert.pooler.": "pooler",
    }

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.cls = nn.ModuleDict(
            {
                "predictions": MaskedLMHead(config),
                "seq_relationship": nn.Linear(config.hidden_size, 2),
            }
        )

    def token_logits(self, hidden_MD: Tensor) -> Tensor:
        return self.cls["predictions"](hidden_MD, self.encoder.word_embeddings.weight)

    def nsp_logits(self, hidden_BLD: Tensor) -> Tensor:
        return self.cls["seq_relationship"](self.encoder.pool(hidden_BLD, None))


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


class RobertaLMHead(nn.Module):
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

    roberta: RobertaModel
    encoder_class = RobertaModel
    vocabulary_weights = ("roberta.embeddings.word_embeddings.weight", "lm_head.bias")
    positions_weight = "roberta.embeddings.position_embeddings.weight"
    untied_weight = "lm_head.decoder.weight"
    heads: ClassVar[Mapping[str, str]] = {"lm_head.": "masked-LM head"}

    def __init__(self, config: RobertaConfig):
        super().__init__(config)
        self.lm_head = RobertaLMHead(config)

    def token_logits(self, hidden_MD: Tensor) -> Tensor:
        return self.lm_head(hidden_MD, self.encoder.word_embeddings.weight)
