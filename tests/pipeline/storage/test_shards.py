"""Shards are complete or absent, carry the schema version, and their damage is one line."""

import hashlib
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.manifests import SCHEMA_VERSION, VERSION_KEY, DocumentsManifest
from clozeworks.pipeline.schemas import DOCUMENTS
from clozeworks.pipeline.storage import shards
from clozeworks.pipeline.storage.directory import OutputDirectory
from clozeworks.pipeline.storage.shards import (
    checked,
    open_shard,
    read_columns,
    shard_name,
    shard_paths,
    write_parquet,
)
from clozeworks.pipeline.storage.state import read_manifest

from tests.fixtures.manifest_fixture import write_manifest

NAME = "train-00000-of-00001.parquet"
TABLE = pa.table(
    {
        "doc_id": ["a:1"], "source": ["a"], "language": ["en"], "title": [""],
        "sentences": [["One."]],
    },
    schema=DOCUMENTS,
)  # fmt: skip


def test_files_carry_the_version_beside_other_metadata(tmp_path: Path):
    schema = DOCUMENTS.with_metadata({"clozeworks.seed": "0"})
    with write_parquet(OutputDirectory(str(tmp_path)), NAME, schema) as (writer, _):
        writer.write_table(TABLE)
    metadata = pq.read_schema(tmp_path / NAME).metadata
    assert metadata == {b"clozeworks.seed": b"0", VERSION_KEY: str(SCHEMA_VERSION).encode()}


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, None),
        ("1", None),
        ("2", "{path} has schema version 2, but this clozeworks reads versions up to 1: upgrade"),
        ("x", "{path} cannot be read as documents (invalid literal for int() with base 10: b'x')"),
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
    assert str(raised.value).startswith(message.format(path=path))


def write_shard(directory: Path) -> None:
    with write_parquet(OutputDirectory(str(directory)), NAME, DOCUMENTS) as (writer, _):
        writer.write_table(TABLE)


def test_a_written_shard_knows_its_size_and_digest(tmp_path: Path):
    directory = OutputDirectory(str(tmp_path))
    with write_parquet(directory, NAME, DOCUMENTS, compression="none") as (writer, written):
        writer.write_table(TABLE)
    content = (tmp_path / NAME).read_bytes()
    assert written.num_bytes == len(content)
    assert written.sha256 == hashlib.sha256(content).hexdigest()
    row_group = pq.ParquetFile(tmp_path / NAME).metadata.row_group(0)
    assert row_group.column(0).compression == "UNCOMPRESSED"
    assert [batch.to_pylist() for batch in read_columns(str(tmp_path / NAME), "doc_id")] == [
        [{"doc_id": "a:1"}]
    ]


def test_a_shard_that_fails_half_way_is_absent(tmp_path: Path):
    directory = OutputDirectory(str(tmp_path))
    with (
        pytest.raises(ZeroDivisionError),
        write_parquet(directory, NAME, DOCUMENTS) as (writer, written),
    ):
        writer.write_table(TABLE)
        raise ZeroDivisionError
    assert written.num_bytes == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "damage", [cut_off, flip_pages, Path.unlink, lambda path: path.write_bytes(b"")]
)
@pytest.mark.parametrize(("stage", "contents"), [("ingest", "documents"), ("build", "instances")])
def test_damage_is_one_line_that_names_the_shard(
    damage: Callable[[Path], object], stage: str, contents: str, tmp_path: Path
):
    write_shard(tmp_path)
    path = tmp_path / NAME
    damage(path)
    with pytest.raises(UserError) as raised, open_shard(str(path), stage) as file:
        list(file.iter_batches(use_threads=False))
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(f"{path} cannot be read as {contents} (")
    assert message.endswith(f"): recreate it with `clozeworks {stage} … --overwrite`.")


def test_an_error_of_the_reader_of_a_shard_stays_as_it_is(tmp_path: Path):
    write_shard(tmp_path)
    with pytest.raises(ZeroDivisionError), open_shard(str(tmp_path / NAME), "ingest"):
        raise ZeroDivisionError


TWO_COLUMNS = pa.schema([DOCUMENTS.field("title"), DOCUMENTS.field("sentences")])


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ([("title", ["a"])], "it has no column 'sentences'"),
        ([("title", ["a"]), ("title", ["b"]), ("sentences", [["c"]])], "it has 2 columns 'title'"),
        ([("title", [None]), ("sentences", [["c"]])], "column title: a value is missing"),
        ([("title", ["a"]), ("sentences", [None])], "column sentences: a value is missing"),
        ([("title", ["a"]), ("sentences", [["c", None]])], "column sentences: a value is missing"),
        ([("title", [b"\xff"]), ("sentences", [["c"]])], "column title: .*UTF"),
        ([("title", ["a"]), ("sentences", [3])], "column sentences: "),
    ],
)
def test_a_column_that_does_not_fit_is_named(columns: list[tuple[str, list]], fault: str):
    arrays = [pa.array(values) for _, values in columns]
    batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])
    with pytest.raises(ValueError, match=fault):
        checked([batch], TWO_COLUMNS)


def test_columns_come_in_the_order_and_types_of_the_schema():
    columns = {"sentences": [["c"]], "more": [1], "title": pa.array(["a"]).dictionary_encode()}
    rows = checked([pa.RecordBatch.from_pydict(columns)] * 2, TWO_COLUMNS)
    assert rows.schema.equals(TWO_COLUMNS)
    assert rows.to_pylist() == [{"title": "a", "sentences": ["c"]}] * 2


def test_a_long_shard_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shards, "TABLE_BYTES", 300)
    monkeypatch.setattr(shards, "BATCH_ROWS", 4)
    titles = [f"{'long' * 10} {i}" for i in range(50)]
    path = str(tmp_path / NAME)
    table = pa.table({"title": titles, "sentences": [[]] * 50}, schema=TWO_COLUMNS)
    pq.write_table(table, path)
    batches = list(read_columns(path, "title"))
    assert len(batches) > 3
    assert [title for batch in batches for title in batch["title"].to_pylist()] == titles
    pq.write_table(table.slice(0, 0), path)
    assert list(read_columns(path, "title")) == []


def test_shards_are_found_by_their_split(tmp_path: Path):
    names = [shard_name("train", index, 2) for index in range(2)]
    names.append(shard_name("validation", 0, 1))
    assert names[1:] == ["train-00001-of-00002.parquet", "validation-00000-of-00001.parquet"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    write_manifest(tmp_path, "ingest", dict.fromkeys(names, 1))
    manifest = read_manifest(str(tmp_path), DocumentsManifest)
    training = shard_paths(str(tmp_path), manifest, "train")
    assert training == [f"{tmp_path}/{name}" for name in names[:2]]
    assert shard_paths(str(tmp_path), manifest, "validation") == [f"{tmp_path}/{names[2]}"]
    assert shard_paths(str(tmp_path), manifest, "test") == []


class Recorded(io.FileIO):
    """A file that remembers which threads have read it."""

    threads: ClassVar[set[int]] = set()

    def readinto(self, buffer: Any) -> int | None:
        self.threads.add(threading.get_ident())
        return super().readinto(buffer)

    def read(self, size: int | None = -1, /) -> bytes:
        self.threads.add(threading.get_ident())
        return super().read(size)


def test_a_shard_is_read_by_no_thread_of_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that gives a buffer back while the interpreter ends aborts the process."""
    schema = TABLE.schema
    with write_parquet(OutputDirectory(str(tmp_path)), NAME, schema) as (writer, _):
        for _ in range(20):
            writer.write_table(TABLE)
    monkeypatch.setattr(shards.storage, "open_input", Recorded)
    with open_shard(str(tmp_path / NAME), "ingest") as file:
        next(file.iter_batches(2, use_threads=False))
    assert Recorded.threads == {threading.get_ident()}
