"""Measure documents from their rows alone, a slice at a time: sizes by origin, lengths, and signs
of bad text.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import storage
from ..errors import UserError
from ..execution.counters import WORDS_LEFT_OUT, count_of
from ..manifests import DocumentsManifest, InstancesManifest
from ..storage.directory import digest_of
from ..storage.shards import read_columns
from ..storage.stage import MANIFEST, read_manifest
from ..vocabulary.tokenize import DictionaryTokenizer
from ..vocabulary.vocabulary import Vocabulary
from .signs import MAX_SENTENCE_HASHES, REPEATED, Repeats, Sign, excerpt, find_signs, hash_long

BINS_PER_OCTAVE = 2


@dataclass(frozen=True, kw_only=True)
class OriginSizes:
    """The documents of one source and language; `words` and what follows need a vocabulary, else
    they are 0.
    """

    source: str
    language: str
    documents: int
    sentences: int
    characters: int
    words: int = 0
    tokens: int = 0
    unknown_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What `ingest` counted under one name (documents, parts of them, or words), with the first
    locations.
    """

    name: str
    count: int
    examples: list[str]


@dataclass(frozen=True, kw_only=True)
class DocumentsAudit:
    """What documents contain, and what was left out of them.

    `document_lengths` and `sentence_lengths` count documents and sentences by length in characters:
    bin i counts those from ``2 ** (i / BINS_PER_OCTAVE)`` on.
    """

    directory: str
    config: dict[str, Any]
    origins: list[OriginSizes]
    document_lengths: list[int]
    sentence_lengths: list[int]
    signs: list[Sign]
    counted: list[LeftOut]
    words_left_out: list[LeftOut]

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        documents, sentences = (
            count_of(self.total(f"{what}s"), what) for what in ("document", "sentence")
        )
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
    num_sentences = sum(shard.counts.get("sentences", 0) for shard in manifest.shards)
    measures = _Measures(vocabulary, min(1.0, MAX_SENTENCE_HASHES / max(num_sentences, 1)))
    paths = [storage.join(directory, shard.name) for shard in manifest.shards]
    for rows in _rows(paths):
        measures.add(rows)
    return DocumentsAudit(
        directory=directory,
        config=asdict(manifest.config),
        origins=measures.origins(),
        document_lengths=_trimmed(measures.document_lengths),
        sentence_lengths=_trimmed(measures.sentence_lengths),
        signs=[*measures.signs.values(), _repeats(measures.repeats, paths)],
        **_left_out(manifest),
    )


def _rows(paths: list[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        yield from read_columns(path, "doc_id", "source", "language", "sentences")


class _Measures:
    """The sums over all documents so far."""

    def __init__(self, vocabulary: Vocabulary | None, hash_share: float) -> None:
        self._vocabulary = vocabulary
        self._tokenizer = (
            DictionaryTokenizer(vocabulary.tokens, vocabulary.normalization) if vocabulary else None
        )
        self._sums: dict[tuple[str, str], Counter[str]] = {}
        self.document_lengths, self.sentence_lengths = np.zeros((2, 64 * BINS_PER_OCTAVE), np.int64)
        self.signs: dict[str, Sign] = {}
        self.repeats = Repeats(hash_share)

    def add(self, rows: pa.RecordBatch) -> None:
        """Count some documents."""
        sentences, offsets = (
            rows["sentences"].flatten(),
            rows["sentences"].offsets.to_numpy().astype(np.int64),
        )
        offsets -= offsets[0]
        lengths = pc.call_function("utf8_length", [sentences]).to_numpy()
        of_document = {"sentences": np.diff(offsets), "characters": _sums(lengths, offsets)}
        if self._tokenizer and self._vocabulary:
            ids, starts = self._tokenizer.encode(sentences)
            bounds = starts[offsets]
            of_document["tokens"] = np.diff(bounds)
            of_document["words"] = _sums(~self._vocabulary.continues[ids], bounds)
            of_document["unknown_tokens"] = _sums(ids == self._vocabulary.unk_id, bounds)
        self._add_sizes(rows, of_document)
        self.document_lengths += _histogram(of_document["characters"])
        self.sentence_lengths += _histogram(lengths)
        self._add_signs(rows["doc_id"], sentences, offsets)
        self.repeats.add(sentences)

    def _add_sizes(self, rows: pa.RecordBatch, of_document: dict[str, np.ndarray]) -> None:
        keys = list(zip(rows["source"].to_pylist(), rows["language"].to_pylist(), strict=True))
        names = sorted(set(keys))
        group = np.array([names.index(key) for key in keys], np.int64)
        for index, name in enumerate(names):
            ours = group == index
            sums = {column: int(values[ours].sum()) for column, values in of_document.items()}
            self._sums.setdefault(name, Counter()).update(documents=int(ours.sum()), **sums)

    def _add_signs(self, doc_ids: pa.Array, sentences: pa.Array, offsets: np.ndarray) -> None:
        for name, found in find_signs(sentences):
            sign = self.signs.setdefault(name, Sign(name))
            sign.add(len(found), len(sentences))
            for index in found[: sign.num_wanted].tolist():
                document = int(np.searchsorted(offsets, index, "right")) - 1
                sign.examples.append(
                    (doc_ids[document].as_py(), excerpt(name, sentences[index].as_py()))
                )

    def origins(self) -> list[OriginSizes]:
        """Return the sums by source and language, the largest first."""
        origins = [
            OriginSizes(source=source, language=language, **sums)
            for (source, language), sums in self._sums.items()
        ]
        return sorted(
            origins, key=lambda origin: (-origin.characters, origin.source, origin.language)
        )


def _sums(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return the sums of `values` between the bounds, int64 [len(bounds) - 1]."""
    return np.diff(np.append(0, np.cumsum(values, dtype=np.int64))[bounds])


def _histogram(lengths: np.ndarray) -> np.ndarray:
    bins = np.floor(np.log2(np.maximum(lengths, 1)) * BINS_PER_OCTAVE).astype(np.int64)
    return np.bincount(bins, minlength=64 * BINS_PER_OCTAVE)


def _trimmed(histogram: np.ndarray) -> list[int]:
    return histogram[: histogram.nonzero()[0].max(initial=-1) + 1].tolist()


def _repeats(repeats: Repeats, paths: list[str]) -> Sign:
    """Return the sign of repeated sentences; its examples are looked up by reading the documents
    again.
    """
    count, total, top = repeats.sum()
    sign, wanted = Sign(REPEATED, count, total), set(top.tolist())
    for rows in _rows(paths) if wanted else ():
        sentences, offsets = rows["sentences"].flatten(), rows["sentences"].offsets.to_numpy()
        long, hashes = hash_long(sentences)
        for index, found in zip(long.tolist(), hashes.tolist(), strict=True):
            if found in wanted:
                wanted.remove(found)
                document = int(np.searchsorted(offsets - offsets[0], index, "right")) - 1
                sign.examples.append(
                    (rows["doc_id"][document].as_py(), excerpt(REPEATED, sentences[index].as_py()))
                )
        if not wanted:
            break
    return sign


def _left_out(manifest: DocumentsManifest) -> dict[str, list[LeftOut]]:
    """Return what the manifest counted, and the words that it left out of documents by reason."""
    counts = {**manifest.counts, **manifest.bad}
    ordered = sorted(
        ((name, count) for name, count in counts.items() if count),
        key=lambda item: (-item[1], item[0]),
    )
    entries = [
        LeftOut(name=name.replace("_", " "), count=count, examples=manifest.examples.get(name, []))
        for name, count in ordered
    ]
    prefix = WORDS_LEFT_OUT.replace("_", " ")
    return {
        "counted": [entry for entry in entries if not entry.name.startswith(prefix)],
        "words_left_out": [
            replace(entry, name=entry.name.removeprefix(prefix))
            for entry in entries
            if entry.name.startswith(prefix)
        ],
    }


def documents_digest(manifest: InstancesManifest) -> str:
    """Return the digest of the manifest of the documents that instances were built from; empty if
    it is unknown.
    """
    return next(
        (
            str(entry.get("digest", ""))
            for entry in manifest.inputs
            if entry.get("stage") == "ingest"
        ),
        "",
    )


def documents_beside(instances: str) -> str | None:
    """Return the directory of documents that instances were built from, if it is local, whole and
    beside theirs.
    """
    digest = documents_digest(read_manifest(instances, InstancesManifest))
    parent, folder = (
        os.path.dirname(os.path.abspath(instances)),
        os.path.dirname(instances.rstrip("/")),
    )
    if os.path.abspath(folder) != parent:  # `instances` ends in a dot
        folder = os.path.relpath(parent)
    for name in [] if storage.is_remote(instances) else sorted(os.listdir(parent)):
        path = os.path.join(parent, name, MANIFEST)
        if os.path.isfile(path) and digest_of(storage.read_bytes(path)) == digest:
            found = os.path.join(folder, name)
            with suppress(UserError):  # its shards may be deleted
                read_manifest(found, DocumentsManifest)
                return found
    return None
