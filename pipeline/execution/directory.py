"""The output directory of a stage: what it was asked for, which units of work are done, and its manifest.

A unit of work (an input range, a shard) writes its file and then its *record* (counters, digest) under
``.work/PHASE/UNIT.json``; a unit with a record is done, and is skipped when the same command runs again. The manifest
is written last, and ``.work/`` removed: a directory without a manifest is unfinished. All that is written goes
through `StageDirectory.write`, so that a file under its final name is complete.
"""

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, BinaryIO, Literal, cast, overload

import msgspec

from ..errors import UserError
from ..manifests import (
    AnyManifest,
    DocumentsManifest,
    InstancesManifest,
    Manifest,
    Plan,
    VocabularyManifest,
    parse_manifest,
    parse_plan,
)
from . import storage

MANIFEST = "manifest.json"
TIMINGS = "timings.json"
PLAN = ".work/plan.json"
WORK = ".work"

# What the user can mend: no room, no permission, or something else where the directory should be.
_NOT_WRITABLE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST),
}


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON whose bytes depend on nothing but the value."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def digest_of(value: Any) -> str:
    """Return the blake2b digest (32 hexadecimal digits) of a JSON value or of bytes."""
    content = value if isinstance(value, bytes) else canonical_json(value)
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@contextmanager
def _unwritable_as_user_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        reason = f"{path} cannot be written to: {error.strerror}"
        raise UserError(f"{reason}. Mend that and run the same command again, it goes on.") from None


@dataclass(frozen=True)
class StageDirectory:
    """An output directory and the fingerprint of what is made in it; travels to the workers."""

    path: str
    fingerprint: str

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """Open the file `name` (relative to the directory) for writing; it appears when it is complete.

        Raise `UserError` where the disk is full or the place cannot be written to.
        """
        temporary = self.file(f"{WORK}/tmp")
        with _unwritable_as_user_error(self.path), storage.write_atomically(self.file(name), temporary) as file:
            yield file

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a small file whole."""
        with self.write(name) as file:
            file.write(content)

    def file(self, name: str) -> str:
        """Return the path of the file `name` of this directory."""
        return storage.join(self.path, name)

    def finish(self, manifest: dict[str, Any], timings: dict[str, Any]) -> dict[str, Any]:
        """Write the manifest, the last file of a stage, clear away what was temporary, and return the manifest."""
        self.write_bytes(TIMINGS, canonical_json(timings))
        self.write_bytes(MANIFEST, canonical_json(manifest))
        storage.remove(self.file(WORK))
        _unlock(self.path)
        return manifest


def library_versions(*names: str) -> dict[str, str]:
    """Return the installed versions of this package and of the libraries that the output depends on."""
    return {name: version(name) for name in ("clozeworks", "numpy", "pyarrow", *names)}


@overload
def read_manifest(directory: str, kind: type[AnyManifest]) -> AnyManifest: ...
@overload
def read_manifest(directory: str, kind: str) -> dict[str, Any]: ...
def read_manifest(directory: str, kind: type[AnyManifest] | str) -> AnyManifest | dict[str, Any]:
    """Return the manifest of a finished directory of one kind.

    Raise `UserError` if there is none, or a shard that it lists is missing or does not have its size.
    """
    stage = kind if isinstance(kind, str) else _STAGES[kind]
    manifest = read_any_manifest(directory, f"`clozeworks {stage}`")
    if manifest.stage != stage:
        raise UserError(f"{directory} was written by `clozeworks {manifest.stage}`, not by `clozeworks {stage}`.")
    damage = _damage(directory, manifest)
    if not isinstance(manifest, VocabularyManifest) and not any(shard.split == "train" for shard in manifest.shards):
        damage = f"{storage.join(directory, MANIFEST)} lists no training shard"
    if damage:
        raise UserError(f"{damage}: recreate it with `clozeworks {stage} … --overwrite`.")
    return cast(AnyManifest, manifest) if not isinstance(kind, str) else _raw_manifest(directory)


_STAGES: dict[type, str] = {DocumentsManifest: "ingest", VocabularyManifest: "vocab", InstancesManifest: "build"}


def read_any_manifest(directory: str, writer: str = "clozeworks ingest, vocab or build") -> Manifest:
    """Return the manifest of a finished directory; raise `UserError`, naming its `writer`, if there is none."""
    if manifest := _read_manifest(directory):
        return manifest
    if unfinished_stage(directory):
        raise UserError(f"{directory} is unfinished: rerun the command that writes it; it resumes.")
    if not storage.is_remote(directory) and not os.path.isdir(directory):
        raise UserError(f"There is no directory {directory}.")
    raise UserError(f"{directory} has no {MANIFEST}: give a directory written by {writer}.")


def unfinished_stage(directory: str) -> str | None:
    """Return the name of the stage that has begun in a directory and not ended, or None."""
    begun = _read_plan(directory)
    return begun.stage if begun and not storage.exists(storage.join(directory, MANIFEST)) else None


def _damage(directory: str, manifest: Manifest) -> str | None:
    """Return which shard of a finished directory is missing or cut off, judged by names and sizes."""
    if isinstance(manifest, VocabularyManifest):
        return None
    sizes = storage.file_sizes(directory)
    for shard in manifest.shards:
        if shard.name not in sizes:
            return f"{storage.join(directory, shard.name)} is missing"
        if sizes[shard.name] != shard.bytes:
            return f"{storage.join(directory, shard.name)} does not have the size recorded in {MANIFEST}"
    return None


def input_fingerprint(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the reference to an input directory that a stage stores in its own manifest."""
    return {"stage": manifest["stage"], "digest": digest_of(manifest)}


def manifest_head(
    stage: str, config: Any, inputs: Sequence[dict[str, Any]], versions: dict[str, str]
) -> dict[str, Any]:
    """Return what a manifest begins with: the stage, what it was asked for, and the fingerprint of that."""
    asked = {"stage": stage, "config": _plain(asdict(config)), "inputs": list(inputs), "versions": versions}
    return {**asked, "fingerprint": digest_of(asked)}


def check_output(path: str, head: dict[str, Any], overwrite: bool) -> Literal["new", "begun", "finished"]:
    """Tell how far the work of `head` is in the directory `path`; change nothing.

    Raise `UserError` where the directory holds something else, unless it is other work to `overwrite`, or other work of
    which nothing is done: most often the same command with a mistake that was told at once.
    """
    found = _read_manifest(path)
    begun = _read_plan(path, MANIFEST if found else PLAN)
    if begun is None:
        _refuse_foreign(path)
    if begun is None or overwrite:
        return "new"
    if differences := _differences(msgspec.to_builtins(begun), head, with_versions=found is None):
        if found is None and not _has_records(path):
            _refuse_foreign(path)
            return "new"
        raise UserError(f"{path} holds other work: {'; '.join(differences)}. Use another --output, or --overwrite.")
    if found and (damage := _damage(path, found)):
        raise UserError(f"{damage}: --overwrite makes all of {path} anew.")
    return "finished" if found else "begun"


def open_stage(path: str, head: dict[str, Any], overwrite: bool) -> tuple[StageDirectory, dict[str, Any] | None]:
    """Begin or resume the work of `head` in the directory `path`; see `check_output` for what is refused.

    Return the directory, and its manifest where the stage is finished already. Until then no other process can open
    it, where it lies on this machine: raise `UserError` where one has.
    """
    state = check_output(path, head, overwrite)
    directory = StageDirectory(path, head["fingerprint"])
    if state != "finished":
        _lock(directory)
        state = check_output(path, head, overwrite)  # another run may have finished it just now
    if state == "finished":
        storage.remove(directory.file(WORK))
        _unlock(path)
        return directory, _raw_manifest(path)
    if state == "new":
        _remove_outputs(path)
        directory.write_bytes(PLAN, canonical_json(head))
    return directory, None


_locked: dict[str, int] = {}
"""The directories that this process works in, with the descriptor that holds the lock of each."""


def _lock(directory: StageDirectory) -> None:
    """Take the lock of a local directory; the system frees it when this process ends, however it ends."""
    path = os.path.abspath(directory.path)
    if storage.is_remote(directory.path) or path in _locked:
        return
    with _unwritable_as_user_error(directory.path):
        os.makedirs(path, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(f"{directory.path} is being written by another process: wait for its end.") from None
    except OSError:  # a file system without locks
        os.close(descriptor)
    else:
        _locked[path] = descriptor


def _unlock(path: str) -> None:
    if (descriptor := _locked.pop(os.path.abspath(path), None)) is not None:
        os.close(descriptor)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _read_manifest(directory: str) -> Manifest | None:
    """Return the manifest of a directory, or None if there is none; raise `UserError` if it is damaged."""
    path = storage.join(directory, MANIFEST)
    return parse_manifest(storage.read_bytes(path), path) if storage.exists(path) else None


def _raw_manifest(directory: str) -> dict[str, Any]:
    return json.loads(storage.read_bytes(storage.join(directory, MANIFEST)))


def _read_plan(directory: str, name: str = PLAN) -> Plan | None:
    path = storage.join(directory, name)
    return parse_plan(storage.read_bytes(path), path) if storage.exists(path) else None


def _differences(there: dict[str, Any], here: dict[str, Any], with_versions: bool) -> list[str]:
    if there["stage"] != here["stage"]:
        return [f"it was written by `clozeworks {there['stage']}`"]
    parts = ["config", *(["versions"] if with_versions else [])]
    differing = [
        f"{name} is {there[part].get(name)} there and {here[part].get(name)} here"
        for part in parts
        for name in sorted({*there[part], *here[part]})
        if there[part].get(name) != here[part].get(name)
    ]
    if there["inputs"] != here["inputs"]:
        differing.append(f"the inputs are others ({_changed_input(there['inputs'], here['inputs'])})")
    return differing


def _changed_input(there: list[dict[str, Any]], here: list[dict[str, Any]]) -> str:
    by_digest = [{digest_of(entry): entry for entry in entries} for entries in (there, here)]
    changed = sorted(by_digest[0].keys() ^ by_digest[1].keys())
    if not changed:
        return "in another order"
    entry = (by_digest[0] | by_digest[1])[changed[0]]
    return f"for instance {entry.get('name', entry.get('stage'))}"


def _refuse_foreign(path: str) -> None:
    if names := [name for name in storage.file_sizes(path) if not name.startswith(".")]:
        raise UserError(f"{path} holds files that are no work of this stage ({names[0]}, …): give another --output.")


def _has_records(path: str) -> bool:
    """Tell whether a unit of work is done in an unfinished directory."""
    found = storage.find_files(storage.join(path, WORK))
    return any(name.rsplit("/", 1)[1].removesuffix(".json").isdecimal() for name in found)


def _remove_outputs(path: str) -> None:
    """Empty a directory of other work; its manifest goes last, so that a kill leaves what can be told from foreign."""
    for name in storage.file_sizes(path):
        if name != MANIFEST:
            storage.remove(storage.join(path, name))
    storage.remove(storage.join(path, WORK))
    storage.remove(storage.join(path, MANIFEST))
