"""Read documents that `ingest` wrote, in their sentences, as a source of another `ingest`.

So a corpus grows: yesterday's documents and today's files give the documents that all the files
would give, for a document's place, its split and which of two equal texts stays depend on its id.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from ..execution.counters import Counters
from ..schemas import DOCUMENTS
from .compression import counted_damage
from .records import RawDocument

BATCH_ROWS = 128


def is_ingested(schema: pa.Schema) -> bool:
    """Return whether a Parquet file has the columns of documents."""
    return all(
        name in schema.names and schema.field(name).type.equals(DOCUMENTS.field(name).type)
        for name in DOCUMENTS.names
    )


def read_ingested(
    parquet: pq.ParquetFile, group: int, location: str, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a row group; a damaged one is counted (``unreadable_row_group``)."""
    with counted_damage("unreadable_row_group", location, counters):
        batches = parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=DOCUMENTS.names)
        for batch in batches:
            for row in batch.to_pylist():
                yield RawDocument(
                    id=row["doc_id"].removeprefix(f"{row['source']}:"),
                    source=row["source"],
                    title=row["title"],
                    language=row["language"],
                    paragraphs=row["sentences"],
                    is_cut=True,
                )
