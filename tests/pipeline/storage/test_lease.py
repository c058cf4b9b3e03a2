"""Of two processes that write one directory, where the system has no locks, one does."""

import fcntl
import json
import logging
import signal
import subprocess
import sys
import threading
import time

import pytest
from clozeworks.pipeline import storage
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.storage.directory import locked
from clozeworks.pipeline.storage.lease import FOLDER, Lease

from tests.fixtures.object_stores import object_store


@pytest.fixture(params=["local", "s3", "gs"])
def folder(request, tmp_path):
    if request.param == "local":
        yield str(tmp_path / "output")
        return
    with object_store(request.param) as bucket:
        yield f"{bucket}/output"


def make_lease(folder: str) -> Lease:
    return Lease(folder, folder, renewed_every_s=0.2, stale_after_s=2.0)


def put_file(folder: str, **owner: object) -> None:
    path = storage.join(folder, FOLDER, "other")
    with storage.write_atomically(path, storage.join(folder, ".work")) as file:
        file.write(json.dumps(owner).encode())


def test_a_second_one_is_refused_until_the_first_gives_up(folder):
    first = make_lease(folder)
    first.take()
    with pytest.raises(UserError, match=r"Another process is writing .*output \(process \d+ on "):
        make_lease(folder).take()
    first.give_up()
    second = make_lease(folder)
    second.take()
    second.give_up()
    assert not storage.find_files(storage.join(folder, FOLDER))


def test_of_many_at_once_one_has_it(tmp_path):
    folder = str(tmp_path)
    taken: list[Lease] = []
    refused: list[UserError] = []

    def take() -> None:
        lease = make_lease(folder)
        try:
            lease.take()
            taken.append(lease)
        except UserError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), len(refused)) == (1, 7)
    taken[0].give_up()


def test_what_is_not_renewed_is_taken_over(folder, caplog):
    put_file(folder, host="elsewhere", process=1)
    start = time.monotonic()
    lease = make_lease(folder)
    lease.take()
    assert time.monotonic() - start >= 2
    assert "Another process (process 1 on elsewhere) was writing" in caplog.text
    lease.give_up()


def test_a_process_that_has_ended_here_is_not_waited_for(tmp_path):
    code = (
        "import sys\n"
        "from clozeworks.pipeline.storage.lease import Lease\n"
        "Lease(sys.argv[1], '').take()\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert len(list((tmp_path / FOLDER).iterdir())) == 1
    start = time.monotonic()
    lease = Lease(str(tmp_path), "")
    lease.take()
    assert time.monotonic() - start < 5
    lease.give_up()


def test_whoever_was_taken_over_is_interrupted(tmp_path, caplog):
    lease = make_lease(str(tmp_path))
    lease.take()
    caught = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: caught.set())
    try:
        storage.remove(str(tmp_path / FOLDER))
        deadline = time.monotonic() + 10
        while not caught.is_set() and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.is_set() and "has taken" in caplog.text


def test_a_folder_without_locks_has_a_lease(tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fails)
    with locked(str(tmp_path)):
        assert len(list((tmp_path / FOLDER).iterdir())) == 1
    assert not (tmp_path / FOLDER).exists()


@pytest.fixture(autouse=True)
def _notices(caplog):
    caplog.set_level(logging.WARNING, "clozeworks")


def test_a_file_that_is_being_renewed_does_not_outlive_its_lease(tmp_path, monkeypatch):
    lease = make_lease(str(tmp_path))
    lease.take()
    renewing = threading.Event()
    renew = lease._renew

    def renew_slowly() -> None:
        renewing.set()
        time.sleep(0.3)
        renew()

    monkeypatch.setattr(lease, "_renew", renew_slowly)
    assert renewing.wait(10)
    lease.give_up()
    time.sleep(0.5)
    assert not (tmp_path / FOLDER).exists()
