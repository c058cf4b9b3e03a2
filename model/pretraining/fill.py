"""The likeliest tokens for each [MASK] in a text."""

from pathlib import Path
from typing import NamedTuple

import torch

from ...pipeline import storage
from ...pipeline.errors import UserError
from ..checkpoint import read_model
from ..tokenizer import check_vocabulary, read_tokenizer


class Guess(NamedTuple):
    """A candidate token for a mask."""

    token: str
    probability: float


def fill(run: str | Path, text: str, top: int = 5) -> list[list[Guess]]:
    """Return, for each [MASK] in `text` from left to right, the `top` likeliest tokens (at most
    all), best first.

    Raises `UserError` without a model, a vocabulary or a mask, and for a text longer than the model
    reads.
    """
    if storage.exists(storage.join(str(run), "task.json")):
        raise UserError(
            f"{run} is a fine-tuned model, without the masked-LM head: use `clozeworks predict`."
        )
    model = read_model(run).eval()
    tokenizer = read_tokenizer(run)
    tokenizer.no_truncation()
    ids = torch.tensor([tokenizer.encode(text).ids])
    check_vocabulary(tokenizer.get_vocab_size(), model.config, run)
    mask_id = tokenizer.token_to_id("[MASK]")
    if mask_id is None:
        raise UserError(f"The vocabulary in {run} has no [MASK].")
    masked_M = (ids[0] == mask_id).nonzero().squeeze(1)
    if not len(masked_M):
        raise UserError('The text has no [MASK]; for example: "The capital of France is [MASK]."')
    if ids.shape[1] > model.config.max_position_embeddings:
        limit = model.config.max_position_embeddings
        raise UserError(
            f"The text has {ids.shape[1]} tokens, but the model reads at most {limit}; shorten it."
        )
    with torch.no_grad():
        # A left-to-right model predicts a token from the one before.
        logits_MV = model.mlm_logits(model.bert(ids), masked_M - int(model.config.is_decoder))
    best = logits_MV.softmax(-1).topk(min(top, model.config.vocab_size))
    return [
        [
            Guess(tokenizer.id_to_token(token) or "", probability)
            for token, probability in zip(*guesses, strict=True)
        ]
        for guesses in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
