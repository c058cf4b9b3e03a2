"""The last phase of ingest: a unit reads the documents of a range of hashes from all scattered files into one shard.

Which range makes a shard is decided from the sizes that the phases before recorded. Because a shard is a range of
hashes, it is a uniform random sample of the corpus. Memory is bounded by a shard.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ..config import IngestConfig
from ..errors import UserError
from ..execution.counters import Counters, count_of
from ..execution.directory import StageDirectory
from ..execution.estimates import SHARD_TEXT_BYTES
from ..execution.partitions import Layout, counts_from_text, overlapping, range_of, read_scattered
from ..execution.shards import shard_name, write_parquet
from ..execution.units import Unit
from ..schemas import DOCUMENTS
from .duplicates import DUPLICATE, LEFT_OUT, MIN_VALIDATION_DOCUMENTS
from .scatter import SCATTERED

ROW_GROUP_DOCUMENTS = 4096
_ORDER = [("hash", "ascending"), ("doc_id", "ascending")]


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """A unit of this phase: the shard to write, and where its documents lie.

    Documents whose validation hash is below `validation_below` are the validation split, the others are for training.
    The former lie in the first place of each file, unless there are too few below the share asked for.
    """

    split: str
    index: int
    count: int
    buckets: range
    layout: Layout
    validation_below: int
    documents: tuple[str, ...]
    left_out: tuple[str, ...]

    def places(self) -> list[int]:
        """Return the places of the scattered files where the documents may lie."""
        places = overlapping(self.buckets, self.layout.num_buckets, self.layout.num_places)
        if self.split == "validation" and self.validation_below > self.layout.validation_below:
            places = range(self.layout.num_places)
        return [0, *(place + 1 for place in places)]

    def holds(self, hashes: np.ndarray, validation_hashes: np.ndarray) -> np.ndarray:
        """Tell which documents belong in the shard."""
        is_validation = validation_hashes < np.uint64(self.validation_below)
        if self.split == "validation":
            return is_validation
        buckets = range_of(hashes, self.layout.num_buckets)
        return ~is_validation & (buckets >= self.buckets.start) & (buckets < self.buckets.stop)


def plan_shards(
    scattered: Sequence[dict[str, Any]], settled: Sequence[dict[str, Any]], config: IngestConfig, layout: Layout
) -> list[Unit]:
    """Decide, from the records of the phases before alone, which buckets make which shard.

    Raise `UserError` where there are too few documents for the shards and the validation split.
    """
    num_documents = sum(record["documents"] for record in settled)
    if num_documents < MIN_VALIDATION_DOCUMENTS + 2:
        raise UserError(_too_few(num_documents, scattered, settled))
    validation_bytes, *bucket_bytes = _bucket_bytes(scattered, settled)
    lowest = sorted(value for record in settled for value in record["lowest_validation_hashes"])
    last_for_validation = lowest[MIN_VALIDATION_DOCUMENTS - 1]
    runs = [range(i, i + 1) for i in range(config.shards)] if config.shards else merge_buckets(bucket_bytes)
    make = partial(
        Gathering,
        layout=layout,
        validation_below=max(layout.validation_below, last_for_validation + 1),
        documents=tuple(record["files"]["documents"] for record in scattered if record["documents"]),
        left_out=tuple(record["file"]["name"] for record in settled if record["left_out"]),
    )
    train = [make(split="train", index=i, count=len(runs), buckets=run) for i, run in enumerate(runs)]
    validation = make(split="validation", index=0, count=1, buckets=range(0))
    costs = [*(sum(bucket_bytes[run.start : run.stop]) for run in runs), validation_bytes]
    return [_gather_unit(each, cost) for each, cost in zip([*train, validation], costs, strict=True)]


def _too_few(num_documents: int, scattered: Sequence[dict[str, Any]], settled: Sequence[dict[str, Any]]) -> str:
    """Say that there are too few documents, and where the others went."""
    num_read, num_short = (
        sum(record["counters"]["counts"].get(name, 0) for record in scattered)
        for name in ("documents_read", "documents_too_short")
    )
    num_equal = sum(record["left_out"] for record in settled)
    needed = f"at least {MIN_VALIDATION_DOCUMENTS + 2} that differ are needed"
    gone = f"{num_short:,} too short (--min-characters, --min-sentences), {num_equal:,} equal to others"
    return f"The sources hold {count_of(num_documents, 'document')}; {needed}. Of {num_read:,} read, {gone}."


def _bucket_bytes(scattered: Sequence[dict[str, Any]], settled: Sequence[dict[str, Any]]) -> list[int]:
    """Return the bytes of text that stay, first for validation, then in each bucket."""
    read, gone = (
        sum(counts_from_text(record["bucket_bytes"]) for record in records) for records in (scattered, settled)
    )
    # A document that stands in two sources under one id can be taken off twice.
    return np.maximum(read - gone, 0).tolist()


def merge_buckets(bucket_bytes: Sequence[int]) -> list[range]:
    """Return runs of neighbouring buckets, as equal as they can be, of at most `SHARD_TEXT_BYTES` of text each.

    (A bucket of more than half of that can make a larger shard.)
    """
    room = max(SHARD_TEXT_BYTES - max(bucket_bytes), SHARD_TEXT_BYTES // 2)
    num_shards = max(1, -(-sum(bucket_bytes) // room))
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
    counters = Counters()
    documents = _read(directory, gathering.documents, gathering, SCATTERED).combine_chunks()
    left_out = _read(directory, gathering.left_out, gathering, LEFT_OUT)
    order = choose_rows(documents.select(["hash", "text_hash", "doc_id"]), left_out, counters)
    if len(order) < 2:
        raise UserError(f"A {gathering.split} shard would hold {count_of(len(order), 'document')}: lower --shards.")
    documents = documents.select(DOCUMENTS.names)
    name = shard_name(gathering.split, gathering.index, gathering.count)
    record: dict[str, Any] = {"counters": counters.to_record()}
    num_sentences = 0
    sources: Counter[str] = Counter()
    with write_parquet(directory, name, DOCUMENTS, record) as writer:
        for start in range(0, len(order), ROW_GROUP_DOCUMENTS):
            # The shard is in memory once, and a row group of it twice.
            rows = documents.take(pa.array(order[start : start + ROW_GROUP_DOCUMENTS])).cast(DOCUMENTS)
            writer.write_table(rows, row_group_size=ROW_GROUP_DOCUMENTS)
            num_sentences += len(rows["sentences"].combine_chunks().flatten())
            sources.update(rows["source"].to_pylist())
    counts = {"documents": len(order), "sentences": num_sentences}
    shard = {"split": gathering.split, "rows": len(order), "counts": counts, "sources": dict(sorted(sources.items()))}
    return {**record, "shard": {**record["file"], **shard}}


def _read(directory: StageDirectory, names: Sequence[str], gathering: Gathering, schema: pa.Schema) -> pa.Table:
    """Read the rows of a shard from some scattered files."""
    places = gathering.places()
    read = (
        batch.filter(pa.array(gathering.holds(batch["hash"].to_numpy(), batch["validation_hash"].to_numpy())))
        for name in names
        for batch in read_scattered(directory.file(name), places, gathering.layout.num_places + 1)
    )
    return pa.Table.from_batches((batch for batch in read if batch.num_rows), schema)


def choose_rows(documents: pa.Table, left_out: pa.Table, counters: Counters) -> np.ndarray:
    """Return the row numbers of the documents that make a shard, in its order: by hash, then by id.

    Documents that are `left_out`, and those whose id another has, are counted.
    """
    stays = np.flatnonzero(~_is_left_out(documents, left_out, counters))
    rows = documents.take(pa.array(stays)).append_column("row", pa.array(stays)).sort_by(_ORDER)  # stable
    ids = rows["doc_id"].to_pylist()
    is_first = [doc_id != before for doc_id, before in zip(ids, [None, *ids], strict=False)]
    counters.count("repeated_ids", 0)  # told even where there is none
    for doc_id in (doc_id for doc_id, first in zip(ids, is_first, strict=True) if not first):
        counters.note("repeated_ids", doc_id)
    return rows["row"].to_numpy()[np.array(is_first, bool)]


def _is_left_out(documents: pa.Table, left_out: pa.Table, counters: Counters) -> np.ndarray:
    """Tell which documents are `left_out`, each counted under its reason."""
    counters.count(DUPLICATE, 0)  # told even where there is none
    why = {(row["hash"], row["text_hash"]): row for row in left_out.to_pylist()}
    may_go = np.flatnonzero(np.isin(documents["hash"].to_numpy(), left_out["hash"].to_numpy()))
    rows = documents.take(pa.array(may_go)).append_column("row", pa.array(may_go))
    is_left_out = np.zeros(documents.num_rows, bool)
    for row in rows.sort_by(_ORDER).to_pylist():
        if found := why.get((row["hash"], row["text_hash"])):
            is_left_out[row["row"]] = True
            counters.note(found["reason"], f"{row['doc_id']} repeats {found['kept']}")
    return is_left_out
