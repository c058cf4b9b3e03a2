"""What a stage's directory promises: complete files, resume by records, refusal of other work."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution import storage
from clozeworks.pipeline.execution.directory import (
    StageDirectory,
    manifest_head,
    open_stage,
    read_manifest,
)
from manifest_fixture import make_manifest, write_manifest


def head_of(config: BuildConfig | None = None, numpy: str = "1", inputs: tuple[str, ...] = ("a", "b")):
    return manifest_head("build", config or BuildConfig(), [{"name": name} for name in inputs], {"numpy": numpy})


def whole_manifest():
    return make_manifest("build", **head_of())


def open_build(path: Path, config: BuildConfig | None = None, overwrite: bool = False):
    return open_stage(str(path), head_of(config), overwrite)


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path):
    directory = StageDirectory(str(tmp_path), "f")
    with pytest.raises(OSError, match="disk full"), directory.write("shard") as file:
        file.write(b"half")
        raise OSError("disk full")
    assert not (tmp_path / "shard").exists()
    assert list((tmp_path / ".work" / "tmp").iterdir()) == []


def test_finished_work_is_left_alone_and_other_work_refused(tmp_path: Path):
    directory, manifest = open_build(tmp_path)
    assert manifest is None
    directory.finish(whole_manifest(), {})
    assert not (tmp_path / ".work").exists()
    assert open_build(tmp_path)[1] == whole_manifest()
    with pytest.raises(UserError, match="seed was 0, now 7"):
        open_build(tmp_path, BuildConfig(seed=7))
    with pytest.raises(UserError, match="the inputs changed: c"):
        open_stage(str(tmp_path), head_of(inputs=("a", "b", "c")), False)


def test_a_shard_that_is_gone_or_cut_off_is_told(tmp_path: Path):
    directory, _ = open_build(tmp_path)
    directory.write_bytes("shard", b"whole")
    shard = {"name": "shard", "split": "train", "rows": 1, "bytes": 5}
    directory.finish(make_manifest("build", [shard], **head_of()), {})
    assert read_manifest(str(tmp_path), "build")["stage"] == "build"
    (tmp_path / "shard").write_bytes(b"who")
    with pytest.raises(UserError, match=r"shard does not have the size recorded in manifest\.json"):
        read_manifest(str(tmp_path), "build")
    (tmp_path / "shard").unlink()
    with pytest.raises(UserError, match=r"shard is missing: recreate all of .* with --overwrite"):
        open_build(tmp_path)
    assert open_build(tmp_path, overwrite=True)[1] is None


def test_unfinished_work_of_other_libraries_is_refused(tmp_path: Path):
    open_build(tmp_path)[0].write_bytes(".work/build/00000.json", b"{}")
    with pytest.raises(UserError, match="numpy was 1, now 2"):
        open_stage(str(tmp_path), head_of(numpy="2"), False)


def test_other_work_of_which_nothing_is_done_gives_way(tmp_path: Path):
    open_build(tmp_path)
    directory, manifest = open_build(tmp_path, BuildConfig(seed=7))
    assert manifest is None
    directory.write_bytes(".work/build/00000.json", b"{}")
    with pytest.raises(UserError, match="seed was 7, now 0"):
        open_build(tmp_path)


def test_overwrite_throws_away_only_a_stages_own_directory(tmp_path: Path):
    directory, _ = open_build(tmp_path / "stage")
    directory.finish(whole_manifest(), {})
    assert open_build(tmp_path / "stage", BuildConfig(seed=7), overwrite=True)[1] is None
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        open_build(tmp_path / "foreign", overwrite=True)
    assert (tmp_path / "foreign" / "thesis.tex").exists()


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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


def test_two_processes_do_not_write_one_directory(tmp_path: Path):
    script = "import sys, test_directory; test_directory.hold(sys.argv[1])"
    command = [sys.executable, "-c", script, str(tmp_path / "out")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        with pytest.raises(UserError, match=r"Another process is writing .*out"):
            open_build(tmp_path / "out")
        with pytest.raises(UserError, match="is writing"):
            open_build(tmp_path / "out", BuildConfig(seed=7), overwrite=True)
        other.kill()
    directory, _ = open_build(tmp_path / "out")  # the lock of a killed process is no lock
    assert open_build(tmp_path / "out")[1] is None  # nor is a process's own
    directory.finish(whole_manifest(), {})
    assert open_build(tmp_path / "out")[1] == whole_manifest()


def hold(path: str) -> None:
    open_build(Path(path))
    print("begun", flush=True)
    sys.stdin.read()


def test_a_manifest_of_another_stage_is_told(tmp_path: Path):
    write_manifest(tmp_path, "vocab")
    with pytest.raises(UserError, match="clozeworks vocab"):
        read_manifest(str(tmp_path), "ingest")
    with pytest.raises(UserError, match="There is no directory"):
        read_manifest(str(tmp_path / "nothing"), "ingest")


def test_a_manifest_without_training_shards_is_told(tmp_path: Path):
    write_manifest(tmp_path, "ingest")
    with pytest.raises(UserError, match=r"manifest.json lists no training shard: recreate it with `clozeworks ingest"):
        read_manifest(str(tmp_path), "ingest")


def test_a_folder_is_searched_in_order_without_hidden_files(tmp_path: Path):
    for name in ("b.txt", "a.txt", ".hidden.txt", "sub/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = [Path(path).relative_to(tmp_path).as_posix() for path in storage.find_files(str(tmp_path))]
    assert found == ["a.txt", "b.txt", "sub/c.txt"]
