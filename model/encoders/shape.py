"""What the shapes of all encoders have in common.

This module and those of the shapes import nothing heavy, to keep ``--help`` fast.
"""

import math
from collections.abc import Mapping
from typing import Any

from ...pipeline.errors import UserError

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
COUNT = (1, math.inf)
RATE = (0, 1)
NOT_NEGATIVE = (0, math.inf)

SHAPE_RANGES = {
    **dict.fromkeys(
        (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        ),
        COUNT,
    ),
    **dict.fromkeys(("initializer_range", "pad_token_id"), NOT_NEGATIVE),
}
"""The least and the most that a field of every encoder's shape may be."""


def check_shape(shape: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise `UserError` for a field of an encoder's shape outside its range, and for fields that do
    not fit together.
    """
    # A config.json may come from anywhere.
    for name, (least, most) in ranges.items():
        value = shape[name]
        if not least <= value <= most:
            limits = f"at least {least}" if most == math.inf else f"from {least} to {most}"
            raise UserError(f"{name} is {value}, but must be {limits}.")
    hidden_size = shape["hidden_size"]
    num_heads = shape["num_attention_heads"]
    if hidden_size % num_heads:
        raise UserError(
            f"A hidden size of {hidden_size} cannot be split over {num_heads} attention heads; "
            "make it a multiple."
        )
    pad_id = shape["pad_token_id"]
    if pad_id >= shape["vocab_size"]:
        raise UserError(
            f"pad_token_id is {pad_id}, but the vocabulary has {shape['vocab_size']} tokens."
        )


def logit_bytes(vocab_size: int, is_decoder: bool) -> float:
    """Return the bytes of a token's logits and their gradient, in half precision."""
    # Of masked tokens up to 30% are predicted, from left to right all.
    share = 1.0 if is_decoder else 0.3
    return share * 4 * vocab_size
