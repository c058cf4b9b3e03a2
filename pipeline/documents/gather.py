"""The last phase of ingest: a unit reads the documents of a range of hashes from all scattered
files into shards.

Which range makes which shard is planned from the sizes that the phases before recorded. Because a
shard is a range of hashes, it is a uniform random sample of the corpus. A unit makes the shards
that begin in one partition: a single one in a small corpus, many in a huge one. Then it first deals
the documents into a temporary file with a partition a shard. So whatever the size of the corpus, a
document is read about twice, and memory is bounded by a shard.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UserError
from ..execution.counters import CounterRecord, Counters, count_of
from ..execution.partitions import partitioned_file, read_partitions, read_phase, write_partitions
from ..execution.phases import Record, Unit
from ..manifests import DocumentsGroup, DocumentsShard, Split
from ..schemas import DOCUMENTS
from ..storage.shards import shard_name, write_parquet
from ..storage.stage import StageDirectory
from .duplicates import DUPLICATE, LEFT_OUT, MIN_VALIDATION_DOCUMENTS, Deduplicated, empty_left_out
from .layout import (
    Layout,
    borders,
    cut_shards,
    cut_validation,
    group_by_partition,
    partitions_between,
)
from .other_languages import OTHER_LANGUAGES
from .scatter import SCATTERED, Scattered

ROW_GROUP_DOCUMENTS = 4096
_ORDER = [("hash", "ascending"), ("doc_id", "ascending")]


@dataclass(frozen=True, kw_only=True)
class ShardRun:
    """A unit of this phase: neighbouring shards of a split.

    Shard ``first + i`` of `count` holds hashes from ``edges[i]`` up to ``edges[i + 1]`` (their
    upper 32 bits). Documents whose validation hash is below `validation_below` are the validation
    split, the others are for training.
    """

    split: Split
    first: int
    count: int
    edges: list[int]
    validation_below: int

    def names(self) -> list[str]:
        """Return the names of the shards."""
        return [
            shard_name(self.split, self.first + index, self.count)
            for index in range(len(self.edges) - 1)
        ]

    def partitions(self, layout: Layout) -> list[int]:
        """Return the partitions of the scattered files that contain the documents."""
        held_out, others = layout.num_validation_partitions, layout.num_partitions
        training = [
            held_out + part for part in partitions_between(self.edges[0], self.edges[-1], others)
        ]
        if self.split == "train":
            return training
        validation = [*partitions_between(self.edges[0], self.edges[-1], held_out)]
        # In a small corpus the share asked for may hold too few documents; the next ones are among
        # the others.
        return (
            [*validation, *training]
            if self.validation_below > layout.validation_below
            else validation
        )

    def shard_of(self, rows: pa.RecordBatch | pa.Table) -> np.ndarray:
        """Return for each row the index of its shard, -1 if it belongs to none of these."""
        is_validation = rows["validation_hash"].to_numpy() < np.uint64(self.validation_below)
        upper = rows["hash"].to_numpy() >> np.uint64(32)
        index = np.searchsorted(np.array(self.edges, np.uint64), upper, side="right") - 1
        index[index == len(self.edges) - 1] = -1
        index[is_validation != (self.split == "validation")] = -1
        return index


@dataclass(frozen=True, kw_only=True)
class Gathered(Record):
    """The record of a unit."""

    counters: CounterRecord
    shards: list[DocumentsShard]


def check_shards(scattered: Sequence[Scattered], num_shards: int | None) -> None:
    """Raise `UserError` if a shard would hold too few documents, even if none is a duplicate."""
    if num_shards is not None:  # then a bucket is a shard
        _, *documents = np.sum(
            [np.frombuffer(record.bucket_documents, np.uint32) for record in scattered], axis=0
        )
        _check_documents("train", int(min(documents)), num_shards)


def _check_documents(split: Split, num_documents: int, num_shards: int | None) -> None:
    if num_documents < 2:
        advice = (
            "of documents with the same id only one stays"
            if num_shards is None
            else "lower --shards"
        )
        raise UserError(
            f"A {split} shard would hold {count_of(num_documents, 'document')}: {advice}."
        )


def plan_shards(
    scattered: Sequence[Scattered],
    deduplicated: Sequence[Deduplicated],
    num_shards: int | None,
    layout: Layout,
) -> list[Unit[ShardRun]]:
    """Cut the hashes into `num_shards` shards, or by size; raises `UserError` if there are too few
    documents.
    """
    if sum(record.documents for record in deduplicated) < MIN_VALIDATION_DOCUMENTS + 2:
        raise UserError(_too_few(scattered, deduplicated))
    validation_bytes, *bucket_bytes = _remaining(scattered, deduplicated, "bucket_bytes", np.int64)
    _, *bucket_documents = _remaining(scattered, deduplicated, "bucket_documents", np.uint32)
    if num_shards:
        train = borders(range(num_shards + 1), num_shards)
    else:
        train = cut_shards(bucket_bytes, bucket_documents, layout.num_partitions)
    splits: list[tuple[Split, list[int], int, int]] = [
        ("train", train, sum(bucket_bytes), layout.num_partitions),
        (
            "validation",
            cut_validation(validation_bytes),
            validation_bytes,
            layout.num_validation_partitions,
        ),
    ]
    lowest_hashes = sorted(
        {value for record in deduplicated for value in record.lowest_validation_hashes}
    )
    below = max(layout.validation_below, lowest_hashes[:MIN_VALIDATION_DOCUMENTS][-1] + 1)
    units: list[Unit[ShardRun]] = []
    for split, edges, num_bytes, num_partitions in splits:
        for run in group_by_partition(edges, num_partitions):
            run_edges = edges[run.start : run.stop + 1]
            shards = ShardRun(
                split=split,
                first=run.start,
                count=len(edges) - 1,
                edges=run_edges,
                validation_below=below,
            )
            share_of_hashes = run_edges[-1] - run_edges[0]  # of 2**32
            units.append(Unit(shards.names()[0], num_bytes * share_of_hashes >> 32, shards))
    return units


def _remaining(
    scattered: Sequence[Scattered], deduplicated: Sequence[Deduplicated], field: str, dtype: type
) -> list[int]:
    """Return what is left per bucket of what was scattered."""
    read, left_out = (
        sum(np.frombuffer(getattr(record, field), dtype).astype(np.int64) for record in records)
        for records in (scattered, deduplicated)
    )
    # A document that occurs in two sources under one id can be subtracted twice.
    return np.maximum(read - left_out, 0).tolist()


def _too_few(scattered: Sequence[Scattered], deduplicated: Sequence[Deduplicated]) -> str:
    """Say that there are too few documents, and why the others were left out."""
    num_documents = sum(record.documents for record in deduplicated)
    num_equal = sum(record.left_out for record in deduplicated)
    total = Counters()
    for record in scattered:
        total.add(record.counters)
    num_read = total.counts["documents_read"]
    num_short = total.counts["documents_too_short"]
    num_foreign = total.counts[OTHER_LANGUAGES]

    needed = f"at least {MIN_VALIDATION_DOCUMENTS + 2} different ones are needed"
    left_out = (
        f"{num_short:,} are too short (`min_characters`, `min_sentences`), "
        f"{num_equal:,} repeat others"
    )
    if num_foreign:
        left_out += f", {num_foreign:,} are in other languages (`keep_language`)"
    advice = ""
    if 2 * num_short > num_read:
        advice = " To keep short documents, lower `min_characters`, and give `overwrite`."
    elif num_read < MIN_VALIDATION_DOCUMENTS + 2:
        advice = (
            " If each line or paragraph is a document, "
            "give `documents` line or blank-line, and `overwrite`."
        )
    held = f"The sources hold {count_of(num_documents, 'document')}"
    return f"{held}; {needed}. Of {num_read:,} read, {left_out}.{advice}"


def gather_shards(
    directory: StageDirectory, run: ShardRun, num_shards: int | None, layout: Layout
) -> Gathered:
    """Write the shards of a unit from the scattered files."""
    counters = Counters()
    partitions, num_partitions = run.partitions(layout), layout.num_document_partitions
    found = read_phase(directory, "deduplicate", "left-out", partitions, num_partitions)
    left_out = pa.Table.from_batches(_own(found, run), LEFT_OUT)
    left_out_of = run.shard_of(left_out)
    documents = read_phase(directory, "scatter", "documents", partitions, num_partitions)
    batches = chain.from_iterable(empty_left_out(_own(documents, run), left_out))
    shards = [
        _write_shard(
            directory,
            run,
            name,
            documents,
            left_out.filter(pa.array(left_out_of == index)),
            num_shards,
            counters,
        )
        for index, (name, documents) in enumerate(
            zip(run.names(), _deal(directory, run, batches), strict=True)
        )
    ]
    return Gathered(files=tuple(run.names()), counters=counters.to_record(), shards=shards)


def _deal(
    directory: StageDirectory, run: ShardRun, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.Table]:
    """Yield the documents of each shard."""
    num_shards = len(run.names())
    if num_shards == 1:
        yield pa.Table.from_batches(batches, SCATTERED)
        return
    dealt = partitioned_file("dealt", run.names()[0])
    with write_partitions(directory, dealt, SCATTERED, num_shards) as writer:
        for batch in batches:
            writer.write(pa.Table.from_batches([batch]), run.shard_of(batch))
    for index in range(num_shards):
        yield pa.Table.from_batches(
            read_partitions(directory.file(dealt), [index], num_shards), SCATTERED
        )
    directory.remove(dealt)


def _own(batches: Iterable[pa.RecordBatch], run: ShardRun) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the unit's shards."""
    for batch in batches:
        own = batch.filter(pa.array(run.shard_of(batch) >= 0))
        if own.num_rows:
            yield own


def _write_shard(
    directory: StageDirectory,
    run: ShardRun,
    name: str,
    documents: pa.Table,
    left_out: pa.Table,
    num_shards: int | None,
    counters: Counters,
) -> DocumentsShard:
    documents = documents.combine_chunks()
    order = choose_rows(documents.select(["hash", "text_hash", "doc_id"]), left_out, counters)
    _check_documents(run.split, len(order), num_shards)
    documents = documents.select(DOCUMENTS.names)
    num_sentences = 0
    sizes: list[pa.Table] = []
    with write_parquet(directory, name, DOCUMENTS) as (writer, written):
        for start in range(0, len(order), ROW_GROUP_DOCUMENTS):
            # The shard is in memory once, and a row group of it twice.
            rows = documents.take(pa.array(order[start : start + ROW_GROUP_DOCUMENTS])).cast(
                DOCUMENTS
            )
            writer.write_table(rows, row_group_size=ROW_GROUP_DOCUMENTS)
            num_sentences += len(rows["sentences"].combine_chunks().flatten())
            sizes.append(_sizes(rows))
    return DocumentsShard(
        name=name,
        split=run.split,
        rows=len(order),
        bytes=written.num_bytes,
        sha256=written.sha256,
        counts={"documents": len(order), "sentences": num_sentences},
        groups=_groups(pa.concat_tables(sizes)),
    )


def _sizes(documents: pa.Table) -> pa.Table:
    """Return source, language and length in characters of each document."""
    sentences = documents["sentences"].combine_chunks()
    characters = np.append(
        0, np.cumsum(pc.call_function("utf8_length", [sentences.flatten()]).to_numpy())
    )
    lengths = np.diff(characters[sentences.offsets.to_numpy() - sentences.offsets[0].as_py()])
    return documents.select(["source", "language"]).append_column("characters", pa.array(lengths))


def _groups(sizes: pa.Table) -> list[DocumentsGroup]:
    keys = ["source", "language"]
    summed = sizes.group_by(keys).aggregate([("characters", "count"), ("characters", "sum")])
    return [
        DocumentsGroup(
            source=group["source"],
            language=group["language"],
            documents=group["characters_count"],
            characters=group["characters_sum"],
        )
        for group in summed.sort_by([(key, "ascending") for key in keys]).to_pylist()
    ]


def choose_rows(documents: pa.Table, left_out: pa.Table, counters: Counters) -> np.ndarray:
    """Return the rows of a shard in order: by hash, then by id; count those that are `left_out` or
    repeat an id.
    """
    stays = np.flatnonzero(~_is_left_out(documents, left_out, counters))
    rows = (
        documents.take(pa.array(stays)).append_column("row", pa.array(stays)).sort_by(_ORDER)
    )  # stable
    ids = rows["doc_id"].to_pylist()
    is_first = [doc_id != before for doc_id, before in zip(ids, [None, *ids], strict=False)]
    counters.count("repeated_ids", 0)  # reported even if there are none
    for doc_id in (doc_id for doc_id, first in zip(ids, is_first, strict=True) if not first):
        counters.note("repeated_ids", doc_id)
    return rows["row"].to_numpy()[np.array(is_first, bool)]


def _is_left_out(documents: pa.Table, left_out: pa.Table, counters: Counters) -> np.ndarray:
    """Return which documents are `left_out`, and count each under its reason."""
    counters.count(DUPLICATE, 0)  # reported even if there are none
    why = {(row["hash"], row["text_hash"]): row for row in left_out.to_pylist()}
    may_go = np.flatnonzero(np.isin(documents["hash"].to_numpy(), left_out["hash"].to_numpy()))
    rows = documents.take(pa.array(may_go)).append_column("row", pa.array(may_go))
    is_left_out = np.zeros(documents.num_rows, bool)
    for row in rows.sort_by(_ORDER).to_pylist():
        if found := why.get((row["hash"], row["text_hash"])):
            is_left_out[row["row"]] = True
            counters.note(found["reason"], f"{row['doc_id']} repeats {found['kept']}")
    return is_left_out
