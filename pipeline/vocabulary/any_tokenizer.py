"""Tokenise by ``tokenizers`` what our own fast code does not: slower, and right by definition."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from ..errors import UserError
from ..ragged import indices_of, offsets_of
from .tokenize import DictionaryTokenizer, encode_texts


class AnyTokenizer:
    """Tokenise sentences by ``tokenizers``: all of them, or those with added tokens, which `fast`
    does not look for.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        ids_in_text: np.ndarray,
        added: Sequence[str],
        fast: DictionaryTokenizer | None,
        *,
        adds_space: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._ids_in_text = ids_in_text
        self._fast = fast
        self._adds_space = adds_space
        # Whatever their case, as some are looked for in lower-cased text.
        self._pattern = f"(?i){'|'.join(map(re.escape, sorted(added)))}"

    def encode(
        self, sentences: pa.Array, starts_text: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all `sentences`, as `DictionaryTokenizer.encode` does."""
        if starts_text is None:
            starts_text = np.zeros(len(sentences), bool)
        if self._fast is None:
            return self._encode(sentences, starts_text)
        options = pc.MatchSubstringOptions(self._pattern)
        found = pc.call_function("match_substring_regex", [sentences], options)
        is_slow = found.to_numpy(zero_copy_only=False)
        if not is_slow.any():
            return self._fast.encode(sentences, starts_text)
        slow_ids, slow_offsets = self._encode(sentences.filter(found), starts_text[is_slow])
        others = sentences.filter(pa.array(~is_slow))
        fast_ids, fast_offsets = self._fast.encode(others, starts_text[~is_slow])
        lengths = np.zeros(len(sentences), np.int64)
        lengths[is_slow] = np.diff(slow_offsets)
        lengths[~is_slow] = np.diff(fast_offsets)
        offsets = offsets_of(lengths)
        ids = np.zeros(offsets[-1], np.int32)
        ids[indices_of(offsets, np.flatnonzero(is_slow))] = slow_ids
        ids[indices_of(offsets, np.flatnonzero(~is_slow))] = fast_ids
        return ids, offsets

    def _encode(
        self, sentences: pa.Array, starts_text: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        texts = sentences.to_pylist()
        if not self._adds_space:
            # In the middle of a document, a space stands before the sentence.
            starts = starts_text.tolist()
            texts = [
                text if is_first or not text else f" {text}"
                for text, is_first in zip(texts, starts, strict=True)
            ]
        with panics_reported():
            ids, lengths = encode_texts(self._tokenizer, texts)
        return self._ids_in_text[ids], offsets_of(lengths)


@contextmanager
def panics_reported() -> Iterator[None]:
    """Raise `UserError` where ``tokenizers`` panics, as at a regular expression without end."""
    try:
        yield
    except BaseException as error:
        # pyo3_runtime.PanicException cannot be imported, and is no `Exception`.
        if type(error).__name__ != "PanicException":
            raise
        reason = str(error).split("\n")[0][:200]
        raise UserError(
            f"The tokenizer fails at a text ({reason}); use another tokenizer."
        ) from None
