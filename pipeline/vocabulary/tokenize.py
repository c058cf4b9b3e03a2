"""Tokenise the dictionary, not the text: each distinct chunk once, then gather the ids.

Of the 17 million chunks in 90 MB of Wikipedia only 2 % are distinct. So the bytes of the sentences
are cut into chunks at points that no word can span, and Arrow dictionary-encodes the chunks. Only
chunks not seen before are normalised and tokenised. The ids equal those that ``tokenizers`` gives
for each whole sentence.

This requires cuts that change nothing on either side. BERT's normaliser and pre-tokenizer treat a
space, an ASCII punctuation mark, a Chinese character (`handle_chinese_chars`) and any Unicode
punctuation as the end of a word, and neither lower-casing (per character) nor NFD (which reorders
marks only after the letter that carries them) looks across one. Everything else stays inside its
chunk and is left to ``tokenizers``.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, WhitespaceSplit

from ..schemas import WORD_COUNTS

MAX_WORD_CHARACTERS = 100
"""BERT's WordPiece turns any longer word into [UNK]."""

SLICE_BYTES = 12 << 20
"""Bytes of text per slice; bounds the memory. The parts that shards are read in are a little
smaller.
"""

MAX_CHUNKS = 300_000
"""Distinct chunks that are counted before their words are handed on; bounds the memory."""

CACHE_BYTES = 128 << 20
"""Approximate memory for the chunks kept between calls; beyond it the cache is cleared."""

_BYTES_PER_ENTRY = 130  # of a dict, including a string but not its characters
_WORDS_PER_TEXT = 500
_TEXTS_PER_CALL = 64
_CHUNKS_TOGETHER = 200_000  # looked up and cached; few slices have more

_NO_LETTER = "\n"  # never part of a normalised word

Sentences = pa.Array | pa.ChunkedArray | Iterable[pa.Array]
"""Strings; null counts as empty."""

_ASCII_PUNCTUATION = ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E))
_WIDE_LEADS = (0xE2, 0xE9)  # range of the first UTF-8 bytes of the code points below
_WIDE_ISOLATED = ((0x2010, 0x2027), (0x3001, 0x3003), (0x3008, 0x3011), (0x4E00, 0x9FFF))


_ISOLATED = np.isin(
    np.arange(0x10000),
    np.concatenate([np.arange(first, last + 1) for first, last in _WIDE_ISOLATED]),
)


class Normalization(NamedTuple):
    """How text is normalised before it is tokenised: both True for the published uncased BERT, both
    False for cased.
    """

    lowercase: bool
    strip_accents: bool


def bert_tokenizer(tokens: Sequence[str], normalization: Normalization) -> Tokenizer:
    """Return BERT's tokenizer for a vocabulary (`tokens` in the order of their ids, "[UNK]" among
    them).

    No special tokens are registered: "[MASK]" in a text is three words of text.
    """
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(
        WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARACTERS)
    )
    tokenizer.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=normalization.strip_accents,
        lowercase=normalization.lowercase,
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder(prefix="##")
    return tokenizer


class Speller(dict[int, str]):
    """Normalise chunks of text and split them into the words that WordPiece sees.

    The items are what normalisation turns each character into, if that depends on the character
    alone; filled on first use. All others (white space, punctuation, Chinese characters, marks that
    may be reordered) become `_NO_LETTER`.
    """

    def __init__(self, normalization: Normalization) -> None:
        tokenizer = bert_tokenizer(["[UNK]"], normalization)
        self._normalizer, self._pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer

    def spell(self, chunk: str) -> str:
        """Return the words in `chunk`, separated by single spaces; "" if it has none."""
        word = chunk.translate(self)
        return " ".join(self._split(chunk)) if _NO_LETTER in word else word

    def _split(self, text: str) -> list[str]:
        return [
            word
            for word, _ in self._pre_tokenizer.pre_tokenize_str(
                self._normalizer.normalize_str(text)
            )
        ]

    def __missing__(self, code: int) -> str:
        # Between two letters, a character shows whether it splits the word or vanishes.
        words = self._split(f"a{chr(code)}a")
        normal = words[0][1:-1] if len(words) == 1 else _NO_LETTER
        if unicodedata.category(chr(code)) == "Cn" or any(map(unicodedata.combining, normal)):
            normal = _NO_LETTER
        return self.setdefault(code, normal)


class DictionaryTokenizer:
    """Tokenise sentences with a WordPiece vocabulary, with a cache of chunks that lasts from call
    to call.

    Keep one per worker; it must not be shared between threads.
    """

    def __init__(self, tokens: Sequence[str], normalization: Normalization) -> None:
        self._speller = Speller(normalization)
        self._wordpiece = Tokenizer(bert_tokenizer(tokens, normalization).model)
        self._wordpiece.pre_tokenizer = (
            WhitespaceSplit()
        )  # spellings are already normalised and split
        self._continues = np.array([token.startswith("##") for token in tokens])
        self._forget()

    def encode(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all `sentences`, end to end, and the offset of each sentence.

        `ids` is int32 [num_tokens]; `offsets` int64 [num_sentences + 1]: sentence i is
        ``ids[offsets[i]:offsets[i + 1]]``. No [CLS] or [SEP] is added. A null sentence is empty.
        """
        ids, offsets, num_ids = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)], 0
        for text, starts in _slices(sentences):
            cuts = cut_points(text, starts)
            chunks, indices = _distinct_chunks(text, cuts)
            parts = (
                chunks[first : first + _CHUNKS_TOGETHER]
                for first in range(0, len(chunks) or 1, _CHUNKS_TOGETHER)
            )
            of_chunks = pa.concat_arrays(list(map(self._ids_of, parts))).take(indices)
            first_ids = of_chunks.offsets.to_numpy()[np.searchsorted(cuts, starts[1:])]
            ids.append(of_chunks.values.to_numpy())
            offsets.append(first_ids.astype(np.int64) + num_ids)
            num_ids += len(ids[-1])
        return np.concatenate(ids), np.concatenate(offsets)

    def _ids_of(self, chunks: list[str]) -> pa.ListArray:
        """Return the token ids of each of `chunks`, caching those not seen before."""
        if self._num_bytes > CACHE_BYTES:
            self._forget()
        entries = list(map(self._entries.get, chunks))
        if None in entries:
            self._remember(
                [chunk for chunk, entry in zip(chunks, entries, strict=True) if entry is None]
            )
            entries = list(map(self._entries.get, chunks))
        return self._ids.take(pa.array(entries, pa.int32()))

    def _remember(self, chunks: list[str]) -> None:
        # "The" and "the" share a spelling when lower-cased: tokenise and store it once.
        num_known = len(self._spellings)
        for chunk in chunks:
            self._entries[chunk] = self._spellings.setdefault(
                self._speller.spell(chunk), len(self._spellings)
            )
        spellings = list(islice(self._spellings, num_known, None))
        self._ids = pa.concat_arrays([self._ids, self._tokenize(spellings)])
        num_entries = len(chunks) + len(spellings)
        self._num_bytes += (
            num_entries * _BYTES_PER_ENTRY + sum(map(len, chunks)) + sum(map(len, spellings))
        )

    def _tokenize(self, spellings: list[str]) -> pa.ListArray:
        """Return the token ids of the words in each spelling."""
        # Join many words into one text: the objects that `tokenizers` creates per text cost more
        # than the work itself.
        words = [word for word in " ".join(spellings).split(" ") if word]
        texts = [
            " ".join(words[i : i + _WORDS_PER_TEXT]) for i in range(0, len(words), _WORDS_PER_TEXT)
        ]
        ids = np.concatenate([np.zeros(0, np.int32), *self._ids_in(texts)])
        # A word starts at each piece without "##": "#" is punctuation, so no longer word contains
        # it.
        first_ids = np.append(np.flatnonzero(~self._continues[ids]), len(ids))
        num_words = [spelling.count(" ") + 1 if spelling else 0 for spelling in spellings]
        offsets = first_ids[np.cumsum([0, *num_words])]
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids))

    def _ids_in(self, texts: list[str]) -> Iterator[np.ndarray]:
        """Yield the token ids in the texts, of some at a time: the objects of `tokenizers` take 100
        bytes a token.
        """
        for first in range(0, len(texts), _TEXTS_PER_CALL):
            encodings = self._wordpiece.encode_batch_fast(texts[first : first + _TEXTS_PER_CALL])
            yield np.array(
                [token_id for encoding in encodings for token_id in encoding.ids], np.int32
            )

    def _forget(self) -> None:
        self._entries: dict[str, int] = {}
        self._spellings: dict[str, int] = {}
        self._ids = pa.array([], pa.list_(pa.int32()))
        self._num_bytes = 0


def count_words(sentences: Sentences, normalization: Normalization) -> pa.Table:
    """Count the normalised words of `sentences`, as WordPiece sees them.

    Return a table of schema `WORD_COUNTS`, most frequent word first, ties in byte order.
    """
    return merge_counts(count_tables(sentences, normalization))


def count_tables(sentences: Sentences, normalization: Normalization) -> Iterator[pa.Table]:
    """Yield the counts of `count_words` in no order, in several tables if there are over
    `MAX_CHUNKS` distinct chunks.

    A word may be in several of them.
    """
    speller = Speller(normalization)
    chunk_counts: Counter[str] = Counter()
    for text, starts in _slices(sentences):
        chunks, indices = _distinct_chunks(text, cut_points(text, starts))
        counts = np.bincount(indices.to_numpy(), minlength=len(chunks))
        for chunk, count in zip(chunks, counts.tolist(), strict=True):
            chunk_counts[chunk] += count
        if len(chunk_counts) > MAX_CHUNKS:
            yield _spelled(chunk_counts, speller)
    yield _spelled(chunk_counts, speller)


def _spelled(chunk_counts: Counter[str], speller: Speller) -> pa.Table:
    """Return the counts of the words in chunks, and empty `chunk_counts`."""
    word_counts: Counter[str] = Counter()
    while chunk_counts:
        chunk, count = chunk_counts.popitem()  # both need not be in memory
        for word in speller.spell(chunk).split(" "):
            word_counts[word] += count
    del word_counts[""]
    columns = [
        pa.array(word_counts.keys(), pa.string()),
        pa.array(word_counts.values(), pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=WORD_COUNTS)


def merge_counts(tables: Iterable[pa.Table]) -> pa.Table:
    """Sum the counts of equal words in `tables` of schema `WORD_COUNTS`, in the order of
    `count_words`.
    """
    words = pa.concat_tables([WORD_COUNTS.empty_table(), *tables])
    summed = (
        words.group_by("word").aggregate([("count", "sum")]).rename_columns({"count_sum": "count"})
    )
    return summed.sort_by([("count", "descending"), ("word", "ascending")]).cast(WORD_COUNTS)


def cut_points(text: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the ascending offsets at which chunks of `text` (uint8 [num_bytes], UTF-8) start, and
    the end.

    Chunks start at `starts` (the start of each sentence, and the end of the last), at each space,
    and before and after each isolated character. A space stays with the word after it, which halves
    the number of chunks.
    """
    isolated = np.zeros(len(text), bool)
    for first, last in _ASCII_PUNCTUATION:
        isolated |= (
            text - np.uint8(first)
        ) <= last - first  # values below `first` wrap around to large ones
    marks = np.zeros(len(text) + 1, bool)
    np.logical_or(isolated, text == ord(" "), out=marks[:-1])
    marks[1:] |= isolated
    marks[starts] = True
    wide = np.flatnonzero((text - np.uint8(_WIDE_LEADS[0])) <= _WIDE_LEADS[1] - _WIDE_LEADS[0])
    if len(wide):
        first, second, third = (text[wide + offset].astype(np.int32) for offset in range(3))
        wide = wide[_ISOLATED[(first & 0x0F) << 12 | (second & 0x3F) << 6 | (third & 0x3F)]]
        marks[wide] = marks[wide + 3] = True
    return np.flatnonzero(marks)


def _distinct_chunks(text: np.ndarray, cuts: np.ndarray) -> tuple[list[str], pa.Array]:
    """Return the distinct chunks between `cuts`, without leading space (so some twice), and each
    chunk's index among them.
    """
    buffers = [None, pa.py_buffer(cuts.astype(np.int32)), pa.py_buffer(text)]
    encoded = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, buffers).dictionary_encode()
    chunks = pc.call_function(
        "utf8_ltrim", [encoded.dictionary.cast(pa.string())], pc.TrimOptions(" ")
    )
    return chunks.to_pylist(), encoded.indices


def _slices(sentences: Sentences) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield slices of about `SLICE_BYTES` of text (uint8), with the offsets of their sentences and
    the end.
    """
    # A chunked array has `chunks`.
    arrays: Any = (
        [sentences] if isinstance(sentences, pa.Array) else getattr(sentences, "chunks", sentences)
    )
    for array in arrays:
        array = array.fill_null("")
        if not len(array):
            continue
        _, offsets, data = array.buffers()
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        starts = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        text = np.frombuffer(data or b"", np.uint8)
        bounds = np.searchsorted(starts, np.arange(starts[0], starts[-1], SLICE_BYTES)[1:])
        for begin, end in pairwise([0, *np.unique(bounds).tolist(), len(array)]):
            first, last = starts[begin], starts[end]
            yield text[first:last], starts[begin : end + 1] - first
