"""Local copies of remote files and folders, on an emulated S3."""

import pytest
from clozeworks.model.copies import local_copy, refuse_remote
from clozeworks.pipeline.errors import UserError

from tests.fixtures.object_stores import write


@pytest.mark.slow
def test_local_paths_are_left_alone(tmp_path):
    assert local_copy(tmp_path) == local_copy(str(tmp_path), "a") == tmp_path


@pytest.mark.slow
def test_copies_of_a_file_and_of_a_folder_follow_the_remote(s3):
    for name, content in (("a", b"1"), ("b", b"2"), ("sub/a", b"3"), ("sub/c", b"4")):
        write(f"{s3}/copied/{name}", content)
    folder = local_copy(f"{s3}/copied")
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
    assert local_copy(f"{s3}/copied/sub/c").read_bytes() == b"4"
    assert (local_copy(f"{s3}/copied", "a") / "sub" / "a").read_bytes() == b"3"
    write(f"{s3}/copied/a", b"changed")
    assert (local_copy(f"{s3}/copied/") / "a").read_bytes() == b"changed"
    assert not local_copy(f"{s3}/copied/nothing").exists()


def test_what_writes_models_refuses_an_object_store(tmp_path):
    for output in ("s3://bucket/run", "gs://bucket/run"):
        with pytest.raises(UserError, match=r"`output` is on an object store \(.*aws s3 sync"):
            refuse_remote(output)
    refuse_remote(tmp_path)
