"""The first phase of ingest: a unit reads its input ranges, and writes their documents by hash.

They are written part by part, whenever `PART_TEXT_BYTES` of text are held, so that memory is
bounded by a part and by the longest document, however large a unit is. Beside the documents lie
their keys (see `duplicates`) and, on request, the bands of their signatures and their sketches (see
`near_duplicates`).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from ..config import IngestConfig
from ..execution.counters import CounterRecord, Counters
from ..execution.estimates import PART_TEXT_BYTES
from ..execution.partitions import PartWriter, partitioned_file, range_of, write_partitions
from ..execution.phases import Record
from ..languages import language_tag
from ..schemas import DOCUMENTS
from ..seeding import stable_hash
from ..sources.formats import read_range
from ..sources.records import InputRange, RawDocument
from ..sources.sentences import split_sentences
from ..sources.wikitext.repair import GAP
from ..storage.stage import StageDirectory
from .duplicates import KEYS, hash_text
from .layout import Layout
from .near_duplicates import BANDS, SKETCHES, sketch_tables, sketch_text
from .other_languages import OTHER_LANGUAGES, identify_language

HASHES = [pa.field(name, pa.uint64()) for name in ("hash", "validation_hash", "text_hash")]
SCATTERED = pa.schema([*HASHES, *DOCUMENTS])
SCHEMAS = {
    "documents": SCATTERED,
    "keys": KEYS,
    "bands": BANDS,
    "sketches": SKETCHES,
}

Row = dict[str, Any]
"""A document in memory: the columns of the schemas above, and its ``sketch``."""


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """A unit of this phase: ranges of input, and the name of its files."""

    name: str
    ranges: list[InputRange]


@dataclass(frozen=True, kw_only=True)
class Scattered(Record):
    """The record of a unit: counts; and per `Layout.bucket_of`, bytes of text (int64) and documents
    (uint32).
    """

    counters: CounterRecord
    bucket_bytes: bytes
    bucket_documents: bytes
    documents: int


def scatter_ranges(
    directory: StageDirectory, unit: Ranges, config: IngestConfig, layout: Layout
) -> Scattered:
    """Read, clean and split the documents of some ranges and write them by hash."""
    counters = Counters()
    bucket_bytes, bucket_documents = np.zeros((2, layout.num_buckets + 1), np.int64)
    partitions = _num_partitions(layout, config)
    files = {kind: partitioned_file(kind, unit.name) for kind in partitions}
    with ExitStack() as stack:
        opened = (
            write_partitions(directory, files[kind], SCHEMAS[kind], partitions[kind])
            for kind in partitions
        )
        writers = dict(zip(partitions, map(stack.enter_context, opened), strict=True))
        for rows in cut_parts(_read_rows(unit.ranges, config, counters), PART_TEXT_BYTES):
            _write(rows, writers, config, layout)
            buckets = layout.bucket_of(*_hashes(rows))
            np.add.at(bucket_bytes, buckets, [row["num_bytes"] for row in rows])
            np.add.at(bucket_documents, buckets, 1)
            del rows  # or two parts would be in memory, this one and the next
    return Scattered(
        files=tuple(files.values()),
        counters=counters.to_record(),
        bucket_bytes=bucket_bytes.tobytes(),
        bucket_documents=bucket_documents.astype(np.uint32).tobytes(),
        documents=int(bucket_documents.sum()),
    )


def _num_partitions(layout: Layout, config: IngestConfig) -> dict[str, int]:
    """Return the kinds of files that a unit writes, and the number of partitions in each."""
    partitions = {"documents": layout.num_document_partitions, "keys": layout.num_key_partitions}
    if config.near_duplicates is not None:
        partitions |= {"bands": layout.num_key_partitions, "sketches": 1}
    return partitions


def _read_rows(
    ranges: Iterable[InputRange], config: IngestConfig, counters: Counters
) -> Iterator[Row]:
    """Yield the documents that are selected, with their hashes, and sketches if near-duplicates are
    to be removed.
    """
    documents = (read_range(input_range, config, counters) for input_range in ranges)
    for raw in chain.from_iterable(documents):
        sentences = select_sentences(raw, config, counters)
        if not sentences:
            continue
        doc_id = f"{raw.source}:{raw.id}"
        text_hash, text_hash_low, num_bytes = hash_text(sentences)
        yield {
            "doc_id": doc_id,
            "source": raw.source,
            "language": language_tag(_language_of(raw, config)),
            "title": raw.title,
            "sentences": sentences,
            "hash": stable_hash(config.seed, "document", doc_id),
            "validation_hash": stable_hash(config.seed, "validation", doc_id),
            "text_hash": text_hash,
            "text_hash_low": text_hash_low,
            "num_bytes": num_bytes,
            "sketch": None if config.near_duplicates is None else sketch_text(sentences),
        }


def _language_of(raw: RawDocument, config: IngestConfig) -> str:
    return raw.language or ("" if config.language == "auto" else config.language)


def select_sentences(raw: RawDocument, config: IngestConfig, counters: Counters) -> list[str]:
    """Return the complete sentences of a document; none, and a count of the reason, if the document
    is not selected.
    """
    doc_id = f"{raw.source}:{raw.id}"
    counters.count("documents_read")
    counters.count("sentences_with_gaps", 0)  # reported even if there are none
    sentences: list[str] = []
    for sentence in split_sentences(raw.paragraphs, _language_of(raw, config)):
        if GAP in sentence:
            counters.leave_out_line("sentences_with_gaps", sentence, doc_id)
        else:
            sentences.append(sentence)
    if _is_too_short(sentences, config):
        counters.note("documents_too_short", doc_id)
        counters.leave_out("documents_too_short", sentences)
        return []
    if config.keep_language:
        language = identify_language(sentences)
        if language not in config.keep_language:
            counters.note(OTHER_LANGUAGES, f"{doc_id} (looks like {language})")
            counters.leave_out(OTHER_LANGUAGES, sentences)
            return []
    return sentences


def _is_too_short(sentences: Sequence[str], config: IngestConfig) -> bool:
    num_characters = sum(map(len, sentences))
    return num_characters < config.min_characters or len(sentences) < config.min_sentences


def cut_parts(rows: Iterable[Row], part_bytes: int) -> Iterator[list[Row]]:
    """Yield the rows in lists of at least `part_bytes` of text, except the last, which has the
    rest.
    """
    part: list[Row] = []
    num_bytes = 0
    for row in rows:
        part.append(row)
        num_bytes += row["num_bytes"]
        if num_bytes >= part_bytes:
            yield part
            part, num_bytes = [], 0
    if part:
        yield part


def _write(
    rows: Sequence[Row], writers: dict[str, PartWriter], config: IngestConfig, layout: Layout
) -> None:
    """Write a part to each file of the unit."""
    writers["documents"].write(
        pa.Table.from_pylist(rows, SCATTERED), layout.partition_of(*_hashes(rows))
    )
    keys = pa.Table.from_pylist(rows, KEYS)
    writers["keys"].write(keys, range_of(keys["text_hash"].to_numpy(), layout.num_key_partitions))
    if config.near_duplicates is not None:
        bands, sketches = sketch_tables(rows, config.near_duplicates)
        writers["bands"].write(
            bands, range_of(bands["band_hash"].to_numpy(), layout.num_key_partitions)
        )
        writers["sketches"].write(sketches, np.zeros(sketches.num_rows, np.int64))


def _hashes(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    hashes = np.array([(row["hash"], row["validation_hash"]) for row in rows], np.uint64)
    return hashes[:, 0], hashes[:, 1]
