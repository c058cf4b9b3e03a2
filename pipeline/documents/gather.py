"""The last phase of ingest: a unit reads the documents of a range of hashes from all scattered
files into shards.

Which range makes which shard is planned from the sizes that the phases before recorded (see
`shard_plan`). Because a shard is a range of hashes, it is a uniform random sample of the corpus. A
unit makes the shards that begin in one partition: a single one in a small corpus, many in a huge
one. Then it first deals the documents into a temporary table with a partition a shard. So whatever
the size of the corpus, a document is read about twice, and memory is bounded by a shard.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .. import ragged
from ..arrow import call_function, sort_order, take
from ..counters import CounterRecord, Counters
from ..errors import UserError
from ..execution.job import Job, Phase, Record, Unit
from ..execution.temporary import TemporaryTable
from ..manifests import DocumentsGroup, DocumentsShard
from ..schemas import DOCUMENTS
from ..storage.shards import write_parquet
from .duplicates import DUPLICATE, Deduplicate
from .layout import check_shard_size
from .phase_tables import LEFT_OUT, SCATTERED
from .scatter import Scatter
from .shard_plan import ShardRun, plan_shards

ROW_GROUP_DOCUMENTS = 4096


@dataclass(frozen=True, kw_only=True)
class Gathered(Record):
    """The record of a unit."""

    counters: CounterRecord
    shards: list[DocumentsShard]


@dataclass(frozen=True)
class Gather(Phase):
    """Write the shards."""

    num_shards: int | None
    """`IngestConfig.shards`, the number that the user asked for."""

    name = "gather"
    payload_type = ShardRun
    record_type = Gathered

    def plan(self, job: Job) -> Sequence[Unit]:
        scattered = job.records(Scatter)
        deduplicated = job.records(Deduplicate)
        try:
            return plan_shards(scattered, deduplicated, self.num_shards, job.setup.layout)
        except UserError:
            # Only other options can help, and they would be refused if units were done.
            job.remove(job.temporary(Scatter.name), job.temporary(Deduplicate.name))
            raise

    def do(self, job: Job, unit: Unit) -> Gathered:
        run = unit.payload
        names = run.names()
        counters = Counters()
        partitions = run.partitions(job.setup.layout)
        left_out = pa.Table.from_batches(LEFT_OUT.read(job, partitions), LEFT_OUT.schema)
        shard_of_left_out = run.shard_of(left_out)
        # Lazily: the documents of one shard are in memory at a time.
        documents_of_shards = _deal(job, unit, _documents(job, run, left_out))
        shards = []
        for index, documents in enumerate(documents_of_shards):
            keys = documents.select(["hash", "text_hash", "doc_id"])
            removals = take(left_out, np.flatnonzero(shard_of_left_out == index))
            order, repeated = choose_rows(keys, removals, counters)
            # In slices, because they may be as many as those that stay.
            for start in range(0, len(repeated), ROW_GROUP_DOCUMENTS):
                indices = repeated[start : start + ROW_GROUP_DOCUMENTS]
                repeats = take(documents["sentences"], indices).combine_chunks()
                sentences = call_function("list_flatten", [repeats])
                counters.count_left_out("repeated_ids", _num_words(sentences))
            check_shard_size(run.split, len(order), self.num_shards)
            shards.append(_write_shard(job, run, names[index], documents, order))
        return Gathered(files=tuple(names), counters=counters.to_record(), shards=shards)


def _documents(job: Job, run: ShardRun, left_out: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a unit's shards; those that are left out without their sentences, as
    they can far outnumber the others.
    """
    no_sentences = pa.scalar([], SCATTERED.schema.field("sentences").type)
    column = SCATTERED.schema.get_field_index("sentences")
    rows_left_out = row_finder(left_out)
    for batch in SCATTERED.read(job, run.partitions(job.setup.layout)):
        is_chosen = run.shard_of(batch) >= 0
        if not is_chosen.all():  # a partition holds documents of other units too
            batch = take(batch, np.flatnonzero(is_chosen))
        is_removed = rows_left_out(batch) >= 0
        if is_removed.any():
            arguments = [pa.array(is_removed), no_sentences, batch["sentences"]]
            sentences = call_function("if_else", arguments)
            batch = batch.set_column(column, SCATTERED.schema.field(column), sentences)
        yield batch


def row_finder(left_out: pa.Table) -> Callable[[pa.RecordBatch | pa.Table], np.ndarray]:
    """Return what finds each document's row among those left out; -1 if it is not among them."""
    # Once, unlike `np.isin`, which would sort them again for each batch.
    keys_left_out = _document_keys(left_out)
    order = np.argsort(keys_left_out)
    keys_left_out = keys_left_out[order]
    # Behind the last one comes what is none of them.
    key_at = np.append(keys_left_out, np.uint64(0))
    row_at = np.append(order, -1)

    def rows_of(documents: pa.RecordBatch | pa.Table) -> np.ndarray:
        keys = _document_keys(documents)
        position = np.searchsorted(keys_left_out, keys)
        return np.where(key_at[position] == keys, row_at[position], -1)

    return rows_of


def _document_keys(rows: pa.RecordBatch | pa.Table) -> np.ndarray:
    """Return a number for each row's document and text, by its ``hash`` and ``text_hash``."""
    # One number instead of pairs, which NumPy cannot search. A plain sum or XOR would be the same
    # for (a, b) and (b, a); the product wraps around at 2**64, and multiples of 2**64 over the
    # golden ratio differ in all bits.
    hashes = rows["hash"].to_numpy() * np.uint64(0x9E3779B97F4A7C15)
    return hashes + rows["text_hash"].to_numpy()


def _deal(job: Job, unit: Unit, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the documents of each shard, in one piece."""
    num_shards = len(unit.payload.names())
    if num_shards == 1:
        yield pa.Table.from_batches(batches, SCATTERED.schema).combine_chunks()
        return
    dealt = TemporaryTable(
        "dealt", Gather.name, SCATTERED.schema, lambda setup: (num_shards, unit.payload.shard_of)
    )
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
    documents = documents.select(DOCUMENTS.names)
    num_sentences = 0
    num_words = 0
    # Documents and characters of each source and language.
    groups = {}
    with write_parquet(job, name, DOCUMENTS) as (writer, written):
        for start in range(0, len(order), ROW_GROUP_DOCUMENTS):
            # The shard is in memory once, and a row group of it twice.
            rows = take(documents, order[start : start + ROW_GROUP_DOCUMENTS])
            rows = pa.Table.from_arrays(rows.columns, schema=DOCUMENTS)  # whose values are required
            writer.write_table(rows, row_group_size=ROW_GROUP_DOCUMENTS)
            sentences = call_function("list_flatten", [rows["sentences"].combine_chunks()])
            num_sentences += len(sentences)
            num_words += _num_words(sentences)
            lengths_of_sentences = call_function("utf8_length", [sentences]).to_numpy()
            offsets = ragged.offsets_in(rows["sentences"].combine_chunks())
            lengths = ragged.sums(lengths_of_sentences, offsets).tolist()
            origins = zip(rows["source"].to_pylist(), rows["language"].to_pylist(), strict=True)
            for origin, num_characters in zip(origins, lengths, strict=True):
                counts = groups.setdefault(origin, [0, 0])
                counts[0] += 1
                counts[1] += num_characters
    return DocumentsShard(
        name=name,
        split=run.split,
        rows=len(order),
        bytes=written.num_bytes,
        sha256=written.sha256,
        counts={"documents": len(order), "sentences": num_sentences, "words": num_words},
        groups=[
            DocumentsGroup(
                source=source, language=language, documents=num_documents, characters=num_characters
            )
            for (source, language), (num_documents, num_characters) in sorted(groups.items())
        ],
    )


def _num_words(sentences: pa.Array) -> int:
    # Words are separated by single spaces, and begin and end each sentence.
    text, bounds = ragged.flat_text(sentences)
    return int(np.count_nonzero(np.diff(bounds)) + np.count_nonzero(text == ord(" ")))


def choose_rows(
    documents: pa.Table, left_out: pa.Table, counters: Counters
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a shard in order, by hash, then by id; and those that repeat an id.

    Rows that are `left_out`, or repeat an id, are not among the first, but counted.
    """
    for name in (DUPLICATE, "repeated_ids"):
        counters.count(name, 0)  # reported even if there are none
    rows = pa.array(range(documents.num_rows), pa.int64())
    # Sorted, so that the first examples do not depend on the order in which files were read.
    order = sort_order(documents.append_column("row", rows), "hash", "doc_id", "row")
    # By hash (of the id) and text: another version under the same id may stay.
    row_in_left_out = row_finder(left_out)(documents)[order]
    is_removed = row_in_left_out >= 0
    removed = take(documents["doc_id"], order[is_removed]).to_pylist()
    removals = take(left_out, row_in_left_out[is_removed]).to_pylist()
    for doc_id, removal in zip(removed, removals, strict=True):
        counters.note(removal["reason"], f"{doc_id} repeats {removal['kept']}")
    remaining = order[~is_removed]
    doc_ids = np.array(take(documents["doc_id"], remaining).to_pylist(), object)
    is_first = ragged.begins_run(doc_ids)
    for doc_id in doc_ids[~is_first].tolist():
        counters.note("repeated_ids", doc_id)
    return remaining[is_first], remaining[~is_first]
