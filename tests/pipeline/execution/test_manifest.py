"""A manifest that lacks something is told in a line, by every command that reads it, for every field."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.manifest import parse_manifest, parse_plan
from manifest_fixture import make_manifest

SHARDS = [{"name": "train-00000-of-00001.parquet", "split": "train", "rows": 3, "bytes": 9}]
MANIFESTS = [make_manifest(stage, SHARDS) for stage in ("ingest", "vocab", "build")]


def damaged(value: Any) -> Iterator[Any]:
    """Yield `value`, plain JSON, without each of its fields in turn, and with each of them of another type."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(value, dict):
            yield {name: kept for name, kept in value.items() if name != key}
        for other in (None, True, [None] if isinstance(item, dict | str) else "9", *damaged(item)):
            copy = value.copy()
            copy[key] = other
            yield copy


def parse(manifest: Any) -> dict[str, Any]:
    return parse_manifest(json.dumps(manifest).encode(), "d/manifest.json")


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["stage"])
def test_each_field_that_is_gone_or_of_another_type_is_named(manifest: dict[str, Any]):
    assert parse(manifest) == manifest
    free = 0
    for wrong in damaged(manifest):
        try:
            free += bool(parse(wrong))
        except UserError as error:
            assert str(error).startswith("d/manifest.json is damaged, or not of clozeworks (")
    # What may be missing: languages, and the marks of a rare token, which are only shown.
    assert free <= 8


def test_the_place_in_the_file_is_named():
    build = MANIFESTS[2]
    places = {
        "it has no 'shards'": {name: value for name, value in build.items() if name != "shards"},
        "shards is not a list": {**build, "shards": {}},
        "shards[0] has no 'rows'": {**build, "shards": [{"name": "a", "split": "b"}]},
        "shards[0].bytes is not a whole number": {**build, "shards": [{**build["shards"][0], "bytes": "9"}]},
        "shards[0].split is not train or validation": {**build, "shards": [{**build["shards"][0], "split": "test"}]},
        "config has no 'duplicates'": {**build, "config": {"max_length": 128}},
        "counts.rows is not a whole number": {**build, "counts": {"rows": 0.5}},
        "it is not an object": [],
    }
    for place, manifest in places.items():
        with pytest.raises(UserError) as raised:
            parse(manifest)
        assert f"({place})" in str(raised.value)


def test_a_plan_needs_only_what_was_asked():
    plan = make_manifest("build")
    for name in ("counts", "bad", "examples", "tokenizer", "shards"):
        del plan[name]
    assert parse_plan(json.dumps(plan).encode(), "plan.json") == plan
    del plan["inputs"]
    with pytest.raises(UserError, match=r"plan.json is damaged.*it has no 'inputs'"):
        parse_plan(json.dumps(plan).encode(), "plan.json")


@pytest.mark.parametrize(
    ("stage", "command"),
    [
        ("ingest", "vocab DIR --output OUT"),
        ("ingest", "vocab DIR --output OUT --dry-run"),
        ("ingest", "build DIR --vocab DIR --output OUT"),
        ("ingest", "show DIR"),
        ("ingest", "vocab WHOLE --output DIR"),
        ("build", "audit DIR"),
        ("build", "show DIR"),
        ("build", "pretrain DIR --output OUT"),
        ("build", "evaluate OUT DIR"),
    ],
)
def test_every_command_tells_it_in_a_line(stage: str, command: str, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["clozeworks"])
    for name in ("dir", "whole"):
        (tmp_path / name).mkdir()
    (tmp_path / "whole" / SHARDS[0]["name"]).write_bytes(bytes(9))
    (tmp_path / "whole" / "manifest.json").write_text(json.dumps(make_manifest("ingest", SHARDS)))
    lacking = make_manifest(stage)
    del lacking["shards"]
    (tmp_path / "dir" / "manifest.json").write_text(json.dumps(lacking))
    places = {"DIR": "dir", "OUT": "out", "WHOLE": "whole"}
    arguments = [str(tmp_path / places[word]) if word in places else word for word in command.split()]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.count("\n") == 1
    assert f"{tmp_path / 'dir'}/manifest.json is damaged, or not of clozeworks (it has no 'shards')" in told
