"""Fill each [MASK] in a text with the likeliest tokens.

Shapes: M masks, V tokens in the vocabulary.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from ...pipeline.errors import UserError
from ...pipeline.vocabulary.tokenize import faults_reported
from ...pipeline.vocabulary.vocabulary import MASK, Vocabulary
from ..checkpoint import TASK, Checkpoint
from ..encoders.heads import PretrainModel


class Guess(NamedTuple):
    """A candidate token for a mask."""

    token: str
    probability: float


def fill(run: str | Path, text: str, top: int = 5) -> list[list[Guess]]:
    """Return the `top` likeliest tokens, best first, for each [MASK] in `text`, in order."""
    return next(fill_all(run, [text], top))


def fill_all(run: str | Path, texts: Iterable[str], top: int = 5) -> Iterator[list[list[Guess]]]:
    """Yield what `fill` returns for each text; the model is read once."""
    checkpoint = Checkpoint.open(run)
    if (checkpoint.folder / TASK).is_file():
        raise UserError(
            f"{run} is a fine-tuned model, without the masked-LM head: use `clozeworks predict`."
        )
    model = checkpoint.pretrain_model(masked_words_alone=True).eval()
    vocabulary = checkpoint.vocabulary()
    for text in texts:
        yield _fill_one(model, vocabulary, text, top)


def _fill_one(
    model: PretrainModel, vocabulary: Vocabulary, text: str, top: int
) -> list[list[Guess]]:
    with faults_reported():
        # Whatever the model calls its mask.
        encoding = vocabulary.tokenizer().encode(text.replace(MASK, vocabulary.specials.mask))
    ids = torch.tensor([encoding.ids])
    masked_M = (ids[0] == vocabulary.mask_id).nonzero().squeeze(1)
    if not len(masked_M):
        raise UserError('The text has no [MASK]; for example: "The capital of France is [MASK]."')
    if ids.shape[1] > model.config.num_positions:
        raise UserError(
            f"The text has {ids.shape[1]} tokens, but the model reads at most "
            f"{model.config.num_positions}; shorten it."
        )
    # A left-to-right model predicts a token from the one before; the first mask follows [CLS].
    predicted_from_M = masked_M - int(model.config.is_decoder)
    with torch.no_grad():
        logits_MV = model.mlm_logits(model.encoder(ids), predicted_from_M)
    best = logits_MV.softmax(-1).topk(min(top, model.config.vocab_size))
    guesses_by_mask = []
    for token_ids, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        # "" for embeddings beyond the vocabulary, which a model may have.
        tokens = map(vocabulary.shown, token_ids)
        guesses_by_mask.append(list(map(Guess, tokens, probabilities)))
    return guesses_by_mask
