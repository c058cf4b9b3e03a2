"""Measure documents from their rows alone: sizes by origin, lengths, and signs of bad text.

Every measure is a sum over documents or sentences, so memory is bounded by a slice of rows. The
sentences of a slice lie end to end, and `offsets` says where each document begins::

    sentences    s0 s1 s2 | s3 | s4 s5       of three documents
    offsets      0          3    4      6
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import ragged, storage
from ..counters import WORDS_LEFT_OUT, count_of
from ..manifests import DocumentsManifest
from ..storage.shards import read_columns
from ..storage.stage import read_manifest
from ..text.wikitext.repair import NUM_TEMPLATES, most_costly_templates
from ..vocabulary.vocabulary import Vocabulary
from ..wording import in_words
from .signs import MAX_EXAMPLES, REPEATED, HashSample, Sign, excerpt, find_signs, hash_long

Origin = tuple[str, str]
"""A source and a language."""

BINS_PER_OCTAVE = 2
# A length, an int64, is below 2 ** 64.
NUM_BINS = 64 * BINS_PER_OCTAVE


@dataclass(frozen=True, kw_only=True)
class OriginSizes:
    """The documents of one source and language; words and tokens are 0 without a vocabulary."""

    source: str
    language: str
    documents: int
    sentences: int
    characters: int
    words: int = 0
    tokens: int = 0
    unknown_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A counter of `ingest` (of documents, parts of them, or words), with the first locations."""

    name: str
    count: int
    examples: list[str]


@dataclass(frozen=True, kw_only=True)
class DocumentsAudit:
    """The measures of a directory of documents, and what `ingest` left out.

    `document_lengths` and `sentence_lengths` count documents and sentences by length in characters:
    bin i counts those from ``2 ** (i / BINS_PER_OCTAVE)`` on.
    """

    directory: str
    config: dict[str, Any]
    origins: list[OriginSizes]
    document_lengths: list[int]
    sentence_lengths: list[int]
    signs: list[Sign]
    counted: list[Counted]
    words_left_out: list[Counted]
    words_kept: int

    @property
    def word_shares(self) -> list[tuple[str, int, float]]:
        """What became of the words: kept, then left out by reason, most first, each with its
        share.
        """
        num_left_out = sum(counter.count for counter in self.words_left_out)
        total = max(self.words_kept + num_left_out, 1)
        counts = [("kept", self.words_kept)]
        counts += [(counter.name, counter.count) for counter in self.words_left_out]
        return [(name, count, count / total) for name, count in counts]

    @property
    def sentence(self) -> str:
        """The result in a sentence."""
        documents = count_of(self.total("documents"), "document")
        sentences = count_of(self.total("sentences"), "sentence")
        signs = count_of(sum(sign.count > 0 for sign in self.signs), "sign")
        return f"{documents}, {sentences}, {signs} of bad text."

    def total(self, name: str) -> int:
        """Return the sum of a field of `OriginSizes` over all origins."""
        return sum(getattr(origin, name) for origin in self.origins)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def audit_documents(directory: str, vocabulary: Vocabulary | None = None) -> DocumentsAudit:
    """Measure a directory of documents, and how a vocabulary splits them if one is given.

    Raises `UserError` if the directory is unfinished or damaged.
    """
    manifest = read_manifest(directory, DocumentsManifest)
    num_sentences = 0
    for shard in manifest.shards:
        num_sentences += shard.counts.get("sentences", 0)
    measures = _Measures(vocabulary, num_sentences)
    paths = [storage.join(directory, shard.name) for shard in manifest.shards]
    for rows in _rows(paths):
        measures.add(rows)

    counted, words_left_out = _counters(manifest)
    return DocumentsAudit(
        directory=directory,
        config=asdict(manifest.config),
        origins=measures.origins(),
        document_lengths=_trimmed(measures.document_lengths),
        sentence_lengths=_trimmed(measures.sentence_lengths),
        signs=[*measures.signs.values(), _repeats(measures.long_sentences, paths)],
        counted=counted,
        words_left_out=words_left_out,
        words_kept=manifest.words_kept,
    )


def _rows(paths: list[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        yield from read_columns(path, "doc_id", "source", "language", "sentences")


class _Measures:
    """The sums over all documents so far."""

    def __init__(self, vocabulary: Vocabulary | None, num_sentences: int) -> None:
        self._vocabulary = vocabulary
        self._tokenizer = None
        if vocabulary:
            self._tokenizer = vocabulary.text_tokenizer()
        self._sums: dict[Origin, Counter[str]] = defaultdict(Counter)
        self.document_lengths = np.zeros(NUM_BINS, np.int64)
        self.sentence_lengths = np.zeros(NUM_BINS, np.int64)
        self.signs: dict[str, Sign] = {}
        self.long_sentences = HashSample(num_sentences)

    def add(self, rows: pa.RecordBatch) -> None:
        """Count some documents."""
        sentences = rows["sentences"].flatten()
        offsets = ragged.offsets_in(rows["sentences"])
        lengths = pc.call_function("utf8_length", [sentences]).to_numpy()
        # Each of these has one number a document, int64 [num_documents].
        sizes = {
            "documents": np.ones(len(rows), np.int64),
            "sentences": np.diff(offsets),
            "characters": ragged.sums(lengths, offsets),
        }
        if self._tokenizer and self._vocabulary:
            ids, token_offsets = self._tokenizer.encode(sentences)
            # From documents to sentences to tokens:
            #
            #     offsets         0        2     3       document 0 has sentences 0 and 1
            #     token_offsets   0   4    9     12      sentence 1 has tokens 4 to 8
            #     bounds          0        9     12      document 0 has tokens 0 to 8
            bounds = token_offsets[offsets]
            starts_word = ~self._vocabulary.continues[ids]
            is_unknown = ids == self._vocabulary.unk_id
            sizes["tokens"] = np.diff(bounds)
            sizes["words"] = ragged.sums(starts_word, bounds)
            sizes["unknown_tokens"] = ragged.sums(is_unknown, bounds)
        self._add_sizes(rows, sizes)
        self.document_lengths += _histogram(sizes["characters"])
        self.sentence_lengths += _histogram(lengths)
        self._add_signs(rows, sentences, offsets)
        _, hashes = hash_long(sentences)
        self.long_sentences.add(hashes)

    def _add_sizes(self, rows: pa.RecordBatch, sizes: dict[str, np.ndarray]) -> None:
        """Add each document's sizes to the sums of its source and language."""
        documents = pa.table({"source": rows["source"], "language": rows["language"], **sizes})
        by_origin = documents.group_by(["source", "language"], use_threads=False)
        for sums in by_origin.aggregate([(name, "sum") for name in sizes]).to_pylist():
            origin = sums["source"], sums["language"]
            self._sums[origin].update({name: sums[f"{name}_sum"] for name in sizes})

    def _add_signs(self, rows: pa.RecordBatch, sentences: pa.Array, offsets: np.ndarray) -> None:
        for name, sentence_indices in find_signs(sentences):
            sign = self.signs.setdefault(name, Sign(name))
            sign.count += len(sentence_indices)
            sign.total += len(sentences)
            first_indices = sentence_indices[: MAX_EXAMPLES - len(sign.examples)]
            for sentence_index in first_indices.tolist():
                doc_id = _doc_id_of(rows, offsets, sentence_index)
                sentence = sentences[sentence_index].as_py()
                example = (doc_id, excerpt(name, sentence))
                sign.examples.append(example)

    def origins(self) -> list[OriginSizes]:
        """Return the sums by source and language, the largest first."""
        origins = []
        for (source, language), sums in self._sums.items():
            origins.append(OriginSizes(source=source, language=language, **sums))
        # By name where sizes are equal, so that the order of the shards does not matter.
        origins.sort(key=lambda origin: (-origin.characters, origin.source, origin.language))
        return origins


def _doc_id_of(rows: pa.RecordBatch, offsets: np.ndarray, sentence_index: int) -> str:
    """Return the id of the document that a sentence belongs to."""
    # The last that begins at the sentence or before it; "right" skips documents without sentences,
    # which begin where the next one does.
    document = int(np.searchsorted(offsets, sentence_index, "right")) - 1
    return rows["doc_id"][document].as_py()


def _histogram(lengths: np.ndarray) -> np.ndarray:
    """Count lengths in bins that grow by powers of two, int64 [NUM_BINS]."""
    octaves = np.log2(np.maximum(lengths, 1))
    bins = np.floor(octaves * BINS_PER_OCTAVE).astype(np.int64)
    return np.bincount(bins, minlength=NUM_BINS)


def _trimmed(histogram: np.ndarray) -> list[int]:
    """Return a histogram without the empty bins at its end."""
    filled = np.flatnonzero(histogram)
    last = filled.max(initial=-1)
    return histogram[: last + 1].tolist()


def _repeats(long_sentences: HashSample, paths: list[str]) -> Sign:
    """Return the sign of repeated sentences; its examples are looked up by reading the documents
    again.
    """
    hashes, copies = long_sentences.counts()
    num_repeats = int(copies.sum()) - len(copies)  # the first of each repeats nothing
    sign = Sign(
        REPEATED,
        count=round(num_repeats / long_sentences.share),
        total=round(copies.sum() / long_sentences.share),
    )
    # Stable, so that equally frequent ones come in the same order on every machine.
    most_copied = np.argsort(-copies, kind="stable")[:MAX_EXAMPLES]
    most_copied = most_copied[copies[most_copied] > 1]
    # Only their hashes were kept: the texts of a whole corpus would not fit in memory.
    wanted = set(hashes[most_copied].tolist())
    if not wanted:
        return sign
    for rows in _rows(paths):
        sentences = rows["sentences"].flatten()
        offsets = ragged.offsets_in(rows["sentences"])
        long_indices, hashes = hash_long(sentences)
        for index, sentence_hash in zip(long_indices.tolist(), hashes.tolist(), strict=True):
            if sentence_hash in wanted:
                wanted.remove(sentence_hash)  # one example of each
                doc_id = _doc_id_of(rows, offsets, index)
                sentence = sentences[index].as_py()
                example = (doc_id, excerpt(REPEATED, sentence))
                sign.examples.append(example)
        if not wanted:
            break
    return sign


def _counters(manifest: DocumentsManifest) -> tuple[list[Counted], list[Counted]]:
    """Return the manifest's counters that are not 0, largest first: of documents and their parts,
    and of words left out, by reason.

    Of unknown templates they are the `NUM_TEMPLATES` that cost most words.
    """
    counts = {**manifest.counts, **manifest.bad}
    for name in most_costly_templates(counts)[NUM_TEMPLATES:]:
        del counts[name]
    counted = []
    words_left_out = []
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        if not counts[name]:
            continue
        counter = Counted(
            name=in_words(name.removeprefix(WORDS_LEFT_OUT)),
            count=counts[name],
            examples=manifest.examples.get(name, []),
        )
        if name.startswith(WORDS_LEFT_OUT):
            words_left_out.append(counter)
        else:
            counted.append(counter)
    return counted, words_left_out
