"""A stage's directory: finished work is left alone, other work and damaged output are refused."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.manifests import DocumentsManifest, InstancesManifest, StoredHead
from clozeworks.pipeline.storage.directory import OutputDirectory
from clozeworks.pipeline.storage.stage import (
    begin_stage,
    look_at_stage,
    manifest_head,
    read_manifest,
    refuse_input,
    unfinished_stage,
    write_manifest,
)
from msgspec import structs

from tests.fixtures.manifest_fixture import make_manifest, parsed
from tests.fixtures.manifest_fixture import write_manifest as write_manifest_of
from tests.fixtures.object_stores import object_store

RECORD = ".work/build/00000.json"


def head_of(
    config: BuildConfig | None = None, numpy: str = "1", inputs: tuple[str, ...] = ("a", "b")
) -> StoredHead:
    head = manifest_head("build", config or BuildConfig(), [{"name": name} for name in inputs])
    return structs.replace(head, versions={"numpy": numpy})


def begin(path: Path, config: BuildConfig | None = None, overwrite: bool = False) -> Any:
    """Begin a build; return its manifest if it is finished."""
    return begin_stage(str(path), head_of(config), overwrite)


def finish(path: Path, *shards: dict[str, Any]) -> InstancesManifest:
    """Write the manifest of a build."""
    manifest = parsed(make_manifest("build", list(shards), **structs.asdict(head_of())))
    written = write_manifest(OutputDirectory(str(path)), manifest, seconds=1.5)
    assert isinstance(written, InstancesManifest)
    return written


def write(path: Path, name: str, content: bytes = b"{}") -> None:
    OutputDirectory(str(path)).write_bytes(name, content)


def test_finished_work_is_left_alone_and_other_work_refused(tmp_path: Path):
    assert begin(tmp_path) is None
    written = finish(tmp_path)
    assert written.stage == "build" and not written.already_finished
    assert not (tmp_path / ".work").exists()
    manifest = begin(tmp_path)
    assert manifest.already_finished and manifest.fingerprint == written.fingerprint
    with pytest.raises(UserError, match="seed was 0, now 7"):
        begin(tmp_path, BuildConfig(seed=7))
    with pytest.raises(UserError, match="the inputs changed: c"):
        begin_stage(str(tmp_path), head_of(inputs=("a", "b", "c")), overwrite=False)
    with pytest.raises(UserError, match="the inputs changed: their order"):
        begin_stage(str(tmp_path), head_of(inputs=("b", "a")), overwrite=False)


def test_the_state_of_a_directory_is_looked_up_without_changing_it(tmp_path: Path):
    states: list[str] = []
    other_seed = head_of(BuildConfig(seed=7))
    for step in (lambda: None, lambda: begin(tmp_path), lambda: finish(tmp_path)):
        step()
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        claim = look_at_stage(str(tmp_path), head_of(), overwrite=False)
        states.append(claim.state)
        assert look_at_stage(str(tmp_path), other_seed, overwrite=True).state == "new"
        assert (claim.manifest is not None) == (claim.state == "finished")
        assert unfinished_stage(str(tmp_path)) == ("build" if states[-1] == "begun" else None)
        assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert states == ["new", "begun", "finished"]


def test_what_a_process_killed_beside_its_manifest_left_is_removed(tmp_path: Path):
    begin(tmp_path)
    finish(tmp_path)
    write(tmp_path, RECORD)
    assert begin(tmp_path).already_finished
    assert not (tmp_path / ".work").exists()


def test_the_time_taken_is_beside_the_manifest(tmp_path: Path):
    begin(tmp_path)
    finish(tmp_path)
    assert json.loads((tmp_path / "timings.json").read_text()) == {"seconds": 1.5}
    assert "1.5" not in (tmp_path / "manifest.json").read_text()


def test_an_output_that_is_an_input_is_refused_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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
    begin(tmp_path)
    write(tmp_path, "shard", b"whole")
    finish(tmp_path, {"name": "shard", "split": "train", "rows": 1, "bytes": 5})
    assert read_manifest(str(tmp_path), InstancesManifest).stage == "build"
    (tmp_path / "shard").write_bytes(b"who")
    with pytest.raises(UserError, match=r"shard does not have the size recorded in manifest\.json"):
        read_manifest(str(tmp_path), InstancesManifest)
    (tmp_path / "shard").unlink()
    with pytest.raises(UserError, match=r"shard is missing: recreate all of .* with `overwrite`"):
        begin(tmp_path)
    assert begin(tmp_path, overwrite=True) is None


def test_unfinished_work_of_other_libraries_is_refused(tmp_path: Path):
    begin(tmp_path)
    write(tmp_path, RECORD)
    with pytest.raises(UserError, match="numpy was 1, now 2"):
        begin_stage(str(tmp_path), head_of(numpy="2"), overwrite=False)


def test_finished_work_of_other_libraries_stays_finished(tmp_path: Path):
    begin(tmp_path)
    finish(tmp_path)
    manifest = begin_stage(str(tmp_path), head_of(numpy="2"), overwrite=False)
    assert manifest is not None and manifest.already_finished


def test_other_work_of_which_nothing_is_done_gives_way(tmp_path: Path):
    begin(tmp_path)
    assert begin(tmp_path, BuildConfig(seed=7)) is None
    write(tmp_path, RECORD)
    with pytest.raises(UserError, match="seed was 7, now 0"):
        begin(tmp_path)


def test_overwrite_throws_away_only_a_stages_own_directory(tmp_path: Path):
    begin(tmp_path / "stage")
    finish(tmp_path / "stage")
    assert begin(tmp_path / "stage", BuildConfig(seed=7), overwrite=True) is None
    assert not (tmp_path / "stage" / "manifest.json").exists()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        begin(tmp_path / "foreign", overwrite=True)
    assert (tmp_path / "foreign" / "thesis.tex").exists()


def test_a_path_that_cannot_be_written_to_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="Not a directory"):
        begin(tmp_path / "file" / "out")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    begin(tmp_path / "out")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"Cannot write to .*out: No space left on device"):
        write(tmp_path / "out", "shard", b"half")
    assert not (tmp_path / "out" / "shard").exists()


def test_files_that_a_failed_command_left_are_no_others(tmp_path: Path):
    begin(tmp_path)
    write(tmp_path, "tokenizer.json")
    begin(tmp_path, BuildConfig(seed=7))
    assert not (tmp_path / "tokenizer.json").exists()
    write(tmp_path, "thesis.tex", b"mine")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        begin(tmp_path)


def test_a_manifest_of_another_stage_is_refused(tmp_path: Path):
    write_manifest_of(tmp_path, "vocab")
    with pytest.raises(UserError, match="clozeworks vocab"):
        read_manifest(str(tmp_path), DocumentsManifest)
    with pytest.raises(UserError, match="does not exist: give a directory written by"):
        read_manifest(str(tmp_path / "nothing"), DocumentsManifest)


def test_documents_of_before_the_column_language_are_refused_in_one_line(tmp_path: Path):
    (tmp_path / "train-00000-of-00001.parquet").write_bytes(b"")
    write_manifest_of(tmp_path, "ingest", {"train-00000-of-00001.parquet": 1})
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
    write_manifest_of(tmp_path, "ingest")
    with pytest.raises(
        UserError,
        match=r"manifest.json lists no training shard: recreate it with `clozeworks ingest",
    ):
        read_manifest(str(tmp_path), DocumentsManifest)
