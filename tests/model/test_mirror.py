"""Local copies of remote folders, and runs whose output is remote, on an emulated S3."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from clozeworks.model.mirror import INDEX, local_copy, local_file, mirrored, upload
from clozeworks.pipeline import storage
from clozeworks.pipeline.errors import RunError, UserError

from tests.fixtures.object_stores import object_store


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with object_store("s3") as bucket:
        yield bucket


def write(path: str, content: bytes) -> None:
    with storage.write_atomically(path, "") as file:
        file.write(content)


@pytest.mark.slow
def test_local_paths_are_left_alone(tmp_path):
    assert local_copy(tmp_path) == local_copy(str(tmp_path), "a") == tmp_path
    with mirrored(tmp_path) as folder, local_file(tmp_path / "file") as file:
        upload(folder)
        assert (folder, file) == (tmp_path, tmp_path / "file")


@pytest.mark.slow
def test_copies_of_a_file_and_of_a_folder_follow_the_remote(bucket):
    for name, content in (("a", b"1"), ("b", b"2"), ("sub/a", b"3"), ("sub/c", b"4")):
        write(f"{bucket}/copied/{name}", content)
    folder = local_copy(f"{bucket}/copied")
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
    assert local_copy(f"{bucket}/copied/sub/c").read_bytes() == b"4"
    assert (local_copy(f"{bucket}/copied", "a") / "sub" / "a").read_bytes() == b"3"
    write(f"{bucket}/copied/a", b"changed")
    assert (local_copy(f"{bucket}/copied/") / "a").read_bytes() == b"changed"
    assert not local_copy(f"{bucket}/copied/nothing").exists()


def test_a_run_is_uploaded_at_each_checkpoint_and_fetched_again(bucket):
    output = f"{bucket}/run"
    with pytest.raises(KeyboardInterrupt), mirrored(output) as folder:
        assert not folder.exists() and folder.parent.exists()
        (folder / "step-1").mkdir(parents=True)
        (folder / "step-1" / "model").write_bytes(b"1")
        (folder / ".work").mkdir()
        (folder / ".work" / "half").write_bytes(b"")
        upload(folder / "step-1")
        (folder / "step-2").write_bytes(b"never uploaded")
        raise KeyboardInterrupt
    assert not folder.parent.exists()
    assert list(storage.find_files(output)) == [f"{output}/step-1/model"]
    write(f"{output}/step-2/model", b"an upload that was killed before its index")
    with mirrored(output) as folder:
        assert [path.name for path in folder.iterdir()] == ["step-1"]
        (folder / "step-1" / "model").unlink()
        (folder / "step-3").write_bytes(b"3")
    assert list(storage.file_sizes(output)) == [INDEX, "step-3"]


def test_an_upload_that_fails_is_made_up_for_by_the_next(bucket, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    output, works = f"{bucket}/unsteady", [True, False, True, False]

    def unsteady(local: str, path: str) -> None:
        if not works.pop(0):
            raise RunError(f"{path}: the store cannot be reached.")
        original(local, path)

    original = storage.upload
    monkeypatch.setattr(storage, "upload", unsteady)
    with pytest.raises(RunError, match="cannot be reached"), mirrored(output) as folder:
        folder.mkdir()
        for step in ("1", "2", "2"):
            (folder / step).write_bytes(step.encode())
            upload(folder)
        assert list(storage.file_sizes(output)) == [INDEX, "1", "2"]
        assert "The checkpoint was not uploaded; training continues" in capsys.readouterr().err
        (folder / "3").touch()
    (kept,) = tmp_path.glob("*/run/3")
    assert capsys.readouterr().err.startswith(
        f"{kept.parent} holds the files that were not uploaded: copy it to {output}, or"
    )
    works.append(False)
    with pytest.raises(ZeroDivisionError), mirrored(output) as folder:
        (folder / "4").touch()
        upload(folder)
        raise ZeroDivisionError
    assert len([*tmp_path.glob("*/run/4")]) == 1


def test_a_folder_of_other_files_is_refused_and_messages_name_the_remote_path(
    bucket, tmp_path, monkeypatch
):
    write(f"{bucket}/other/notes.txt", b"")
    refused = r"^s3://bucket/other is not empty \(.*notes.txt, …\)\. Use another `output`\.$"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UserError, match=refused), mirrored(f"{bucket}/other"):
        pass
    assert not list(tmp_path.iterdir())
    with (
        pytest.raises(UserError, match=r"^s3://bucket/new is damaged$"),
        mirrored(f"{bucket}/new") as folder,
    ):
        raise UserError(f"{folder} is damaged")


@pytest.mark.parametrize(
    "index", [b"", b"{}", b"[1]", b'["../../etc/passwd"]', b'["/etc/passwd"]', b'["a/../../b"]']
)
def test_an_index_that_is_not_ours_is_refused(bucket, index: bytes):
    write(f"{bucket}/damaged/{INDEX}", index)
    damaged = rf"s3://bucket/damaged/{INDEX} is damaged or was not written by clozeworks"
    refused = rf"^{damaged} \(.*\)\. Use another `output`\.$"
    with pytest.raises(UserError, match=refused), mirrored(f"{bucket}/damaged"):
        pass


@pytest.mark.slow
def test_a_remote_file_is_written_locally_and_uploaded(bucket):
    for content in (b"one", b"two"):
        with local_file(f"{bucket}/files/vectors") as file:
            assert Path(file).exists() == (content == b"two")
            file.write_bytes(content)
    assert storage.read_bytes(f"{bucket}/files/vectors") == b"two"
