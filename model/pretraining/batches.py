"""Make batches of tensors: padded ones of rows of similar length, or packed ones of rows one after
the other, if attention to these works on the device.

A packed batch has few different shapes, so that a compiled model meets no new ones: its tokens are
padded to a multiple of `TOKEN_BLOCK`, its predictions to one of `PREDICTION_BLOCK`, and its rows to
a number that the caller sets.

Shapes: B rows, L padded length, T real tokens, M predicted tokens, N tokens with padding, in a
packed batch; D hidden size, E = 3 D (queries, keys and values).
"""

import numpy as np
import torch
from torch import Tensor

from ...pipeline.instances.rows import Rows, between, select, sequences
from ...pipeline.ragged import divide_up, places
from ..encoders.attention import TOKEN_BLOCK, PackedRows, PaddedRows
from ..encoders.config import EncoderConfig
from ..encoders.heads import IGNORED, PretrainBatch
from ..notices import print_notice
from ..training.device import pinned_attention

PREDICTION_BLOCK = 256
SEQUENCE_BLOCK = 64
"""The number of sequences in packed rows is padded to a multiple of this."""


def make_batches(
    rows: Rows,
    batch_size: int,
    objective: str = "mlm+nsp",
    *,
    for_gpu: bool = False,
) -> list[PretrainBatch]:
    """Return `rows` in batches of at most `batch_size`, sorted by length so that there is little
    padding.

    `objective` is an option of `PretrainConfig`: only ``mlm+nsp`` has next-sentence labels; ``ltr``
    restores the masked tokens and predicts each token but the first from those before. Packed rows
    are taken apart: a batch then has as many sequences of similar length as make `batch_size` of
    the longest rows.

    On a GPU rows are padded to a multiple of 8 tokens, which tensor cores want, and batches without
    padding have a mask too: a compiled model then needs one graph.
    """
    longest = int(rows.lengths.max(initial=1))
    are_packed = rows.sequence_starts is not None
    if are_packed:
        rows = sequences(rows)
    # The first batch is then the largest: if it fits into memory, all do.
    longest_first = np.argsort(-rows.lengths, kind="stable")
    batches = []
    first = 0
    while first < len(rows):
        num_rows = batch_size
        if are_packed:
            num_rows = max(1, batch_size * longest // int(rows.lengths[longest_first[first]]))
        some_rows = select(rows, longest_first[first : first + num_rows])
        batches.append(_pad_batch(some_rows, objective, for_gpu=for_gpu))
        first += num_rows
    return batches


def pack_batches(
    rows: Rows, batch_size: int, max_length: int, objective: str = "mlm+nsp"
) -> list[PretrainBatch]:
    """Return `rows`, of at most `max_length` tokens, in their order in packed batches of at most
    `batch_size`.

    Batches have nearly equal numbers of rows, and so of tokens. `objective` is as in
    `make_batches`.
    """
    # Few shapes, each of which is a graph of its own: tokens are padded in steps of a 32nd of the
    # largest batch, predictions of a 128th.
    token_step = TOKEN_BLOCK * divide_up(batch_size * max_length, 32 * TOKEN_BLOCK)
    # Padding tokens are rows too: attention leaves the output of tokens outside of all rows
    # undefined. There are at most two steps of them.
    most_padding_rows = divide_up(2 * token_step, max_length)
    num_rows = batch_size + most_padding_rows
    # 10 rows in batches of at most 4 become 4, 3 and 3, not 4, 4 and 2: fewer shapes.
    num_batches = divide_up(len(rows), batch_size)
    batches = []
    for index in np.array_split(np.arange(len(rows)), num_batches):
        batch_rows = between(rows, index[0], index[-1] + 1)
        if batch_rows.sequence_starts is not None:
            batch_rows = sequences(batch_rows)
            num_sequences = len(batch_rows) + most_padding_rows
            num_rows = SEQUENCE_BLOCK * divide_up(num_sequences, SEQUENCE_BLOCK)
        batches.append(_pack_batch(batch_rows, max_length, num_rows, objective, token_step))
    return batches


def _pack_batch(
    rows: Rows, max_length: int, num_rows: int, objective: str, token_step: int
) -> PretrainBatch:
    """Lay rows one after the other."""
    # With blocks of 8 tokens and rows of up to 4, rows of 4, 3 and 4 tokens become:
    #
    #     tokens      a a a a b b b c   c c c . . . . .
    #     positions   0 1 2 3 0 1 2 0   1 2 3 0 1 2 3 0     (padding has rows of `max_length`)
    #     row starts  0 4 7 11 15 16 16 16                  (the last rows are empty)
    num_tokens = int(rows.offsets[-1])
    position_T = places(rows.lengths)
    ids_T, predicted_M, labels_M = _targets(rows, objective)
    types_T = position_T >= np.repeat(rows.segment_b_start, rows.lengths)

    ids_N = _padded(ids_T, token_step)
    types_N = _padded(types_T, token_step)
    position_N = _padded(position_T, token_step)
    position_N[num_tokens:] = np.arange(len(position_N) - num_tokens) % max_length

    # The last offset, where the last real row ends, is where the first row of padding starts.
    padding_starts = np.arange(num_tokens + max_length, len(ids_N), max_length)
    starts = np.append(rows.offsets, padding_starts)
    row_starts = np.full(num_rows + 1, len(ids_N), np.int32)
    row_starts[: len(starts)] = starts

    label_B = None
    if objective == "mlm+nsp":
        # Rows of padding have no next sentence.
        labels = np.full(num_rows, IGNORED, np.int64)
        labels[: len(rows)] = rows.next_sentence_label
        label_B = torch.from_numpy(labels)

    prediction_step = token_step * PREDICTION_BLOCK // TOKEN_BLOCK
    # Padding among the predictions points to the first token, and is ignored by its label.
    masked_index = _padded(predicted_M, prediction_step)
    masked_ids = _padded(labels_M, prediction_step, IGNORED)
    return PretrainBatch(
        input_ids=_blocks(ids_N, TOKEN_BLOCK),
        token_type_ids=_blocks(types_N, TOKEN_BLOCK),
        attention_mask_BL=None,
        token_index_T=None,
        masked_index=_blocks(masked_index, PREDICTION_BLOCK),
        masked_ids=_blocks(masked_ids, PREDICTION_BLOCK),
        next_sentence_label_B=label_B,
        position_ids=_blocks(position_N, TOKEN_BLOCK),
        row_starts=torch.from_numpy(row_starts),
        max_length=max_length,
    )


def _targets(rows: Rows, objective: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return token ids (T,), the indices (M,) that predict, and what they predict (M,), int64."""
    if objective == "ltr":
        # A token is predicted from the hidden state of the token before it.
        #
        #     flat index     0   1   2   3     4   5   6
        #     tokens        CLS  a   b  SEP   CLS  c  SEP
        #     predict        a   b  SEP  -     c  SEP  -
        ids_T = rows.unmasked_ids()
        target_M = np.flatnonzero(places(rows.lengths))  # all but each row's first token
        predicted_M = target_M - 1
        return ids_T, predicted_M, ids_T[target_M].astype(np.int64)
    return rows.input_ids, rows.masked_index, rows.masked_ids.astype(np.int64)


def _padded(values: np.ndarray, multiple: int, value: int = 0) -> np.ndarray:
    # Two steps at least: a single block is a dimension of size 1, for which torch.compile makes a
    # graph of its own.
    length = max(2, divide_up(len(values), multiple)) * multiple
    padded = np.full(length, value, np.int64)
    padded[: len(values)] = values
    return padded


def _blocks(values: np.ndarray, size: int) -> Tensor:
    return torch.from_numpy(values).view(-1, size)


def _pad_batch(rows: Rows, objective: str, *, for_gpu: bool) -> PretrainBatch:
    """Make a padded batch; the encoder computes its real tokens alone, `token_index_T`."""
    # Rows of 4, 2 and 2 tokens:
    #
    #     mask_BL    1 1 1 1        index_T    0 1 2 3  4 5  8 9
    #                1 1 0 0
    #                1 1 0 0
    width = int(rows.lengths.max(initial=1))
    if for_gpu:
        width = 8 * divide_up(width, 8)
    column_L = np.arange(width)
    mask_BL = column_L < rows.lengths[:, None]
    index_T = np.flatnonzero(mask_BL)
    types_BL = (column_L >= rows.segment_b_start[:, None]) & mask_BL
    ids_T, predicted_M, labels_M = _targets(rows, objective)
    ids_BL = np.zeros(mask_BL.shape, np.int64)
    ids_BL[mask_BL] = ids_T
    # Without padding, attention needs no mask, and the encoder need not leave tokens out.
    attention_mask_BL = None
    encoded_index_T = None
    if for_gpu or not mask_BL.all():
        attention_mask_BL = torch.from_numpy(mask_BL)
        encoded_index_T = torch.from_numpy(index_T)
    label_B = None
    if objective == "mlm+nsp":
        label_B = torch.from_numpy(rows.next_sentence_label.astype(np.int64))
    return PretrainBatch(
        input_ids=torch.from_numpy(ids_BL),
        token_type_ids=torch.from_numpy(types_BL.astype(np.int64)),
        attention_mask_BL=attention_mask_BL,
        token_index_T=encoded_index_T,
        masked_index=torch.from_numpy(index_T[predicted_M]),
        masked_ids=torch.from_numpy(labels_M),
        next_sentence_label_B=label_B,
    )


def packs_rows(config: EncoderConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether to train on packed rows: on a GPU in bf16 or fp16, if that works there."""
    if device.type != "cuda" or dtype == torch.float32:
        return False
    try:
        # The padded rows that it compares with must not be those of cuDNN, which training never
        # uses and which refuses some shapes.
        with pinned_attention():
            check_packing(config, device, dtype)
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        print_notice(
            f"Rows are padded, because attention to packed rows does not work here ({reason})."
        )
        return False
    return True


def check_packing(config: EncoderConfig, device: torch.device, dtype: torch.dtype) -> None:
    """Raise an error unless attention to padded and to packed rows is the same, and so are their
    gradients.

    FlashAttention's operator has no public signature, and GPUs before Ampere lack it.
    """
    num_rows = 5
    row_length = 40
    num_tokens = num_rows * row_length
    # The largest difference, relative to the size of what is compared: bf16 keeps 8 bits.
    tolerance = 0.03
    # Where each row starts, and the last one ends, then two empty rows, as batches have them:
    # 0 40 80 120 160 200 200 200.
    starts = [row * row_length for row in range(num_rows + 1)] + [num_tokens] * 2
    row_starts = torch.tensor(starts, dtype=torch.int32, device=device)
    packed = PackedRows(row_starts, row_length, config.is_decoder)
    padded = PaddedRows(num_rows, row_length, None, None, config.is_decoder)
    num_heads = config.num_attention_heads
    # A generator of its own, so that a check does not change what the run draws.
    generator = torch.Generator().manual_seed(0)
    qkv_TE = torch.randn(num_tokens, 3 * config.hidden_size, generator=generator)
    qkv_TE = qkv_TE.to(device, dtype)
    for window in config.windows:
        if window is not None:
            # Smaller than the rows, so that a window that is ignored shows.
            window = min(window, 8)
        expected = _values_and_gradient(padded, qkv_TE, num_heads, window)
        computed = _values_and_gradient(packed, qkv_TE, num_heads, window)
        difference = (expected - computed).norm()
        if not difference <= tolerance * expected.norm():  # NaN is a difference too
            raise AssertionError("its values or gradients differ from those of padded rows")
    # With dropout nothing can be compared exactly; but of values that are all 1, the mean stays 1,
    # and an operator that ignores the rate would return ones.
    dropped_TD = packed.attend(torch.ones_like(qkv_TE), num_heads, 0.1).float()
    if not (abs(dropped_TD.mean() - 1) <= tolerance and dropped_TD.std() > 0.01):
        raise AssertionError("dropout does not keep the mean")


def _values_and_gradient(
    layout: PaddedRows | PackedRows, qkv_TE: Tensor, num_heads: int, window: int | None
) -> Tensor:
    qkv_TE = qkv_TE.clone().requires_grad_()
    values_TD = layout.attend(qkv_TE, num_heads, 0.0, window)
    squares_TD = values_TD.float().square()
    (gradient_TE,) = torch.autograd.grad(squares_TD.sum(), qkv_TE)
    both = torch.cat([values_TD.detach(), gradient_TE], 1)
    return both.float()
