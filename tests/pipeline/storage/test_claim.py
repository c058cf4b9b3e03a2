"""What an output directory is to a command: a table of cases, and claims of local directories."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.storage.claim import (
    Found,
    changed_fields,
    claimed,
    decide,
    find_work,
    other_file,
)
from clozeworks.pipeline.storage.directory import OutputDirectory

from tests.fixtures.object_stores import object_store

NOTHING = Found(changes=None)
OTHERS = Found(changes=None, other_file="thesis.tex")
SAME = Found(changes=[])
FINISHED = Found(changes=[], is_finished=True)
CHANGED = Found(changes=["seed was 0, now 1"])
CHANGED_AND_FINISHED = Found(changes=["seed was 0, now 1"], is_finished=True)
CHANGED_WITHOUT_RESULTS = Found(changes=["seed was 0, now 1"], has_results=False)
CHANGED_AMONG_OTHERS = Found(
    changes=["seed was 0, now 1"], has_results=False, other_file="thesis.tex"
)
FOREIGN = r"^out already contains other files \(thesis\.tex, …\)\. Choose another `output`\.$"
OTHER_WORK = (
    r"^out was written with other settings \(seed was 0, now 1\)\. Choose another `output`, or "
    r"start over with `overwrite`, or wait\.$"
)


@pytest.mark.parametrize(
    ("found", "state", "overwritten"),
    [
        (NOTHING, "new", "new"),
        (SAME, "begun", "new"),
        (FINISHED, "finished", "new"),
        (CHANGED_WITHOUT_RESULTS, "new", "new"),
        (CHANGED, OTHER_WORK, "new"),
        (CHANGED_AND_FINISHED, OTHER_WORK, "new"),
        (OTHERS, FOREIGN, FOREIGN),
        # With `overwrite` only what clozeworks wrote is deleted.
        (CHANGED_AMONG_OTHERS, FOREIGN, "new"),
    ],
)
def test_what_is_found_decides(found: Found, state: str, overwritten: str):
    for overwrite, wanted in ((False, state), (True, overwritten)):
        if wanted in ("new", "begun", "finished"):
            assert decide("out", found, overwrite=overwrite) == wanted
            continue
        with pytest.raises(UserError, match=wanted):
            decide("out", found, overwrite=overwrite, advice=", or wait")


def test_changed_fields_are_those_of_both():
    assert changed_fields({"a": 1}, {"a": 1}) == []
    assert changed_fields({"a": [80, 20]}, {"a": (80, 20)}) == []  # JSON has no tuples
    assert changed_fields({"a": 1, "b": 2}, {"b": 3, "c": 4}) == [
        "a was 1, now None",
        "b was 2, now 3",
        "c was None, now 4",
    ]


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


def test_another_identity_is_refused_by_its_fields(claim: Any):
    with claim({"seed": 0, "steps": 5}):
        pass
    with (
        pytest.raises(UserError) as raised,
        claim({"seed": 1, "rate": 2}, advice=", or go on with `checkpoint`"),
    ):
        pass
    assert str(raised.value).endswith(
        "out was written with other settings (seed was 0, now 1; steps was 5, now None; "
        "rate was None, now 2). Choose another `output`, or start over with `overwrite`, "
        "or go on with `checkpoint`."
    )


def test_another_identity_takes_over_if_nothing_is_lost(claim: Any, tmp_path: Path):
    with claim({"seed": 0}) as directory:
        directory.write_bytes("weights", b"0")
    with claim({"seed": 1}, results=("summary.json",)):
        assert not (tmp_path / "out" / "weights").exists()
    with pytest.raises(UserError, match="seed was 1, now 0"), claim({"seed": 0}):
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
def test_files_of_others_in_a_bucket_are_found():
    with object_store("s3") as bucket:
        assert other_file(f"{bucket}/empty") is None
        OutputDirectory(f"{bucket}/out").write_bytes("train-0.parquet", b"0")
        assert other_file(f"{bucket}/out", but=re.compile(r"train-\d\.parquet")) is None
        assert other_file(f"{bucket}/out") == "train-0.parquet"


def test_a_damaged_identity_is_only_looked_at_where_it_counts(tmp_path: Path):
    (tmp_path / "run.json").write_text('{"seed":')
    assert find_work(str(tmp_path), {}, "run.json", None, overwrite=True).changes == ()
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        find_work(str(tmp_path), {}, "run.json", None, overwrite=False)
