"""Move a model to another vocabulary: each new token begins as the mean of the old pieces of its
text.

The rest of the model stays as it is, so that training continues from what it knows instead of from
random embeddings (Gee et al. 2022, "Fast Vocabulary Transfer for Language Model Compression"). Its
bias in the masked-LM head is the mean of those pieces' too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from tokenizers.normalizers import BertNormalizer

from ...pipeline.vocabulary.vocabulary import Vocabulary
from ..heads import BertForPreTraining

EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
BIAS = "cls.predictions.bias"


class MovedTokens(NamedTuple):
    """Where the embeddings of the new tokens come from."""

    copied: int
    """The same token in the old vocabulary."""
    averaged: int
    """Several pieces of the old vocabulary."""
    without_pieces: int
    """The mean of all old tokens that represent text, because the old vocabulary cannot spell the
    token.
    """


def move_to_vocabulary(
    model: BertForPreTraining, old: Vocabulary, new: Vocabulary
) -> tuple[BertForPreTraining, MovedTokens]:
    """Return a model for the vocabulary `new` with the weights of `model`, whose vocabulary is
    `old`.
    """
    pieces = old_pieces(old, new)
    ordinary = torch.from_numpy(old.is_ordinary.nonzero()[0])
    weights = model.state_dict()
    for name in (EMBEDDINGS, BIAS):
        before = weights[name]
        fallback = before[ordinary].mean(0)
        weights[name] = torch.stack([before[ids].mean(0) if ids else fallback for ids in pieces])
    moved = BertForPreTraining(replace(model.config, vocab_size=len(new)))
    moved.load_state_dict(weights)
    return moved, MovedTokens(
        copied=sum(len(ids) == 1 for ids in pieces),
        averaged=sum(len(ids) > 1 for ids in pieces),
        without_pieces=sum(not ids for ids in pieces),
    )


def old_pieces(old: Vocabulary, new: Vocabulary) -> list[list[int]]:
    """Return for each token of `new` the ids of its pieces in `old`, none if `old` cannot spell it.

    Special tokens, and tokens that both have, are one piece. Others are normalised and cut as `old`
    does it.
    """
    normalizer = BertNormalizer(
        lowercase=old.normalization.lowercase,
        strip_accents=old.normalization.strip_accents,
        clean_text=False,
    )
    found = []
    for token, is_ordinary, continues in zip(
        new.tokens, new.is_ordinary, new.continues, strict=True
    ):
        if token in old.ids or not is_ordinary:
            found.append([old.ids[token]] if token in old.ids else [])
        else:
            text = normalizer.normalize_str(token[2:] if continues else token)
            found.append(_word_pieces(text.replace(" ", ""), old, continues=bool(continues)))
    return found


def _word_pieces(text: str, vocabulary: Vocabulary, *, continues: bool) -> list[int]:
    """Return the ids of the longest pieces from the left, as WordPiece does, also of the end of a
    word.
    """
    pieces: list[int] = []
    start = 0
    while start < len(text):
        prefix = "##" if start or continues else ""
        ends: Sequence[int] = range(len(text), start, -1)
        end = next((end for end in ends if prefix + text[start:end] in vocabulary.ids), None)
        if end is None:
            return []
        pieces.append(vocabulary.ids[prefix + text[start:end]])
        start = end
    return pieces
