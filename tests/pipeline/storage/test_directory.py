"""What an output directory promises: complete files, one writer, and nothing of others deleted."""

import os
from functools import partial
from pathlib import Path

import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.storage.directory import OutputDirectory, claimed, locked, write_file


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path):
    directory = OutputDirectory(str(tmp_path))
    with pytest.raises(OSError, match="disk full"), directory.write("shard") as file:
        file.write(b"half")
        raise OSError("disk full")
    assert not (tmp_path / "shard").exists()
    assert list((tmp_path / ".work" / "tmp").iterdir()) == []


def test_a_lock_is_on_the_directory_that_is_at_the_path(tmp_path: Path):
    path = tmp_path / "out"
    with locked(str(path)):
        path.rmdir()
        with locked(str(path)):  # held already, under its name
            assert not path.exists()
    with locked(str(path)):
        assert path.is_dir()


def test_only_files_of_ones_own_are_deleted(tmp_path: Path):
    claim = partial(
        claimed, str(tmp_path / "out"), identity_file="run.json", own_files=("weights",)
    )
    with claim({"seed": 0}) as directory:
        directory.write_bytes("weights", b"0")
        (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="seed was 0, now 1"), claim({"seed": 1}):
        pass
    with claim({"seed": 0}):
        assert (tmp_path / "out" / "weights").exists()
    with claim({"seed": 1}, overwrite=True):
        assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == [
            "notes.txt",
            "run.json",
        ]


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
    mine = tmp_path / "new" / "a.txt.work" / "thesis.tex"
    mine.parent.mkdir()
    mine.touch()
    with write_file(str(tmp_path / "new" / "a.txt")) as file:
        file.write(b"b")
    assert mine.exists()


def test_an_error_names_the_file_that_the_user_asked_for(tmp_path: Path):
    (tmp_path / "book").write_text("")  # no folder can be made below it, whoever runs the tests
    page = str(tmp_path / "book" / "page.html")
    with pytest.raises(UserError, match=r"^Cannot write to \S*book/page\.html: "), write_file(page):
        pass
