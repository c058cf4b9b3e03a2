"""What a stage's directory promises: resume by records, refusal of other work and of damaged
output.
"""

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.manifests import DocumentsManifest, InstancesManifest
from clozeworks.pipeline.storage.stage import manifest_head, open_stage, read_manifest
from manifest_fixture import make_manifest, write_manifest


def head_of(
    config: BuildConfig | None = None, numpy: str = "1", inputs: tuple[str, ...] = ("a", "b")
):
    head = manifest_head("build", config or BuildConfig(), [{"name": name} for name in inputs])
    return {**head, "versions": {"numpy": numpy}}


def whole_manifest():
    return make_manifest("build", **head_of())


def open_build(path: Path, config: BuildConfig | None = None, overwrite: bool = False):
    return open_stage(str(path), head_of(config), InstancesManifest, overwrite)


def test_finished_work_is_left_alone_and_other_work_refused(tmp_path: Path):
    directory, manifest = open_build(tmp_path)
    assert manifest is None
    directory.finish(whole_manifest(), InstancesManifest)
    assert not (tmp_path / ".work").exists()
    found = open_build(tmp_path)[1]
    assert found is not None and found.fingerprint == whole_manifest()["fingerprint"]
    with pytest.raises(UserError, match="seed was 0, now 7"):
        open_build(tmp_path, BuildConfig(seed=7))
    with pytest.raises(UserError, match="the inputs changed: c"):
        open_stage(str(tmp_path), head_of(inputs=("a", "b", "c")), InstancesManifest, False)


def test_a_shard_that_is_missing_or_cut_off_is_reported(tmp_path: Path):
    directory, _ = open_build(tmp_path)
    directory.write_bytes("shard", b"whole")
    shard = {"name": "shard", "split": "train", "rows": 1, "bytes": 5}
    directory.finish(make_manifest("build", [shard], **head_of()), InstancesManifest)
    assert read_manifest(str(tmp_path), InstancesManifest).stage == "build"
    (tmp_path / "shard").write_bytes(b"who")
    with pytest.raises(UserError, match=r"shard does not have the size recorded in manifest\.json"):
        read_manifest(str(tmp_path), InstancesManifest)
    (tmp_path / "shard").unlink()
    with pytest.raises(UserError, match=r"shard is missing: recreate all of .* with --overwrite"):
        open_build(tmp_path)
    assert open_build(tmp_path, overwrite=True)[1] is None


def test_unfinished_work_of_other_libraries_is_refused(tmp_path: Path):
    open_build(tmp_path)[0].write_bytes(".work/build/00000.json", b"{}")
    with pytest.raises(UserError, match="numpy was 1, now 2"):
        open_stage(str(tmp_path), head_of(numpy="2"), InstancesManifest, False)


def test_other_work_of_which_nothing_is_done_gives_way(tmp_path: Path):
    open_build(tmp_path)
    directory, manifest = open_build(tmp_path, BuildConfig(seed=7))
    assert manifest is None
    directory.write_bytes(".work/build/00000.json", b"{}")
    with pytest.raises(UserError, match="seed was 7, now 0"):
        open_build(tmp_path)


def test_overwrite_throws_away_only_a_stages_own_directory(tmp_path: Path):
    directory, _ = open_build(tmp_path / "stage")
    directory.finish(whole_manifest(), InstancesManifest)
    assert open_build(tmp_path / "stage", BuildConfig(seed=7), overwrite=True)[1] is None
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        open_build(tmp_path / "foreign", overwrite=True)
    assert (tmp_path / "foreign" / "thesis.tex").exists()


def test_a_path_that_cannot_be_written_to_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="Not a directory"):
        open_build(tmp_path / "file" / "out")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    directory, _ = open_build(tmp_path / "out")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"Cannot write to .*out: No space left on device"):
        directory.write_bytes("shard", b"half")
    assert not (tmp_path / "out" / "shard").exists()


def test_a_process_may_take_its_own_lock_again(tmp_path: Path):
    directory, _ = open_build(tmp_path / "out")
    assert open_build(tmp_path / "out")[1] is None
    directory.finish(whole_manifest(), InstancesManifest)
    found = open_build(tmp_path / "out")[1]
    assert found is not None and found.fingerprint == whole_manifest()["fingerprint"]


def lock_by_another_process(path: Path) -> int:
    """Lock as another process does: by a descriptor of its own."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def test_a_stage_that_failed_is_unlocked(tmp_path: Path):
    directory, _ = open_build(tmp_path)
    with pytest.raises(ZeroDivisionError), directory.unlocked_at_end():
        raise ZeroDivisionError
    os.close(lock_by_another_process(tmp_path))
    directory.write_bytes(".work/build/00000.json", b"{}")
    with pytest.raises(UserError, match="seed was 0, now 7"):
        open_build(tmp_path, BuildConfig(seed=7))
    os.close(lock_by_another_process(tmp_path))


def test_beside_another_process_finished_work_is_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    directory, _ = open_build(tmp_path)
    with directory.unlocked_at_end():
        directory.finish(whole_manifest(), InstancesManifest)
    other = lock_by_another_process(tmp_path)
    directory.write_bytes(".work/plan.json", b"of the other process")
    found = open_build(tmp_path)[1]
    assert found is not None and found.already_finished
    assert (tmp_path / ".work" / "plan.json").exists()
    os.close(other)
    found = open_build(tmp_path)[1]
    assert found is not None and not (tmp_path / ".work").exists()


def test_files_that_a_failed_command_left_are_no_others(tmp_path: Path):
    open_build(tmp_path)[0].write_bytes("tokenizer.json", b"{}")
    directory, _ = open_build(tmp_path, BuildConfig(seed=7))
    assert not (tmp_path / "tokenizer.json").exists()
    directory.write_bytes("thesis.tex", b"mine")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        open_build(tmp_path)


def test_a_manifest_of_another_stage_is_refused(tmp_path: Path):
    write_manifest(tmp_path, "vocab")
    with pytest.raises(UserError, match="clozeworks vocab"):
        read_manifest(str(tmp_path), DocumentsManifest)
    with pytest.raises(UserError, match="does not exist: give a directory written by"):
        read_manifest(str(tmp_path / "nothing"), DocumentsManifest)


def test_documents_of_before_the_column_language_are_refused_in_one_line(tmp_path: Path):
    (tmp_path / "train-00000-of-00001.parquet").write_bytes(b"")
    write_manifest(tmp_path, "ingest", {"train-00000-of-00001.parquet": 1})
    assert read_manifest(str(tmp_path), DocumentsManifest).shards[0].groups[0].language == "en"
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["shards"][0]["sources"] = {
        group["source"]: 1 for group in manifest["shards"][0].pop("groups")
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        UserError,
        match="was written before documents had a language: recreate it with `clozeworks in",
    ):
        read_manifest(str(tmp_path), DocumentsManifest)


def test_a_manifest_without_training_shards_is_refused(tmp_path: Path):
    write_manifest(tmp_path, "ingest")
    with pytest.raises(
        UserError,
        match=r"manifest.json lists no training shard: recreate it with `clozeworks ingest",
    ):
        read_manifest(str(tmp_path), DocumentsManifest)
