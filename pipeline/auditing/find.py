"""Find rows of shards: documents by id or text, instances by their documents, both by conditions in
SQL, which alone need DuckDB.
"""

import sys
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

MANY = sys.maxsize


def find_documents(
    paths: Iterable[str], ids: Collection[str], text: str | None, num_rows: int = MANY
) -> Shards:
    """Return the first documents that have one of the `ids`, if there are any, and the `text` in
    one of their sentences, in any case.
    """

    def holds(path: str, batch: pa.RecordBatch) -> np.ndarray:
        is_found = np.ones(batch.num_rows, bool)
        if ids:
            asked = pc.SetLookupOptions(pa.array(ids, pa.string()))
            has_id = pc.call_function("is_in", [batch["doc_id"]], asked)
            is_found &= has_id.to_numpy(zero_copy_only=False)
        if text:
            sentences = batch["sentences"]
            has_text = _contain(sentences.flatten(), text)
            # A sentence's number of its document.
            numbers = pc.call_function("list_parent_indices", [sentences]).to_numpy()
            is_found &= np.isin(np.arange(batch.num_rows), numbers[has_text])
        return is_found

    return _find(paths, "ingest", ["doc_id", "sentences"], holds, num_rows)


def _contain(sentences: pa.Array, text: str) -> np.ndarray:
    lowered = pc.call_function("utf8_lower", [sentences])
    wanted = pc.call_function("utf8_lower", [pa.scalar(text)]).as_py()
    found = pc.call_function("match_substring", [lowered], pc.MatchSubstringOptions(wanted))
    return found.to_numpy(zero_copy_only=False)


def find_instances(
    paths: Iterable[str], documents: Mapping[str, Collection[int]], num_rows: int = MANY
) -> Shards:
    """Return the first instances that are made of `documents`: their numbers, by the name of the
    shard.
    """

    def holds(path: str, batch: pa.RecordBatch) -> np.ndarray:
        numbers = np.array(sorted(documents.get(PurePath(path).name, ())), np.int64)
        if "documents" not in batch.schema.names:
            is_a, is_b = (
                np.isin(batch[name].to_numpy(), numbers) for name in ("document_a", "document_b")
            )
            return is_a | is_b
        packed = batch["documents"]
        is_asked = np.isin(packed.flatten().to_numpy(), numbers)
        rows = pc.call_function("list_parent_indices", [packed]).to_numpy()
        return np.isin(np.arange(batch.num_rows), rows[is_asked])

    return _find(paths, "build", ["documents", "document_a", "document_b"], holds, num_rows)


def _find(
    paths: Iterable[str],
    stage: str,
    columns: list[str],
    holds: Callable[[str, pa.RecordBatch], np.ndarray],
    num_rows: int,
) -> Shards:
    """Return the first rows for which a function of the shard's path and a batch holds."""
    found = {}
    for path in paths:
        rows: list[int] = []
        first = 0
        with open_shard(path, stage) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(1000, columns=there, use_threads=False):
                rows += (first + np.flatnonzero(holds(path, batch))).tolist()
                first += batch.num_rows
                if len(rows) >= num_rows:
                    break
        if rows:
            found[path] = rows[:num_rows]
            num_rows -= len(found[path])
        if not num_rows:
            break
    return found


def find_rows(
    paths: Iterable[str], condition: str, num_rows: int, among: Shards | None = None
) -> Shards:
    """Return the first rows of the shards, or of those `among` them, for which a condition in
    DuckDB's SQL holds. Raises `UserError` for a faulty condition.
    """
    import duckdb

    local = list(paths)
    if any(storage.is_remote(path) for path in local):
        raise UserError("Rows are found on local disks only: copy the directory here first.")
    query = (
        "SELECT filename, file_row_number"
        " FROM read_parquet($paths, filename = true, file_row_number = true)"
        f" WHERE ({condition})"
    )
    values: dict[str, object] = {"paths": local, "num_rows": num_rows}
    if among is not None:
        query += " AND list_contains($places, filename || ':' || file_row_number)"
        values["places"] = [f"{path}:{row}" for path, rows in among.items() for row in rows or ()]
    try:
        found = duckdb.execute(f"{query} ORDER BY ALL LIMIT $num_rows", values).fetchall()
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        if isinstance(error, duckdb.BinderException):
            with storage.open_input(local[0]) as file:
                reason += f" The columns are {', '.join(pq.read_schema(file).names)}."
        raise UserError(f"`where`: {reason}") from None
    shards: dict[str, list[int]] = {}
    for path, row in found:
        shards.setdefault(path, []).append(row)
    return shards
