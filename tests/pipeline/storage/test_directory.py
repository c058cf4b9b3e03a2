"""Promises of an output directory: complete files, one writer, and nothing of others deleted."""

import errno
import fcntl
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest
from clozeworks.pipeline import storage
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.parsing import canonical_json, digest_of
from clozeworks.pipeline.storage.directory import OutputDirectory, kept, locked, write_file

from tests.fixtures.object_stores import object_store
from tests.fixtures.process_fixture import held


def test_a_lock_is_on_the_directory_that_is_at_the_path(tmp_path: Path):
    path = tmp_path / "out"
    with locked(str(path)):
        path.rmdir()
    with locked(str(path)):
        assert path.is_dir()


def test_a_folder_is_replaced_whole(tmp_path: Path):
    directory = OutputDirectory(str(tmp_path))
    for content in ("old", "new"):
        with directory.write_folder("checkpoints/best") as folder:
            (folder / "weights").write_text(content)
    with pytest.raises(ZeroDivisionError), directory.write_folder("checkpoints/best") as folder:
        (folder / "weights").write_text(str(1 / 0))
    assert (tmp_path / "checkpoints" / "best" / "weights").read_text() == "new"
    assert not list((tmp_path / ".work" / "tmp").iterdir())


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(UserError, match="pipe is not a regular file"),
        write_file(str(tmp_path / "pipe")),
    ):
        pass
    with write_file(str(tmp_path / "new" / "a.txt")) as file:
        file.write(b"a")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.txt"]


@pytest.mark.slow
def test_what_a_killed_process_left_of_a_file_is_deleted_with_the_next(tmp_path: Path):
    page = tmp_path / "page.html"
    script = (
        "import os, signal, sys\n"
        "from clozeworks.pipeline.storage.directory import write_file\n"
        "with write_file(sys.argv[1]) as file:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(page)])
    assert len(list((tmp_path / ".page.html.work").iterdir())) == 1
    with write_file(str(page)) as file:
        file.write(b"whole")
    assert list(tmp_path.iterdir()) == [page]


def test_an_error_names_the_file_that_the_user_asked_for(tmp_path: Path):
    (tmp_path / "book").write_text("")  # no folder can be made below it, whoever runs the tests
    page = str(tmp_path / "book" / "page.html")
    with pytest.raises(UserError, match=r"^Cannot write to \S*book/page\.html: "), write_file(page):
        pass


def write_a_file(path: Path) -> None:
    OutputDirectory(str(path)).write_bytes("shard", b"whole")


def write_a_page(path: Path) -> None:
    with write_file(str(path / "page.html")) as file:
        file.write(b"whole")


def write_a_folder(path: Path) -> None:
    with OutputDirectory(str(path)).write_folder("best") as folder:
        (folder / "weights").write_text("whole")


WRITERS = [write_a_file, write_a_page, write_a_folder]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, RunError),
        (errno.EDQUOT, RunError),
        (errno.EACCES, UserError),
        (errno.EPERM, UserError),
    ],
)
def test_a_full_disk_and_a_missing_permission_are_one_line(
    write: Callable[[Path], None],
    number: int,
    kind: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind) as raised:
        write(tmp_path)
    message = str(raised.value)
    assert message.startswith(f"Cannot write to {tmp_path}")
    assert message.endswith(f": {os.strerror(number)}. Fix this and rerun; it resumes.")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has this full disk")
def test_a_full_temporary_folder_of_this_machine_is_named_for_a_remote_file(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: io.FileIO("/dev/full", "r+"))
    monkeypatch.setattr(socket, "gethostname", lambda: "worker7")
    with object_store("s3") as root:
        with pytest.raises(RunError) as raised:
            OutputDirectory(root).write_bytes("page", bytes(17 << 20))  # does not fit in memory
        assert not storage.exists(f"{root}/page")
    assert str(raised.value) == (
        "Cannot write to the temporary folder (TMPDIR) of worker7: No space left on device. "
        "Fix this and rerun; it resumes."
    )


@pytest.mark.parametrize("write", WRITERS)
def test_a_fault_of_the_machine_is_not_the_users_mistake(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write(tmp_path)


def test_a_file_that_cannot_be_read_is_not_said_to_be_unwritable(tmp_path: Path):
    with (
        pytest.raises(FileNotFoundError, match="source"),
        OutputDirectory(str(tmp_path / "out")).write("shard"),
    ):
        (tmp_path / "source").read_bytes()


def test_a_folder_stays_as_it_was_if_its_successor_cannot_be_written(tmp_path: Path, monkeypatch):
    write_a_folder(tmp_path)

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match="No space left"):
        write_a_folder(tmp_path)
    assert (tmp_path / "best" / "weights").read_text() == "whole"
    assert not list((tmp_path / ".work" / "tmp").iterdir())


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path):
    (tmp_path / "notes").write_text("mine")
    with (
        pytest.raises(UserError, match="notes is a file, but `output` must be a directory"),
        locked(str(tmp_path / "notes")),
    ):
        pass
    with (
        pytest.raises(UserError, match=r"Cannot write to .*Not a directory"),
        locked(str(tmp_path / "notes" / "out")),
    ):
        pass


def test_another_process_is_refused_until_the_first_one_ends(tmp_path: Path):
    with held(str(tmp_path)):
        message = f"Another process is writing {tmp_path}; wait until it ends."
        with pytest.raises(UserError, match=re.escape(message)), locked(str(tmp_path)):
            pass
        message = "Another process is writing page.html; wait until it ends."
        with pytest.raises(UserError, match=message), locked(str(tmp_path), "page.html"):
            pass
    with locked(str(tmp_path)):
        pass


def test_a_directory_that_is_read_is_not_written(tmp_path: Path):
    with kept(str(tmp_path), str(tmp_path / "missing")), kept(str(tmp_path)):
        message = f"Another process is reading {tmp_path}; wait until it ends."
        with pytest.raises(UserError, match=re.escape(message)), locked(str(tmp_path)):
            pass
    with locked(str(tmp_path)), kept(str(tmp_path)):
        pass


@pytest.fixture(params=["without locks", "s3", "gs"])
def unlockable(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A directory where no operating system's lock can be."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    if request.param == "without locks":
        monkeypatch.setattr(fcntl, "flock", refuse)
        yield str(tmp_path / "run")
        return
    with object_store(request.param) as bucket:
        yield f"{bucket}/run"


def test_where_no_lock_can_be_a_file_is_one(unlockable: str):
    with locked(unlockable):
        refused = pytest.raises(UserError, match=r"process is writing .*run \(process \d+ on .*\);")
        with refused, locked(unlockable):
            pass
        with write_file(f"{unlockable}/page.html") as file:
            file.write(b"page")
    assert list(storage.find_files(unlockable)) == [f"{unlockable}/page.html"]
    assert not storage.file_names(f"{unlockable}/.lock")


def test_the_lock_file_of_a_killed_process_is_named(unlockable: str):
    left = f"{unlockable}/.lock/0"
    with write_file(left) as file:
        file.write(b"process 1 on elsewhere")
    for _ in range(2):
        refused = pytest.raises(UserError, match=f"If it was killed, delete {left} and rerun")
        with refused, locked(unlockable):
            pass
    storage.remove(left)
    with locked(unlockable):
        pass


def test_one_that_begins_while_another_ends_has_the_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOTSUP, "not supported")))
    replace = os.replace
    with ExitStack() as first:
        first.enter_context(locked(str(tmp_path)))
        # Its folder of lock files is made, and its own file not yet there.
        monkeypatch.setattr(os, "replace", lambda *paths: (first.close(), replace(*paths)))
        with locked(str(tmp_path)):
            pass


def test_of_many_at_once_at_most_one_has_a_directory(tmp_path: Path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    holding = threading.Semaphore(1)
    refused: list[UserError] = []

    def take() -> None:
        try:
            with locked(str(tmp_path)):
                assert holding.acquire(blocking=False)
                time.sleep(0.05)
                holding.release()
        except UserError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert holding.acquire(blocking=False) and len(refused) >= 1


def test_a_digest_depends_on_the_value_alone():
    assert digest_of({"a": 1, "b": "é"}) == digest_of({"b": "é", "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})
    assert digest_of(canonical_json([1, 2])) == digest_of([1, 2])
