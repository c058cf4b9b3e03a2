"""Storage on this machine and on a filesystem of Beam's, here one that is held in memory."""

import io
from pathlib import Path

import pytest
from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem
from clozeworks.pipeline.build.pipeline import build
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution import storage
from clozeworks.pipeline.ingest.pipeline import ingest
from clozeworks.pipeline.vocab.pipeline import learn_vocabulary


class _Upload(io.BytesIO):
    """Like an object store's: the object appears when the file is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        MemoryFileSystem.files.setdefault(self._path, self.getvalue())
        super().close()


class MemoryFileSystem(FileSystem):
    """An object store with no folders, where nothing may be renamed onto what is there."""

    files: dict[str, bytes] = {}  # noqa: RUF012 (shared by all instances, as a store is)

    @classmethod
    def scheme(cls):
        return "memory"

    def join(self, basepath, *paths):
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path):
        head, tail = path.rsplit("/", 1)
        return head, tail

    def has_dirs(self):
        return False

    def mkdirs(self, path):
        raise NotImplementedError

    def _list(self, dir_or_prefix):
        found = [path for path in self.files if path.startswith(dir_or_prefix)]
        return [FileMetadata(path, len(self.files[path])) for path in found]

    def create(self, path, mime_type="application/octet-stream", compression_type="auto"):
        return _Upload(path)

    def open(self, path, mime_type="application/octet-stream", compression_type="auto"):
        return io.BytesIO(self.files[path])

    def copy(self, source_file_names, destination_file_names):
        raise NotImplementedError

    def rename(self, source_file_names, destination_file_names):
        for source, destination in zip(source_file_names, destination_file_names, strict=True):
            assert destination not in self.files
            self.files[destination] = self.files.pop(source)

    def exists(self, path):
        return path in self.files

    def size(self, path):
        return len(self.files[path])

    def last_updated(self, path):
        return 0.0

    def checksum(self, path):
        return ""

    def metadata(self, path):
        return FileMetadata(path, len(self.files[path]))

    def delete(self, paths):
        for path in paths:
            if path not in self.files:
                raise BeamIOError("no such object", {path: KeyError(path)})
            del self.files[path]


@pytest.fixture(autouse=True)
def empty_store():
    MemoryFileSystem.files.clear()


def write(path: str, content: bytes) -> None:
    with storage.write_atomically(path, f"{path.rsplit('/', 1)[0]}/.work/tmp") as file:
        file.write(content)


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else "memory://bucket/folder"


def test_files_are_written_listed_and_removed_alike(folder: str):
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden/d.txt"):
        write(f"{folder}/{name}", b"first")
    write(f"{folder}/a.txt", b"second time")
    assert storage.read_bytes(f"{folder}/a.txt") == b"second time"
    assert storage.file_sizes(folder) == {"a.txt": 11, "b.txt": 5}
    assert storage.find_files(folder) == {
        f"{folder}/{name}": n for name, n in [("a.txt", 11), ("b.txt", 5), ("sub/c.txt", 5)]
    }
    assert list(storage.find_files(f"{folder}/*.txt")) == [f"{folder}/a.txt", f"{folder}/b.txt"]
    assert list(storage.find_files(f"{folder}/a.txt")) == [f"{folder}/a.txt"]
    storage.remove(f"{folder}/sub")
    storage.remove(f"{folder}/b.txt")
    storage.remove(f"{folder}/nothing")
    assert list(storage.find_files(folder)) == [f"{folder}/a.txt"]
    assert not storage.exists(f"{folder}/b.txt")
    assert storage.file_sizes(f"{folder}/nothing") == storage.find_files(f"{folder}/nothing") == {}


def test_a_failed_write_leaves_nothing_under_the_final_name(folder: str):
    with pytest.raises(RuntimeError), storage.write_atomically(f"{folder}/a", f"{folder}/.work/tmp") as file:
        file.write(b"half")
        raise RuntimeError
    assert not storage.exists(f"{folder}/a")


def test_a_filesystem_that_is_not_installed_is_told():
    with pytest.raises(UserError, match=r"s4://bucket/x is on no filesystem"):
        storage.exists("s4://bucket/x")


def three_stages(source: str, folder: str) -> dict[str, bytes]:
    """Make tiny documents, vocabulary and instances; return all files by their path below `folder`."""
    options = RunOptions(workers=1)
    documents, vocab, instances = (f"{folder}/out/{name}" for name in ("documents", "vocab", "instances"))
    for _ in range(2):  # the second time there is nothing to do
        ingest([source], documents, IngestConfig(shards=1, validation_share=0.2), options)
        learn_vocabulary(documents, vocab, VocabConfig(size=100), options)
        build(documents, vocab, instances, BuildConfig(duplicates=1, max_length=32), options)
    paths = [path for name in (documents, vocab, instances) for path in storage.find_files(name)]
    return {path.removeprefix(folder): storage.read_bytes(path) for path in paths if not path.endswith("timings.json")}


def test_all_stages_make_the_same_bytes_on_another_filesystem(tmp_path: Path):
    for i in range(20):
        text = " ".join(f"Here is sentence number {j} of the text {i * j}." for j in range(30)).encode()
        for folder in (str(tmp_path), "memory://bucket"):
            write(f"{folder}/texts/{i}.txt", text)
    local = three_stages(f"{tmp_path}/texts", str(tmp_path))
    assert three_stages("memory://bucket/texts", "memory://bucket") == local
    assert not [path for path in MemoryFileSystem.files if "/out/" in path and "/.work/" in path]
    ingest(
        ["memory://bucket/texts"],
        "memory://bucket/out/documents",
        IngestConfig(shards=2),
        RunOptions(workers=1, overwrite=True),
    )
    assert "memory://bucket/out/documents/train-00001-of-00002.parquet" in MemoryFileSystem.files
    assert "memory://bucket/out/documents/train-00000-of-00001.parquet" not in MemoryFileSystem.files
