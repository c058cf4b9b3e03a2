"""Stage 1: raw sources to documents, shuffled, split and sharded.

Two phases, each a Beam pipeline over units of work:

- **scatter**: one unit reads one input range, cleans it, splits it into sentences and writes one Arrow file with a
  record batch for each bucket of the documents' hash;
- **gather**: one unit reads the batches of a run of buckets from all those files, sorts the documents by hash and
  writes one shard.

Between the two, the launching process looks at the sizes of the buckets alone and decides which make a shard. No text
passes through Beam, so that memory is bounded by a range and by a shard, whatever the size of the corpus. Because a
shard is a range of hashes, it is a uniform random sample of the corpus.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from . import storage
from .config import IngestConfig, RunOptions
from .errors import UserError
from .expectations import SHARD_TEXT_BYTES, Expectation, expect_documents
from .records import InputRange, RawDocument
from .runner import Unit, prepare, run_units
from .schemas import DOCUMENTS
from .seeding import stable_hash
from .sentences import split_sentences
from .shards import shard_name, write_parquet
from .sources import Input, find_inputs, plan_units, read_range
from .stage import (
    StageDirectory,
    check_output,
    digest_of,
    gather_tallies,
    library_versions,
    manifest_head,
    open_stage,
)
from .tally import Tally
from .wikitext_repair import GAP

BUCKET_INPUT_BYTES = 8 << 20
MAX_BUCKETS = 4096
MIN_VALIDATION_DOCUMENTS = 2
NUM_SAMPLES, SAMPLE_BYTES = 16, 1 << 16
NUM_READERS = 16  # of small files at a time, for object stores answer slowly
ROW_GROUP_DOCUMENTS = 4096
ALL_HASHES = 1 << 64

SCATTERED = pa.schema([pa.field("hash", pa.uint64()), pa.field("validation_hash", pa.uint64()), *DOCUMENTS])


@dataclass(frozen=True)
class Gathering:
    """A unit of the second phase: the shard to write, and where its documents lie.

    The first batch of each scattered file holds the candidates for validation; bucket i is batch i + 1. The candidates
    whose validation hash is below `validation_below` are the validation split, the others go back to their buckets.
    """

    split: str
    index: int
    count: int
    buckets: range
    num_buckets: int
    validation_below: int
    scattered: tuple[str, ...]


def ingest(sources: Sequence[str], output: str, config: IngestConfig, options: RunOptions) -> dict[str, Any]:
    """Turn `sources` into a directory of documents and return its manifest.

    A finished directory of the same configuration is left as it is. Raise `UserError` for a mistake of the user.
    """
    prepare(options)
    work = _plan(sources, output, config)
    directory, manifest = open_stage(output, work.head, options.overwrite)
    if manifest is not None:
        return manifest
    begun = time.monotonic()
    scatter = partial(scatter_ranges, config=config, num_buckets=config.shards or _num_buckets(work.num_bytes))
    scattered = run_units(directory, "scatter", work.units, scatter, options)
    tally = gather_tallies(scattered, options.max_bad, seen="documents_read")
    for name in work.left_out:
        tally.note("files_of_unknown_format", name)
    gathered = run_units(directory, "gather", plan_shards(scattered, config), gather_shard, options)
    for record in gathered:
        tally.add(record["tally"])
    languages = sum((Counter(record["languages"]) for record in scattered), Counter())
    shards = [record["shard"] for record in gathered]
    manifest = {**work.head, **tally.to_record(), "languages": dict(sorted(languages.items())), "shards": shards}
    return directory.finish(manifest, {"seconds": round(time.monotonic() - begun, 3)})


def expect(sources: Sequence[str], output: str, config: IngestConfig, options: RunOptions) -> Expectation:
    """Return what `ingest` would do and take, without doing it; raise `UserError` as it would."""
    prepare(options)
    work = _plan(sources, output, config)
    state = check_output(output, work.head, options.overwrite)
    return expect_documents(work.inputs, len(work.units), config.shards, options, state)


class _Work(NamedTuple):
    inputs: list[Input]
    left_out: list[str]
    units: list[Unit]
    num_bytes: int
    head: dict[str, Any]


def _plan(sources: Sequence[str], output: str, config: IngestConfig) -> _Work:
    inputs, left_out = find_inputs(sources, output, config)
    units = [
        Unit(name=name, cost=planned.num_bytes, payload=(name, planned.ranges))
        for index, planned in enumerate(plan_units(inputs))
        for name in [f"range-{index:05d}"]
    ]
    with ThreadPoolExecutor(NUM_READERS) as pool:
        fingerprints = list(pool.map(_fingerprint, inputs))
    head = manifest_head("ingest", config, fingerprints, library_versions("sentencex"))
    return _Work(inputs, left_out, units, sum(entry.num_bytes for entry in inputs), head)


def _fingerprint(entry: Input) -> dict[str, Any]:
    """Name an input by its size and by samples of its content: reading a whole dump twice would be slow."""
    digest = entry.digest or digest_of(_sampled(entry))
    return {"name": entry.name, "format": entry.format, "bytes": entry.num_bytes, "digest": digest}


def _sampled(entry: Input) -> bytes:
    with storage.open_input(entry.path) as file:
        return (
            file.read() if entry.num_bytes <= NUM_SAMPLES * SAMPLE_BYTES else b"".join(_samples(file, entry.num_bytes))
        )


def _samples(file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    for place in np.linspace(0, num_bytes - SAMPLE_BYTES, NUM_SAMPLES, dtype=np.int64).tolist():
        file.seek(place)
        yield file.read(SAMPLE_BYTES)


def _num_buckets(input_bytes: int) -> int:
    return int(min(max(1 << (input_bytes // BUCKET_INPUT_BYTES).bit_length(), 16), MAX_BUCKETS))


def scatter_ranges(
    directory: StageDirectory, payload: tuple[str, list[InputRange]], config: IngestConfig, num_buckets: int
) -> dict[str, Any]:
    """Read, clean and split the documents of some ranges, and write them by bucket; return the record."""
    name, ranges = payload
    tally = Tally()
    documents: list[dict[str, Any]] = []
    languages: Counter[str] = Counter()
    for raw in (raw for part in ranges for raw in read_range(part, config, tally)):
        language = raw.language if config.language == "auto" else config.language
        if document := make_document(raw, language, config, tally):
            documents.append(document)
            languages[language] += 1
    table = _with_hashes(documents, config.seed)
    buckets = _bucket_of(table["hash"].to_numpy(), num_buckets)
    lowest, candidates = _validation_candidates(table["validation_hash"].to_numpy(), config.validation_share)
    buckets = np.where(candidates, -1, buckets)
    file_name = f".work/scattered/{name}.arrow"
    with directory.write(file_name) as file:
        _write_buckets(file, table, buckets, num_buckets)
    sizes = [len("".join(document["sentences"]).encode()) for document in documents]
    text_bytes = np.bincount(buckets + 1, weights=sizes, minlength=num_buckets + 1)
    return {
        "file": {"name": file_name},
        "tally": tally.to_record(),
        "languages": dict(languages),
        "bucket_bytes": text_bytes.astype(int).tolist(),
        "documents": len(documents),
        "lowest_validation_hashes": lowest,
    }


def make_document(raw: RawDocument, language: str, config: IngestConfig, tally: Tally) -> dict[str, Any] | None:
    """Return a row of `schemas.DOCUMENTS`; None (and a count) where the selection leaves the document out."""
    found = split_sentences(raw.paragraphs, language)
    sentences = [sentence for sentence in found if GAP not in sentence]
    tally.count("sentences_with_gaps", len(found) - len(sentences))
    num_characters = sum(map(len, sentences))
    tally.count("documents_read")
    if num_characters < config.min_characters or len(sentences) < config.min_sentences or not sentences:
        tally.count("documents_too_short")
        return None
    return {"doc_id": f"{raw.source}:{raw.id}", "source": raw.source, "title": raw.title, "sentences": sentences}


def _with_hashes(documents: list[dict[str, Any]], seed: int) -> pa.Table:
    rows = [
        {
            "hash": stable_hash(seed, "document", document["doc_id"]),
            "validation_hash": stable_hash(seed, "validation", document["doc_id"]),
            **document,
        }
        for document in documents
    ]
    return pa.Table.from_pylist(rows, schema=SCATTERED)


def _bucket_of(hashes: np.ndarray, num_buckets: int) -> np.ndarray:
    """Return hash * num_buckets / 2**64 in whole numbers, from the upper 32 bits so that nothing overflows."""
    return ((hashes >> np.uint64(32)) * np.uint64(num_buckets) >> np.uint64(32)).astype(np.int64)


def _validation_candidates(hashes: np.ndarray, share: float) -> tuple[list[int], np.ndarray]:
    """Return the lowest distinct validation hashes of a range, and which documents may be validation documents.

    Which really are is known when all ranges are read: those under the share, but at least the few lowest of all.
    """
    lowest = np.unique(hashes)[:MIN_VALIDATION_DOCUMENTS]
    candidates = (hashes < np.uint64(int(share * ALL_HASHES))) | np.isin(hashes, lowest)
    return lowest.tolist(), candidates


def _write_buckets(file: Any, table: pa.Table, buckets: np.ndarray, num_buckets: int) -> None:
    order = np.argsort(buckets, kind="stable")
    ends = np.searchsorted(buckets[order], np.arange(-1, num_buckets), side="right")
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(file, SCATTERED, options=options) as writer:
        for start, stop in zip([0, *ends[:-1]], ends, strict=True):
            rows = table.take(pa.array(order[start:stop])).combine_chunks()
            writer.write_batch(rows.to_batches()[0] if rows.num_rows else pa.RecordBatch.from_pylist([], SCATTERED))


def plan_shards(scattered: Sequence[dict[str, Any]], config: IngestConfig) -> list[Unit]:
    """Decide, from the records of the first phase alone, which buckets make which shard.

    Raise `UserError` where there are too few documents for the shards and the validation split.
    """
    num_documents = sum(record["documents"] for record in scattered)
    if num_documents < MIN_VALIDATION_DOCUMENTS + 2:
        raise UserError(
            f"The sources hold {num_documents} documents; at least {MIN_VALIDATION_DOCUMENTS + 2} are needed."
        )
    files = tuple(record["file"]["name"] for record in scattered)
    candidates_bytes, *bucket_bytes = np.sum([record["bucket_bytes"] for record in scattered], axis=0).tolist()
    lowest = sorted({value for record in scattered for value in record["lowest_validation_hashes"]})
    below = max(int(config.validation_share * ALL_HASHES), lowest[MIN_VALIDATION_DOCUMENTS - 1] + 1)
    runs = [range(i, i + 1) for i in range(config.shards)] if config.shards else _merge_buckets(bucket_bytes)
    make = partial(Gathering, num_buckets=len(bucket_bytes), validation_below=below, scattered=files)
    train = [make(split="train", index=i, count=len(runs), buckets=run) for i, run in enumerate(runs)]
    validation = make(split="validation", index=0, count=1, buckets=range(0))
    costs = [*(sum(bucket_bytes[run.start : run.stop]) for run in runs), candidates_bytes]
    return [_gather_unit(each, cost) for each, cost in zip([*train, validation], costs, strict=True)]


def _merge_buckets(bucket_bytes: Sequence[int]) -> list[range]:
    """Return runs of neighbouring buckets, each close to `SHARD_TEXT_BYTES` of text."""
    num_shards = max(1, round(sum(bucket_bytes) / SHARD_TEXT_BYTES))
    target = sum(bucket_bytes) / num_shards
    # The last byte of a bucket says where it goes; empty ones at the start go with the first that is not.
    last_bytes = np.maximum(np.cumsum(bucket_bytes) - 1, 0)
    shard_of = np.minimum(last_bytes // max(target, 1), num_shards - 1).astype(int)
    starts = [i for i in range(len(bucket_bytes)) if i == 0 or shard_of[i] != shard_of[i - 1]]
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(bucket_bytes)], strict=True)]


def _gather_unit(gathering: Gathering, cost: int) -> Unit:
    return Unit(name=shard_name(gathering.split, gathering.index, gathering.count), cost=cost, payload=gathering)


def gather_shard(directory: StageDirectory, gathering: Gathering) -> dict[str, Any]:
    """Write one shard from the scattered files; return the record."""
    tables = [_read_buckets(directory.file(name), gathering) for name in gathering.scattered]
    table = pa.concat_tables(tables).sort_by([("hash", "ascending"), ("doc_id", "ascending")])
    tally = Tally()
    table = _drop_repeated_ids(table, tally).select(DOCUMENTS.names).cast(DOCUMENTS)
    if table.num_rows < 2:
        raise UserError(f"A {gathering.split} shard would hold {table.num_rows} documents: lower --shards.")
    name = shard_name(gathering.split, gathering.index, gathering.count)
    record: dict[str, Any] = {"tally": tally.to_record()}
    with write_parquet(directory, name, DOCUMENTS, record) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_DOCUMENTS)
    counts = {"documents": table.num_rows, "sentences": len(table["sentences"].combine_chunks().flatten())}
    sources = dict(sorted(Counter(table["source"].to_pylist()).items()))
    shard = {**record["file"], "split": gathering.split, "rows": table.num_rows, "counts": counts, "sources": sources}
    return {**record, "shard": shard}


def _read_buckets(path: str, gathering: Gathering) -> pa.Table:
    """Read the documents of a shard from one scattered file: its buckets, and its share of the candidates."""
    with storage.open_input(path) as file, pa.ipc.open_file(file) as reader:
        candidates = pa.Table.from_batches([reader.get_batch(0)])
        is_validation = candidates["validation_hash"].to_numpy() < np.uint64(gathering.validation_below)
        if gathering.split == "validation":
            return candidates.filter(pa.array(is_validation))
        buckets = _bucket_of(candidates["hash"].to_numpy(), gathering.num_buckets)
        returned = candidates.filter(pa.array(~is_validation & np.isin(buckets, np.asarray(gathering.buckets))))
        return pa.concat_tables([returned, pa.Table.from_batches(_batches(reader, gathering.buckets), SCATTERED)])


def _batches(reader: Any, buckets: range) -> Iterator[pa.RecordBatch]:
    return (reader.get_batch(bucket + 1) for bucket in buckets)


def _drop_repeated_ids(table: pa.Table, tally: Tally) -> pa.Table:
    """Keep the first of the rows with the same doc_id, which stand beside each other."""
    ids = table["doc_id"].to_pylist()
    is_first = [doc_id != before for doc_id, before in zip(ids, [None, *ids], strict=False)]
    tally.count("repeated_ids", len(ids) - sum(is_first))
    return table.filter(pa.array(is_first, pa.bool_()))
