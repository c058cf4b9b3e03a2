"""A vocabulary: WordPiece, byte-level BPE, or whatever else ``tokenizers`` loads."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from ..errors import UserError
from ..ragged import offsets_of
from .byte_level import (
    SHOWN_SPACE,
    SPACE,
    ByteLevelSplitter,
    ByteLevelTokenizer,
    continues_word,
    text_of,
)
from .normalization import Normalization, bert_tokenizer
from .tokenize import DictionaryTokenizer, Speller, Splitter, encode_texts, faults_reported


def _id_of(role: str) -> "cached_property[int]":
    return cached_property(lambda vocabulary: vocabulary.ids[getattr(vocabulary.specials, role)])


PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Specials(NamedTuple):
    """The special tokens by their roles; a text that holds their names does not become them."""

    pad: str = PAD
    unk: str = UNK
    """Empty if no text is unknown."""
    cls: str = CLS
    sep: str = SEP
    mask: str = MASK
    between: tuple[str, ...] = (SEP,)
    """Between the two texts of a pair: RoBERTa has two separators there."""

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset({*self[:5], *self.between})


@dataclass(frozen=True)
class ByteLevel:
    """What byte-level BPE needs besides the tokens."""

    pieces: frozenset[str]
    """The tokens that represent text: bytes and merges."""
    adds_space: bool
    """Whether a space is put before a text."""
    rules: str
    """What the ids of a text depend on besides the tokens: merges and normalisation, as JSON."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens in the order of their ids, and the normalisation of text before tokenisation."""

    tokens: tuple[str, ...]
    normalization: Normalization
    byte_level: ByteLevel | None = None
    file: str = ""
    """The ``tokenizer.json``; empty if it is BERT's, with these tokens and this normalisation."""
    specials: Specials = Specials()
    added: frozenset[str] = frozenset()
    """Other tokens that were added to the model's: they are found anywhere in a text."""
    is_foreign: bool = False
    """Whether only ``tokenizers`` can cut text: neither BERT's nor GPT-2's way would do."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: token_id for token_id, token in enumerate(self.tokens)}

    pad_id = _id_of("pad")
    cls_id = _id_of("cls")
    sep_id = _id_of("sep")
    mask_id = _id_of("mask")

    @cached_property
    def unk_id(self) -> int | None:
        """The id of the unknown token, if there is one."""
        return self.ids.get(self.specials.unk)

    @cached_property
    def is_added(self) -> np.ndarray:
        """Bool [vocab_size]: tokens that were added, found in text and never masked."""
        return np.array([token in self.added for token in self.tokens])

    @cached_property
    def is_ordinary(self) -> np.ndarray:
        """Bool [vocab_size]: tokens that represent text, unlike [MASK] or [unused7]."""
        if self.byte_level:
            return np.array([token in self.byte_level.pieces for token in self.tokens])
        if self.is_foreign:
            is_special = np.array([token in self.specials.names for token in self.tokens])
            return ~is_special & ~self.is_added
        is_bracketed = [re.fullmatch(r"\[.+\]", token, re.DOTALL) for token in self.tokens]
        return ~np.array(is_bracketed, bool) & ~self.is_added

    @cached_property
    def spelling(self) -> str:
        """How tokens say where they stand in a word: ``byte-level``, ``▁`` before its first token,
        or what is before those that continue it ("##"); empty if they do not say it.
        """
        if self.byte_level:
            return "byte-level"
        if not self.is_foreign:
            return "##"
        fields = json.loads(self.file)
        if fields["model"].get("end_of_word_suffix"):
            return ""
        prefix = fields["model"].get("continuing_subword_prefix")
        is_byte_level = '"ByteLevel"' in json.dumps(
            [fields.get("normalizer"), fields.get("pre_tokenizer")]
        )
        return prefix or ("byte-level" if is_byte_level else SHOWN_SPACE)

    @cached_property
    def continues(self) -> np.ndarray:
        """Bool [vocab_size]: tokens that continue a word ("##", or as `continues_word` says)."""
        continues = np.zeros(len(self), bool)
        for index in np.flatnonzero(self.is_ordinary).tolist():
            token = self.tokens[index]
            match self.spelling:
                case "byte-level":
                    continues[index] = continues_word(text_of(token))
                case "▁":
                    is_byte = re.fullmatch("<0x[0-9A-F]{2}>", token) is not None
                    continues[index] = is_byte or continues_word(token)
                case prefix:
                    is_longer = len(token) > len(prefix)
                    continues[index] = prefix != "" and is_longer and token.startswith(prefix)
        return continues

    @cached_property
    def readable(self) -> tuple[str, ...]:
        """The tokens as people read them: those of byte-level BPE as text, with "▁" for a space."""
        if self.spelling != "byte-level":
            return self.tokens
        texts = []
        for token, is_ordinary in zip(self.tokens, self.is_ordinary, strict=True):
            text = text_of(token) if is_ordinary else token
            texts.append(text.replace(" ", SHOWN_SPACE))
        return tuple(texts)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The tokens without what says where they stand in a word: "##", or the space."""
        if self.spelling in ("byte-level", SHOWN_SPACE):
            return tuple(token.removeprefix(SHOWN_SPACE) for token in self.readable)
        texts = []
        for token, continues in zip(self.tokens, self.continues, strict=True):
            texts.append(token.removeprefix(self.spelling) if continues else token)
        return tuple(texts)

    def shown(self, token_id: int) -> str:
        """Return a token as people read it, without the space before it; "" if it is none."""
        if token_id >= len(self):
            return ""
        token = self.tokens[token_id]
        # A token of spaces alone would vanish.
        text = self.readable[token_id].replace(SHOWN_SPACE, " ").strip()
        return text or token.replace(SPACE, SHOWN_SPACE)

    def tokenizer(self) -> Tokenizer:
        """Return a new tokenizer, which finds special tokens in text."""
        if self.file:
            return Tokenizer.from_str(self.file)
        tokenizer = bert_tokenizer(self.tokens, self.normalization)
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        tokenizer.post_processor = template_of(self.ids)
        return tokenizer

    def plain_tokenizer(self) -> Tokenizer:
        """Return a new tokenizer to which special tokens in a text are text, as "[SEP]" must not
        end a segment. Other added tokens are found.
        """
        fields = json.loads(self.tokenizer().to_str())
        for added in fields["added_tokens"]:
            added["special"] = added["content"] in self.specials.names
        tokenizer = Tokenizer.from_str(json.dumps(fields))
        tokenizer.encode_special_tokens = True
        return tokenizer

    @cached_property
    def adds_space(self) -> bool:
        """Whether a word has the same tokens at the start of a text as after a space."""
        if self.byte_level:
            return self.byte_level.adds_space
        if not self.is_foreign:
            return True
        tokenizer = self.tokenizer()
        with faults_reported():
            alone, twice = tokenizer.encode_batch_fast(["a", "a a"], add_special_tokens=False)
        return twice.ids == [*alone.ids, *alone.ids]

    @cached_property
    def ids_in_text(self) -> np.ndarray:
        """For each id, int32 [vocab_size], what it is in a text: special tokens are unknown there.

        A Unigram has its special tokens among the pieces of text.
        """
        ids = np.arange(len(self), dtype=np.int32)
        unknown = self.unk_id
        if unknown is None:
            unknown = int(np.flatnonzero(self.is_ordinary)[0])
        ids[[self.ids[name] for name in self.specials.names if name]] = unknown
        return ids

    def text_tokenizer(self) -> "DictionaryTokenizer | AnyTokenizer":
        """Return a new tokenizer of sentences; keep one per worker."""
        fast = None
        if self.byte_level:
            fast = ByteLevelTokenizer(self.tokenizer(), adds_space=self.adds_space)
        elif not self.is_foreign:
            fast = DictionaryTokenizer(self.tokens, self.normalization)
        # Not those of several spaces: in sentences, single ones separate words.
        added = [token for token in self.added if not token.isspace()]
        if fast and not added:
            return fast
        return AnyTokenizer(self, added, fast)

    def splitter(self) -> Splitter:
        """Return a new splitter of text into words; raise `UserError` if there is none."""
        if self.byte_level:
            return ByteLevelSplitter(self.tokenizer())
        if self.is_foreign:
            raise UserError("Only WordPiece and byte-level vocabularies can be compared.")
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
        else:
            content += self.file
        return blake2b(content.encode(), digest_size=16).hexdigest()


def unknown_tokens(num_unknown: int, num_tokens: int) -> str:
    """Return a warning if over 5% of the tokens are unknown; else ""."""
    share = num_unknown / max(num_tokens, 1)
    if share <= 0.05:
        return ""
    return f"{share:.0%} of the tokens are unknown: use a vocabulary of the texts' language"


def template_of(ids: Mapping[str, int]) -> TemplateProcessing:
    """Return what makes ``[CLS] A [SEP] B [SEP]``."""
    return TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, ids[CLS]), (SEP, ids[SEP])],
    )


class AnyTokenizer:
    """Tokenise sentences by ``tokenizers``, slower than our own code and right by definition: all
    of them, or those with `added` tokens, which `fast` does not look for.
    """

    def __init__(
        self, vocabulary: Vocabulary, added: Sequence[str], fast: DictionaryTokenizer | None
    ) -> None:
        self._tokenizer = vocabulary.plain_tokenizer()
        self._ids_in_text = vocabulary.ids_in_text
        self._adds_space = vocabulary.adds_space
        self._fast = fast
        # Whatever their case, as some are looked for in lower-cased text.
        self._pattern = f"(?i){'|'.join(map(re.escape, sorted(added)))}"

    def encode(
        self, sentences: pa.Array, starts_text: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `DictionaryTokenizer.encode`."""
        if starts_text is None:
            starts_text = np.zeros(len(sentences), bool)
        if self._fast is None:
            return self._encode(sentences, starts_text)
        options = pc.MatchSubstringOptions(self._pattern)
        found = pc.call_function("match_substring_regex", [sentences], options)
        is_slow = found.to_numpy(zero_copy_only=False)
        if not is_slow.any():
            return self._fast.encode(sentences, starts_text)
        slow = self._encode(sentences.filter(found), starts_text[is_slow])
        others = sentences.filter(pa.array(~is_slow))
        fast = self._fast.encode(others, starts_text[~is_slow])
        lists = [pa.LargeListArray.from_arrays(offsets, ids) for ids, offsets in (slow, fast)]
        # The slow ones first, then the fast ones; back to the order of `sentences`.
        places = np.argsort(np.argsort(~is_slow, kind="stable"))
        in_order = pa.concat_arrays(lists).take(pa.array(places))
        return in_order.values.to_numpy(), in_order.offsets.to_numpy()

    def _encode(
        self, sentences: pa.Array, starts_text: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        texts = sentences.to_pylist()
        if not self._adds_space:
            # In the middle of a document, a space stands before the sentence.
            for index in np.flatnonzero(~starts_text).tolist():
                texts[index] = f" {texts[index]}" if texts[index] else ""
        ids, lengths = encode_texts(self._tokenizer, texts)
        return self._ids_in_text[ids], offsets_of(lengths)
