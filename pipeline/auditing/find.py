"""Find rows of shards: documents by id or text, instances by their documents, both by conditions in
SQL, which alone need DuckDB.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import PurePath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .. import storage
from ..errors import UserError
from ..storage.shards import open_shard
from .decode import Shards


def find_ids(paths: Iterable[str], ids: Collection[str]) -> Shards:
    """Return the documents with these ids."""
    asked = pc.SetLookupOptions(pa.array(ids, pa.string()))

    def find(path: str, batch: pa.RecordBatch) -> np.ndarray:
        has_id = pc.call_function("is_in", [batch["doc_id"]], asked)
        return np.flatnonzero(has_id)

    return _find(paths, "ingest", ["doc_id"], find, len(ids))


def find_text(paths: Iterable[str], text: str, num_rows: int) -> Shards:
    """Return the first documents with the text in one of their sentences, in any case."""
    wanted = pc.MatchSubstringOptions(text, ignore_case=True)

    def find(path: str, batch: pa.RecordBatch) -> np.ndarray:
        sentences = batch["sentences"]
        found = pc.call_function("match_substring", [sentences.flatten()], wanted)
        has_text = found.to_numpy(zero_copy_only=False)
        return _lists_with(sentences, has_text)

    return _find(paths, "ingest", ["sentences"], find, num_rows)


def find_instances(
    paths: Iterable[str], documents: Mapping[str, Collection[int]], num_rows: int
) -> Shards:
    """Return the first instances made of `documents`, which are numbers by shard name."""

    def find(path: str, batch: pa.RecordBatch) -> np.ndarray:
        numbers = np.array(sorted(documents.get(PurePath(path).name, ())), np.int64)
        if "documents" in batch.schema.names:
            packed = batch["documents"]
            is_asked = np.isin(packed.flatten(), numbers)
            return _lists_with(packed, is_asked)
        is_a = np.isin(batch["document_a"], numbers)
        is_b = np.isin(batch["document_b"], numbers)
        return np.flatnonzero(is_a | is_b)

    return _find(paths, "build", ["documents", "document_a", "document_b"], find, num_rows)


def _lists_with(column: pa.ListArray, is_asked: np.ndarray) -> np.ndarray:
    """Return the indices of the lists that hold an item that is asked for."""
    list_of_item = pc.call_function("list_parent_indices", [column]).to_numpy()
    return np.unique(list_of_item[is_asked])


def _find(
    paths: Iterable[str],
    stage: str,
    columns: list[str],
    find: Callable[[str, pa.RecordBatch], np.ndarray],
    num_rows: int,
) -> Shards:
    """Return the first rows whose indices a function returns, of a shard's path and a batch."""
    found = {}
    for path in paths:
        rows = []
        first = 0
        with open_shard(path, stage) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(1000, columns=there, use_threads=False):
                rows += (first + find(path, batch)).tolist()
                first += batch.num_rows
                if len(rows) >= num_rows:
                    break
        if rows:
            found[path] = rows[:num_rows]
            num_rows -= len(found[path])
        if not num_rows:
            break
    return found


def find_rows(paths: list[str], condition: str, num_rows: int) -> Shards:
    """Return the first rows for which an SQL condition holds; `UserError` for a faulty one."""
    import duckdb

    if any(map(storage.is_remote, paths)):
        raise UserError("Rows are found on local disks only: copy the directory here first.")
    query = (
        "SELECT filename, file_row_number"
        " FROM read_parquet($paths, filename = true, file_row_number = true)"
        f" WHERE ({condition}) ORDER BY ALL LIMIT $num_rows"
    )
    try:
        found = duckdb.execute(query, {"paths": paths, "num_rows": num_rows}).fetchall()
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        if isinstance(error, duckdb.BinderException):
            with storage.open_input(paths[0]) as file:
                reason += f" The columns are {', '.join(pq.read_schema(file).names)}."
        raise UserError(f"`where`: {reason}") from None
    shards = {}
    for path, row in found:
        shards.setdefault(path, []).append(row)
    return shards
