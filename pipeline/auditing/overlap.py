"""Find texts of task files in documents: test data that a model would have been trained on.

A text is found if 13 of its words in a row stand in a document, or all words of a shorter one,
whatever their case and the punctuation between them (after Brown et al. 2020, "Language Models are
Few-Shot Learners", appendix C). Words are compared by 64-bit hashes of their letters: with sums
over all letters so far, any stretch of words costs one difference (Karp and Rabin 1987)::

    text            The cat, it sat.      h(c, a, t, i, t) = (S[8] - S[3]) / BASE ** 3
    letters         t h e c a t i t s a t
    starts          0     3     6   8     11
    S               0, t, t + h BASE, t + h BASE + e BASE ** 2, ...      modulo 2 ** 64
"""

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .. import storage
from ..errors import UserError
from ..manifests import DocumentsManifest
from ..ragged import flat_text, offsets_in
from ..storage.shards import BATCH_ROWS, open_shard
from ..storage.state import read_manifest

NUM_WORDS = 13
LEAST_WORDS = 8
"""Shorter texts, such as "the end of the world", stand in documents by chance: not judged."""
NUM_PLACES = 3
"""Documents that are named for a row."""
FILTER_BITS = 24
BASE = 0x9E3779B97F4A7C15
INVERSE = pow(BASE, -1, 1 << 64)


@dataclass(eq=False)
class Overlap:
    """What documents hold of the rows of a task's file."""

    file: str
    num_rows: int = 0
    num_judged: int = 0
    """Rows with a text of `LEAST_WORDS` words or more."""
    found: dict[int, list[str]] = field(default_factory=dict)
    """The first documents with a text of the row, by number of the row, from 1 on."""

    @property
    def in_words(self) -> str:
        """How many rows have a text that was found."""
        share = len(self.found) / max(self.num_judged, 1)
        shown = f"{len(self.found):,} of {self.num_judged:,} rows found ({share:.2%})"
        if num_short := self.num_rows - self.num_judged:
            shown += f", {num_short:,} too short to judge"
        return shown


def find_overlaps(documents: str, files: Sequence[str]) -> list[Overlap]:
    """Look for the texts of task files in a directory of documents.

    A file holds lines of text, or is a table (TSV, CSV, JSON Lines, JSON, Parquet), in which every
    string is a text. Raises `UserError` if a file cannot be read or a shard is damaged.
    """
    manifest = read_manifest(documents, DocumentsManifest)
    overlaps = [Overlap(file) for file in files]
    texts = []
    row_of_text = []
    for overlap in overlaps:
        for row in rows_of_file(overlap.file):
            overlap.num_rows += 1
            for text in row:
                # JSON may hold half of a character, a lone surrogate, which UTF-8 cannot.
                texts.append([text.encode(errors="replace").decode()])
                row_of_text.append((overlap, overlap.num_rows))
    wanted = _Wanted(pa.array(texts, pa.list_(pa.string())))
    judged_rows = {row_of_text[text] for text in wanted.judged_texts.tolist()}
    for overlap, _ in judged_rows:
        overlap.num_judged += 1
    paths = [storage.join(documents, shard.name) for shard in manifest.shards]
    # NumPy and Arrow release Python's lock while they compute.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as executor:
        # In the order of the shards, so that the same documents are named in each run.
        for found in executor.map(wanted.find_in, paths):
            for stretch, doc_ids in found.items():
                for text in wanted.texts_with(*stretch):
                    overlap, row = row_of_text[text]
                    places = overlap.found.setdefault(row, [])
                    new = [each for each in doc_ids if each not in places]
                    places += new[: NUM_PLACES - len(places)]
    return overlaps


class _Wanted:
    """The stretches of words to look for: their hashes by length, sorted, and the text of each."""

    def __init__(self, texts: pa.ListArray) -> None:
        words = words_of(texts)
        num_words = np.diff(words.first_words, append=len(words.starts) - 1)
        lengths = np.minimum(num_words, NUM_WORDS)
        self.judged_texts = np.flatnonzero(lengths >= LEAST_WORDS)
        self._hashes: dict[int, np.ndarray] = {}
        self._texts: dict[int, np.ndarray] = {}
        # Flags by the first bits of the hash of a stretch's first words: quicker than a search.
        self._may_begin = np.zeros(1 << FILTER_BITS, bool)
        for length in np.unique(lengths[self.judged_texts]).tolist():
            first_words = words.first_words[lengths == length]
            if length == NUM_WORDS:
                first_words = words.inside(words.stretches(length), length)
            self._may_begin[_first_bits(words.hashes(first_words, LEAST_WORDS))] = True
            hashes = words.hashes(first_words, length)
            order = np.argsort(hashes)
            self._hashes[length] = hashes[order]
            self._texts[length] = words.texts_of(first_words)[order]

    def texts_with(self, length: int, stretch_hash: int) -> set[int]:
        """Return the texts that hold a stretch."""
        hashes = self._hashes[length]
        first = np.searchsorted(hashes, np.uint64(stretch_hash))
        end = np.searchsorted(hashes, np.uint64(stretch_hash), side="right")
        return set(self._texts[length][first:end].tolist())

    def find_in(self, path: str) -> dict[tuple[int, int], list[str]]:
        """Return the first documents of a shard that hold a stretch, by its length and hash."""
        found = {}
        columns = ["doc_id", "sentences"]
        with open_shard(path, "ingest") as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                for stretch, document in self._matches(words_of(batch["sentences"])):
                    doc_ids = found.setdefault(stretch, [])
                    doc_id = batch["doc_id"][document].as_py()
                    if len(doc_ids) < NUM_PLACES and doc_id not in doc_ids:
                        doc_ids.append(doc_id)
        return found

    def _matches(self, words: "Words") -> Iterator[tuple[tuple[int, int], int]]:
        """Yield each stretch that is looked for, by its length and hash, and its document."""
        candidates = words.stretches(LEAST_WORDS)
        hashes = words.hashes(candidates, LEAST_WORDS)
        candidates = candidates[self._may_begin[_first_bits(hashes)]]
        for length, wanted in self._hashes.items():
            first_words = candidates[candidates < len(words.starts) - length]
            first_words = words.inside(first_words, length)
            hashes = words.hashes(first_words, length)
            nearest = np.searchsorted(wanted, hashes)
            nearest = np.minimum(nearest, len(wanted) - 1)
            is_wanted = wanted[nearest] == hashes
            documents = words.texts_of(first_words[is_wanted])
            found_hashes = hashes[is_wanted].tolist()
            for found_hash, document in zip(found_hashes, documents.tolist(), strict=True):
                yield (length, found_hash), document


def _first_bits(hashes: np.ndarray) -> np.ndarray:
    return hashes >> np.uint64(64 - FILTER_BITS)


class Words(NamedTuple):
    """The words of texts: where each starts among the letters, and the end; the sum of the letters
    before it; and the first word of each text.
    """

    starts: np.ndarray
    sums: np.ndarray
    first_words: np.ndarray

    def stretches(self, length: int) -> np.ndarray:
        """Return the first words of all stretches of this many words."""
        return np.arange(max(len(self.starts) - length, 0))

    def inside(self, first_words: np.ndarray, length: int) -> np.ndarray:
        """Return those from which this many words on are of one text."""
        last_words = first_words + length - 1
        return first_words[self.texts_of(first_words) == self.texts_of(last_words)]

    def hashes(self, first_words: np.ndarray, length: int) -> np.ndarray:
        """Return the hash of this many words from each of `first_words` on, uint64."""
        sums = self.sums[first_words + length] - self.sums[first_words]
        inverses = powers(INVERSE, self.starts[-1] + 1)
        return sums * inverses[self.starts[first_words]]

    def texts_of(self, words: np.ndarray) -> np.ndarray:
        """Return the number of the text of each word."""
        return np.searchsorted(self.first_words, words, side="right") - 1


_POWERS = {base: np.ones(1, np.uint64) for base in (BASE, INVERSE)}


def powers(base: int, number: int) -> np.ndarray:
    """Return at least this many powers of `base` modulo 2 ** 64, from 1 on."""
    found = _POWERS[base]
    if len(found) < number:
        factors = np.full(1 << int(number).bit_length(), base, np.uint64)
        factors[0] = 1
        found = np.cumprod(factors)
        _POWERS[base] = found
    return found


def words_of(texts: pa.ListArray) -> Words:
    """Return the words of texts, each a list of strings; a word ends where its string does."""
    utf8, string_offsets = flat_text(pc.call_function("utf8_lower", [texts.flatten()]))
    letters = _letters(utf8)
    is_letter = letters != 0
    # A word begins at a letter behind something else, or at the start of its string.
    is_start = is_letter.copy()
    is_start[1:] &= ~is_letter[:-1]
    is_empty = string_offsets[:-1] == string_offsets[1:]
    string_starts = string_offsets[:-1][~is_empty]
    is_start[string_starts] = is_letter[string_starts]
    # Each letter of Chinese and Japanese, of which these are the first bytes, is a word.
    is_start |= (letters >= 0xE3) & (letters <= 0xE9)
    text_starts = string_offsets[offsets_in(texts)[:-1]]
    first_words = np.searchsorted(np.flatnonzero(is_start), text_starts)
    # From here on only letters count.
    letters = letters[is_letter]
    starts = np.append(np.flatnonzero(is_start[is_letter]), len(letters))
    terms = letters * powers(BASE, len(letters))[: len(letters)]
    sums = np.zeros(len(letters) + 1, np.uint64)
    np.cumsum(terms, out=sums[1:])
    return Words(starts, sums[starts], first_words)


_ASCII_LETTERS = np.arange(256, dtype=np.uint8)
for _code in range(128):
    if not chr(_code).isalnum():
        _ASCII_LETTERS[_code] = 0


def _letters(utf8: np.ndarray) -> np.ndarray:
    """Return bytes of text with 0 for those of spaces and punctuation."""
    letters = _ASCII_LETTERS[utf8]
    # Beyond ASCII: U+0080 to U+00BF, which begin with 0xC2, and by their first and second bytes
    # U+2000 to U+207F, U+3000 to U+303F and U+FF00 to U+FF7F.
    latin = np.flatnonzero(utf8 == 0xC2)
    letters[latin] = 0
    letters[latin + 1] = 0
    for first, seconds in ((0xE2, (0x80, 0x81)), (0xE3, (0x80,)), (0xEF, (0xBC, 0xBD))):
        marks = np.flatnonzero(utf8 == first)
        marks = marks[np.isin(utf8[marks + 1], seconds)]
        for place in range(3):
            letters[marks + place] = 0
    return letters


def rows_of_file(path: str) -> Iterator[list[str]]:
    """Yield the strings in each row of a table, or in each line of a text."""
    suffix = PurePath(path).suffix.lower()
    try:
        content = storage.read_bytes(path)
        if suffix == ".parquet":
            for row in pq.read_table(io.BytesIO(content)).to_pylist():
                yield list(_strings(row))
            return
        text = content.decode("utf-8-sig")
        # The module's default of 128 KiB is less than an article.
        csv.field_size_limit(max(len(text), csv.field_size_limit()))
        if suffix == ".csv":
            yield from csv.reader(io.StringIO(text))
        elif suffix == ".tsv":
            yield from csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
        elif suffix == ".json":
            for string in _strings(json.loads(text)):
                yield [string]
        elif suffix == ".jsonl":
            # Not splitlines(): a string may contain U+2028, which it takes for a line end.
            for line in io.StringIO(text):
                yield list(_strings(json.loads(line))) if line.strip() else []
        else:
            for line in io.StringIO(text):
                yield [line]
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, csv.Error, RecursionError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} cannot be read as a table of texts: {reason}.") from None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        return
    inner = []
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    for each in inner:
        yield from _strings(each)
