"""Data sets of the hub (a stand-in for it, on this machine) and from disk."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources import hub, parquet
from clozeworks.pipeline.sources.formats import plan_reading, read_documents
from clozeworks.pipeline.sources.streams import RawDocument

from tests.fixtures.hub_server import served

PROSE = "Almonds are a rich source of oil, as several studies have shown."
WIKI = "https://simple.wikipedia.org/wiki/Almond"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets.disable_progress_bars()
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def documents(
    name: str, counters: Counters | None = None, text_column: str = "text"
) -> list[RawDocument]:
    return list(read_documents(name, IngestConfig(text_column=text_column), counters))


def rows(number: int) -> list[dict[str, Any]]:
    return [{"text": f"{PROSE} {i}", "id": i} for i in range(number)]


def write_lines(path: Path, lines: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    )


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """Two splits that `save_to_disk` wrote."""
    splits = datasets.DatasetDict()
    splits["train"], splits["test"] = (
        datasets.Dataset.from_list(rows(10)),
        datasets.Dataset.from_list(rows(3)),
    )
    splits.save_to_disk(tmp_path / "books")
    return str(tmp_path / "books")


def test_what_save_to_disk_wrote(saved: str):
    found = documents(f"hf:{saved}")
    assert [document.id for document in found] == [f"train/{i}" for i in range(10)]
    assert found[3] == RawDocument(
        id="train/3", source="books", title="", language="", paragraphs=[f"{PROSE} 3"]
    )
    assert [document.id for document in documents(f"hf:{saved}:test")] == [
        f"test/{i}" for i in range(3)
    ]
    assert hub.splits(saved) == ["train", "test"]
    assert list(hub.open_set(saved, "test").rows) == rows(3)
    only = datasets.DatasetDict({"test": datasets.Dataset.from_list(rows(1))})
    only.save_to_disk(f"{saved}-of-tests")
    assert hub.open_set(f"{saved}-of-tests").part == "test"
    assert (
        hub.is_saved(saved)
        and hub.is_saved(f"{saved}/test")
        and not hub.is_saved(str(Path(saved).parent))
    )


@pytest.mark.slow
def test_a_data_set_that_was_replaced_is_read_anew(saved: str, tmp_path: Path):
    assert len(list(read_documents(saved))) == 10
    digest = hub.open_set(saved).digest
    shutil.rmtree(saved)
    datasets.Dataset.from_list(rows(4)).save_to_disk(saved)
    assert len(list(read_documents(saved))) == 4
    assert hub.open_set(saved).digest != digest
    lines = tmp_path / "set" / "part.jsonl"
    for number in (4, 6):
        write_lines(lines, rows(number))
        assert len(list(read_documents(f"hf:{lines.parent}"))) == number


def test_rows_on_disk_are_cut_into_ranges(saved: str, monkeypatch: pytest.MonkeyPatch):
    whole = documents(saved)
    monkeypatch.setattr(parquet, "RANGE_BYTES", 100)
    assert len(plan_reading(saved, IngestConfig(), Counters())) > 3
    assert documents(saved) == whole


def test_a_data_set_without_rows(tmp_path: Path):
    saved = datasets.Dataset.from_list(rows(3))
    saved.filter(lambda row: False).save_to_disk(tmp_path / "filtered")
    assert not documents(f"hf:{tmp_path}/filtered")
    saved.select([]).save_to_disk(tmp_path / "selected")
    with pytest.raises(UserError, match="selected is damaged or has no rows"):
        documents(f"hf:{tmp_path}/selected")


def test_a_folder_of_parquet_files(tmp_path: Path):
    (tmp_path / "wiki").mkdir()
    for number in range(3):
        table = {
            "body": [PROSE, PROSE],
            "id": [number, number + 9],
            "url": [WIKI, None],
            "title": ["Almond", None],
        }
        pq.write_table(pa.table(table), tmp_path / "wiki" / f"train-{number:05d}-of-00003.parquet")
    name = f"hf:{tmp_path}/wiki"
    found = documents(name, text_column="body")
    assert [(document.source, document.id) for document in found] == [
        pair for i in range(3) for pair in [("simplewiki", str(i)), ("wiki", f"train/{i}/{i + 9}")]
    ]
    assert len(list(hub.open_set(name).rows)) == 6
    with pytest.raises(UserError, match=r"wiki:train has no column 'text', only body, id, url"):
        documents(name)


def test_columns_are_checked(tmp_path: Path, saved: str):
    write_lines(tmp_path / "set" / "part.jsonl", rows(4))  # whose columns only rows show
    for name, source in ((f"hf:{tmp_path}/set", "set:train"), (f"hf:{saved}", "books:train")):
        with pytest.raises(UserError, match=f"{source} has no column 'body', only text, id: give"):
            documents(name, text_column="body")
        with pytest.raises(UserError, match=f"{source}: column 'id' holds int64, not text"):
            documents(name, text_column="id")


def test_a_damaged_file_costs_only_its_rest(tmp_path: Path):
    for number, lines in enumerate([["{broken"], rows(4), rows(2)]):
        write_lines(tmp_path / "set" / f"part-{number}.jsonl", [*lines])
    counters = Counters()
    assert len(documents(f"hf:{tmp_path}/set", counters)) == 6
    assert counters.bad == {"unreadable_shard": 1}
    assert counters.examples["unreadable_shard"][0].startswith("set:train, shard 0: ")


def test_the_digest_is_of_the_content_not_of_the_folder(tmp_path: Path):
    for folder, end in (("a/set", "."), ("b/set", "."), ("c/set", "!")):
        write_lines(tmp_path / folder / "part.jsonl", [*rows(999), {"text": f"{PROSE}{end}"}])
    one, same, other = (hub.open_set(f"hf:{tmp_path}/{folder}/set").digest for folder in "abc")
    assert one == same != other


def test_files_outside_a_folder_are_not_read_but_for_the_hubs_cache(tmp_path: Path):
    write_lines(tmp_path / "blobs" / "91c2.jsonl", rows(3))
    for folder in (tmp_path / "snapshots" / "6f3a", tmp_path / "set"):
        folder.mkdir(parents=True)
        (folder / "part.jsonl").symlink_to(tmp_path / "blobs" / "91c2.jsonl")
    assert len(documents(f"hf:{tmp_path}/snapshots/6f3a")) == 3
    for listed in ("*.jsonl", "../blobs/91c2.jsonl", tmp_path / "blobs" / "91c2.jsonl"):
        split = f"- config_name: default\n  data_files:\n  - split: train\n    path: '{listed}'\n"
        (tmp_path / "set" / "README.md").write_text(f"---\nconfigs:\n{split}---\n")
        with pytest.raises(UserError, match=r"set lists \S*jsonl, which is outside of it"):
            documents(f"hf:{tmp_path}/set")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:{saved}:nope", "has no split 'nope'; it has train, test"),
        ("hf:{saved}/nothing", "is neither a folder nor the name of a data set"),
        ("hf:a:b:c:d", "give hf:owner/name"),
        ("hf:{saved}/train:test:x", "has no split"),
    ],
)
def test_mistakes_of_the_user(saved: str, name: str, message: str):
    with pytest.raises(UserError, match=message):
        hub.open_set(name.replace("{saved}", saved))


def test_a_saved_set_that_is_damaged_is_refused(saved: str):
    (Path(saved) / "train" / "data-00000-of-00001.arrow").write_bytes(b"damage")
    with pytest.raises(UserError, match="cannot be read as a saved data set"):
        hub.open_set(saved)


ASK = """
import json, sys
from clozeworks.pipeline.sources import hub
from clozeworks.pipeline.sources.formats import read_documents

def answer(name):
    try:
        found = hub.open_set(name)
        read = [f"{row.source}:{row.id}" for row in read_documents(name)]
        return [found.address, found.num_bytes, hub.splits(name), read]
    except hub.UserError as error:
        return str(error)

print(json.dumps([answer(name) for name in sys.argv[1:]]))
"""


def ask(tmp_path: Path, endpoint: str, *names: str) -> list[Any]:
    """Open data sets in a process of its own, which reads the address of the hub when it starts."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-c", ASK, *names]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.slow
def test_data_sets_of_the_hub(tmp_path: Path):
    configs = "".join(
        f"- config_name: '{name}'\n  data_files:\n  - split: train\n    path: {name}/train-*\n"
        for name in ("en", "de")
    )
    for number in range(2):
        write_lines(tmp_path / "hub" / "owner" / "two" / "de" / f"train-{number}.jsonl", rows(2))
        write_lines(tmp_path / "hub" / "owner" / "two" / "en" / f"train-{number}.jsonl", rows(1))
    (tmp_path / "hub" / "owner" / "two" / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    write_lines(tmp_path / "hub" / "owner" / "script" / "script.py", ["import datasets"])
    names = [f"hf:owner/{name}" for name in ("two:de", "two", "two:fr", "two:de:dev", "none")]
    with served(tmp_path / "hub") as endpoint:
        found, *errors = ask(tmp_path, endpoint, *names, "hf:owner/two@v9", "hf:owner/script")
    size = sum(
        path.stat().st_size for path in (tmp_path / "hub" / "owner" / "two" / "de").iterdir()
    )
    ids = [f"owner/two:de/train/{shard}/{row}" for shard in (0, 1) for row in (0, 1)]
    assert found == [f"hf:owner/two@{'a' * 40}:de:train", size, ["train"], ids]
    for error, message in zip(
        errors,
        [
            "Please pick one among the available configs: ['en', 'de']",
            "BuilderConfig 'fr' not found. Available: ['en', 'de']",
            "has no split 'dev'; it has train.",
            "hf:owner/none cannot be opened (404 Client Error. Repository Not Found",
            "hf:owner/two cannot be opened (404 Client Error",
            "append @refs/convert/parquet to its name",
        ],
        strict=True,
    ):
        assert message in error


@pytest.mark.slow
def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path: Path):
    (error,) = ask(tmp_path, "http://127.0.0.1:9", "hf:wikimedia/wikipedia:20231101.en")
    assert "cannot be opened ([Errno 111] Connection refused): check the name and" in error
