"""What an output directory is to a command: new, begun, finished, or somebody else's."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.job import Job, Plan, open_job
from clozeworks.pipeline.manifests import Manifest
from clozeworks.pipeline.storage.directory import OutputDirectory
from clozeworks.pipeline.storage.state import claimed, look, refuse_foreign, unfinished_stage
from msgspec import structs

from tests.fixtures.number_stage import NumberStage, Squares, square
from tests.fixtures.object_stores import object_store


def plan_of(stage: NumberStage, inputs: str = "ab", numpy: str = "1") -> Plan:
    plan = stage.plan()
    head = structs.replace(
        plan.head,
        inputs=[{"name": name} for name in inputs],
        versions={"numpy": numpy},
        fingerprint=f"{stage.seed} {inputs} {numpy}",
    )
    return Plan(head=head, setup=None, units=plan.units)


def begin(
    path: Path, seed: int = 0, overwrite: bool = False, **options: Any
) -> tuple[Job, Manifest | None]:
    stage = NumberStage(output=str(path), seed=seed)
    return open_job(stage, plan_of(stage, **options), overwrite)


def do_a_unit(path: Path, **options: Any) -> None:
    job, _ = begin(path, **options)
    job.do(0, Squares(square))


def finish(path: Path, **options: Any) -> None:
    job, _ = begin(path, **options)
    [phase] = NumberStage(output=str(path)).phases
    for number in job.start(phase):
        job.do(number, phase)
    job.finish(NumberStage(output=str(path), **options))


def add_foreign_file(path: Path) -> None:
    path.mkdir(exist_ok=True)
    (path / "thesis.tex").write_text("mine")


FOREIGN = r"out already contains other files \(thesis\.tex, …\)\. Choose another `output`\.$"
OTHER_WORK = (
    r"out was written with other settings \(seed was 1, now 0\)\. Choose another `output`, or "
    r"start over with `overwrite`\.$"
)


@pytest.mark.parametrize(
    ("prepare", "state", "overwritten"),
    [
        ([], "new", "new"),
        ([add_foreign_file], FOREIGN, FOREIGN),
        ([begin], "begun", "replaced"),
        ([do_a_unit], "begun", "replaced"),
        ([finish], "finished", "replaced"),
        ([partial(begin, seed=1)], "replaced", "replaced"),
        ([partial(do_a_unit, seed=1)], OTHER_WORK, "replaced"),
        ([partial(finish, seed=1)], OTHER_WORK, "replaced"),
        # With `overwrite` only what clozeworks wrote is deleted.
        ([partial(begin, seed=1), add_foreign_file], FOREIGN, "replaced"),
    ],
)
def test_what_is_found_decides(
    tmp_path: Path, prepare: list[Callable[[Path], object]], state: str, overwritten: str
):
    path = tmp_path / "out"
    for step in prepare:
        step(path)
    stage = NumberStage(output=str(path))
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for overwrite, wanted in ((False, state), (True, overwritten)):
        if wanted in ("new", "replaced", "begun", "finished"):
            found, manifest = look(str(path), plan_of(stage).head, overwrite=overwrite)
            assert found == wanted and (manifest is not None) == (found == "finished")
            continue
        with pytest.raises(UserError, match=wanted):
            look(str(path), plan_of(stage).head, overwrite=overwrite)
    # Looking changes nothing.
    assert files == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    if overwritten in ("new", "replaced"):
        begin(path, overwrite=True)
        kept = {file.name for file in path.iterdir()}
        assert kept == {".work"} | ({"thesis.tex"} if add_foreign_file in prepare else set())


def test_a_changed_input_is_named(tmp_path: Path):
    finish(tmp_path)
    for inputs, changed in (("abc", "c"), ("a", "b"), ("ba", "their order")):
        with pytest.raises(UserError, match=f"the inputs changed: {changed}"):
            begin(tmp_path, inputs=inputs)


def test_other_libraries_count_for_unfinished_work_alone(tmp_path: Path):
    do_a_unit(tmp_path)
    with pytest.raises(UserError, match="numpy was 1, now 2"):
        begin(tmp_path, numpy="2")
    finish(tmp_path)
    _, manifest = begin(tmp_path, numpy="2")
    assert manifest is not None and manifest.already_finished


def test_a_directory_says_which_stage_is_unfinished(tmp_path: Path):
    assert unfinished_stage(str(tmp_path)) is None
    begin(tmp_path)
    assert unfinished_stage(str(tmp_path)) == "ingest"
    finish(tmp_path)
    assert unfinished_stage(str(tmp_path)) is None


def test_files_that_a_failed_command_left_are_no_others(tmp_path: Path):
    job, _ = begin(tmp_path)
    job.write_bytes("tokenizer.json", b"{}")
    begin(tmp_path, seed=7)
    assert not (tmp_path / "tokenizer.json").exists()


@pytest.fixture
def claim(tmp_path: Path) -> Callable[..., AbstractContextManager[OutputDirectory]]:
    """Claim the folder ``out`` for an identity."""
    own_files = ("weights",)
    return partial(claimed, str(tmp_path / "out"), identity_file="run.json", own_files=own_files)


def test_the_same_identity_goes_on_without_what_a_kill_left(claim: Any, tmp_path: Path):
    with claim({"seed": 0}) as directory:
        directory.write_bytes("weights", b"0")
        directory.write_bytes(".work/half", b"half")
    with claim({"seed": 0}):
        assert (tmp_path / "out" / "weights").read_bytes() == b"0"
        assert not (tmp_path / "out" / ".work").exists()


def test_only_files_of_ones_own_are_deleted(claim: Any, tmp_path: Path):
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


@pytest.mark.parametrize("left", ["", ".hidden", "runs/1/.work/half", "runs/1/log", "link"])
def test_a_mistake_found_before_anything_was_done_leaves_no_claim(
    claim: Any, tmp_path: Path, left: str
):
    with pytest.raises(UserError, match="no model"), claim({"seed": 0}) as directory:
        if left == "link":
            (tmp_path / "out" / "link").symlink_to(tmp_path)
        elif left:
            directory.write_bytes(left, b"0")
        raise UserError("no model")
    assert (tmp_path / "out" / "run.json").exists() == (left in ("runs/1/log", "link"))


def test_another_identity_is_refused_by_its_fields(claim: Any):
    with claim({"seed": 0, "steps": 5}):
        pass
    with pytest.raises(UserError) as raised, claim({"seed": 1, "rate": 2}):
        pass
    assert str(raised.value).endswith(
        "out was written with other settings (seed was 0, now 1; steps was 5, now None; "
        "rate was None, now 2). Choose another `output`, or start over with `overwrite`."
    )


def test_another_identity_takes_over_if_nothing_is_lost(claim: Any, tmp_path: Path):
    with claim({"seed": 0}) as directory:
        directory.write_bytes("weights", b"0")
    with claim({"seed": 1}, results=("summary.json",)):
        assert not (tmp_path / "out" / "weights").exists()
    with pytest.raises(UserError, match="seed was 1, now 0"), claim({"seed": 0}):
        pass


def test_a_folder_that_is_a_link_is_a_result_and_one_of_a_similar_path_is_not(
    claim: Any, tmp_path: Path
):
    with claim({"seed": 0}):
        pass
    (tmp_path / "scratch" / "step").mkdir(parents=True)
    (tmp_path / "out" / "checkpoints").symlink_to(tmp_path / "scratch")
    with (
        pytest.raises(UserError, match="seed was 0, now 1"),
        claim({"seed": 1}, results=("checkpoints",)),
    ):
        pass
    for folder, files in (("o[1]", []), ("o1", ["summary.json"])):
        with claimed(str(tmp_path / folder), {"seed": 0}, "run.json", files) as directory:
            for name in files:
                directory.write_bytes(name, b"{}")
    with claimed(str(tmp_path / "o[1]"), {"seed": 1}, "run.json", [], results=["summary.json"]):
        pass


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_of_others_is_refused(claim: Any, tmp_path: Path, overwrite: bool):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".DS_Store").touch()  # hidden files are nobody's work
    with claim({"seed": 0}):
        pass
    (tmp_path / "out" / "run.json").rename(tmp_path / "out" / "thesis.tex")
    with (
        pytest.raises(UserError, match=r"already contains other files \(thesis\.tex, …\)"),
        claim({"seed": 0}, overwrite=overwrite),
    ):
        pass
    assert (tmp_path / "out" / "thesis.tex").exists()


def test_a_damaged_identity_is_refused_until_it_is_overwritten(claim: Any, tmp_path: Path):
    with claim({"seed": 0}):
        pass
    (tmp_path / "out" / "run.json").write_text('{"seed":')
    with (
        pytest.raises(UserError, match=r"run\.json .*or start over with `overwrite`"),
        claim({"seed": 0}),
    ):
        pass
    with claim({"seed": 1}, overwrite=True):
        pass
    with claim({"seed": 1}):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_files_of_others_in_a_bucket_are_found(scheme: str):
    with object_store(scheme) as bucket:
        refuse_foreign(f"{bucket}/empty")
        OutputDirectory(f"{bucket}/out").write_bytes("train-0.parquet", b"0")
        refuse_foreign(f"{bucket}/out", but=re.compile(r"train-\d\.parquet"))
        with pytest.raises(UserError, match=r"other files \(train-0\.parquet"):
            refuse_foreign(f"{bucket}/out")
        OutputDirectory(f"{bucket}/data").write_bytes("documents/train-0.parquet", b"0")
        with pytest.raises(UserError, match=r"other files \(documents, "):
            refuse_foreign(f"{bucket}/data")
