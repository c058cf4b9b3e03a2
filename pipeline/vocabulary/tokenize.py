"""Tokenise the dictionary, not the text: each distinct chunk once, then gather the ids.

Of the 17 million chunks in 90 MB of Wikipedia only 2% are distinct. So the bytes of the sentences
are cut into chunks at points that no word can span, and Arrow dictionary-encodes the chunks. Only
chunks not seen before are normalised and tokenised. The ids equal those that ``tokenizers`` gives
for each whole sentence::

    sentences   "The cat sat."  "The cat"
    chunks      The | cat| sat|.|The| cat      cut_points: before a space, around punctuation
    distinct    The, cat, sat, .               each is tokenised once
    indices     0    1    2    3  0   1        take() by them gives the ids of the text

This requires cuts that change nothing on either side. BERT's normaliser and pre-tokenizer treat a
space, an ASCII punctuation mark, a Chinese character (`handle_chinese_chars`) and any Unicode
punctuation as the end of a word, and neither lower-casing (per character) nor NFD (which reorders
marks only after the letter that carries them) looks across one. Everything else stays inside its
chunk and is left to ``tokenizers``.
"""

import string
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer, WhitespaceSplit

from ..errors import UserError
from ..ragged import flat_text, offsets_of
from ..schemas import WORD_COUNTS
from .normalization import WRITTEN_AS, Normalization, bert_tokenizer
from .numbering import Numbering

SLICE_BYTES = 12 << 20
"""Bytes of text per slice; bounds the memory. Shards are read in slightly smaller batches."""
MAX_CHUNKS = 300_000
"""Distinct chunks that are counted before their words are handed on; bounds the memory."""

_NO_LETTER = "\n"  # never part of a normalised word
CHINESE_CHARACTERS = (0x4E00, 0x9FFF)


class Splitter(dict[int, str]):
    """Cut text into chunks, normalise these and split them into the words that a model sees.

    The dict maps a character (its code point) to its normalised form, if that depends on the
    character alone, and all others (white space, punctuation, Chinese characters, marks that may be
    reordered) to `_NO_LETTER`. It is filled on first use, and `str.translate` reads it: a chunk of
    plain letters is thus normalised in one fast call.
    """

    strips_spaces: bool
    """Whether "the" and " the" are the same chunk."""
    plain: str
    """What matches chunks of ASCII that are a word as they are, or in lower case."""

    def __init__(
        self, normalizer: Normalizer, pre_tokenizer: PreTokenizer, *, composes: bool
    ) -> None:
        self._normalizer = normalizer
        self._pre_tokenizer = pre_tokenizer
        self.lowercase = normalizer.normalize_str("A") == "a"
        self._composes = composes
        if composes:
            # What NFC joins with the character before it, apart from combining characters: vowel
            # signs and parts of Korean syllables.
            vowel_signs = (
                "\u09be\u09d7\u0b3e\u0b56\u0b57\u0bbe\u0bd7\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dcf\u0ddf\u102e"
                "\u1b35\U00011127\U0001133e\U00011357\U000114b0\U000114ba\U000114bd\U000115af\U00011930"
            )
            joiners = [*map(ord, vowel_signs), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]
            self.update(dict.fromkeys(joiners, _NO_LETTER))

    @abstractmethod
    def prepare(
        self, text: np.ndarray, starts: np.ndarray, starts_text: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return text (uint8), the starts of its sentences and its end, and the ascending offsets
        at which chunks start, and the end; `starts_text`, bool [num_sentences], are the sentences
        that nothing comes before.
        """

    def words_of(self, chunks: pa.StringArray) -> tuple[list[str], list[int]]:
        """Return the normalised words of all chunks, end to end, and how many each has."""
        is_plain = pc.MatchSubstringOptions(self.plain)
        are_plain = pc.call_function("match_substring_regex", [chunks], is_plain).to_pylist()
        spelled = pc.call_function("ascii_lower", [chunks]) if self.lowercase else chunks
        words: list[str] = []
        num_words: list[int] = []
        rows = zip(chunks.to_pylist(), spelled.to_pylist(), are_plain, strict=True)
        for chunk, word, is_word in rows:
            if is_word:  # most of them
                words.append(word)
                num_words.append(1)
            else:
                words_of_chunk = self.words(chunk)
                words += words_of_chunk
                num_words.append(len(words_of_chunk))
        return words, num_words

    @abstractmethod
    def words(self, chunk: str) -> list[str]:
        """Return the words in a chunk, normalised."""

    def spell_letters(self, text: str) -> str:
        """Return text that consists of letters, normalised; "" if it has others or is empty."""
        letters = text.translate(self)
        return "" if _NO_LETTER in letters else letters

    def split(self, text: str) -> list[str]:
        """Return the words of any text, normalised."""
        normal = self._normalizer.normalize_str(text)
        spans = [span for _, span in self._pre_tokenizer.pre_tokenize_str(normal)]
        return [normal[start:stop] for start, stop in spans]

    def __missing__(self, code: int) -> str:
        # Between two letters, a character shows whether it splits the word or vanishes.
        words = self.split(f"a{chr(code)}a")
        normal = words[0][1:-1]
        is_unassigned = unicodedata.category(chr(code)) == "Cn"
        # A mark that is composed with the first letter is missing here.
        marks = chr(code) + normal if self._composes else normal
        may_be_reordered = any(map(unicodedata.combining, marks))
        if len(words) > 1 or is_unassigned or may_be_reordered:
            normal = _NO_LETTER
        self[code] = normal
        return normal


class Speller(Splitter):
    """Split text into the words that WordPiece sees."""

    strips_spaces = True
    plain = "^[A-Za-z0-9]+$"
    _SPACE, _PUNCTUATION, _WIDE = 1, 2, 3

    def __init__(self, normalization: Normalization) -> None:
        tokenizer = bert_tokenizer(["[UNK]"], normalization)
        super().__init__(
            tokenizer.normalizer, tokenizer.pre_tokenizer, composes=normalization.composes
        )
        # Characters that are words of their own: all of ASCII's punctuation, and those characters
        # of three UTF-8 bytes that are frequent. Others stay inside a chunk, which is slower, not
        # wrong.
        isolated_ascii = set(string.punctuation)
        # One flag for each code point of Unicode's first plane.
        self._is_isolated = np.zeros(0x10000, bool)
        wide_punctuation = ((0x2010, 0x2027), (0x3001, 0x3003), (0x3008, 0x3011))
        for first, last in (*wide_punctuation, CHINESE_CHARACTERS):
            self._is_isolated[first : last + 1] = True
        if normalization.apostrophes:
            # What they become depends on the letters around them.
            apostrophes = [ord(character) for character in WRITTEN_AS]
            self.update(dict.fromkeys(apostrophes, _NO_LETTER))
            isolated_ascii.remove("'")
            self._is_isolated[apostrophes] = False
        kinds = bytearray(256)
        for character in isolated_ascii:
            kinds[ord(character)] = self._PUNCTUATION
        kinds[ord(" ")] = self._SPACE
        kinds[0xE2:0xEA] = bytes([self._WIDE] * 8)  # the first bytes of U+2000 to U+9FFF
        self._kinds = bytes(kinds)

    def prepare(
        self, text: np.ndarray, starts: np.ndarray, starts_text: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return text and starts as they are, and the offsets at which chunks start: those of
        sentences, each space, and before and after each isolated character, which no word contains.
        A space stays with the word after it, which halves the number of chunks::

            text    T h e   c a t ,   n o          starts 0, 11
            cuts    0     3       7 8         11
        """
        kinds = look_up(text, self._kinds)
        is_punctuation = kinds == self._PUNCTUATION
        # One flag a byte, instead of sorting lists of offsets: `flatnonzero` yields them in order.
        is_cut = np.zeros(len(text) + 1, bool)
        before = is_cut[:-1]
        after = is_cut[1:]
        np.logical_or(is_punctuation, kinds == self._SPACE, out=before)
        after |= is_punctuation
        is_cut[starts] = True
        wide = np.flatnonzero(kinds == self._WIDE)
        if len(wide):  # hardly ever in English
            # Three bytes 1110aaaa 10bbbbbb 10cccccc are the code point aaaabbbbbbcccccc.
            high = text[wide].astype(np.int32) & 0x0F
            middle = text[wide + 1].astype(np.int32) & 0x3F
            low = text[wide + 2].astype(np.int32) & 0x3F
            wide = wide[self._is_isolated[high << 12 | middle << 6 | low]]
            is_cut[wide] = True
            is_cut[wide + 3] = True
        return text, starts, np.flatnonzero(is_cut)

    def words(self, chunk: str) -> list[str]:
        """See `Splitter`."""
        letters = self.spell_letters(chunk)
        return [letters] if letters else self.split(chunk)


class DictionaryTokenizer:
    """Tokenise sentences with a WordPiece vocabulary, with a cache of chunks that lasts from call
    to call; it must not be shared between threads.
    """

    # The cache: `_ids` has the token ids of each of `_chunks.strings`:
    #
    #   _chunks    The       the       cats
    #   _ids       [1996]    [1996]    [4937, 2015]

    def __init__(self, tokens: Sequence[str], normalization: Normalization) -> None:
        self._splitter: Splitter = Speller(normalization)
        # Spellings are already normalised and split into words: split at spaces, nothing more.
        self._wordpiece = Tokenizer(bert_tokenizer(tokens, normalization).model)
        self._wordpiece.pre_tokenizer = WhitespaceSplit()
        self._continues = np.array([token.startswith("##") for token in tokens])
        self._clear_cache()

    def encode(
        self,
        sentences: pa.Array,
        starts_text: np.ndarray | None = None,
        *,
        slice_bytes: int = SLICE_BYTES,
        chunks_together: int = 200_000,
        cache_bytes: int = 64 << 20,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all `sentences`, end to end, int32, and the offset of each
        sentence and the end, int64. No [CLS] or [SEP] is added.

        `starts_text`, bool [num_sentences], are those that nothing comes before, by default none:
        some vocabularies tell them apart. `chunks_together` are looked up and cached at a time; few
        slices have more. The cache is cleared when it takes more than `cache_bytes`.
        """
        if starts_text is None:
            starts_text = np.zeros(len(sentences), bool)
        num_sentences = 0
        ids = [np.zeros(0, np.int32)]
        offsets = [np.zeros(1, np.int64)]
        num_ids = 0
        for text, starts in _slices(sentences, slice_bytes):
            stop = num_sentences + len(starts) - 1
            flags = starts_text[num_sentences:stop]
            num_sentences = stop
            text, starts, cuts = self._splitter.prepare(text, starts, flags)
            chunks, indices = _distinct_chunks(text, cuts, strip=self._splitter.strips_spaces)
            ids_of_distinct = self._encode_chunks(chunks, chunks_together, cache_bytes)
            # The ids of the text, one list for each of its chunks.
            chunk_ids = ids_of_distinct.take(indices)
            slice_ids = chunk_ids.values.to_numpy()
            # Each sentence ends at a cut, where the ids of the next chunk start.
            sentence_ends = np.searchsorted(cuts, starts[1:])
            ends = chunk_ids.offsets.to_numpy()[sentence_ends]
            ids.append(slice_ids)
            offsets.append(ends.astype(np.int64) + num_ids)
            num_ids += len(slice_ids)
        return np.concatenate(ids), np.concatenate(offsets)

    def _encode_chunks(
        self, chunks: pa.StringArray, chunks_together: int, cache_bytes: int
    ) -> pa.ListArray:
        """Return the token ids of each of `chunks`, caching those not seen before."""
        batches = [pa.array([], pa.list_(pa.int32()))]
        for first in range(0, len(chunks), chunks_together):
            if self.cached_bytes > cache_bytes:
                self._clear_cache()
            numbers = self._chunks.number(chunks.slice(first, chunks_together))
            new_chunks = self._chunks.strings[len(self._ids) :]
            if len(new_chunks):
                self._ids = pa.concat_arrays([self._ids, self._tokenize_chunks(new_chunks)])
            batches.append(self._ids.take(pa.array(numbers)))
        return pa.concat_arrays(batches)

    def _tokenize_chunks(self, chunks: pa.StringArray) -> pa.ListArray:
        """Return the token ids of each chunk."""
        # Tokenise all words as one sequence, then cut its ids into words, and these into chunks:
        #
        #   chunks         "In"   "mother\xa0in\xa0law"    "\xa0"
        #   words          in     mother     in   law
        #   ids            in     mo ##ther  in   law
        #   word_starts    0      1          3    4      5     and the end
        #   num_words      1      3                      0
        #   first_words    0      1                      4  4  of each chunk, and the end
        #   offsets        0      1                      5  5  word_starts[first_words]
        words, num_words = self._splitter.words_of(chunks)
        ids, word_starts = self._encode_words(words)
        first_words = offsets_of(num_words)
        offsets = pa.array(word_starts[first_words], pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array(ids))

    def _encode_words(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all words, end to end, int32, and where each starts, and the end."""
        ids, _ = encode_texts(self._wordpiece, join_words(words, " "))
        # "##" tells reliably that a word continues: BERT splits at "#", as at all punctuation, so
        # no word of the text can begin with it.
        word_starts = np.flatnonzero(~self._continues[ids])
        return ids, np.append(word_starts, len(ids))

    def _clear_cache(self) -> None:
        self._chunks = Numbering()
        self._ids = pa.array([], pa.list_(pa.int32()))

    @property
    def cached_bytes(self) -> int:
        """The memory that the cache takes."""
        return self._chunks.num_bytes + self._ids.nbytes


def join_words(words: Sequence[str], separator: str, *, words_per_text: int = 500) -> list[str]:
    """Return texts of many words, each before a separator: a text costs more than its words."""
    texts = []
    for first in range(0, len(words), words_per_text):
        texts.append(separator.join([*words[first : first + words_per_text], ""]))
    return texts


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[str], *, texts_per_call: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of all texts, end to end, int32, without special tokens, and the number
    of each text's. The objects that ``tokenizers`` returns for a call take 100 bytes a token.
    """
    ids = [np.zeros(0, np.int32)]
    lengths: list[int] = []
    for first in range(0, len(texts), texts_per_call):
        batch = texts[first : first + texts_per_call]
        with faults_reported():
            encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        for encoding in encodings:
            token_ids = encoding.ids
            ids.append(np.array(token_ids, np.int32))
            lengths.append(len(token_ids))
    return np.concatenate(ids), np.array(lengths, np.int64)


@contextmanager
def faults_reported() -> Iterator[None]:
    """Raise `UserError` where ``tokenizers`` fails at a text, as by a regular expression."""
    try:
        yield
    except BaseException as error:
        # pyo3_runtime.PanicException cannot be imported, and is no `Exception`; all else that
        # `tokenizers` raises is of that class itself.
        if type(error).__name__ not in ("PanicException", "Exception"):
            raise
        reason = str(error).split("\n")[0][:200]
        raise UserError(
            f"The tokenizer fails at a text ({reason}); use another tokenizer."
        ) from None


def count_words(sentences: Iterable[pa.Array], splitter: Splitter) -> pa.Table:
    """Return `WORD_COUNTS` of sentences: most frequent first, ties in byte order."""
    return merge_counts(count_tables(sentences, splitter))


def count_tables(sentences: Iterable[pa.Array], splitter: Splitter) -> Iterator[pa.Table]:
    """Yield the counts of `count_words`, unordered, a table for each `MAX_CHUNKS` distinct chunks;
    a word may be in several of them.
    """
    seen = Numbering()
    counts = np.zeros(len(seen.strings), np.int64)
    for text, starts in chain.from_iterable(map(_slices, sentences)):
        starts_text = np.zeros(len(starts) - 1, bool)
        text, starts, cuts = splitter.prepare(text, starts, starts_text)
        chunks, indices = _distinct_chunks(text, cuts, strip=splitter.strips_spaces)
        numbers = seen.number(chunks)
        num_new = len(seen.strings) - len(counts)
        counts = np.append(counts, np.zeros(num_new, np.int64))
        # Not `+=`: a chunk may be there twice.
        np.add.at(counts, numbers, np.bincount(indices.to_numpy(), minlength=len(chunks)))
        if len(counts) > MAX_CHUNKS:
            yield _count_chunk_words(seen.strings, counts, splitter)
            seen = Numbering()
            counts = np.zeros(len(seen.strings), np.int64)
    yield _count_chunk_words(seen.strings, counts, splitter)


def _count_chunk_words(chunks: pa.StringArray, counts: np.ndarray, splitter: Splitter) -> pa.Table:
    """Return the counts of the words in chunks with these `counts`, int64 [num_chunks]."""
    words, num_words = splitter.words_of(chunks)
    columns = [pa.array(words, pa.string()), pa.array(np.repeat(counts, num_words))]
    return merge_counts([pa.Table.from_arrays(columns, schema=WORD_COUNTS)])


def merge_counts(tables: Iterable[pa.Table]) -> pa.Table:
    """Sum the counts of equal words in tables of schema `WORD_COUNTS`, ordered as `count_words`."""
    # The empty table gives the schema if there is no other.
    words = pa.concat_tables([WORD_COUNTS.empty_table(), *tables])
    summed = words.group_by("word").aggregate([("count", "sum")])
    summed = summed.rename_columns({"count_sum": "count"})
    return summed.sort_by([("count", "descending"), ("word", "ascending")]).cast(WORD_COUNTS)


def look_up(numbers: np.ndarray, table: bytes) -> np.ndarray:
    """Return the entry of each number, uint8, in a table of 256."""
    return np.frombuffer(numbers.tobytes().translate(table), np.uint8)


def _distinct_chunks(
    text: np.ndarray, cuts: np.ndarray, *, strip: bool
) -> tuple[pa.StringArray, pa.Array]:
    """Return the distinct chunks between `cuts`, and for each chunk of the text its index among
    them. "the" and " the" are distinct; with `strip` a chunk may therefore be there twice.
    """
    # Text and cuts have the layout of an Arrow array's buffers already, so the text is not copied.
    # Binary, not string: Arrow then need not check 12 MB of UTF-8.
    offsets = pa.py_buffer(cuts.astype(np.int32))
    num_chunks = len(cuts) - 1
    chunks = pa.Array.from_buffers(pa.binary(), num_chunks, [None, offsets, pa.py_buffer(text)])
    encoded = chunks.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.string())
    if strip:
        # Here, where there are few chunks, and not before they are encoded.
        distinct = pc.call_function("utf8_ltrim", [distinct], pc.TrimOptions(" "))
    return distinct, encoded.indices


def _slices(
    sentences: pa.Array, slice_bytes: int = SLICE_BYTES
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cut sentences into slices of about `slice_bytes` of text, with the offsets of sentences."""
    text, starts = flat_text(sentences)
    # A slice ends with the sentence that reaches the next multiple of `slice_bytes`, here 6:
    #
    #   starts             0      7   10     15  17
    #   multiples               6         12
    #   sentence_bounds    0      1          3   4       text 0:7, 7:15 and 15:17
    multiples = np.arange(0, len(text), slice_bytes)[1:]
    # A sentence longer than a slice contains several of these, hence `unique`.
    inner_bounds = np.unique(np.searchsorted(starts, multiples))
    sentence_bounds = [0, *inner_bounds.tolist(), len(sentences)]
    for first, stop in pairwise(sentence_bounds):
        text_start = starts[first]
        text_stop = starts[stop]
        yield text[text_start:text_stop], starts[first : stop + 1] - text_start
