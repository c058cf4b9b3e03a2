"""The directory of a finished stage: its manifest is read, and damage is refused."""

from pathlib import Path

import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.manifests import DocumentsManifest, InstancesManifest
from clozeworks.pipeline.storage.directory import OutputDirectory
from clozeworks.pipeline.storage.state import read_manifest, refuse_input

from tests.fixtures.manifest_fixture import write_manifest as write_manifest_of
from tests.fixtures.object_stores import object_store


def write(path: Path, name: str, content: bytes = b"{}") -> None:
    OutputDirectory(str(path)).write_bytes(name, content)


def test_an_output_that_is_an_input_is_refused_however_it_is_named(tmp_path: Path, monkeypatch):
    write(tmp_path, "data/vocab.txt")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    absolute = str(tmp_path / "data")
    for output in ("data", "data/", "./data", absolute, "link", "link/"):
        for path in ("data", absolute, "link/", "data/vocab.txt", "link/vocab.txt"):
            message = f"^`output` {output} would overwrite the input {path}: choose another `outp"
            with pytest.raises(UserError, match=message):
                refuse_input(output, "elsewhere", path)
    for output in (".", "data/within", "data2", "new"):  # nothing of the input is deleted there
        refuse_input(output, "data", "data/vocab.txt")


@pytest.mark.slow
def test_an_output_in_an_object_store_that_is_an_input_is_refused(tmp_path: Path):
    with object_store("s3") as bucket:
        OutputDirectory(f"{bucket}/data").write_bytes("vocab.txt", b"[PAD]")
        for output in (f"{bucket}/data", f"{bucket}/data/"):
            for path in (f"{bucket}/data/", f"{bucket}/data", f"{bucket}/data/vocab.txt"):
                with pytest.raises(UserError, match="would overwrite the input"):
                    refuse_input(output, path)
        refuse_input(f"{bucket}/data2", f"{bucket}/data", f"{bucket}/data/vocab.txt")


def test_a_shard_that_is_missing_or_cut_off_is_reported(tmp_path: Path):
    shard = tmp_path / "train-00000-of-00001.parquet"
    shard.write_bytes(b"whole")
    write_manifest_of(tmp_path, "build", {shard.name: 1})
    assert read_manifest(str(tmp_path), InstancesManifest).stage == "build"
    shard.write_bytes(b"who")
    with pytest.raises(UserError, match=r"does not have the size recorded in manifest\.json"):
        read_manifest(str(tmp_path), InstancesManifest)
    shard.unlink()
    with pytest.raises(UserError, match=r"parquet is missing: recreate it with `clozeworks build"):
        read_manifest(str(tmp_path), InstancesManifest)


def test_a_manifest_without_training_shards_is_refused(tmp_path: Path):
    write_manifest_of(tmp_path, "ingest")
    with pytest.raises(UserError, match=r"training shard: recreate it with `clozeworks ingest"):
        read_manifest(str(tmp_path), DocumentsManifest)
