"""ModernBERT (arXiv 2412.13663), in plain PyTorch: the encoder and its masked-LM head.

Positions are rotary, layers are pre-norm with a gated feed-forward part, nothing but the logits has
a bias, and most layers attend within a window. Modules are named so that the state dict has the
keys of ``transformers.ModernBertForMaskedLM``, without the copy of the tied embeddings.

Under autocast the states between layers stay fp32: they are a sum over all layers, which LayerNorm
never resets as it does in BERT.

Tensor names end in their shape: B rows, L padded length, T tokens computed (the real ones, or B *
L), G blocks of N packed tokens, D hidden size, E = 3 * D, F feed-forward size, H heads, K size of a
head, M predicted tokens, V vocabulary.
"""

import math
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import PackedRows, PaddedRows, dropout
from .encoder import Encoder, linear
from .heads import PretrainModel, tied_logits
from .modernbert_config import ModernBertConfig


class Rotation(NamedTuple):
    """The angles by which a layer turns its queries and keys, by the position of each token."""

    cos_T1K: Tensor
    """(T, 1, K / 2), fp32."""
    sin_T1K: Tensor

    @classmethod
    def at(cls, positions_T: Tensor, head_size: int, theta: float) -> Self:
        """Return the angles of RoPE (arXiv 2104.09864) with the base frequency `theta`."""
        # Pair i of a head's numbers turns by position / theta ** (2 i / K): the first ones fast,
        # which tells near tokens apart, the last ones slowly.
        even_K = torch.arange(0, head_size, 2, device=positions_T.device).float()
        frequency_K = 1.0 / theta ** (even_K / head_size)
        angle_T1K = (positions_T[:, None].float() * frequency_K)[:, None]
        return cls(angle_T1K.cos(), angle_T1K.sin())

    def turn(self, qkv_TE: Tensor, num_heads: int) -> Tensor:
        """Return queries, keys and values (T, E), with the queries and keys turned."""
        hidden_size = qkv_TE.shape[1] // 3
        qk_TE, values_TD = qkv_TE.split([2 * hidden_size, hidden_size], 1)
        # Queries and keys turn alike: as twice as many heads.
        qk_THK = qk_TE.unflatten(1, (2 * num_heads, -1)).float()
        # As in `transformers`, a pair is one number of a head's first half and one of its second.
        first, second = qk_THK.chunk(2, -1)
        cos, sin = self
        turned_first = first * cos - second * sin
        turned_second = second * cos + first * sin
        turned_THK = torch.cat([turned_first, turned_second], -1)
        turned_TE = turned_THK.flatten(1).to(qkv_TE.dtype)
        return torch.cat([turned_TE, values_TD], 1)


def _inner_sigma(config: ModernBertConfig) -> float:
    """Return the initial standard deviation of what is added to the states ("Megatron")."""
    # Each layer adds two outputs; so their sum varies as much in a deep encoder as in a flat one.
    return config.initializer_range / math.sqrt(2.0 * config.num_hidden_layers)


def _norm(config: ModernBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)


class Embeddings(nn.Module):
    """Word embeddings, LayerNorm, dropout."""

    def __init__(self, config: ModernBertConfig):
        super().__init__()
        self.tok_embeddings = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )
        self.norm = _norm(config)
        self.rate = config.embedding_dropout

    def forward(self, input_ids: Tensor) -> Tensor:
        return dropout(self.norm(self.tok_embeddings(input_ids)), self.rate, self.training)


class Attention(nn.Module):
    """Multi-head attention with rotary positions, to the whole row or within a window."""

    def __init__(self, config: ModernBertConfig, window: int | None):
        super().__init__()
        size = config.hidden_size
        self.Wqkv = nn.Linear(size, 3 * size, bias=False)
        self.Wo = linear(size, size, _inner_sigma(config), bias=False)
        self.num_heads = config.num_attention_heads
        self.rate = config.attention_dropout
        self.window = window

    def forward(
        self, hidden_TD: Tensor, layout: PaddedRows | PackedRows, rotation: Rotation
    ) -> Tensor:
        """Return what is added to the states (T, D)."""
        qkv_TE = rotation.turn(self.Wqkv(hidden_TD), self.num_heads)
        rate = self.rate if self.training else 0.0
        context_TD = layout.attend(qkv_TE, self.num_heads, rate, self.window)
        return dropout(self.Wo(context_TD), self.rate, self.training)


class GatedFeedForward(nn.Module):
    """Two linear layers with a gated GELU between them (GeGLU, arXiv 2002.05202)."""

    def __init__(self, config: ModernBertConfig):
        super().__init__()
        inner_size = config.intermediate_size
        self.Wi = nn.Linear(config.hidden_size, 2 * inner_size, bias=False)
        self.Wo = linear(inner_size, config.hidden_size, _inner_sigma(config), bias=False)
        self.rate = config.mlp_dropout

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Return what is added to the states (T, D)."""
        values_TF, gates_TF = self.Wi(hidden_TD).chunk(2, -1)
        return self.Wo(dropout(F.gelu(values_TF) * gates_TF, self.rate, self.training))


class Layer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, config: ModernBertConfig, index: int):
        super().__init__()
        # The embeddings of the first layer are normalised already.
        self.attn_norm = _norm(config) if index else nn.Identity()
        self.attn = Attention(config, config.window(index))
        self.mlp_norm = _norm(config)
        self.mlp = GatedFeedForward(config)

    def forward(
        self, states: Tensor, layout: PaddedRows | PackedRows, rotation: Rotation
    ) -> Tensor:
        """Return the next hidden states, of the same shape: (T, D) or in blocks (G, N, D)."""
        hidden_TD = states.flatten(0, -2)
        hidden_TD = hidden_TD + self.attn(self.attn_norm(hidden_TD), layout, rotation)
        hidden_TD = hidden_TD + self.mlp(self.mlp_norm(hidden_TD))
        return hidden_TD.view_as(states)


class ModernBertModel(Encoder):
    """The encoder; keys and results as in ``transformers.ModernBertModel``."""

    prefix = "model"
    span_layer = "classifier"

    def __init__(self, config: ModernBertConfig):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(
            Layer(config, index) for index in range(config.num_hidden_layers)
        )
        self.final_norm = _norm(config)
        self.head_size = config.hidden_size // config.num_attention_heads
        self.thetas = [config.rope_theta(index) for index in range(config.num_hidden_layers)]
        self.shape = config

    @property
    def word_embeddings(self) -> nn.Embedding:
        return self.embeddings.tok_embeddings

    @property
    def parts(self) -> Iterable[nn.Module]:
        """The embeddings and each layer; the last LayerNorm is a kernel of PyTorch's already."""
        return (self.embeddings, *self.layers)

    def compute_states(
        self, tokens: Tensor, types: Tensor, positions: Tensor, layout: PaddedRows | PackedRows
    ) -> list[Tensor]:
        # Once for all layers with the same base frequency.
        rotations = {
            theta: Rotation.at(positions.flatten(), self.head_size, theta)
            for theta in set(self.thetas)
        }
        states = [self.embeddings(tokens)]
        for layer, theta in zip(self.layers, self.thetas, strict=True):
            states.append(layer(states[-1], layout, rotations[theta]))
        states[-1] = self.final_norm(states[-1])
        return states

    def task_head(self) -> nn.Module:
        """Return new layers as before the logits of words."""
        return PredictionHead(self.shape)

    def pool(self, states_BLD: Tensor, mask_BL: Tensor | None) -> Tensor:
        """Return the first state of each row (B, D), or the mean over its real tokens."""
        if self.shape.classifier_pooling == "cls":
            return states_BLD[:, 0]
        if mask_BL is None:
            return states_BLD.mean(1)
        # Padding may have states of its own.
        kept_BLD = states_BLD * mask_BL[:, :, None]
        return kept_BLD.sum(1) / mask_BL.sum(1, keepdim=True)


class PredictionHead(nn.Module):
    """Linear layer, GELU and LayerNorm, before the logits of words or classes."""

    def __init__(self, config: ModernBertConfig):
        super().__init__()
        size = config.hidden_size
        self.dense = linear(size, size, _inner_sigma(config), bias=False)
        self.norm = _norm(config)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return values of the same shape (..., D)."""
        return self.norm(F.gelu(self.dense(hidden)))


class ModernBertForMaskedLM(PretrainModel):
    """ModernBERT with its masked-LM head."""

    model: ModernBertModel
    encoder_class = ModernBertModel
    vocabulary_weights = ("model.embeddings.tok_embeddings.weight", "decoder.bias")
    untied_weight = "decoder.weight"
    heads: ClassVar[Mapping[str, str]] = {"head.": "masked-LM head", "decoder.": "masked-LM head"}

    def __init__(self, config: ModernBertConfig):
        super().__init__(config)
        self.head = PredictionHead(config)
        # The weight of the logits is the embedding matrix.
        self.decoder = nn.ParameterDict({"bias": torch.zeros(config.vocab_size)})

    def token_logits(self, hidden_MD: Tensor) -> Tensor:
        embeddings_VD = self.encoder.word_embeddings.weight
        return tied_logits(self.head(hidden_MD), embeddings_VD, self.decoder["bias"])
