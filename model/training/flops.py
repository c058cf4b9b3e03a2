"""The arithmetic of an update, for the share of a GPU's peak that a run makes use of."""

import numpy as np

from ..config import ModelConfig


def update_flops(config: ModelConfig, lengths: np.ndarray, num_predicted: int) -> float:
    """Return the multiplications and additions of an update on rows of these `lengths` (backward: twice forward).

    Only real tokens count, attention within the row's own length, and the masked-LM head at the `num_predicted`
    places, whatever is computed beside that.
    """
    hidden, num_tokens = config.hidden_size, lengths.sum()
    projections = (8 * hidden**2 + 4 * hidden * config.intermediate_size) * num_tokens
    attention = 4 * hidden * np.square(lengths, dtype=np.float64).sum()
    head = 2 * hidden * (hidden + config.vocab_size) * num_predicted
    pooler = 2 * hidden**2 * len(lengths)
    return 3.0 * float(config.num_hidden_layers * (projections + attention) + head + pooler)
