"""A vocabulary, WordPiece or byte-level BPE."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..errors import UserError
from .byte_level import (
    SHOWN_SPACE,
    ByteLevelSplitter,
    ByteLevelTokenizer,
    continues_word,
    readable,
)
from .tokenize import DictionaryTokenizer, Normalization, Speller, Splitter

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def _id_of(token: str) -> "cached_property[int]":
    return cached_property(lambda vocabulary: vocabulary.ids[token])


@dataclass(frozen=True)
class ByteLevel:
    """What byte-level BPE needs besides the tokens."""

    tokenizer_json: str
    """The content of ``tokenizer.json``, which decides everything."""
    pieces: frozenset[str]
    """The tokens that represent text: bytes and merges."""
    adds_space: bool
    """Whether a space is put before a text."""
    rules: str
    """What the ids of a text depend on besides the tokens: merges and normalisation, as JSON."""

    def tokenizer(self) -> Tokenizer:
        """Return a new tokenizer."""
        return Tokenizer.from_str(self.tokenizer_json)

    @property
    def merges(self) -> list[tuple[str, str]]:
        """The merges in their order."""
        merges, _, _ = json.loads(self.rules)
        return merges


@dataclass(frozen=True)
class Vocabulary:
    """The tokens in the order of their ids, and the normalisation of text before tokenisation."""

    tokens: tuple[str, ...]
    normalization: Normalization
    byte_level: ByteLevel | None = None
    """None for WordPiece."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: token_id for token_id, token in enumerate(self.tokens)}

    pad_id = _id_of(PAD)
    unk_id = _id_of(UNK)
    cls_id = _id_of(CLS)
    sep_id = _id_of(SEP)
    mask_id = _id_of(MASK)

    @cached_property
    def is_ordinary(self) -> np.ndarray:
        """Bool [vocab_size]: tokens that represent text, unlike [MASK] or [unused7]."""
        if self.byte_level:
            return np.array([token in self.byte_level.pieces for token in self.tokens])
        return np.array([is_ordinary(token) for token in self.tokens])

    @cached_property
    def continues(self) -> np.ndarray:
        """Bool [vocab_size]: tokens that continue a word ("##", or as `continues_word` says)."""
        if self.byte_level:
            continues = [
                bool(is_ordinary) and continues_word(token)
                for token, is_ordinary in zip(self.tokens, self.is_ordinary, strict=True)
            ]
            return np.array(continues)
        return np.array([len(token) > 2 and token.startswith("##") for token in self.tokens])

    @cached_property
    def readable(self) -> tuple[str, ...]:
        """The tokens as people read them: those of byte-level BPE as text, with "▁" for a space."""
        if not self.byte_level:
            return self.tokens
        texts = []
        for token, is_ordinary in zip(self.tokens, self.is_ordinary, strict=True):
            texts.append(readable(token) if is_ordinary else token)
        return tuple(texts)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The tokens without what says where they stand in a word: "##", or the space."""
        if self.byte_level:
            return tuple(token.removeprefix(SHOWN_SPACE) for token in self.readable)
        texts = []
        for token, continues in zip(self.tokens, self.continues, strict=True):
            texts.append(token.removeprefix("##") if continues else token)
        return tuple(texts)

    def text_tokenizer(self) -> DictionaryTokenizer:
        """Return a new tokenizer of sentences; keep one per worker."""
        if self.byte_level:
            return ByteLevelTokenizer(
                self.byte_level.tokenizer(), adds_space=self.byte_level.adds_space
            )
        return DictionaryTokenizer(self.tokens, self.normalization)

    def splitter(self) -> Splitter:
        """Return a new splitter of text into the words that the vocabulary's pieces make up."""
        if self.byte_level:
            return ByteLevelSplitter(self.byte_level.tokenizer())
        return Speller(self.normalization)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of 32 hexadecimal digits: equal if every text gets the same ids."""
        # Vocabularies from before these fields have the first ones.
        normalization: tuple[Any, ...] = self.normalization
        if not self.normalization.composes:
            normalization = (
                normalization[:3] if self.normalization.apostrophes else normalization[:2]
            )
        content = json.dumps([self.tokens, normalization])
        if self.byte_level:
            content += self.byte_level.rules
        return blake2b(content.encode(), digest_size=16).hexdigest()


def is_ordinary(token: str) -> bool:
    """Return whether a WordPiece token represents text, unlike [MASK] or [unused7]."""
    return not (len(token) > 2 and token[0] == "[" and token[-1] == "]")


def checked_tokens(tokens: list[str], path: str) -> tuple[str, ...]:
    """Return the tokens; raise `UserError` for repeated tokens, or missing special ones."""
    if "" in tokens:
        raise UserError(f"{path}: line {tokens.index('') + 1} is empty; each line must be a token.")
    repeated = [token for token, count in Counter(tokens).items() if count > 1]
    if repeated:
        example = repeated[0]
        lines = [str(line) for line, token in enumerate(tokens, start=1) if token == example]
        raise UserError(
            f"{path}: token {example!r} is on lines {' and '.join(lines)} "
            f"({len(repeated)} tokens are repeated); remove all but one."
        )
    distinct = set(tokens)
    missing = [token for token in SPECIAL_TOKENS if token not in distinct]
    if missing:
        raise UserError(
            f"{path} lacks {' '.join(missing)}; a BERT vocabulary needs {' '.join(SPECIAL_TOKENS)}."
        )
    if not any(map(is_ordinary, tokens)):
        raise UserError(f"{path} has only special tokens, which cannot represent text.")
    return tuple(tokens)
