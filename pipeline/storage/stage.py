"""The output directory of a data stage: how it begins, resumes or is refused, and its manifest,
which goes last.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Literal, cast

import msgspec
from msgspec import structs

from .. import storage
from ..errors import UserError
from ..manifests import (
    KINDS,
    SCHEMA_VERSION,
    AnyManifest,
    DocumentsShard,
    Manifest,
    Plan,
    VocabularyManifest,
    parse_manifest,
)
from ..parsing import parse_json
from .directory import (
    WORK,
    OutputDirectory,
    canonical_json,
    changed_fields,
    digest_of,
    lock,
    other_settings,
    refuse_foreign,
    unlock,
)

MANIFEST = "manifest.json"
TIMINGS = "timings.json"
PLAN = f"{WORK}/plan.json"
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
WORD_COUNTS_FILE = "word_counts.parquet"

_SHARD = r"(train|validation)-\d+-of-\d+\.parquet"
_STAGE_FILES = re.compile(
    "|".join([_SHARD, *map(re.escape, (*VOCABULARY_FILES, WORD_COUNTS_FILE, TIMINGS))])
)


@dataclass(frozen=True)
class StageDirectory(OutputDirectory):
    """The output directory of a data stage, with the fingerprint of its work; travels to the
    workers.
    """

    fingerprint: str
    begun: float = field(default_factory=time.monotonic, compare=False)

    @contextmanager
    def unlocked_at_end(self) -> Iterator[None]:
        """Give up the lock of `open_stage` when the block ends, also by an error: another process
        may go on.
        """
        try:
            yield
        finally:
            unlock(self.path)

    def finish(self, manifest: dict[str, Any], kind: type[AnyManifest]) -> AnyManifest:
        """Write the manifest, the last file of a stage, delete what is temporary, and return the
        manifest, checked.
        """
        content = canonical_json(manifest)
        parsed = parse_manifest(content, self.file(MANIFEST))
        self.write_bytes(
            TIMINGS, canonical_json({"seconds": round(time.monotonic() - self.begun, 3)})
        )
        self.write_bytes(MANIFEST, content)
        storage.remove(self.file(WORK))
        return cast(AnyManifest, parsed)


def read_manifest(directory: str, kind: type[AnyManifest]) -> AnyManifest:
    """Return the manifest of a finished directory of one kind.

    Raise `UserError` if there is none, or a shard that it lists is missing or does not have its
    size.
    """
    [stage] = [name for name, each in KINDS.items() if each is kind]
    manifest = read_any_manifest(directory, f"`clozeworks {stage}`")
    if not isinstance(manifest, kind):
        raise UserError(
            f"{directory} was written by `clozeworks {manifest.stage}`, not by `clozeworks {stage}`."
        )
    damage = _damage(directory, manifest)
    if not isinstance(manifest, VocabularyManifest) and not any(
        shard.split == "train" for shard in manifest.shards
    ):
        damage = f"{storage.join(directory, MANIFEST)} lists no training shard"
    if damage:
        raise UserError(f"{damage}: recreate it with `clozeworks {stage} … --overwrite`.")
    return manifest


def read_any_manifest(
    directory: str, writer: str = "clozeworks ingest, vocab or build"
) -> Manifest:
    """Return the manifest of a finished directory; raise `UserError`, naming its `writer`, if there
    is none.
    """
    if manifest := _read_manifest(directory):
        return manifest
    if unfinished_stage(directory):
        raise UserError(f"{directory} is unfinished: rerun the command that writes it; it resumes.")
    fault = describe_absence(directory) or f"{directory} has no {MANIFEST}"
    raise UserError(f"{fault}: give a directory written by {writer}.")


def describe_absence(directory: str) -> str:
    """Say why a local path is not a directory with files; empty if it is one, or is remote."""
    if storage.is_remote(directory):
        return ""
    if not os.path.exists(directory):
        return f"{directory} does not exist"
    if os.path.isfile(directory):
        return f"{directory} is a file"
    return "" if os.listdir(directory) else f"The folder {directory} is empty"


def unfinished_stage(directory: str) -> str | None:
    """Return the name of the stage that has begun in a directory and not ended, or None."""
    begun = _read_plan(directory)
    return begun.stage if begun and not storage.exists(storage.join(directory, MANIFEST)) else None


def _damage(directory: str, manifest: Manifest) -> str | None:
    """Return what is wrong with a finished directory: a file is missing or cut off, or all are of
    an old version.
    """
    sizes = storage.file_sizes(directory)
    if isinstance(manifest, VocabularyManifest):
        missing = {manifest.word_counts.name, *VOCABULARY_FILES} - sizes.keys()
        return f"{storage.join(directory, min(missing))} is missing" if missing else None
    for shard in manifest.shards:
        if shard.name not in sizes:
            return f"{storage.join(directory, shard.name)} is missing"
        if sizes[shard.name] != shard.bytes:
            return f"{storage.join(directory, shard.name)} does not have the size recorded in {MANIFEST}"
        if isinstance(shard, DocumentsShard) and shard.rows and not shard.groups:
            return f"{directory} was written before documents had a language"
    return None


def manifest_head(
    stage: str, config: Any, inputs: Sequence[dict[str, Any]], *libraries: str
) -> dict[str, Any]:
    """Return what a manifest begins with: the stage, what it was asked for, and the fingerprint of
    that.

    `libraries` are those that the output depends on, besides NumPy and PyArrow.
    """
    asked = {
        "stage": stage,
        "config": json.loads(json.dumps(asdict(config))),
        "inputs": list(inputs),
        "versions": {
            name: version(name) for name in ("clozeworks", "numpy", "pyarrow", *libraries)
        },
    }
    return {**asked, "fingerprint": digest_of(asked), "schema_version": SCHEMA_VERSION}


def check_output(
    path: str, head: dict[str, Any], overwrite: bool
) -> Literal["new", "begun", "finished"]:
    """Return the state of the work of `head` in the directory `path`; change nothing.

    Raise `UserError` if the directory holds anything else, unless it is to `overwrite`, or nothing
    of it is done: most often it is the same command with a mistake that was reported at once.
    """
    found = _read_manifest(path)
    begun = _read_plan(path, MANIFEST if found else PLAN)
    if begun is None:
        refuse_foreign(path)
    if begun is None or overwrite:
        return "new"
    if changes := _stage_changes(msgspec.to_builtins(begun), head, with_versions=found is None):
        if found is None and not _has_records(path):
            refuse_foreign(path, but=_STAGE_FILES)
            return "new"
        raise other_settings(path, changes)
    if found and (damage := _damage(path, found)):
        raise UserError(f"{damage}: recreate all of {path} with --overwrite.")
    return "finished" if found else "begun"


def open_stage(
    path: str, head: dict[str, Any], kind: type[AnyManifest], overwrite: bool
) -> tuple[StageDirectory, AnyManifest | None]:
    """Begin or resume the work of `head` in the directory `path`; see `check_output` for what is
    refused.

    Return the directory, and its manifest if the stage is already finished. Otherwise the directory
    stays locked until the end of `StageDirectory.unlocked_at_end`; raise `UserError` if another
    process has locked it.
    """
    directory = StageDirectory(path, head["fingerprint"])
    finished = _read_manifest(path) if check_output(path, head, overwrite) == "finished" else None
    try:
        lock(path)
    except UserError:
        if finished is None:
            raise
        return directory, _already_finished(finished)  # what lies beside it is the other process's
    opened = False
    try:
        state = check_output(path, head, overwrite)  # another process may have changed it just now
        if state == "finished" and (finished := _read_manifest(path)):
            directory.remove(WORK)
            return directory, _already_finished(finished)
        if state == "new":
            # The manifest goes last, so that what a kill leaves still has an owner.
            own = [name for name in storage.file_sizes(path) if _STAGE_FILES.fullmatch(name)]
            directory.remove(*own, WORK, MANIFEST)
            directory.write_bytes(PLAN, canonical_json(head))
        opened = True
        return directory, None
    finally:
        if not opened:
            unlock(path)


def _already_finished(manifest: Manifest) -> Any:
    return structs.replace(manifest, already_finished=True)


def _read_manifest(directory: str) -> Manifest | None:
    """Return the manifest of a directory, or None if there is none; raise `UserError` if it is
    damaged.
    """
    path = storage.join(directory, MANIFEST)
    with suppress(FileNotFoundError):  # another process may remove it at any time
        return parse_manifest(storage.read_bytes(path), path) if storage.exists(path) else None
    return None


def _read_plan(directory: str, name: str = PLAN) -> Plan | None:
    path = storage.join(directory, name)
    with suppress(FileNotFoundError):  # another process may remove it at any time
        return parse_json(storage.read_bytes(path), Plan, path) if storage.exists(path) else None
    return None


def _stage_changes(
    stored: dict[str, Any], wanted: dict[str, Any], with_versions: bool
) -> list[str]:
    if stored["stage"] != wanted["stage"]:
        return [f"it was written by `clozeworks {stored['stage']}`"]
    parts = ["config", *(["versions"] if with_versions else [])]
    changes = [change for part in parts for change in changed_fields(stored[part], wanted[part])]
    if stored["inputs"] != wanted["inputs"]:
        changes.append(f"the inputs changed: {_changed_input(stored['inputs'], wanted['inputs'])}")
    return changes


def _changed_input(there: list[dict[str, Any]], here: list[dict[str, Any]]) -> str:
    by_digest = [{digest_of(entry): entry for entry in entries} for entries in (there, here)]
    changed = sorted(by_digest[0].keys() ^ by_digest[1].keys())
    if not changed:
        return "their order"
    entry = (by_digest[0] | by_digest[1])[changed[0]]
    return str(entry.get("name", entry.get("stage")))


def _has_records(path: str) -> bool:
    """Return whether any unit of work is done in an unfinished directory."""
    found = storage.find_files(storage.join(path, WORK))
    return any(name.rsplit("/", 1)[1].removesuffix(".json").isdecimal() for name in found)
