"""A damaged manifest is one line naming the field, in every command that reads it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.manifests import SCHEMA_VERSION, Manifest, parse_manifest
from msgspec.structs import replace

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.manifest_fixture import make_manifest

SHARDS = [{"name": "train-00000-of-00001.parquet", "split": "train", "rows": 3, "bytes": 9}]
MANIFESTS = [make_manifest(stage, SHARDS) for stage in ("ingest", "vocab", "build")]


def damaged(value: Any) -> Iterator[Any]:
    """Yield plain JSON without each of its fields in turn, and with each of another type."""
    values = value if isinstance(value, list) else []
    items = value.items() if isinstance(value, dict) else enumerate(values)
    for key, item in items:
        if isinstance(value, dict):
            yield {name: kept for name, kept in value.items() if name != key}
        for other in (None, True, [None] if isinstance(item, dict | str) else "9", *damaged(item)):
            copy = value.copy()
            copy[key] = other
            yield copy


def parse(manifest: Any) -> Manifest:
    return parse_manifest(json.dumps(manifest).encode(), "d/manifest.json")


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["stage"])
def test_each_field_that_is_gone_or_of_another_type_is_named(manifest: dict[str, Any]):
    assert json.loads(msgspec.json.encode(replace(parse(manifest), digest=""))) == manifest
    accepted = []
    for wrong in damaged(manifest):
        try:
            accepted.append(parse(wrong))
        except UserError as error:
            message = "d/manifest.json is damaged or was not written by clozeworks ("
            assert str(error).startswith(message)
    # Fields with defaults: languages, options (None is a default too), and the free form of inputs.
    assert len(accepted) <= 40


def test_the_field_is_named():
    build = MANIFESTS[2]
    shard = build["shards"][0]
    faults = {
        "shards: expected array, got object": {**build, "shards": {}},
        "shards[0].bytes: expected int >= 0": {**build, "shards": [{**shard, "bytes": -1}]},
        "config.duplicates: expected int >= 1": {**build, "config": {"duplicates": 0}},
        "counts[...]: expected int, got float": {**build, "counts": {"rows": 0.5}},
        "expected object, got array": [],
    }
    for fault, manifest in faults.items():
        with pytest.raises(UserError) as raised:
            parse(manifest)
        assert f"({fault})" in str(raised.value)


@pytest.mark.parametrize("name", ["/etc/passwd", "..", "a/b", "a\\b", ".hidden", "", "a\0"])
def test_a_shard_is_a_plain_file_name(name: str):
    with pytest.raises(UserError, match="plain file name"):
        parse(make_manifest("build", [{**SHARDS[0], "name": name}]))


@pytest.mark.slow
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
        ("build", "evaluate MODEL DIR"),
    ],
)
def test_every_command_reports_it_in_a_line(
    stage: str, command: str, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setattr(sys, "argv", ["clozeworks"])
    for name in ("dir", "whole"):
        (tmp_path / name).mkdir()
    (tmp_path / "whole" / SHARDS[0]["name"]).write_bytes(bytes(9))
    (tmp_path / "whole" / "manifest.json").write_text(json.dumps(make_manifest("ingest", SHARDS)))
    lacking = make_manifest(stage)
    del lacking["shards"]
    (tmp_path / "dir" / "manifest.json").write_text(json.dumps(lacking))
    make_checkpoint(tmp_path / "model")
    paths = {"DIR": "dir", "OUT": "out", "WHOLE": "whole", "MODEL": "model"}
    arguments = [str(tmp_path / paths[word]) if word in paths else word for word in command.split()]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    reported = capsys.readouterr().err
    assert ended.value.code == 2
    assert reported.count("\n") == 1
    damaged = f"{tmp_path / 'dir'}/manifest.json is damaged or was not written by clozeworks"
    assert f"{damaged} (object missing" in reported


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["stage"])
def test_a_later_schema_version_is_one_clear_line(manifest: dict[str, Any]):
    assert parse(manifest) == replace(
        parse({**manifest, "schema_version": 1}), digest=parse(manifest).digest
    )
    later = {**manifest, "schema_version": SCHEMA_VERSION + 1}
    later |= {"stage": "a stage to come", "counts": "in other words"}
    with pytest.raises(UserError) as raised:
        parse(later)
    assert str(raised.value) == (
        "d/manifest.json has schema version 2, "
        "but this clozeworks reads versions up to 1: upgrade clozeworks."
    )
    with pytest.raises(UserError, match="schema_version: expected int"):
        parse({**manifest, "schema_version": "1"})
