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
word: before a space that follows a visible character, and between ASCII letters or digits and
punctuation, ASCII's or such as “. A cut after ASCII's apostrophe would tear "'t" apart. One case
differs from `tokenizers`: where accents are stripped, a word of nothing but accents is a space of
its own here, and there part of the white space around it.
"""

import json
import re
import string
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC, NFD, Lowercase, Normalizer, StripAccents
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import ByteLevel as ByteLevelPreTokenizer

from ..ragged import flat_text
from .normalization import Normalization
from .tokenize import (
    CHINESE_CHARACTERS,
    DictionaryTokenizer,
    Splitter,
    encode_texts,
    join_words,
    look_up,
)

if TYPE_CHECKING:
    import tiktoken

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
    return _bytes_of(token).decode(errors="replace")


def _bytes_of(token: str) -> bytes:
    return bytes(map(_BYTE_OF_CHARACTER.__getitem__, token))


def continues_word(text: str) -> bool:
    """Tell whether a token of this text continues the word before it, as far as it alone says: a
    letter, digit or part of a character does, unlike punctuation and Chinese characters.
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
    """Return the tokenizer for `tokens` in the order of their ids, special ones included; text is
    normalised to NFC, as by ModernBERT's, so that é is one character.
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


# GPT-2's rule for visible characters of ASCII.
_ASCII_WORDS = re.compile(
    "'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9 ]+| +(?![^ ])| +"
)


class ByteLevelSplitter(Splitter):
    """Split text into the words that byte-level BPE sees, as `Speller` does for WordPiece."""

    strips_spaces = False
    # GPT-2's rule keeps letters together, and digits, with the space before them.
    plain = "^ ?([A-Za-z]+|[0-9]+)$"

    def __init__(self, tokenizer: Tokenizer, *, adds_space: bool = True) -> None:
        super().__init__(
            tokenizer.normalizer or NormalizerSequence([]),
            ByteLevelPreTokenizer(add_prefix_space=False, use_regex=True),
            composes=True,
        )
        self._adds_space = adds_space

    def prepare(
        self, text: np.ndarray, starts: np.ndarray, starts_text: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Put a space before each sentence that lacks one; see `adds_space` of a vocabulary."""
        lacks_space = np.diff(starts) > 0
        if not self._adds_space:
            lacks_space &= ~starts_text
        lacks_space[lacks_space] = text[starts[:-1][lacks_space]] != ord(" ")
        offsets = pa.py_buffer(starts.astype(np.int32))
        buffers = [None, offsets, pa.py_buffer(text)]
        sentences = pa.Array.from_buffers(pa.binary(), len(lacks_space), buffers)
        spaces = pc.call_function("if_else", [pa.array(lacks_space), b" ", b""])
        spaced = pc.call_function("binary_join_element_wise", [spaces, sentences, b""])
        text, starts = flat_text(spaced)
        return text, starts, cut_points(text, starts)

    def words(self, chunk: str) -> list[str]:
        """See `Splitter`."""
        if chunk.isascii() and chunk.isprintable():
            return _ASCII_WORDS.findall(chunk.lower() if self.lowercase else chunk)
        text = chunk.removeprefix(" ")
        letters = self.spell_letters(text)
        if letters:
            return [f" {letters}" if len(text) < len(chunk) else letters]
        return self.split(chunk)


class ByteLevelTokenizer(DictionaryTokenizer):
    """Tokenise sentences with a byte-level BPE, with a cache of chunks as its base has."""

    def __init__(self, tokenizer: Tokenizer, *, adds_space: bool) -> None:
        self._splitter = ByteLevelSplitter(tokenizer, adds_space=adds_space)
        # The model alone: text must not become an added token. No word has a line break, which is
        # Ċ there. Added tokens are numbered from the size of the vocabulary on: what else is added
        # fills up its ids.
        self._model = Tokenizer(tokenizer.model)
        ids = self._model.get_vocab()
        num_missing = max(ids.values()) + 1 - len(ids)
        fillers = [f"\0{number}" for number in range(num_missing)]
        self._model.add_special_tokens([*fillers, "\n"])
        line_break = self._model.token_to_id("\n")
        assert line_break is not None
        self._line_break = line_break
        self._clear_cache()

    def _encode_words(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        # For fewer, checking the merges takes longer than `tokenizers` with its own.
        if len(words) >= 2000 and self.fast_model:
            text = "\n".join([*words, ""])
            if text.count("\n") == len(words):
                encoding, ids_of_ranks = self.fast_model
                ranks, starts = _cut_at(encoding.encode_to_numpy(text), ord("\n"))
                return ids_of_ranks[ranks], starts
        return self._encode_shown(
            [word.encode().decode("latin-1").translate(CHARACTERS) for word in words]
        )

    def _encode_shown(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encode words in the characters that stand for their bytes."""
        ids, _ = encode_texts(self._model, join_words(words, "\n"))
        return _cut_at(ids, self._line_break)

    @cached_property
    def fast_model(self) -> "tuple[tiktoken.Encoding, np.ndarray] | None":
        """What encodes many words, and the id of each rank, a token's place among the merges; None
        without ``tiktoken``, or if its rule would give others.

        It joins the two neighbours that together are the token of the lowest rank, whatever the
        merge of this token is. That is the same if each merge is of two tokens before it, and makes
        a token that no other makes and that its own text becomes.
        """
        bpe = self._model.model
        model = json.loads(bpe.__getstate__())
        if model["ignore_merges"] or find_spec("tiktoken") is None:
            return None
        import tiktoken

        # The tokens in the order of their ranks.
        spelled = {character: bytes([byte]) for byte, character in enumerate(CHARACTERS)}
        for left, right in model["merges"]:
            if left not in spelled or right not in spelled or left + right in spelled:
                return None
            spelled[left + right] = spelled[left] + spelled[right]
        if any(len(bpe.tokenize(token)) > 1 for token in spelled):
            return None
        encoding = tiktoken.Encoding(
            "words",
            pat_str=r"\n|[^\n]+",
            mergeable_ranks={text: rank for rank, text in enumerate(spelled.values())},
            special_tokens={},
        )
        return encoding, np.array([model["vocab"][token] for token in spelled], np.int32)


def _cut_at(ids: np.ndarray, line_break: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids without the line breaks that end words, and where words start, and the end."""
    is_end = ids == line_break
    ends = np.flatnonzero(is_end)
    return ids[~is_end], np.append(0, ends - np.arange(len(ends)))


def _flags(byte: int) -> int:
    """Return what a byte of UTF-8 may be, as flags, in the low four bits before a cut and in the
    high four after it: there is one where the two share a flag.
    """
    character = chr(byte)
    is_wide = byte >= 0x80
    is_word = not is_wide and character.isalnum()
    is_punctuation = character in string.punctuation
    before = (byte > ord(" "), is_word, is_punctuation and character != "'", is_wide)
    # After a wide character a space is no cut if that is white space.
    after = (character == " ", is_punctuation, is_word, character == " ")
    return sum(flag << place for place, flag in enumerate(before + after))


_FLAGS = bytes(map(_flags, range(256)))
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
    # One look-up a byte, instead of a dozen comparisons.
    flags = look_up(text, _FLAGS)
    shared = flags[:-1] & (flags[1:] >> 4)
    is_cut = np.zeros(len(text) + 1, bool)
    is_cut[1:-1] = shared
    # White space in front of a space belongs to the same word as the space.
    spaces = np.flatnonzero(shared >= 1 << 3) + 1
    is_cut[spaces[_follow_wide_space(text, spaces)]] = False
    # Quotation marks and dashes, U+2010 to U+2027, beside ASCII letters and digits. At the ends of
    # the text, where other bytes are looked at, there is a cut anyway.
    marks = np.flatnonzero(text == 0xE2)
    last_byte = text[marks + 2]
    marks = marks[(text[marks + 1] == 0x80) & (last_byte >= 0x90) & (last_byte <= 0xA7)]
    is_word = (flags & 2).astype(bool)
    is_cut[marks] |= is_word[marks - 1]
    is_cut[marks + 3] |= is_word.take(marks + 3, mode="clip")
    is_cut[starts] = True
    return np.flatnonzero(is_cut)


def _follow_wide_space(text: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return which of the `places` white space of two or three bytes stands before, bool."""
    bytes_before = [text[np.maximum(places - distance, 0)] for distance in (1, 2, 3)]
    last, second, third = np.array(bytes_before, np.int32)
    last_two = second << 8 | last
    last_three = third << 16 | last_two
    return np.isin(last_two, _WIDE_SPACES) | np.isin(last_three, _WIDE_SPACES)
