"""Storage on this machine, on S3 and on Google Cloud Storage: the same results."""

import errno
import io
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from clozeworks.pipeline import storage
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.storage import remote
from clozeworks.pipeline.storage.directory import write_file

from tests.fixtures.object_stores import object_store, write


@pytest.fixture(scope="module", params=["local", "s3", "gs"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path_factory.mktemp("local"))
    else:
        with object_store(request.param) as bucket:
            yield bucket


@pytest.fixture
def folder(root: str) -> str:
    return f"{root}/{uuid.uuid4().hex}"


@pytest.mark.slow
def test_a_file_that_is_replaced_has_another_version(folder: str):
    def version() -> str:
        with storage.open_input(f"{folder}/shard") as file:
            return storage.version_of(file)

    write(f"{folder}/shard", b"first")
    first = version()
    assert version() == first
    write(f"{folder}/shard", b"other")
    assert version() != first


@pytest.mark.slow
def test_what_is_written_can_be_read_found_replaced_and_removed(folder: str):
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub/.hidden/d.txt", ".e.txt"):
        write(f"{folder}/{name}", name.encode())
    write(f"{folder}/a.txt", b"replaced")
    assert storage.read_bytes(f"{folder}/a.txt") == b"replaced"
    assert storage.exists(f"{folder}/a.txt")
    assert not storage.exists(folder)
    assert not storage.exists(f"{folder}/a")
    assert storage.file_sizes(folder) == {".e.txt": 6, "a.txt": 8, "b.txt": 5}
    assert storage.file_names(folder) == [".e.txt", "a.txt", "b.txt"]
    assert storage.visible_names(folder) == ["a.txt", "b.txt", "sub"]
    assert storage.folder_names(folder) == ["sub"]
    found = [f"{folder}/a.txt", f"{folder}/b.txt", f"{folder}/sub/c.txt"]
    assert storage.find_files(folder) == dict(zip(found, (8, 5, 9), strict=True))
    assert list(storage.find_files(f"{folder}/*.txt")) == found[:2]
    assert list(storage.find_files(f"{folder}/*")) == found
    assert list(storage.find_files(f"{folder}/s?b")) == found[2:]
    assert list(storage.find_files(f"{folder}/**/[!ab].txt")) == found[2:]
    assert list(storage.find_files(f"{folder}/a.txt")) == found[:1]
    for name in ("sub", "b.txt", "nothing"):
        storage.remove(f"{folder}/{name}")
    assert list(storage.find_files(folder)) == found[:1]
    assert not storage.exists(found[1])
    assert storage.file_sizes(f"{folder}/nothing") == storage.find_files(f"{folder}/nothing") == {}
    with pytest.raises(FileNotFoundError):
        storage.open_input(f"{folder}/nothing")


def test_a_file_is_read_from_anywhere_and_line_by_line(folder: str):
    lines = [f"line {number}\n".encode() for number in range(30_000)]
    content = b"".join(lines)
    write(f"{folder}/lines.gz", content)  # the suffix changes nothing
    with storage.open_input(f"{folder}/lines.gz") as file:
        assert list(file) == lines
        assert (file.read(), file.tell()) == (b"", len(content))
        for offset in (100_000, 7, len(content) - 5, len(content) + 5):
            file.seek(offset)
            assert file.read(20) == content[offset : offset + 20]
        file.seek(-9, os.SEEK_END)
        assert file.read() == content[-9:]


def test_a_failed_write_leaves_the_file_as_it_was(folder: str):
    for content in (b"half", b"half" * (5 << 20)):
        with pytest.raises(RuntimeError), write_file(f"{folder}/a") as file:
            file.write(content)
            raise RuntimeError
        assert not storage.exists(f"{folder}/a")
    write(f"{folder}/a", b"whole")
    with pytest.raises(RuntimeError), write_file(f"{folder}/a") as file:
        raise RuntimeError
    assert storage.read_bytes(f"{folder}/a") == b"whole"


@pytest.mark.slow
def test_a_long_file_is_uploaded_in_parts(folder: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote, "UPLOAD_BYTES", 11 << 20)
    content = os.urandom(1 << 20) * 25
    write(f"{folder}/long", content)
    assert storage.read_bytes(f"{folder}/long") == content


def read_by_ranges(file: Any, **options: Any) -> io.BufferedReader:
    reader = remote._RemoteReader(file, "s3://bucket/key", **options)
    return io.BufferedReader(reader, remote.MIN_FETCH_BYTES)


class CountedFile:
    """A stand-in for a remote file that counts what is fetched."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes, self.fetched = num_bytes, []

    def size(self) -> int:
        return self.num_bytes

    def read_at(self, num_bytes: int, offset: int) -> bytes:
        self.fetched.append(num_bytes)
        return bytes(num_bytes)

    def close(self) -> None:
        pass


def test_scattered_reads_fetch_little_and_sequential_ones_ever_more():
    scattered, sequential = CountedFile(1 << 30), CountedFile(256 << 20)
    with read_by_ranges(scattered) as file:
        for offset in range(0, 1 << 30, 1 << 27):
            file.seek(offset)
            assert len(file.read(80_000)) == 80_000
    assert sum(scattered.fetched) <= 8 * (80_000 + remote.MIN_FETCH_BYTES)
    with read_by_ranges(sequential) as file:
        while file.read(10_000):
            pass
    assert sum(sequential.fetched) == 256 << 20
    assert len(sequential.fetched) < 50


def message(path: str, kind: type[Exception] = UserError) -> str:
    with pytest.raises(kind) as raised:
        storage.file_sizes(path)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_missing_bucket_is_empty_and_cannot_be_written(scheme: str):
    path = f"{scheme}://nobody/x"
    with object_store(scheme):
        assert not storage.exists(path)
        assert storage.file_sizes(path) == storage.find_files(path) == {}
        with pytest.raises(UserError, match=f"^{path}: the bucket does not exist. Create it"):
            write(path, b"")


@pytest.mark.slow
def test_mistakes_are_one_line(s3: str, monkeypatch: pytest.MonkeyPatch):
    assert message("s4://bucket/x").startswith(
        "s4://bucket/x cannot be opened: use a local path, s3://BUCKET/…"
    )
    assert message("s3://").startswith("s3:// cannot be opened: use a local path, s3://BUCKET/…")
    with_credentials = message("s3://key:secret@bucket/x")
    assert "without credentials" in with_credentials and "secret" not in with_credentials
    monkeypatch.setattr(remote, "S3_ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")  # not reached, perhaps only now
    assert message("s3://bucket/x", RunError).startswith(
        "s3://bucket/x: the store cannot be reached, or is overloaded or down. Try again"
    )
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    monkeypatch.setattr(remote, "GCS_RETRY_TIME", timedelta(seconds=0.1))
    assert message("gs://bucket/x", RunError).startswith(
        "gs://bucket/x: the store cannot be reached"
    )


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_address[1]}")
        yield
        server.shutdown()


@pytest.fixture
def failing_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Serve an S3 that denies the second part of an upload; yield the requests that it got."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self, status: int, body: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"0"')
            self.end_headers()
            self.wfile.write(body.encode())

        def read_body(self) -> None:
            if self.headers.get("Transfer-Encoding") != "chunked":
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                return
            while num_bytes := int(self.rfile.readline(), 16):
                self.rfile.read(num_bytes + 2)
            while self.rfile.readline().strip():
                pass

        def do_POST(self) -> None:
            self.read_body()
            requests.append(f"POST {self.path}")
            upload = "<Bucket>bucket</Bucket><Key>key</Key><UploadId>1</UploadId>"
            self.answer(
                200, f"<InitiateMultipartUploadResult>{upload}</InitiateMultipartUploadResult>"
            )

        def do_PUT(self) -> None:
            self.read_body()
            requests.append(f"PUT {self.path}")
            second = "partNumber=2" in self.path
            self.answer(
                403 if second else 200, "<Error><Code>AccessDenied</Code></Error>" if second else ""
            )

    with serve(Handler, monkeypatch):
        yield requests


@pytest.mark.slow
def test_an_upload_that_breaks_is_not_completed(failing_store: list[str]):
    with pytest.raises(UserError, match=r"^s3://bucket/key: access is denied\. Check your"):
        write("s3://bucket/key", bytes(25 << 20))
    assert any("partNumber=2" in request for request in failing_store)
    assert not any(
        request.startswith("POST") and "uploadId" in request for request in failing_store
    ), failing_store


@pytest.mark.slow
def test_an_upload_that_is_interrupted_is_completed(s3: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(remote, "UPLOAD_BYTES", 6 << 20)
    content, reads = os.urandom(20 << 20), []

    class Interrupting(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            reads.append(size)
            if len(reads) == 2:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            return super().read(size)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        remote.upload(Interrupting(content), f"{s3}/long")
    signal.signal(signal.SIGINT, before)
    assert storage.read_bytes(f"{s3}/long") == content


def test_a_folder_that_another_process_removes_too_is_removed(tmp_path: Path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").touch()
    unlink = os.unlink

    def unlink_after_another(*args: Any, **options: Any) -> None:
        unlink(*args, **options)
        unlink(*args, **options)

    monkeypatch.setattr(os, "unlink", unlink_after_another)
    storage.remove(str(tmp_path / "folder"))
    assert not (tmp_path / "folder").exists()


def test_a_folder_that_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / ".work" / "tmp").mkdir(parents=True)

    def refuse(name: str, **options: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", name)

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(OSError, match=f"Read-only file system: '{tmp_path}/.work'"):
        storage.remove(f"{tmp_path}/.work")


def test_a_link_is_removed_without_its_folder(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    storage.remove(str(tmp_path / "link"))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_removing_a_path_below_a_file_does_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    storage.remove(str(tmp_path / "file" / "below"))
    assert (tmp_path / "file").read_text() == "mine"


def test_hidden_files_of_a_bucket_have_a_reason(s3: str):
    folder = f"{s3}/{uuid.uuid4().hex}"
    for name in ("a.txt", ".b.txt", ".git/config", "sub/c.txt"):
        write(f"{folder}/{name}", b"text")
    hidden = [f"{folder}/.b.txt", f"{folder}/.git/config"]
    assert storage.list_files(folder) == (
        {f"{folder}/a.txt": 4, f"{folder}/sub/c.txt": 4},
        dict.fromkeys(hidden, "hidden_files"),
    )
    assert storage.list_files(f"{folder}/s*") == ({f"{folder}/sub/c.txt": 4}, {})


@pytest.mark.parametrize(
    ("pattern", "root"),
    [
        ("a/b/c.txt", "a/b/c.txt"),
        ("a/*/c", "a"),
        ("s3://bucket/a/x[12]/c", "s3://bucket/a"),
        ("a?", ""),
    ],
)
def test_the_root_of_a_glob(pattern: str, root: str):
    assert storage.glob_root(pattern) == root
    assert storage.has_wildcard(pattern) == (pattern != root)


def test_paths_are_joined_and_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert storage.join("s3://bucket/", "a", "b") == "s3://bucket/a/b"
    assert storage.absolute("s3://bucket/a") == "s3://bucket/a"
    assert storage.absolute("a") == str(tmp_path / "a")


def test_a_file_is_downloaded_once(s3: str, tmp_path: Path):
    write(f"{s3}/copied", b"first")
    copy = tmp_path / "cache" / "copy"
    storage.download(f"{s3}/copied", str(copy))
    assert copy.read_bytes() == b"first"
    status = copy.stat()
    copy.write_bytes(b"FIRST")  # same size, and the same time: taken for the copy
    os.utime(copy, ns=(status.st_mtime_ns, status.st_mtime_ns))
    storage.download(f"{s3}/copied", str(copy))
    assert copy.read_bytes() == b"FIRST"
    os.utime(copy)  # another time
    storage.download(f"{s3}/copied", str(copy))
    assert copy.read_bytes() == b"first"
    with pytest.raises(FileNotFoundError):
        storage.download(f"{s3}/nothing", str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


def test_the_emulator_of_google_needs_no_protocol(monkeypatch: pytest.MonkeyPatch):
    with object_store("gs") as bucket:
        write(f"{bucket}/a", b"text")
        address = os.environ["STORAGE_EMULATOR_HOST"]
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"{address.removeprefix('http://')}/")
        assert storage.read_bytes(f"{bucket}/a") == b"text"


def test_the_endpoint_of_s3_takes_precedence(s3: str, monkeypatch: pytest.MonkeyPatch):
    write(f"{s3}/addressed", b"text")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", os.environ["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert storage.read_bytes(f"{s3}/addressed") == b"text"


@pytest.fixture
def refusing_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Serve an S3 that answers with one status of the list after another; the last one stays."""
    status = [403]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def refuse(self) -> None:
            self.send_response(status.pop(0) if len(status) > 1 else status[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = refuse

    with serve(Handler, monkeypatch):
        yield status


@pytest.mark.parametrize(
    "use",
    [
        storage.read_bytes,
        storage.exists,
        storage.file_sizes,
        storage.find_files,
        storage.remove,
        lambda path: storage.download(path, "local"),
        lambda path: write(path, b"text"),
    ],
    ids=["read", "exists", "sizes", "find", "remove", "download", "write"],
)
def test_a_refusal_is_the_users_mistake_and_a_fault_of_the_store_is_not(
    use: Callable[[str], object], refusing_store: list[int]
):
    with pytest.raises(UserError, match=r"^s3://bucket/key: access is denied\. Check your cred"):
        use("s3://bucket/key")
    refusing_store[0] = 400
    with pytest.raises(RunError, match=r"^s3://bucket/key: [^\n]*400[^\n]*\.$"):
        use("s3://bucket/key")


@pytest.mark.slow
def test_a_busy_store_is_asked_again_however_often_it_fails(refusing_store: list[int]):
    # By another strategy of Amazon's client, about a hundred times in all.
    refusing_store[:] = [503, 503, 503] + [500, 200] * 200
    assert all(storage.exists("s3://bucket/key") for _ in range(200))
    assert refusing_store == [200]


def test_a_small_read_is_tried_again_while_the_store_is_overloaded():
    class Overloaded(CountedFile):
        def read_at(self, num_bytes: int, offset: int) -> bytes:
            content = super().read_at(num_bytes, offset)
            if len(self.fetched) < 4:
                raise OSError("AWS Error INTERNAL_FAILURE: Failed to flush response stream")
            return content

    assert read_by_ranges(Overloaded(10), pauses_s=[0.0] * 3).read(10) == bytes(10)
    with pytest.raises(RunError, match="or is overloaded or down"):
        read_by_ranges(Overloaded(10), pauses_s=[0.0] * 2).read(10)


@pytest.mark.parametrize(
    "answer",
    [
        "UNKNOWN (HTTP status 400) during PutObject: ExpiredToken",
        "UNKNOWN (HTTP status 400): AuthorizationHeaderMalformed",
        "UNKNOWN (HTTP status 301) during HeadObject: No response body",
    ],
)
def test_expired_credentials_and_a_wrong_region_are_named(answer: str):
    message = "credentials have expired .* or the bucket is in another region"
    with pytest.raises(RunError, match=message), remote._errors_in_a_line("s3://bucket/key"):
        raise OSError(f"AWS Error {answer}")
