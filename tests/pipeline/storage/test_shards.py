"""Parquet files carry the schema version, and a later one is refused in one line."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.manifests import SCHEMA_VERSION, VERSION_KEY
from clozeworks.pipeline.schemas import DOCUMENTS
from clozeworks.pipeline.storage.shards import read_columns, write_parquet
from clozeworks.pipeline.storage.stage import StageDirectory

NAME = "train-00000-of-00001.parquet"
TABLE = pa.table(
    {
        "doc_id": ["a:1"],
        "source": ["a"],
        "language": ["en"],
        "title": [""],
        "sentences": [["One."]],
    },
    schema=DOCUMENTS,
)


def test_files_carry_the_version_beside_other_metadata(tmp_path: Path):
    schema = DOCUMENTS.with_metadata({"clozeworks.seed": "0"})
    with write_parquet(StageDirectory(str(tmp_path), "f"), NAME, schema) as (writer, _):
        writer.write_table(TABLE)
    metadata = pq.read_schema(tmp_path / NAME).metadata
    assert metadata == {b"clozeworks.seed": b"0", VERSION_KEY: str(SCHEMA_VERSION).encode()}


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, None),
        ("1", None),
        (
            "2",
            "{path} has schema version 2, but this clozeworks reads versions up to 1: upgrade clozeworks.",
        ),
        (
            "x",
            "{path} cannot be read as documents (invalid literal for int() with base 10: b'x'): recreate it with "
            "`clozeworks ingest … --overwrite`.",
        ),
    ],
)
def test_a_later_version_is_refused(version: str | None, message: str | None, tmp_path: Path):
    path = str(tmp_path / NAME)
    pq.write_table(TABLE.replace_schema_metadata({VERSION_KEY: version} if version else None), path)
    if message is None:
        assert [batch.num_rows for batch in read_columns(path, "title")] == [1]
        return
    with pytest.raises(UserError) as raised:
        list(read_columns(path, "title"))
    assert str(raised.value) == message.format(path=path)
