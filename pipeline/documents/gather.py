"""The last phase of ingest: a unit reads the documents of a range of hashes from all scattered
files into shards.

Which range makes which shard is planned from the sizes that the phases before recorded (see
`shard_plan`). Because a shard is a range of hashes, it is a uniform random sample of the corpus. A
unit makes the shards that begin in one partition: a single one in a small corpus, many in a huge
one. Then it first deals the documents into a temporary table with a partition a shard. So whatever
the size of the corpus, a document is read about twice, and memory is bounded by a shard.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import ragged
from ..counters import CounterRecord, Counters
from ..execution.job import Job, Phase, Record, Unit
from ..execution.tables import TemporaryTable
from ..manifests import DocumentsGroup, DocumentsShard
from ..schemas import DOCUMENTS
from ..storage.shards import write_parquet
from .deduplicate import Deduplicate
from .duplicates import DUPLICATE, empty_left_out
from .layout import check_shard_size
from .scatter import Scatter
from .shard_plan import ShardRun, plan_shards
from .tables import LEFT_OUT, SCATTERED

ROW_GROUP_DOCUMENTS = 4096
_ORDER = [("hash", "ascending"), ("doc_id", "ascending")]


@dataclass(frozen=True, kw_only=True)
class Gathered(Record):
    """The record of a unit."""

    counters: CounterRecord
    shards: list[DocumentsShard]


@dataclass(frozen=True)
class ByShard:
    """Cut a unit's documents into a partition for each of its shards."""

    run: ShardRun

    def num_partitions(self, setup: Any) -> int:
        """Return the number of shards."""
        return len(self.run.names())

    def partition_of(self, rows: pa.Table, setup: Any) -> np.ndarray:
        """Return the shard of each row."""
        return self.run.shard_of(rows)


@dataclass(frozen=True)
class Gather(Phase):
    """Write the shards."""

    num_shards: int | None
    """`IngestConfig.shards`, the number that the user asked for."""

    name = "gather"
    payload_type = ShardRun
    record_type = Gathered

    def plan(self, job: Job) -> Sequence[Unit]:
        """Cut the hashes into shards."""
        return plan_shards(
            job.records(Scatter),
            job.records(Deduplicate),
            self.num_shards,
            job.setup.layout,
        )

    def do(self, job: Job, unit: Unit) -> Gathered:
        """Write the shards of a unit."""
        run = unit.payload
        counters = Counters()
        partitions = run.partitions(job.setup.layout)
        left_out_batches = _of_these_shards(LEFT_OUT.read(job, partitions), run)
        left_out = pa.Table.from_batches(left_out_batches, LEFT_OUT.schema)
        shard_of_left_out = run.shard_of(left_out)
        batches = _of_these_shards(SCATTERED.read(job, partitions), run)
        # Lazily: the documents of one shard are in memory at a time.
        documents_of_shards = _deal(job, unit, empty_left_out(batches, left_out))
        names = run.names()
        shards: list[DocumentsShard] = []
        for index, documents in enumerate(documents_of_shards):
            is_of_shard = shard_of_left_out == index
            left_out_here = left_out.filter(pa.array(is_of_shard))
            keys = documents.select(["hash", "text_hash", "doc_id"])
            order = choose_rows(keys, left_out_here, counters)
            check_shard_size(run.split, len(order), self.num_shards)
            shards.append(_write_shard(job, run, names[index], documents, order))
        return Gathered(files=tuple(names), counters=counters.to_record(), shards=shards)


def _of_these_shards(batches: Iterable[pa.RecordBatch], run: ShardRun) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the unit's shards; a partition holds rows of other units too."""
    for batch in batches:
        is_chosen = run.shard_of(batch) >= 0
        if is_chosen.all():  # as in a small corpus, without a copy
            yield batch
        elif is_chosen.any():
            yield batch.filter(pa.array(is_chosen))


def _deal(job: Job, unit: Unit, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the documents of each shard, in one piece."""
    num_shards = len(unit.payload.names())
    if num_shards == 1:
        yield pa.Table.from_batches(batches, SCATTERED.schema).combine_chunks()
        return
    dealt = TemporaryTable("dealt", SCATTERED.schema, ByShard(unit.payload))
    with dealt.write(job, unit.name) as writer:
        for batch in batches:
            writer.write(pa.Table.from_batches([batch]))
    for index in range(num_shards):
        batches_of_shard = dealt.read(job, [index], [unit.name])
        yield pa.Table.from_batches(batches_of_shard, dealt.schema).combine_chunks()
    job.remove(job.temporary(f"{dealt.name}/{unit.name}.arrow"))


def _write_shard(
    job: Job, run: ShardRun, name: str, documents: pa.Table, order: np.ndarray
) -> DocumentsShard:
    """Write the rows of `documents` in this order."""
    documents = documents.select(DOCUMENTS.names)
    keys = ["source", "language"]
    num_sentences = 0
    num_words = 0
    lengths: list[pa.Table] = []
    with write_parquet(job, name, DOCUMENTS) as (writer, written):
        for start in range(0, len(order), ROW_GROUP_DOCUMENTS):
            # The shard is in memory once, and a row group of it twice.
            indices = pa.array(order[start : start + ROW_GROUP_DOCUMENTS])
            rows = documents.take(indices).cast(DOCUMENTS)
            writer.write_table(rows, row_group_size=ROW_GROUP_DOCUMENTS)
            sentences = rows["sentences"].combine_chunks().flatten()
            num_sentences += len(sentences)
            # Words are separated by single spaces, and begin and end each sentence.
            text, bounds = ragged.flat_text(sentences)
            num_words += int(np.count_nonzero(np.diff(bounds)))
            num_words += int(np.count_nonzero(text == ord(" ")))
            lengths_of_sentences = pc.call_function("utf8_length", [sentences]).to_numpy()
            offsets = ragged.offsets_in(rows["sentences"].combine_chunks())
            characters = pa.array(ragged.sums(lengths_of_sentences, offsets))
            lengths.append(rows.select(keys).append_column("characters", characters))
    # Documents and characters of each source and language.
    groups = pa.concat_tables(lengths).group_by(keys)
    groups = groups.aggregate([("characters", "count"), ("characters", "sum")])
    groups = groups.rename_columns(
        {"characters_count": "documents", "characters_sum": "characters"}
    )
    groups = groups.sort_by([(key, "ascending") for key in keys])
    return DocumentsShard(
        name=name,
        split=run.split,
        rows=len(order),
        bytes=written.num_bytes,
        sha256=written.sha256,
        counts={"documents": len(order), "sentences": num_sentences, "words": num_words},
        groups=[DocumentsGroup(**group) for group in groups.to_pylist()],
    )


def choose_rows(documents: pa.Table, left_out: pa.Table, counters: Counters) -> np.ndarray:
    """Return the rows of a shard in order: by hash, then by id.

    Rows that are `left_out`, or repeat an id, are not among them, but counted.
    """
    remaining = np.flatnonzero(~_is_left_out(documents, left_out, counters))
    rows = _numbered(documents, remaining)
    rows = rows.sort_by(_ORDER)  # stable: of two rows with the same id, the first stays
    counters.count("repeated_ids", 0)  # reported even if there are none
    doc_ids = rows["doc_id"].to_numpy()
    is_first = ragged.begins_run(doc_ids)
    for doc_id in doc_ids[~is_first].tolist():
        counters.note("repeated_ids", doc_id)
    return rows["row"].to_numpy()[is_first]


def _numbered(documents: pa.Table, rows: np.ndarray) -> pa.Table:
    """Return some rows of a table, with a column of their numbers, which sorting takes along."""
    numbers = pa.array(rows)
    return documents.take(numbers).append_column("row", numbers)


def _is_left_out(documents: pa.Table, left_out: pa.Table, counters: Counters) -> np.ndarray:
    """Return which documents are `left_out`, and count each under its reason."""
    counters.count(DUPLICATE, 0)  # reported even if there are none
    # By hash (of the id) and text: another version under the same id may stay.
    removals: dict[tuple[int, int], dict[str, Any]] = {}
    for removal in left_out.to_pylist():
        removals[removal["hash"], removal["text_hash"]] = removal
    # Few documents share a hash with a removed one; only these are looked at one by one.
    may_be_left_out = np.isin(documents["hash"].to_numpy(), left_out["hash"].to_numpy())
    candidates = np.flatnonzero(may_be_left_out)
    rows = _numbered(documents, candidates)
    is_left_out = np.zeros(documents.num_rows, bool)
    # Sorted, so that the first examples do not depend on the order in which files were read.
    for document in rows.sort_by(_ORDER).to_pylist():
        removal = removals.get((document["hash"], document["text_hash"]))
        if removal is not None:
            is_left_out[document["row"]] = True
            counters.note(removal["reason"], f"{document['doc_id']} repeats {removal['kept']}")
    return is_left_out
