"""Byte-level byte-pair encoding, as in GPT-2, RoBERTa and ModernBERT.

Text is split by GPT-2's rule into letters, digits and other characters, each with the space before
it; each of these words is a string of bytes, and byte pairs are merged in the order in which they
were learned. No text is unknown, and no character is lost::

    text      "The cat didn't."
    words     " The"  " cat"  " didn"  "'t"  "."     a space before the first one too
    tokens    ĠThe    Ġcat    Ġd idn   't    .       Ġ stands for the space

A tokenizer that puts a space before the text (`add_prefix_space`) gives a word the same tokens
wherever it stands, so the sentences of a document can be tokenised one by one. Ours does; for those
that do not, such as ModernBERT's, the first sentence of a document is the exception.

As in `tokenize`, only distinct chunks are tokenised. A cut may be where GPT-2's rule always ends a
word: before a space that follows a visible character, and between ASCII letters or digits and ASCII
punctuation. A cut after an apostrophe would tear "'t" apart. One case differs from `tokenizers`:
where accents are stripped, a word of nothing but accents is a space of its own here, and there part
of the white space around it.
"""

import json
import unicodedata
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC, NFD, Lowercase, Normalizer, StripAccents
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import ByteLevel as ByteLevelPreTokenizer

from ..ragged import flat_text, indices_of, offsets_of, sums
from .byte_pairs import MAX_BYTES, BytePairs
from .normalization import Normalization
from .tokenize import (
    ASCII_PUNCTUATION,
    CHINESE_CHARACTERS,
    DictionaryTokenizer,
    encode_texts,
    join_words,
)

SPACE = "Ġ"
SHOWN_SPACE = "▁"

# The visible character that stands for each byte in tokens, GPT-2's 256: those that Latin-1 shows
# stand for themselves, the others for the characters from U+0100 on.
_SHOWN_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHER_BYTES = [byte for byte in range(256) if byte not in _SHOWN_BYTES]
CHARACTERS = "".join(
    chr(byte if byte in _SHOWN_BYTES else 0x100 + _OTHER_BYTES.index(byte)) for byte in range(256)
)
_BYTE_OF_CHARACTER = {character: byte for byte, character in enumerate(CHARACTERS)}


def is_byte_level(token: str) -> bool:
    """Tell whether a token has only characters that stand for bytes."""
    return _BYTE_OF_CHARACTER.keys() >= set(token)


def text_of(token: str) -> str:
    """Return a token's text, with "�" for a part of a character; a token that does not stand for
    bytes is its own.

    >>> text_of("Ġcat")
    ' cat'
    """
    if not is_byte_level(token):
        return token
    return bytes(map(_BYTE_OF_CHARACTER.__getitem__, token)).decode(errors="replace")


def continues_word(text: str) -> bool:
    """Tell whether a token of this text continues the word before it, as far as it alone says.

    Spaces, punctuation and Chinese characters start words, as in BERT. A letter or a digit without
    a space before it continues the word, and so does a part of a character.
    """
    first = text[0]
    if first == "\N{REPLACEMENT CHARACTER}":
        return True
    low, high = CHINESE_CHARACTERS
    if low <= ord(first) <= high:
        return False
    # Letters, marks (vowel signs of Indian scripts) and numbers.
    return unicodedata.category(first)[0] in "LMN"


def byte_level_tokenizer(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    normalization: Normalization,
    specials: Sequence[str],
) -> Tokenizer:
    """Return the tokenizer for `tokens` in the order of their ids, special ones included.

    Text is normalised to NFC, as ModernBERT's tokenizer does, so that é is one character whether it
    was stored as one or as two.
    """
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(BPE(ids, list(merges)))
    steps: list[Normalizer] = []
    if normalization.strip_accents:
        steps += [NFD(), StripAccents()]
    if normalization.lowercase:
        steps.append(Lowercase())
    composing = NFC()
    tokenizer.normalizer = NormalizerSequence([*steps, composing]) if steps else composing
    tokenizer.pre_tokenizer = ByteLevelPreTokenizer(add_prefix_space=True, use_regex=True)
    tokenizer.decoder = ByteLevelDecoder()
    added = []
    for special in specials:
        # The mask takes the space before it along: what it hides is a token with its space.
        added.append(AddedToken(special, lstrip=special == "[MASK]", normalized=False))
    tokenizer.add_special_tokens(added)
    return tokenizer


class ByteLevelSplitter:
    """Split text into the words that byte-level BPE sees, as `Speller` does for WordPiece."""

    strips_spaces = False

    def __init__(self, tokenizer: Tokenizer, *, adds_space: bool = True) -> None:
        self._normalizer = tokenizer.normalizer
        self._pre_tokenizer = ByteLevelPreTokenizer(add_prefix_space=False, use_regex=True)
        self._adds_space = adds_space

    def prepare(
        self, text: np.ndarray, starts: np.ndarray, starts_text: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Put a space before each sentence, unless it begins with one, is empty, or starts a text
        before which no space is put.
        """
        space = np.uint8(ord(" "))
        sentence_starts = starts[:-1]
        lacks_space = np.diff(starts) > 0
        if not self._adds_space:
            lacks_space &= ~starts_text
        lacks_space[lacks_space] = text[sentence_starts[lacks_space]] != space
        text = np.insert(text, sentence_starts[lacks_space], space)
        # Each of these spaces moves all that follows its sentence's start by a byte.
        num_inserted = np.cumsum(lacks_space)
        starts = starts + np.append(0, num_inserted)
        return text, starts, cut_points(text, starts)

    def words(self, chunk: str) -> list[str]:
        """See `Splitter`."""
        if self._normalizer is not None and not (chunk.isascii() and chunk.islower()):
            chunk = self._normalizer.normalize_str(chunk)
        # Most are a space and letters, which GPT-2's rule keeps together.
        if chunk.removeprefix(" ").isalpha():
            return [chunk]
        spans = [span for _, span in self._pre_tokenizer.pre_tokenize_str(chunk)]
        return [chunk[start:stop] for start, stop in spans]


class _SimpleWords:
    """Normalise chunks that are a single word whatever stands around its characters: letters alone,
    ASCII digits alone or ASCII punctuation alone, with at most a space before.
    """

    # Of each code point of Unicode's first plane, once it has been seen: its kind, as below, and
    # the code point that it is normalised to.

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_seen = np.zeros(0x10000, bool)
        self._kinds = np.zeros(0x10000, np.uint8)
        self._normal = np.zeros(0x10000, np.uint32)
        # Stands for all beyond the plane, and is never simple.
        self._is_seen[0xFFFF] = True

    def normalize(self, chunks: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
        """Return the normalised text (UTF-8) and its offsets; chunks of other kinds are empty."""
        text, offsets = flat_text(chunks)
        codes = np.frombuffer(text.tobytes().decode().encode("utf-32-le"), np.uint32)
        # Beyond the first plane nothing is simple.
        codes = np.append(np.minimum(codes, 0xFFFF), np.uint32(0xFFFF))
        for code in np.unique(codes[~self._is_seen[codes]]).tolist():
            self._see(code)
        starts_character = (text & 0xC0) != 0x80
        offsets = offsets_of(starts_character)[offsets]
        kinds = self._kinds[codes]
        lengths = np.diff(offsets)
        starts = offsets[:-1]
        has_space = (kinds[starts] == _SPACE) & (lengths > 1)
        kind = kinds[starts + has_space]
        is_like = kinds[:-1] == np.repeat(kind, lengths)
        is_simple = np.isin(kind, (_LETTER, _DIGIT, _PUNCTUATION))
        is_simple &= sums(is_like, offsets) + has_space == lengths

        normal = self._normal[codes[:-1][np.repeat(is_simple, lengths)]]
        num_bytes = np.int64(1) + (normal >= 0x80) + (normal >= 0x800)
        offsets = offsets_of(np.where(is_simple, lengths, 0))
        normal_text = np.frombuffer(normal.tobytes().decode("utf-32-le").encode(), np.uint8)
        return normal_text, offsets_of(num_bytes)[offsets]

    def _see(self, code: int) -> None:
        self._is_seen[code] = True
        character = chr(code)
        normal = character
        if self._tokenizer.normalizer is not None:
            normal = self._tokenizer.normalizer.normalize_str(character)
        kind = _kind(code) if code < 0x80 else _LETTER
        # The vowels and last consonants of Korean syllables are letters that are joined with the
        # one before.
        if len(normal) != 1 or 0x1160 <= code < 0x1200 or ord(normal) > 0xFFFF:
            return
        if kind == _LETTER:
            around = f"a{normal}a"
            if len(self._tokenizer.pre_tokenizer.pre_tokenize_str(around)) > 1:
                return
        self._kinds[code] = kind
        self._normal[code] = ord(normal)


class ByteLevelTokenizer(DictionaryTokenizer):
    """Tokenise sentences with a byte-level BPE, with a cache of chunks as its base has."""

    def __init__(self, tokenizer: Tokenizer, *, adds_space: bool) -> None:
        self._splitter = ByteLevelSplitter(tokenizer, adds_space=adds_space)
        # Without added tokens, which text must not become.
        self._model = Tokenizer(tokenizer.model)
        if tokenizer.normalizer is not None:
            self._model.normalizer = tokenizer.normalizer
        self._model.pre_tokenizer = ByteLevelPreTokenizer(add_prefix_space=False, use_regex=True)
        self._simple_words = _SimpleWords(self._model)
        vocabulary = tokenizer.get_vocab()
        self._starts_with_space = np.zeros(max(vocabulary.values()) + 1, bool)
        for token, token_id in vocabulary.items():
            self._starts_with_space[token_id] = token.startswith(SPACE)
        self._clear_cache()

    def _tokenize_chunks(self, chunks: pa.StringArray) -> pa.ListArray:
        # For fewer, the rounds of `BytePairs` cost more than `tokenizers`, and so does reading the
        # merges.
        if len(chunks) < 2000 or self._byte_pairs is None:
            return self._tokenize_by_model(chunks.to_pylist())
        text, offsets = self._simple_words.normalize(chunks)
        lengths = np.diff(offsets)
        is_simple = (lengths > 0) & (lengths <= MAX_BYTES)
        simple = np.flatnonzero(is_simple)
        others = np.flatnonzero(~is_simple)
        words = text[indices_of(offsets, simple)]
        ids, num_tokens = self._byte_pairs.encode(words, offsets_of(lengths[simple]))
        by_pairs = pa.ListArray.from_arrays(pa.array(offsets_of(num_tokens), pa.int32()), ids)
        by_model = self._tokenize_by_model(chunks.take(pa.array(others)).to_pylist())
        # Back to the order of `chunks`.
        places = np.argsort(np.append(simple, others))
        return pa.concat_arrays([by_pairs, by_model]).take(pa.array(places))

    @cached_property
    def _byte_pairs(self) -> BytePairs | None:
        model = json.loads(self._model.model.__getstate__())
        if model["ignore_merges"]:
            return None
        try:
            return BytePairs(model["merges"], model["vocab"], CHARACTERS)
        except ValueError:
            return None

    def _tokenize_by_model(self, chunks: list[str]) -> pa.ListArray:
        words: list[str] = []
        others: list[str] = []
        is_other: list[bool] = []
        for chunk in chunks:
            # A space, and then no further white space of any kind.
            is_word = chunk[:1] == " " and chunk.split() == [chunk[1:]]
            is_other.append(not is_word)
            if is_word:
                words.append(chunk)
            else:
                others.append(chunk)

        # Far faster than each alone: many words are one text, in which each begins where a token
        # begins with a space.
        #
        #   text      " didn't see"          words " didn't" and " see"
        #   tokens    Ġd  idn  't  Ġsee
        #   begins    T   F    F   T
        ids_of_words, _ = encode_texts(self._model, join_words(words, ""))
        starts = np.flatnonzero(self._starts_with_space[ids_of_words])
        assert len(starts) == len(words), "each word begins with a token with a space"
        lengths_of_words = np.diff(starts, append=len(ids_of_words))
        ids_of_others, lengths_of_others = encode_texts(self._model, others)

        lengths = np.append(lengths_of_words, lengths_of_others)
        offsets = pa.array(offsets_of(lengths), pa.int32())
        ids = np.append(ids_of_words, ids_of_others)
        words_first = pa.ListArray.from_arrays(offsets, pa.array(ids))
        # Back to the order of `chunks`.
        order = np.argsort(is_other, kind="stable")
        places = np.argsort(order)
        return words_first.take(pa.array(places))


# What the bytes of UTF-8 are to the rule, and `_CUTS`: whether it always ends a word between two.
_CONTROL, _SPACE, _LETTER, _DIGIT, _PUNCTUATION, _APOSTROPHE, _DELETE, _WIDE = range(8)


def _kind(byte: int) -> int:
    character = chr(byte)
    if byte >= 0x80:
        return _WIDE
    if character.isalpha():
        return _LETTER
    if character.isdigit():
        return _DIGIT
    if any(low <= byte <= high for low, high in ASCII_PUNCTUATION):
        return _APOSTROPHE if character == "'" else _PUNCTUATION
    return {" ": _SPACE, "\x7f": _DELETE}.get(character, _CONTROL)


def _is_cut(before: int, after: int) -> bool:
    if after == _SPACE:
        return before not in (_CONTROL, _SPACE)
    if before in (_LETTER, _DIGIT):
        return after in (_PUNCTUATION, _APOSTROPHE)
    return before == _PUNCTUATION and after in (_LETTER, _DIGIT)


_KINDS = bytes(map(_kind, range(256)))
_CUTS = bytes(_is_cut(pair >> 3 & 7, pair & 7) for pair in range(256))
# White space beyond ASCII, U+0085 to U+3000: the bytes of each in UTF-8 as one number.
_WIDE_SPACES = [
    int.from_bytes(chr(code).encode()) for code in range(128, 12289) if chr(code).isspace()
]


def cut_points(text: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the ascending offsets at which chunks of `text` (uint8, UTF-8) start, and the end: at
    `starts` of sentences, and where no word goes across (see the module's docstring).
    """
    if not len(text):
        return starts[:1]
    # One look-up a byte and one a pair of bytes, instead of a dozen comparisons.
    kinds = np.frombuffer(text.tobytes().translate(_KINDS), np.uint8)
    pairs = (kinds[:-1] << 3) | kinds[1:]
    is_cut = np.zeros(len(text) + 1, bool)
    is_cut[1:-1] = np.frombuffer(pairs.tobytes().translate(_CUTS), bool)

    # White space in front of a space belongs to the same word as the space.
    wide = np.flatnonzero(pairs == (_WIDE << 3 | _SPACE)) + 1
    last, second, third = (text[np.maximum(wide - n, 0)].astype(np.int32) for n in (1, 2, 3))
    last_two = (second << 8) | last
    last_three = (third << 16) | last_two
    is_cut[wide[np.isin(last_two, _WIDE_SPACES) | np.isin(last_three, _WIDE_SPACES)]] = False
    is_cut[starts] = True
    return np.flatnonzero(is_cut)
