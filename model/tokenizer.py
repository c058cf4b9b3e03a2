"""Turn texts into rows of token ids with the tokenizer of a model directory."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..pipeline.parsing import parse_json
from ..pipeline.vocabulary.files import (
    load_vocabulary,
    read_files,
    read_vocabulary,
    vocabulary_files,
)
from ..pipeline.vocabulary.tokenize import faults_reported
from ..pipeline.vocabulary.vocabulary import unknown_tokens


class TokenRow(NamedTuple):
    """One row of tokens."""

    input_ids: np.ndarray
    """``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``, int32, not padded."""
    segment_b_start: int
    """Index of B's first token; the row's length if there is no B."""
    num_cut: int = 0
    """Tokens of the example that did not fit and are in no other row either."""


class TextTokenizer:
    """The tokenizer of a checkpoint, whatever its kind."""

    def __init__(self, directory: str | Path) -> None:
        self.vocabulary = read_vocabulary(str(directory))
        self._tokenizer = self.vocabulary.plain_tokenizer()
        self.vocab_size = len(self.vocabulary)
        self.num_pair_specials = 2 + len(self.vocabulary.specials.between)
        """In a row of two texts; a row of one has two."""
        unk_id = self.vocabulary.unk_id
        self.unknown = self.vocabulary.mask_id if unk_id is None else unk_id
        self._num_tokens = 0
        self._num_unknown = 0

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens or truncation."""
        with faults_reported():
            # "Fast" is without offsets.
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._as_text(encoding.ids) for encoding in encodings]

    def _as_text(self, ids: list[int]) -> list[int]:
        """Return ids in which special tokens made of text are unknown, and count those."""
        if self.vocabulary.spelling != "##":
            ids = self.vocabulary.ids_in_text[ids].tolist()
        self._num_tokens += len(ids)
        if self.vocabulary.unk_id is not None:
            self._num_unknown += ids.count(self.vocabulary.unk_id)
        return ids

    def unknown_notice(self) -> str:
        """Return a notice if many of the tokens so far are unknown, else ""."""
        warning = unknown_tokens(self._num_unknown, self._num_tokens)
        return f"{warning}." if warning else ""

    def word_ids(self, words: Sequence[str], spaced: Sequence[bool]) -> list[list[int]]:
        """Return the ids of each word of a sentence, and whether a space stands before it."""
        if not self.vocabulary.adds_space:
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
        with faults_reported():
            encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        for text, encoding in zip(texts, encodings, strict=True):
            # A text without tokens has no offsets either: reshaped, they are (0, 2).
            offsets_T2 = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            if self.vocabulary.spelling != "##":
                # Without the white space that a token begins with.
                for token, (start, end) in enumerate(offsets_T2.tolist()):
                    offsets_T2[token, 0] = end - len(text[start:end].lstrip())
            tokenized.append((self._as_text(encoding.ids), offsets_T2))
        return tokenized

    def token(self, token_id: int) -> str:
        """Return the token with this id as people read it, "" if the vocabulary has none."""
        return self.vocabulary.shown(int(token_id))

    def row(self, tokens_a: list[int], tokens_b: list[int] | None, max_length: int) -> TokenRow:
        """Return ``[CLS] A [SEP]``, or ``[CLS] A [SEP] B [SEP]``, of at most `max_length` tokens.

        A pair that is too long is cut as `cut_lengths` says, at the ends of its segments.
        """
        #     segment_b_start      without B the row's length
        #                v
        #     [CLS] A [SEP]              2 special tokens
        #     [CLS] A [SEP] B [SEP]      3 special tokens, or more in some models
        vocabulary = self.vocabulary
        if tokens_b is None:
            segment_a = tokens_a[: max_length - 2]
            ids = [vocabulary.cls_id, *segment_a, vocabulary.sep_id]
            num_cut = len(tokens_a) - len(segment_a)
            return TokenRow(np.array(ids, dtype=np.int32), len(ids), num_cut)
        room = max_length - self.num_pair_specials
        length_a, length_b = cut_lengths(len(tokens_a), len(tokens_b), room)
        between = [vocabulary.ids[token] for token in vocabulary.specials.between]
        segment_a = [vocabulary.cls_id, *tokens_a[:length_a], *between]
        ids = [*segment_a, *tokens_b[:length_b], vocabulary.sep_id]
        num_cut = len(tokens_a) - length_a + len(tokens_b) - length_b
        return TokenRow(np.array(ids, dtype=np.int32), len(segment_a), num_cut)


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


def model_max_length(directory: str | Path) -> float:
    """Return the longest rows that the model in `directory` was trained on, in tokens.

    `pretrain` writes it; other checkpoints may not say (infinity), or more than is true.
    """
    settings = _settings(read_files(str(directory)), "tokenizer_config.json", directory)
    length = settings.get("model_max_length")
    return length if isinstance(length, int | float) and length > 0 else math.inf


def with_settings(directory: str, settings: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the tokenizer's files of instances, with `settings` in ``tokenizer_config.json``."""
    files = read_files(directory)
    name = "tokenizer_config.json"
    advice = "Rebuild the instances with `overwrite`."
    config = parse_json(files.get(name, b""), dict[str, Any], f"{directory}/{name}", advice)
    config.update(settings)
    files[name] = _indented(config)
    return files


def tokenizer_files(directory: str | Path) -> dict[str, bytes]:
    """Return the tokenizer's files in `directory` by name, as a model in it needs them: with a
    ``tokenizer.json`` that neither cuts nor pads, and without ``special_tokens_map.json``, whose
    names ``tokenizer_config.json`` then has.
    """
    files = read_files(str(directory))
    vocabulary = load_vocabulary(files, str(directory))
    if "tokenizer.json" not in files:
        files["tokenizer.json"] = vocabulary_files(vocabulary)["tokenizer.json"]
    fields = json.loads(files["tokenizer.json"])
    if fields.get("truncation") or fields.get("padding"):
        fields |= {"truncation": None, "padding": None}
        files["tokenizer.json"] = json.dumps(fields, ensure_ascii=False).encode()
    named = _settings(files, "special_tokens_map.json", directory)
    files.pop("special_tokens_map.json", None)
    if named:
        named |= _settings(files, "tokenizer_config.json", directory)
        files["tokenizer_config.json"] = _indented(named)
    return files


def _indented(settings: Mapping[str, Any]) -> bytes:
    text = json.dumps(settings, indent=2)
    return f"{text}\n".encode()


def _settings(files: Mapping[str, bytes], name: str, directory: str | Path) -> dict[str, Any]:
    return parse_json(files.get(name, b"{}"), dict[str, Any], f"{directory}/{name}")
