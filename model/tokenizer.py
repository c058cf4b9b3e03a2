"""Turn texts into rows of token ids with the tokenizer of a model directory."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from tokenizers import Tokenizer

from ..pipeline.errors import UserError
from ..pipeline.parsing import parse_json
from ..pipeline.vocabulary.vocabulary import load_vocabulary, read_files, vocabulary_files
from .config import ModelConfig


class TextTokenizer:
    """The WordPiece tokenizer of a checkpoint. "[SEP]" in a text becomes ordinary tokens, never the
    special one.

    Raises `UserError` if `directory` holds neither ``tokenizer.json`` nor ``vocab.txt``, or not a
    BERT tokenizer.
    """

    def __init__(self, directory: str | Path) -> None:
        self._tokenizer = read_tokenizer(directory)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.vocab_size = self._tokenizer.get_vocab_size()
        self._cls, self._sep = (self._special(token, directory) for token in ("[CLS]", "[SEP]"))
        self.unknown = self._special("[UNK]", directory)

    def _special(self, token: str, directory: str | Path) -> int:
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise UserError(
                f"The vocabulary in {directory} has no {token}; it is not a BERT vocabulary."
            )
        return token_id

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens or truncation."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def token_ids_and_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        """Return `token_ids`, and each token's characters [start, end) in the original text, int64
        (T, 2).
        """
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [
            (each.ids, np.array(each.offsets, dtype=np.int64).reshape(-1, 2)) for each in encodings
        ]

    def token(self, token_id: int) -> str:
        """Return the token with this id."""
        return self._tokenizer.id_to_token(int(token_id)) or ""

    def row(
        self, tokens_a: list[int], tokens_b: list[int] | None, max_length: int
    ) -> tuple[np.ndarray, int, int]:
        """Return ``[CLS] A [SEP] B [SEP]`` (int32), the index of B's first token, and the number of
        tokens cut.

        The row has at most `max_length` tokens: the longer segment is cut first, at its end
        (google-research's ``_truncate_seq_pair``). Without B the index is the row's length.
        """
        if tokens_b is None:
            ids = [self._cls, *tokens_a[: max_length - 2], self._sep]
            return np.array(ids, dtype=np.int32), len(ids), len(tokens_a) + 2 - len(ids)
        length_a, length_b = cut_lengths(len(tokens_a), len(tokens_b), max_length - 3)
        ids = [self._cls, *tokens_a[:length_a], self._sep, *tokens_b[:length_b], self._sep]
        return (
            np.array(ids, dtype=np.int32),
            length_a + 2,
            len(tokens_a) + len(tokens_b) + 3 - len(ids),
        )


def cut_lengths(length_a: int, length_b: int, limit: int) -> tuple[int, int]:
    """Return the lengths that remain when the longer segment (B, if equal) loses its last token
    until both fit.

    >>> cut_lengths(10, 3, 9), cut_lengths(10, 20, 9)
    ((6, 3), (5, 4))
    """
    excess = max(0, length_a + length_b - limit)
    from_longer = min(excess, abs(length_a - length_b))
    both = excess - from_longer
    if length_a > length_b:
        length_a -= from_longer
    else:
        length_b -= from_longer
    return length_a - both // 2, length_b - (both + 1) // 2


class _Limit(Struct):
    """The part of ``tokenizer_config.json`` that limits rows."""

    model_max_length: float = math.inf


def trained_length(directory: str | Path, num_positions: int) -> int:
    """Return how many of a model's positions are trained, which `pretrain` writes as
    ``model_max_length``.
    """
    content = read_files(str(directory)).get("tokenizer_config.json", b"{}")
    limit = parse_json(content, _Limit, f"{directory}/tokenizer_config.json").model_max_length
    return int(min(limit, num_positions))


def check_vocabulary(vocab_size: int, config: ModelConfig, directory: str | Path) -> None:
    """Raise `UserError` if the vocabulary in `directory` has more tokens than the model has
    embeddings.
    """
    if vocab_size > config.vocab_size:
        sizes = f"{vocab_size} tokens, but its model has {config.vocab_size}"
        raise UserError(f"The vocabulary in {directory} has {sizes}; use another checkpoint.")


def check_fit(
    tokenizer: TextTokenizer, config: ModelConfig, max_length: int, directory: str | Path
) -> None:
    """Raise `UserError` if the vocabulary or `max_length` exceeds the model's embeddings."""
    check_vocabulary(tokenizer.vocab_size, config, directory)
    if max_length > config.max_position_embeddings:
        positions = config.max_position_embeddings
        raise UserError(
            f"`max_length` is {max_length}, but the model in {directory} has {positions} positions; lower it."
        )


def tokenizer_files(directory: str | Path) -> dict[str, bytes]:
    """Return the tokenizer's files in `directory` by name; a missing ``tokenizer.json`` is made
    from ``vocab.txt``.
    """
    files = read_files(str(directory))
    if "tokenizer.json" not in files:
        files["tokenizer.json"] = vocabulary_files(load_vocabulary(files, str(directory)))[
            "tokenizer.json"
        ]
    return files


def read_tokenizer(directory: str | Path) -> Tokenizer:
    """Return the tokenizer of a model directory, from ``tokenizer.json`` or ``vocab.txt``; raises
    `UserError`.
    """
    content = tokenizer_files(directory)["tokenizer.json"]
    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:  # tokenizers raises no narrower class
        raise UserError(f"The tokenizer in {directory} cannot be read: {error}.") from None
