"""Check whether this device attends to packed rows: once, on a few rows, before a run relies on it.

FlashAttention's operator has no public signature, and GPUs before Ampere lack it; so its result is
compared with the result for padded rows, whose attention is public.

Shapes: T tokens of all rows, D hidden size, E = 3 D (queries, keys and values).
"""

import torch
from torch import Tensor

from ..encoders.attention import PackedRows, PaddedRows
from ..encoders.config import EncoderConfig
from ..notices import print_notice
from ..training.device import pinned_attention

NUM_ROWS = 5
ROW_LENGTH = 40
CHECKED_WINDOW = 8
"""Smaller than the rows checked, so that a window that is ignored shows."""
NUM_EMPTY_ROWS = 2
"""At the end of packed rows, as batches have them."""
TOLERANCE = 0.03
"""Largest difference, relative to the size of what is compared: bf16 keeps 8 bits."""
DROPOUT = 0.1


def packs_rows(config: EncoderConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether to train a model of this shape on packed rows: on a GPU in bf16 or fp16.

    If `check_packing` fails there, say so in a line.
    """
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

    `AssertionError` is raised for a difference, and any error of the operator as it is.
    """
    num_tokens = NUM_ROWS * ROW_LENGTH
    # Where each row starts, and the last one ends: 0 40 80 120 160 200 200 200.
    starts = [row * ROW_LENGTH for row in range(NUM_ROWS + 1)] + [num_tokens] * NUM_EMPTY_ROWS
    row_starts = torch.tensor(starts, dtype=torch.int32, device=device)
    packed = PackedRows(row_starts, ROW_LENGTH, config.is_decoder)
    padded = PaddedRows(NUM_ROWS, ROW_LENGTH, None, None, config.is_decoder)
    num_heads = config.num_attention_heads
    # Of its own, so that a check does not change what the run draws.
    generator = torch.Generator().manual_seed(0)
    qkv_TE = torch.randn(num_tokens, 3 * config.hidden_size, generator=generator)
    qkv_TE = qkv_TE.to(device, dtype)
    for window in config.windows:
        if window is not None:
            window = min(window, CHECKED_WINDOW)
        expected = _values_and_gradient(padded, qkv_TE, num_heads, window)
        computed = _values_and_gradient(packed, qkv_TE, num_heads, window)
        difference = (expected - computed).norm()
        if not difference <= TOLERANCE * expected.norm():  # NaN is a difference too
            raise AssertionError("its values or gradients differ from those of padded rows")
    # With dropout nothing can be compared exactly; but of values that are all 1, the mean stays 1.
    dropped_TD = packed.attend(torch.ones_like(qkv_TE), num_heads, DROPOUT).float()
    keeps_mean = abs(dropped_TD.mean() - 1) <= TOLERANCE
    # An operator that ignores the rate would return ones.
    drops_any = dropped_TD.std() > 0.01
    if not (keeps_mean and drops_any):
        raise AssertionError("dropout does not keep the mean")


def _values_and_gradient(
    layout: PaddedRows | PackedRows, qkv_TE: Tensor, num_heads: int, window: int | None
) -> Tensor:
    qkv_TE = qkv_TE.clone().requires_grad_()
    values_TD = layout.attend(qkv_TE, num_heads, 0.0, window)
    loss = values_TD.float().square().sum()
    (gradient_TE,) = torch.autograd.grad(loss, qkv_TE)
    return torch.cat([values_TD.detach(), gradient_TE], 1).float()
