"""Turn texts into rows of token ids with the tokenizer of a model directory."""

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from tokenizers import Tokenizer
from tokenizers.models import BPE

from ..pipeline.errors import UserError
from ..pipeline.parsing import parse_json
from ..pipeline.vocabulary.files import load_vocabulary, read_files, vocabulary_files

TRIAL_S = 60
_TRIAL_TEXT = "The quick brown fox jumps over the lazy dog, 1234567890: é 中 д."
_TRIAL = """
import resource, sys
from tokenizers import Tokenizer
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
Tokenizer.from_buffer(sys.stdin.buffer.read()).encode(sys.argv[1])
"""


class TokenRow(NamedTuple):
    """One row of tokens."""

    input_ids: np.ndarray
    """``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``, int32, not padded."""
    segment_b_start: int
    """Index of B's first token; the row's length if there is no B."""
    num_cut: int = 0
    """Tokens of the example that did not fit and are in no other row either."""


class TextTokenizer:
    """The tokenizer of a checkpoint: WordPiece or byte-level BPE.

    Raises `UserError` if `directory` holds neither ``tokenizer.json`` nor ``vocab.txt``, or not a
    BERT tokenizer.
    """

    def __init__(self, directory: str | Path) -> None:
        self._tokenizer = read_tokenizer(directory)
        # Otherwise "[SEP]" in a user's text would become the special token and end the segment.
        self._tokenizer.encode_special_tokens = True
        self.vocab_size = self._tokenizer.get_vocab_size()
        self._cls = self._special("[CLS]", directory)
        self._sep = self._special("[SEP]", directory)
        self.unknown = self._special("[UNK]", directory)
        self._is_byte_level = isinstance(self._tokenizer.model, BPE)

    def __eq__(self, other: object) -> bool:
        """Return whether both cut every text into the same ids."""
        return (
            isinstance(other, TextTokenizer)
            and self._tokenizer.to_str() == other._tokenizer.to_str()
        )

    def _special(self, token: str, directory: str | Path) -> int:
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise UserError(
                f"The vocabulary in {directory} has no {token}; it is not a BERT vocabulary."
            )
        return token_id

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens or truncation."""
        # "Fast" is without offsets.
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def word_ids(self, words: Sequence[str], spaced: Sequence[bool]) -> list[list[int]]:
        """Return the ids of each word of a sentence, and whether a space stands before it."""
        if self._is_byte_level:
            # The space is part of the word; without it, a word would look like the end of one.
            words = [
                f" {word}" if is_spaced else word
                for word, is_spaced in zip(words, spaced, strict=True)
            ]
        return self.token_ids(words)

    def token_ids_and_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        """Return `token_ids`, and where each token lies in the original text.

        Offsets are int64 (T, 2): a token's first character, and one past its last.
        """
        tokenized = []
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        for text, encoding in zip(texts, encodings, strict=True):
            # A text without tokens has no offsets either: reshaped, they are (0, 2).
            offsets_T2 = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            if self._is_byte_level:
                offsets_T2 = _without_space(text, offsets_T2)
            tokenized.append((encoding.ids, offsets_T2))
        return tokenized

    def token(self, token_id: int) -> str:
        """Return the token with this id as people read it, "" if the vocabulary has none."""
        return readable_token(self._tokenizer, int(token_id))

    def row(self, tokens_a: list[int], tokens_b: list[int] | None, max_length: int) -> TokenRow:
        """Return ``[CLS] A [SEP]``, or ``[CLS] A [SEP] B [SEP]``, of at most `max_length` tokens.

        A pair that is too long is cut as `cut_lengths` says, at the ends of its segments.
        """
        #     segment_b_start      without B the row's length
        #                v
        #     [CLS] A [SEP]              2 special tokens
        #     [CLS] A [SEP] B [SEP]      3 special tokens
        num_tokens = len(tokens_a)
        if tokens_b is None:
            segment_a = tokens_a[: max_length - 2]
            ids = [self._cls, *segment_a, self._sep]
            segment_b_start = len(ids)
            num_left = len(segment_a)
        else:
            num_tokens += len(tokens_b)
            length_a, length_b = cut_lengths(len(tokens_a), len(tokens_b), max_length - 3)
            segment_a = [self._cls, *tokens_a[:length_a], self._sep]
            ids = [*segment_a, *tokens_b[:length_b], self._sep]
            segment_b_start = len(segment_a)
            num_left = length_a + length_b
        return TokenRow(np.array(ids, dtype=np.int32), segment_b_start, num_tokens - num_left)


def _without_space(text: str, offsets_T2: np.ndarray) -> np.ndarray:
    """Return offsets of tokens without the white space that they begin with."""
    starts_T = offsets_T2[:, 0].copy()
    for token, (start, end) in enumerate(offsets_T2.tolist()):
        visible = text[start:end].lstrip()
        starts_T[token] = end - len(visible)
    return np.stack([starts_T, offsets_T2[:, 1]], axis=1)


def cut_lengths(length_a: int, length_b: int, limit: int) -> tuple[int, int]:
    """Return the lengths of two segments after cutting them to `limit` tokens together.

    The longer one loses what is too much, until both are equally long; then both do, and the longer
    one, or B if neither is, keeps an odd token: ``longest_first`` of the fast tokenizers of
    ``transformers``, so that an exported model reads what `predict` does.

    >>> cut_lengths(10, 3, 9)
    (6, 3)
    >>> cut_lengths(10, 20, 9)
    (4, 5)
    """
    if length_a + length_b <= limit:
        return length_a, length_b
    shorter = min(length_a, length_b, limit // 2)
    longer = limit - shorter
    return (longer, shorter) if length_a > length_b else (shorter, longer)


def readable_token(tokenizer: Tokenizer, token_id: int) -> str:
    """Return the token with this id as people read it, "" if the vocabulary has none.

    Byte-level BPE shows a space, and all but ASCII, as other characters: "Ġcafé" is " cafÃ©".
    """
    token = tokenizer.id_to_token(token_id) or ""
    if not isinstance(tokenizer.model, BPE):
        return token
    text = tokenizer.decode([token_id], skip_special_tokens=False).strip()
    # Of spaces alone nothing is left to see.
    return text or token.replace("Ġ", "▁")


class _TokenizerConfig(Struct):
    """The only field of ``tokenizer_config.json`` that matters here."""

    model_max_length: float = math.inf


def model_max_length(directory: str | Path) -> float:
    """Return the longest rows that the model in `directory` was trained on, in tokens.

    `pretrain` writes it; other checkpoints may not say (infinity), or more than is true.
    """
    content = read_files(str(directory)).get("tokenizer_config.json", b"{}")
    config = parse_json(content, _TokenizerConfig, f"{directory}/tokenizer_config.json")
    return config.model_max_length


def with_settings(files: Mapping[str, bytes], settings: Mapping[str, Any]) -> dict[str, bytes]:
    """Return a tokenizer's files with these `settings` in its ``tokenizer_config.json``."""
    if not settings:
        return dict(files)
    name = "tokenizer_config.json"
    config = parse_json(files[name], dict[str, Any], name)
    return {**files, name: (json.dumps({**config, **settings}, indent=2) + "\n").encode()}


def tokenizer_files(directory: str | Path) -> dict[str, bytes]:
    """Return the tokenizer's files in `directory` by name.

    A missing ``tokenizer.json`` is made from ``vocab.txt``. One that cuts or pads texts to a
    length, as some published ones do, loses that: it was of another use of the model.
    """
    files = read_files(str(directory))
    name = "tokenizer.json"
    if name not in files:
        vocabulary = load_vocabulary(files, str(directory))
        files[name] = vocabulary_files(vocabulary)[name]
    try:
        settings = json.loads(files[name])
    except (ValueError, RecursionError):
        return files  # whoever reads it says so
    if isinstance(settings, dict) and (settings.get("truncation") or settings.get("padding")):
        settings |= {"truncation": None, "padding": None}
        files[name] = json.dumps(settings, ensure_ascii=False).encode()
    return files


def read_tokenizer(directory: str | Path) -> Tokenizer:
    """Return the tokenizer of a model directory, from ``tokenizer.json`` or ``vocab.txt``; it
    neither cuts nor pads texts.

    Raises `UserError` if there is none, or it is damaged.
    """
    files = tokenizer_files(directory)
    content = files["tokenizer.json"]
    try:
        load_vocabulary(files, str(directory))
    except UserError:  # not one that `vocab` might have written
        _try_out(content, directory)
    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:  # tokenizers raises no narrower class
        raise UserError(f"The tokenizer in {directory} cannot be read: {error}.") from None


def _try_out(tokenizer: bytes, directory: str | Path) -> None:
    """Raise `UserError` if a ``tokenizer.json`` ends the process at a short text, as tokenizers
    does when the memory is full, or takes more than `TRIAL_S` for it.
    """
    command = [sys.executable, "-c", _TRIAL, _TRIAL_TEXT]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, input=tokenizer, capture_output=True, timeout=TRIAL_S, check=False
        )
        if done.returncode >= 0:  # whoever reads it reports an exception
            return
    raise UserError(f"The tokenizer in {directory} fails at a short text; use another checkpoint.")
