"""Whether this device attends to packed rows: tried once, on a few rows, before a run relies on it.

FlashAttention's operator has no public signature, and GPUs before Ampere lack it; so its result is
compared with that of padded rows, whose attention is public.
"""

import torch
from torch import Tensor

from ..bert import PackedRows, PaddedRows, real_tokens
from ..config import ModelConfig
from ..training.ranks import print_notice

LENGTHS = (64, 3, 17, 1, 40)
TOLERANCE = 0.03
"""Largest difference, relative to the size of what is compared: bf16 keeps 8 bits."""


def packs_rows(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether to train a model of this shape on packed rows: on a GPU in bf16 or fp16.

    If `check_packing` fails there, say so in a line.
    """
    if device.type != "cuda" or dtype == torch.float32:
        return False
    try:
        check_packing(config, device, dtype)
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        print_notice(
            f"Rows are padded, because attention to packed rows does not work here ({reason})."
        )
        return False
    return True


def check_packing(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
    """Raise an error unless attention to padded and to packed rows is the same, and so are their
    gradients.

    `AssertionError` is raised for a difference, and any error of the operator as it is.
    """
    mask_BL = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    index_T, mask_BL = real_tokens(mask_BL).to(device), mask_BL.to(device)
    padded = PaddedRows(
        len(LENGTHS), max(LENGTHS), index_T, mask_BL[:, None, None, :], config.is_decoder
    )
    ends = (
        torch.tensor([0, *LENGTHS, 0, 0]).cumsum(0).int()
    )  # with two empty rows, as batches have them
    packed = PackedRows(ends.to(device), max(LENGTHS), config.is_decoder)
    num_heads, size = config.num_attention_heads, config.hidden_size
    qkv_TE = torch.randn(sum(LENGTHS), 3 * size, generator=torch.Generator().manual_seed(0)).to(
        device, dtype
    )
    expected, found = (
        _values_and_gradient(layout, qkv_TE, num_heads) for layout in (padded, packed)
    )
    if not (expected - found).norm() <= TOLERANCE * expected.norm():  # NaN is a difference too
        raise AssertionError("its values or gradients differ from those of padded rows")
    # With dropout nothing can be compared exactly; but of values that are all 1, the mean stays 1.
    dropped = packed.attend(torch.ones_like(qkv_TE), num_heads, 0.1).float()
    if not (abs(dropped.mean() - 1) <= TOLERANCE and dropped.std() > 0.01):
        raise AssertionError("dropout does not keep the mean")


def _values_and_gradient(layout: PaddedRows | PackedRows, qkv_TE: Tensor, num_heads: int) -> Tensor:
    qkv_TE = qkv_TE.clone().requires_grad_()
    values_TD = layout.attend(qkv_TE, num_heads, 0.0)
    (gradient_TE,) = torch.autograd.grad(values_TD.float().square().sum(), qkv_TE)
    return torch.cat([values_TD.detach(), gradient_TE], 1).float()
