"""Move a model to another vocabulary: each new token begins as the mean of the old pieces of its
text.

The rest of the model stays as it is, so that training continues from what it knows instead of from
random embeddings (Gee et al. 2022, "Fast Vocabulary Transfer for Language Model Compression"). A
token's bias in the masked-LM head is the mean of its pieces' biases.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tokenizers import normalizers
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import ByteLevel

from ...pipeline.vocabulary.tokenize import faults_reported
from ...pipeline.vocabulary.vocabulary import Vocabulary
from ..encoders.catalogue import make_pretrain_model
from ..encoders.heads import PretrainModel
from ..notices import print_notice


def move_to_vocabulary(model: PretrainModel, old: Vocabulary, new: Vocabulary) -> PretrainModel:
    """Return a model with the vocabulary `new`, but the other weights of `model` with `old`."""
    pieces_by_token = old_pieces(old, new)
    represents_text = torch.from_numpy(old.is_ordinary.nonzero()[0])
    fields = model.config.vocabulary_fields(len(new), new.pad_id, new.cls_id, new.sep_id)
    shape = replace(model.config, **fields)
    weights = model.weights_for(shape)
    for name in model.vocabulary_weights:
        before = weights[name]
        mean_of_all = before[represents_text].mean(0)
        rows = [before[pieces].mean(0) if pieces else mean_of_all for pieces in pieces_by_token]
        weights[name] = torch.stack(rows)
    moved = make_pretrain_model(shape)
    moved.load_state_dict(weights)
    num_copied = sum(len(pieces) == 1 for pieces in pieces_by_token)
    num_unknown = pieces_by_token.count([])
    print_notice(
        f"Moved the model from a vocabulary of {len(old):,} tokens to one of {len(new):,}: "
        f"{num_copied:,} embeddings copied, {len(new) - num_copied - num_unknown:,} averaged over "
        f"a token's old pieces, {num_unknown:,} over all tokens."
    )
    return moved


def old_pieces(old: Vocabulary, new: Vocabulary) -> list[list[int]]:
    """Return for each token of `new` the ids of its pieces in `old`, none if `old` cannot spell it.

    Special tokens, and tokens that both have, are one piece. Others are normalised and cut as `old`
    does it.
    """
    # "the" is a whole word in WordPiece, and the end of one in byte-level BPE.
    are_of_one_kind = old.spelling == new.spelling
    spelling, cuts = _wordpiece(old) if old.spelling == "##" else _subwords(old)
    pieces_by_token: list[list[int]] = []
    tokens = zip(new.texts, new.tokens, new.is_ordinary, new.continues, strict=True)
    for text, token, is_ordinary, continues in tokens:
        if token in old.ids and (are_of_one_kind or not is_ordinary):
            pieces = [old.ids[token]]
        elif is_ordinary and (spelt := spelling(text, bool(continues))):
            with faults_reported():
                pieces = [piece.id for piece in cuts.tokenize(spelt)]
            if old.unk_id in pieces:
                pieces = []
        else:
            pieces = []  # an [unused] token, which no text contains
        pieces_by_token.append(pieces)
    return pieces_by_token


_Spelling = Callable[[str, bool], str]
"""Returns a token's text, and whether it continues a word, as a model takes it; "" if it cannot."""


def _subwords(old: Vocabulary) -> tuple[_Spelling, Any]:
    # The model alone is asked for a part of a word: before a text, the whole tokenizer may put a
    # space, and with it the start of a word.
    tokenizer = old.tokenizer()
    normalizer = tokenizer.normalizer
    writes_bytes = '"ByteLevel"' in json.dumps(json.loads(tokenizer.to_str())["normalizer"])
    to_bytes = ByteLevel(add_prefix_space=False, use_regex=False)
    space = " " if old.spelling == "byte-level" else "▁"

    def spelling(text: str, continues: bool) -> str:
        if "\N{REPLACEMENT CHARACTER}" in text:  # it stands for a part of a character
            return ""
        # A word begins with its space; punctuation stands without one.
        starts_word = text[:1].isalnum() and not continues
        if normalizer is not None and not writes_bytes:
            text = normalizer.normalize_str(text).removeprefix(space)
        if starts_word and old.spelling:
            text = space + text
        if writes_bytes and normalizer is not None:
            text = normalizer.normalize_str(text)
        elif old.spelling == "byte-level" and text:
            [(text, _)] = to_bytes.pre_tokenize_str(text)
        return text

    return spelling, tokenizer.model


def _wordpiece(old: Vocabulary) -> tuple[_Spelling, Any]:
    normalizer = BertNormalizer(
        lowercase=old.normalization.lowercase,
        strip_accents=old.normalization.strip_accents,
        clean_text=False,
    )
    if old.is_foreign:
        normalizer = old.tokenizer().normalizer or normalizers.Sequence([])
    # WordPiece makes [UNK] of a word with more characters; here every token is spelt.
    wordpiece = WordPiece(old.ids, unk_token=old.specials.unk, max_input_chars_per_word=1_000_000)

    def spelling(text: str, continues: bool) -> str:
        # Normalising puts spaces around Chinese characters, and a token has none.
        text = normalizer.normalize_str(text).replace(" ", "")
        if text and continues:
            text = f"##{text}"  # as the vocabulary has the end of a word
        return text

    return spelling, wordpiece
