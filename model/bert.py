"""The BERT encoder, in plain PyTorch.

Modules are named so that the state dict has the keys of ``transformers.BertForPreTraining``. What
works on single tokens (linear layers, LayerNorm, GELU, dropout) sees the real tokens packed
together; only attention knows rows, from one of two layouts::

    tokens of two rows           a0 a1 b0 b1 b2           T = 5
    PaddedRows, for attention    a0 a1 -- | b0 b1 b2      B = 2, L = 3, token_index_T = 0 1 3 4 5
    PackedRows                   a0 a1 b0 b1 b2           row_starts = 0 2 5

`PaddedRows` unpacks them for attention with a key mask, as the CPU needs; `PackedRows` leaves them
packed for FlashAttention, which reads where each row starts. On the CPU dropout draws 16 random
bits a value (see `dropout`).

Under autocast on a GPU the hidden states between layers are bf16 (or fp16), and LayerNorm computes
in fp32 (see `add_and_norm`).

Tensor names end in their shape: B rows, L padded length, T tokens computed (the real ones, or B *
L), D hidden size, E = 3 * D, F feed-forward size, H heads, K size of a head, S segments or packed
rows.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .config import ModelConfig

HALF_STREAM_DEVICES = ("cuda",)
"""Devices on which autocast extends to the states between layers; the CPU keeps them in fp32."""


class PaddedRows(NamedTuple):
    """Layout of B padded rows of L tokens, T of them computed."""

    num_rows: int
    max_length: int
    token_index_T: Tensor | None
    """Flat indices of the computed tokens in (B * L), ascending; None if all are computed."""
    key_mask_B11L: Tensor | None
    """True at the keys to attend to; None if there is no padding."""
    is_causal: bool

    def pack(self, padded_ND: Tensor) -> Tensor:
        """Take the computed tokens out of N = B * L flat padded ones.

        Shapes are (N, D) and (T, D), or (N,) and (T,).
        """
        if self.token_index_T is None:
            return padded_ND
        return padded_ND.index_select(0, self.token_index_T)

    def unpack(self, packed_TD: Tensor) -> Tensor:
        """Put the computed tokens back: (T, D) to (B * L, D), zeros at the padding."""
        if self.token_index_T is None:
            return packed_TD
        padded_ND = packed_TD.new_zeros(self.num_rows * self.max_length, packed_TD.shape[1])
        return padded_ND.index_copy(0, self.token_index_T, packed_TD)

    def attend(self, qkv_TE: Tensor, num_heads: int, rate: float) -> Tensor:
        """Return the values that each token gathers (T, D), from queries, keys and values."""
        # A token's E numbers are its queries, keys and values, each with one head after the other:
        #
        #     [q of head 0 | q of head 1 | k of head 0 | k of head 1 | v of head 0 | v of head 1]
        #
        # The permutation only changes strides; nothing is copied.
        qkv_NE = self.unpack(qkv_TE)
        qkv_BL3HK = qkv_NE.view(self.num_rows, self.max_length, 3, num_heads, -1)
        qkv_3BHLK = qkv_BL3HK.permute(2, 0, 3, 1, 4)
        q_BHLK, k_BHLK, v_BHLK = qkv_3BHLK.unbind(0)
        if _products_are_faster(qkv_TE, self.max_length, rate):
            context_BHLK = _attend_by_products(q_BHLK, k_BHLK, v_BHLK, rate, self)
        else:
            context_BHLK = _attend(q_BHLK, k_BHLK, v_BHLK, rate, self)
        hidden_size = qkv_TE.shape[1] // 3
        context_ND = context_BHLK.transpose(1, 2).reshape(-1, hidden_size)
        return self.pack(context_ND)


class PackedRows(NamedTuple):
    """Where rows start among T tokens that lie one row after the other."""

    row_starts: Tensor
    """int32 (S + 1): the first token of each of S rows, then T; rows may be empty."""
    max_length: int
    """At least the tokens of the longest row."""
    is_causal: bool

    def attend(self, qkv_TE: Tensor, num_heads: int, rate: float) -> Tensor:
        """Return the values that each token gathers (T, D), from queries, keys and values."""
        qkv_T3HK = qkv_TE.view(len(qkv_TE), 3, num_heads, -1)
        q_THK, k_THK, v_THK = qkv_T3HK.unbind(1)
        if qkv_TE.device.type == "cpu":
            context_THK = _attend_blocks(q_THK, k_THK, v_THK, rate, self)
        else:
            context_THK = _flash_attend(q_THK, k_THK, v_THK, rate, self)
        return context_THK.reshape(len(qkv_TE), -1)


def dropout(values: Tensor, rate: float, training: bool) -> Tensor:
    """Drop each value with probability `rate` and scale up the rest.

    On the CPU one 64-bit draw decides four values, so the rate is rounded to 1/65536.
    """
    if not training or rate == 0:
        return values
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(values, rate)
    # PyTorch's own dropout on the CPU draws one value after the other through a slow generator
    # call, a quarter of a small model's whole step. Here each draw is read as four numbers:
    #
    #     draws    |        64 bits        |        64 bits        |
    #     numbers  | -7 | 310 | -29876 | 4 | 95 | -1 | unused      |    int16
    #     values     v0   v1    v2       v3  v4   v5
    num_values = values.numel()
    num_draws = (num_values + 3) // 4
    # None as the upper end, which is exclusive: 2**63 itself does not fit into an int64.
    draws = torch.empty(num_draws, dtype=torch.int64).random_(-(2**63), None)
    numbers = draws.view(torch.int16)[:num_values].view(values.shape)
    # Of the 65,536 numbers from -32,768 on, the lowest mean that a value is dropped.
    num_dropping = round(rate * 65536)
    is_kept = numbers >= num_dropping - 32768
    # By the rounded rate, so that the expected value of each output is exactly its input.
    scale = 65536 / (65536 - num_dropping)
    return values * is_kept.to(values.dtype).mul_(scale)


def add_and_norm(layer_norm: nn.LayerNorm, added_TD: Tensor, residual_TD: Tensor) -> Tensor:
    """Return the LayerNorm of the sum, computed in fp32; on a GPU in the number format of
    `added_TD`.
    """
    if added_TD.device.type not in HALF_STREAM_DEVICES:
        return layer_norm(added_TD + residual_TD)
    # `added_TD` comes from a matrix product, so under autocast it is bf16 or fp16. The compiler
    # fuses both conversions into the kernel: only the states in memory are halved, not the sums.
    normed_TD = layer_norm(added_TD.float() + residual_TD)
    return normed_TD.to(added_TD.dtype)


def segment_embeddings(token_type_ids_T: Tensor, weight_SD: Tensor) -> Tensor:
    """Return the embedding of each token's segment (T, D)."""
    if token_type_ids_T.device.type not in HALF_STREAM_DEVICES:
        return F.embedding(token_type_ids_T, weight_SD)
    # A GPU adds up a table's gradient by atomic operations, which wait for each other if thousands
    # of tokens share a row, as they do here. The gradient of `where` is a sum over the tokens.
    types_T1 = token_type_ids_T[:, None]
    chosen_TD = weight_SD[0].expand(len(types_T1), -1)
    for segment in range(1, len(weight_SD)):
        chosen_TD = torch.where(types_T1 == segment, weight_SD[segment], chosen_TD)
    return chosen_TD


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
        self.rate = config.hidden_dropout_prob

    def forward(
        self, input_ids_T: Tensor, token_type_ids_T: Tensor, position_ids_T: Tensor
    ) -> Tensor:
        """Return the embedded tokens (T, D)."""
        words_TD = self.word_embeddings(input_ids_T)
        segments_TD = segment_embeddings(token_type_ids_T, self.token_type_embeddings.weight)
        positions_TD = self.position_embeddings(position_ids_T)
        # In the order of `transformers`: a sum of floats depends on it.
        embedded_TD = self.LayerNorm(words_TD + segments_TD + positions_TD)
        return dropout(embedded_TD, self.rate, self.training)


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
        weight_ED = torch.cat([self.query.weight, self.key.weight, self.value.weight])
        bias_E = torch.cat([self.query.bias, self.key.bias, self.value.bias])
        qkv_TE = F.linear(hidden_TD, weight_ED, bias_E)
        rate = self.rate if self.training else 0.0
        return layout.attend(qkv_TE, self.num_heads, rate)


def _products_are_faster(qkv_TE: Tensor, max_length: int, rate: float) -> bool:
    if qkv_TE.device.type != "cpu":
        return False
    if rate > 0:
        return True  # the fused kernel draws dropout slowly
    # The fused kernel's backward pass over short rows in bf16 takes four times as long. Over rows
    # of 512 both take the same time, and in fp32 the kernel is not slower.
    has_slow_backward = qkv_TE.requires_grad and qkv_TE.dtype != torch.float32
    return has_slow_backward and max_length <= 256


def _attend(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, rate: float, layout: PaddedRows
) -> Tensor:
    # Rows are padded on the right, so under the causal mask no real token sees padding.
    mask = None if layout.is_causal else layout.key_mask_B11L
    return F.scaled_dot_product_attention(
        q_BHLK, k_BHLK, v_BHLK, attn_mask=mask, dropout_p=rate, is_causal=layout.is_causal
    )


def _attend_by_products(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, rate: float, layout: PaddedRows
) -> Tensor:
    # PyTorch takes these very steps on the CPU if there is dropout, but draws it slowly.
    scale = math.sqrt(q_BHLK.shape[-1])
    # Scaled before the product: L x K numbers to divide, instead of the L x L scores.
    k_BHKL = k_BHLK.transpose(-1, -2)
    scores_BHLL = (q_BHLK / scale) @ k_BHKL
    # At -inf the softmax is exactly 0. A row has its [CLS], so no softmax is of -inf alone (NaN).
    if layout.is_causal:
        # What a token must not see, its future, lies above the diagonal.
        future_LL = torch.ones(scores_BHLL.shape[-2:], dtype=torch.bool).triu(1)
        scores_BHLL = scores_BHLL.masked_fill(future_LL, -math.inf)
    elif layout.key_mask_B11L is not None:
        scores_BHLL = scores_BHLL.masked_fill(~layout.key_mask_B11L, -math.inf)
    weights_BHLL = dropout(scores_BHLL.softmax(-1), rate, training=True)
    return weights_BHLL @ v_BHLK


def _flash_attend(
    q_THK: Tensor, k_THK: Tensor, v_THK: Tensor, rate: float, layout: PackedRows
) -> Tensor:
    # The operator beneath PyTorch's own attention: no public function takes packed rows and a
    # dropout rate.
    context_THK, *_ = torch.ops.aten._flash_attention_forward(
        q_THK,
        k_THK,
        v_THK,
        cum_seq_q=layout.row_starts,
        cum_seq_k=layout.row_starts,
        max_q=layout.max_length,
        max_k=layout.max_length,
        dropout_p=rate,
        is_causal=layout.is_causal,
        return_debug_mask=False,
    )
    return context_THK


def _attend_blocks(
    q_THK: Tensor, k_THK: Tensor, v_THK: Tensor, rate: float, layout: PackedRows
) -> Tensor:
    # The same on the CPU, to test packed rows there: with a (T, T) mask, so for few tokens. Tokens
    # attend within blocks along its diagonal, one per row (above it, only if not causal):
    #
    #     row_starts  0 2 5             a0 a1 b0 b1 b2
    #     row_T       0 0 1 1 1     a0   x  x
    #                               a1   x  x
    #                               b0         x  x  x
    #                               b1         x  x  x
    #                               b2         x  x  x
    tokens_T = torch.arange(len(q_THK), dtype=torch.int32)
    # On the right of equal ends: a row's first token lies behind the end of the row before.
    row_T = torch.bucketize(tokens_T, layout.row_starts[1:], right=True)
    mask_TT = row_T[:, None] == row_T
    if layout.is_causal:
        mask_TT = mask_TT & (tokens_T[:, None] >= tokens_T)
    context_HTK = F.scaled_dot_product_attention(
        q_THK.transpose(0, 1),
        k_THK.transpose(0, 1),
        v_THK.transpose(0, 1),
        attn_mask=mask_TT,
        dropout_p=rate,
    )
    return context_HTK.transpose(0, 1)


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


class Attention(nn.Module):
    """Self-attention and its output layer."""

    # It only gives both their keys in the checkpoint (attention.self, attention.output): `Layer`
    # calls them one by one, so there is no `forward`.

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self = SelfAttention(config)
        self.output = ResidualOutput(config, config.hidden_size)


class DenseGelu(nn.Module):
    """Linear layer and GELU."""

    def __init__(self, config: ModelConfig, output_size: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, output_size)
        # The exact GELU, or its tanh approximation under any other name.
        self.approximate = "none" if config.hidden_act == "gelu" else "tanh"

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Return (T, F)."""
        return F.gelu(self.dense(hidden_TD), approximate=self.approximate)


class Layer(nn.Module):
    """One post-LN transformer layer."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = DenseGelu(config, config.intermediate_size)
        self.output = ResidualOutput(config, config.intermediate_size)

    def forward(self, hidden_TD: Tensor, layout: PaddedRows | PackedRows) -> Tensor:
        """Return the next hidden states (T, D)."""
        context_TD = self.attention.self(hidden_TD, layout)
        hidden_TD = self.attention.output(context_TD, hidden_TD)
        return self.output(self.intermediate(hidden_TD), hidden_TD)


class Encoder(nn.Module):
    """The stack of layers."""

    # Only for the checkpoint's keys too: `BertModel._states` runs the layers.

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))


class Pooler(nn.Module):
    """Linear layer and tanh on the hidden state of [CLS]."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        """Return (B, D)."""
        return torch.tanh(self.dense(hidden_BLD[:, 0]))


class BertModel(nn.Module):
    """The encoder with its pooler; keys and results as in ``transformers.BertModel``."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config)
        self.recomputes_layers = False
        """In training, keep only each layer's input, and compute it again in the backward pass."""

    def forward(
        self,
        input_ids_BL: Tensor,
        token_type_ids_BL: Tensor | None = None,
        attention_mask_BL: Tensor | None = None,
        token_index_T: Tensor | None = None,
    ) -> Tensor:
        """Return the last hidden states (B, L, D); see `hidden_states` for the arguments."""
        (last_BLD,) = self.hidden_states(
            input_ids_BL, token_type_ids_BL, attention_mask_BL, token_index_T
        )
        return last_BLD

    def hidden_states(
        self,
        input_ids_BL: Tensor,
        token_type_ids_BL: Tensor | None = None,
        attention_mask_BL: Tensor | None = None,
        token_index_T: Tensor | None = None,
        *,
        all_layers: bool = False,
    ) -> list[Tensor]:
        """Return the hidden states (B, L, D) of the last layer; of the embeddings and each layer if
        `all_layers`.

        `input_ids_BL` and `token_type_ids_BL` (0 by default) are int64, padded on the right;
        `attention_mask_BL` is 1 or True at real tokens, None where all are. `token_index_T` (int64,
        flat indices in B * L of the real tokens, see `real_tokens`) leaves padding out of the
        computation; the states there are then 0.
        """
        num_rows, max_length = input_ids_BL.shape
        if token_type_ids_BL is None:
            token_type_ids_BL = torch.zeros_like(input_ids_BL)
        key_mask_B11L = None
        if attention_mask_BL is not None:
            key_mask_B11L = attention_mask_BL.bool()[:, None, None, :]
        positions_L = torch.arange(max_length, device=input_ids_BL.device)
        positions_BL = positions_L.expand(num_rows, max_length)

        layout = PaddedRows(
            num_rows, max_length, token_index_T, key_mask_B11L, self.config.is_decoder
        )
        # Packed once, before the embeddings; then only attention unpacks and packs again.
        states = self._states(
            layout.pack(input_ids_BL.reshape(-1)),
            layout.pack(token_type_ids_BL.reshape(-1)),
            layout.pack(positions_BL.reshape(-1)),
            layout,
        )
        wanted = states if all_layers else states[-1:]
        return [layout.unpack(state_TD).view(num_rows, max_length, -1) for state_TD in wanted]

    def packed_states(
        self,
        input_ids_T: Tensor,
        token_type_ids_T: Tensor,
        position_ids_T: Tensor,
        row_starts: Tensor,
        max_length: int,
    ) -> Tensor:
        """Return the last hidden states (T, D) of rows as `PackedRows` has them."""
        layout = PackedRows(row_starts, max_length, self.config.is_decoder)
        return self._states(input_ids_T, token_type_ids_T, position_ids_T, layout)[-1]

    def _states(
        self,
        tokens_T: Tensor,
        types_T: Tensor,
        positions_T: Tensor,
        layout: PaddedRows | PackedRows,
    ) -> list[Tensor]:
        states = [self.embeddings(tokens_T, types_T, positions_T)]
        recomputes = self.recomputes_layers and self.training
        for layer in self.encoder.layer:
            if recomputes:
                # It restores the random state too, so both passes drop the same values. The
                # reentrant kind would need an input with a gradient.
                state_TD = checkpoint(layer, states[-1], layout, use_reentrant=False)
            else:
                state_TD = layer(states[-1], layout)
            states.append(state_TD)
        return states


def real_tokens(attention_mask_BL: Tensor) -> Tensor:
    """Return the flat indices of the real tokens (T,), int64; on a GPU this waits for it.

    >>> real_tokens(torch.tensor([[1, 1, 0], [1, 1, 1]]))
    tensor([0, 1, 3, 4, 5])
    """
    # The result's size depends on its values, which the CPU must know before it goes on.
    return attention_mask_BL.reshape(-1).nonzero().squeeze(1)


def initialise(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """Draw all weights in the order of the modules, as google-research's BERT does.

    They are normal, cut off at 2 sigma; biases are 0, LayerNorm's weights 1. An LSTM's are uniform
    up to 1 / sqrt(its size), as PyTorch has it.
    """
    sigma = config.initializer_range
    # One generator in one order: a seed makes the same model on every machine. The padding's
    # embedding is drawn like the others, as in google-research's.
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(
                module.weight, std=sigma, a=-2 * sigma, b=2 * sigma, generator=generator
            )
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LSTM):
            bound = module.hidden_size**-0.5
            for weight in module.parameters():
                nn.init.uniform_(weight, -bound, bound, generator=generator)
