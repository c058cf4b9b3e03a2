"""Attention among the tokens of a row, for every encoder; everything else sees tokens one by one.

What works on single tokens (linear layers, LayerNorm, GELU, dropout) sees the real tokens packed
together; only attention knows rows, from one of two layouts::

    tokens of two rows           a0 a1 b0 b1 b2           T = 5
    PaddedRows, for attention    a0 a1 -- | b0 b1 b2      B = 2, L = 3, token_index_T = 0 1 3 4 5
    PackedRows                   a0 a1 b0 b1 b2           row_starts = 0 2 5

`PaddedRows` unpacks them for attention with a key mask, as the CPU needs; `PackedRows` leaves them
packed for FlashAttention, which reads where each row starts. With a window, a token attends only to
tokens of its row within that distance. Time and memory are then linear in the length of the
rows: long rows are cut into blocks (see `_attend_blocks`). In causal layouts a token sees only
itself and what is on its left. On the CPU dropout draws 16 random bits a value (see `dropout`).

Tensor names end in their shape: B rows, L padded length, T tokens computed (the real ones, or B *
L), D hidden size, E = 3 * D, H heads, K size of a head, S packed rows, N blocks of Q queries and W
tokens in a window's half.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...pipeline.ragged import divide_up

BLOCK_QUERIES = 128
"""Queries of a block of windowed attention."""
TOKEN_BLOCK = 1024
"""Tokens of packed rows in training are padded to a multiple of this."""
PADDING_ROW = -1
"""Row number of tokens that pad, which attend to each other."""


def few_lengths(length: int, per_doubling: int) -> int:
    """Return `length` or a little more: one of so many from each power of two to the next.

    On a CPU the kernel of a product in bf16 is made for each new shape, which takes milliseconds:
    more than a small product itself.
    """
    step = max(1, (1 << (length - 1).bit_length()) // (2 * per_doubling))
    return step * divide_up(length, step)


def computed_length(values: Tensor) -> int:
    """Return how many tokens to compute for `values` (T, ...): on a CPU in bf16 a few more."""
    is_made_for_shape = values.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return few_lengths(len(values), 16) if is_made_for_shape else len(values)


def extended(values: Tensor, length: int, value: int = 0) -> Tensor:
    """Return `values` (T, ...) with `value` behind them, (`length`, ...)."""
    if length == len(values) and not torch.compiler.is_compiling():
        return values
    # F.pad takes the last dimension's two ends first.
    return F.pad(values, (0, 0) * (values.ndim - 1) + (0, length - len(values)), value=value)


class PaddedRows(NamedTuple):
    """Layout of B padded rows of L tokens, T of them computed."""

    num_rows: int
    max_length: int
    token_index_T: Tensor | None
    """Flat indices of the computed tokens in (B * L), ascending; None if all are computed."""
    key_mask_B11L: Tensor | None
    """True at the keys to attend to; None if there is no padding."""
    is_causal: bool

    def pack(self, padded_ND: Tensor, num_tokens: int) -> Tensor:
        """Take the computed tokens out of N = B * L flat padded ones: (N, ...) to (T, ...), with
        zeros behind them up to `num_tokens`.
        """
        if self.token_index_T is None:
            return padded_ND
        return extended(padded_ND.index_select(0, self.token_index_T), num_tokens)

    def unpack(self, packed_TD: Tensor) -> Tensor:
        """Put the computed tokens back: (T, D) to (N, D), zeros at the padding."""
        if self.token_index_T is None:
            return packed_TD
        padded_ND = packed_TD.new_zeros(self.num_rows * self.max_length, packed_TD.shape[1])
        return padded_ND.index_copy(0, self.token_index_T, packed_TD[: len(self.token_index_T)])

    def attend(
        self, qkv_TE: Tensor, num_heads: int, rate: float, window: int | None = None
    ) -> Tensor:
        """Return the values that each token gathers (T, D), with dropout at `rate`; with a `window`
        a token sees those within that distance on either side.
        """
        # Over shorter rows a block would meet more keys than the whole row has.
        if window is not None and self.max_length > BLOCK_QUERIES + 2 * window:
            row_T = self._row_numbers(qkv_TE)
            return _attend_blocks(qkv_TE, num_heads, row_T, window, rate)
        # A token's E numbers are its queries, keys and values, each with one head after the other:
        #
        #     [q of head 0 | q of head 1 | k of head 0 | k of head 1 | v of head 0 | v of head 1]
        #
        # The permutation only changes strides; nothing is copied.
        qkv_NE = self.unpack(qkv_TE)
        qkv_BL3HK = qkv_NE.view(self.num_rows, self.max_length, 3, num_heads, -1)
        qkv_3BHLK = qkv_BL3HK.permute(2, 0, 3, 1, 4)
        q_BHLK, k_BHLK, v_BHLK = qkv_3BHLK.unbind(0)
        mask = self._mask(window, qkv_TE.device)
        # PyTorch takes a mask or `is_causal`, not both.
        is_causal = self.is_causal and mask is None
        context_BHLK = _attend(q_BHLK, k_BHLK, v_BHLK, rate, mask, is_causal)
        hidden_size = qkv_TE.shape[1] // 3
        context_ND = context_BHLK.transpose(1, 2).reshape(-1, hidden_size)
        return self.pack(context_ND, len(qkv_TE))

    def _mask(self, window: int | None, device: torch.device) -> Tensor | None:
        """Return which keys a query attends to, as it broadcasts to (B, 1, L, L); None for all."""
        # Rows are padded on the right, so no real token sees padding on its left.
        key_mask_B11L = None if self.is_causal else self.key_mask_B11L
        if window is None or window >= self.max_length - 1:
            return key_mask_B11L
        positions_L = torch.arange(self.max_length, device=device)
        distance_LL = positions_L[:, None] - positions_L
        near_LL = distance_LL.abs() <= window
        if key_mask_B11L is None:
            return near_LL
        # Padding sees itself: it may be far from all real tokens, and a softmax over nothing is
        # NaN.
        return (key_mask_B11L & near_LL) | (distance_LL == 0)

    def _row_numbers(self, qkv_TE: Tensor) -> Tensor:
        """Return the row of each computed token (T,), `PADDING_ROW` for padding."""
        if self.token_index_T is not None:
            return extended(self.token_index_T // self.max_length, len(qkv_TE), PADDING_ROW)
        row_B1 = torch.arange(self.num_rows, device=qkv_TE.device)[:, None]
        row_BL = row_B1.expand(-1, self.max_length)
        if self.key_mask_B11L is not None:
            row_BL = torch.where(self.key_mask_B11L[:, 0, 0], row_BL, PADDING_ROW)
        return row_BL.reshape(-1)


class PackedRows(NamedTuple):
    """Where rows start among T tokens that lie one row after the other."""

    row_starts: Tensor
    """int32 (S + 1): the first token of each of S rows, then T; rows may be empty."""
    max_length: int
    """At least the tokens of the longest row."""
    is_causal: bool

    def attend(
        self, qkv_TE: Tensor, num_heads: int, rate: float, window: int | None = None
    ) -> Tensor:
        """Return the values that each token gathers (T, D), on a GPU; see `PaddedRows.attend`."""
        qkv_T3HK = qkv_TE.view(len(qkv_TE), 3, num_heads, -1)
        q_THK, k_THK, v_THK = qkv_T3HK.unbind(1)
        # The operator beneath PyTorch's own attention: no public function takes packed rows and a
        # dropout rate.
        context_THK, *_ = torch.ops.aten._flash_attention_forward(
            q_THK,
            k_THK,
            v_THK,
            cum_seq_q=self.row_starts,
            cum_seq_k=self.row_starts,
            max_q=self.max_length,
            max_k=self.max_length,
            dropout_p=rate,
            is_causal=self.is_causal,
            return_debug_mask=False,
            window_size_left=window,
            window_size_right=window,
        )
        return context_THK.reshape(len(qkv_TE), -1)


def dropout(values: Tensor, rate: float, training: bool) -> Tensor:
    """Drop each value at `rate`, on the CPU rounded to 1/65536, and scale up the rest."""
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
    num_dropping = min(round(rate * 65536), 65535)
    # 1 where a value is kept; compared as fp32, for booleans are slow to convert.
    kept = numbers.float().ge_(num_dropping - 32768)
    # By the rounded rate, so that the expected value of each output is exactly its input.
    scale = 65536 / (65536 - num_dropping)
    return values * kept.mul_(scale).to(values.dtype)


def _attend(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLK: Tensor,
    rate: float,
    mask: Tensor | None,
    is_causal: bool,
) -> Tensor:
    # A CPU's fused kernel draws dropout slowly, and its backward pass over short rows in bf16 takes
    # four times as long. Over rows of 512 both take the same time, and in fp32 it is not slower.
    is_short = k_BHLK.shape[2] <= 256
    has_slow_backward = q_BHLK.requires_grad and q_BHLK.dtype != torch.float32 and is_short
    if q_BHLK.device.type != "cpu" or not (rate > 0 or has_slow_backward):
        return F.scaled_dot_product_attention(
            q_BHLK, k_BHLK, v_BHLK, attn_mask=mask, dropout_p=rate, is_causal=is_causal
        )
    # PyTorch takes these very steps on the CPU if there is dropout, but draws it slowly.
    scale = math.sqrt(q_BHLK.shape[-1])
    # Scaled before the product: L x K numbers to divide, instead of the L x L scores.
    k_BHKL = k_BHLK.transpose(-1, -2)
    scores_BHLL = (q_BHLK / scale) @ k_BHKL
    # At -inf the softmax is exactly 0. A row has its [CLS], so no softmax is of -inf alone (NaN).
    if is_causal:
        # What a token must not see, its future, lies above the diagonal.
        future_LL = torch.ones(scores_BHLL.shape[-2:], dtype=torch.bool).triu(1)
        scores_BHLL = scores_BHLL.masked_fill(future_LL, -math.inf)
    elif mask is not None:
        scores_BHLL = scores_BHLL.masked_fill(~mask, -math.inf)
    weights_BHLL = dropout(scores_BHLL.softmax(-1), rate, training=True)
    return weights_BHLL @ v_BHLK


def _attend_blocks(
    qkv_TE: Tensor, num_heads: int, row_T: Tensor, window: int, rate: float
) -> Tensor:
    """Return the values (T, D) that each token gathers within `window`; `row_T` is its row."""
    # Blocks take no notice of rows; the mask does. With blocks of 4 queries and a window of 2:
    #
    #     tokens     a a a a   a a a a   b b b b   b b . .
    #     queries              [ block ]
    #     keys             x x x x x x x x x x
    #
    # A query sees those of its row (the b are masked) that are at most 2 tokens away.
    num_tokens = len(qkv_TE)
    num_queries = max(BLOCK_QUERIES, window)  # the neighbours lie in the next block at most
    num_blocks = divide_up(num_tokens, num_queries)
    num_added = num_blocks * num_queries - num_tokens
    qkv_ME = F.pad(qkv_TE, (0, 0, 0, num_added))
    qkv_NQ3HK = qkv_ME.view(num_blocks, num_queries, 3, num_heads, -1)
    q_NQHK, k_NQHK, v_NQHK = qkv_NQ3HK.unbind(2)
    q_NHQK = q_NQHK.transpose(1, 2)
    k_NHXK = _with_neighbours(k_NQHK, window).transpose(1, 2)
    v_NHXK = _with_neighbours(v_NQHK, window).transpose(1, 2)
    # What fills the last block up is padding.
    row_NQ = F.pad(row_T, (0, num_added), value=PADDING_ROW).view(num_blocks, num_queries)
    mask_N1QX = _block_mask(row_NQ, window)
    context_NHQK = _attend(q_NHQK, k_NHXK, v_NHXK, rate, mask_N1QX, is_causal=False)
    context_MD = context_NHQK.transpose(1, 2).reshape(num_blocks * num_queries, -1)
    return context_MD[:num_tokens]


def _with_neighbours(blocks_NQ: Tensor, window: int) -> Tensor:
    """Return blocks (N, X, ...) with `window` tokens of their neighbours; zeros at both ends."""
    #     block       0 0 0 0   1 1 1 1   2 2 2 2      of 4 queries, with a window of 2
    #     before          - -       0 0       1 1
    #     after       1 1       2 2       - -
    num_queries = blocks_NQ.shape[1]
    outside = blocks_NQ.new_zeros(1, window, *blocks_NQ.shape[2:])
    ends = blocks_NQ[:, num_queries - window :]
    starts = blocks_NQ[:, :window]
    before = torch.cat([outside, ends[:-1]])
    after = torch.cat([starts[1:], outside])
    return torch.cat([before, blocks_NQ, after], 1)


def _block_mask(row_NQ: Tensor, window: int) -> Tensor:
    """Return where each block's queries attend to its keys and their neighbours (N, 1, Q, X)."""
    num_queries = row_NQ.shape[1]
    num_keys = num_queries + 2 * window
    # Outside at both ends there is padding too. It attends to itself, as a softmax over nothing is
    # NaN.
    rows = row_NQ.flatten()
    row_with_ends = F.pad(rows, (window, window), value=PADDING_ROW)
    key_row_NX = row_with_ends.unfold(0, num_keys, num_queries)
    same_row_NQX = row_NQ[:, :, None] == key_row_NX[:, None, :]
    # The first key lies `window` tokens before the first query.
    key_X = torch.arange(num_keys, device=rows.device)
    query_Q = key_X[window : window + num_queries]
    distance_QX = query_Q[:, None] - key_X
    near_QX = distance_QX.abs() <= window
    attends_NQX = same_row_NQX & near_QX
    return attends_NQX[:, None]
