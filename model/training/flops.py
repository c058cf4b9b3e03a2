"""The FLOPs of an update, for the model-FLOPs utilisation (MFU)."""

import numpy as np

from ..config import ModelConfig


def update_flops(config: ModelConfig, lengths: np.ndarray, num_predicted: int) -> float:
    """Return the FLOPs of an update on rows of these `lengths`; the backward pass counts twice the forward pass.

    Only necessary work counts: real tokens, attention within a row's own length, and the masked-LM head at the
    `num_predicted` tokens.
    """
    hidden, num_tokens = config.hidden_size, lengths.sum()
    projections = (8 * hidden**2 + 4 * hidden * config.intermediate_size) * num_tokens
    attention = 4 * hidden * np.square(lengths, dtype=np.float64).sum()
    head = 2 * hidden * (hidden + config.vocab_size) * num_predicted
    pooler = 2 * hidden**2 * len(lengths)
    return 3.0 * float(config.num_hidden_layers * (projections + attention) + head + pooler)
