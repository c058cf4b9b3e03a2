"""The output of a command: claimed by one configuration, locked by one process, written atomically, finished last.

An output directory remembers its *identity*, what it was asked for: the same command resumes it, another configuration
is refused, and files of others are never touched. A file under its final name is complete. What is temporary lies in
``.work/`` inside the directory; the last file, a manifest or a summary, marks the end.

The lock is the operating system's (flock) on the directory, and ends with the process. Object stores and some network
file systems have no such lock; there it is up to the user to start a command only once.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec
from msgspec import structs

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
from . import storage

MANIFEST = "manifest.json"
TIMINGS = "timings.json"
WORK = ".work"
TEMPORARY = f"{WORK}/tmp"
PLAN = f"{WORK}/plan.json"

_STAGE_FILES = re.compile(
    r"(train|validation)-\d+-of-\d+\.parquet|word_counts\.parquet|vocab\.txt|tokenizer(_config)?\.json|timings\.json"
)
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
# What the user can fix: no space, no permission, or something else in the directory's stead.
NOT_WRITABLE = NO_SPACE | {
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
}


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON whose bytes depend on nothing but the value."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def digest_of(value: Any) -> str:
    """Return the blake2b digest (32 hexadecimal digits) of a JSON value or of bytes."""
    content = value if isinstance(value, bytes) else canonical_json(value)
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@contextmanager
def unwritable_as_user_error(path: object, errors: frozenset[int] = NOT_WRITABLE) -> Iterator[None]:
    """Turn an `OSError` with one of these numbers into a `UserError` that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in errors:
            raise
        raise UserError(f"Cannot write to {path}: {error.strerror}. Fix this and rerun; it resumes.") from None


@contextmanager
def locked(path: str, output: str | None = None) -> Iterator[None]:
    """Hold the lock of a directory, created if need be; raise `UserError` if another process holds it.

    Errors name `output`, what the user asked for, if it is not the directory itself.
    """
    if os.path.abspath(path) in _locks:
        yield
        return
    lock(path, output)
    try:
        yield
    finally:
        unlock(path)


_locks: dict[str, int] = {}
"""The directories that this process has locked, with the descriptor that holds each lock."""


def lock(path: str, output: str | None = None) -> None:
    """Lock a local directory until `unlock`, or until this process ends; see `locked`."""
    key = os.path.abspath(path)
    if storage.is_remote(path) or key in _locks:
        return
    if os.path.isfile(path):
        raise UserError(f"{path} is a file, but --output must be a directory.")
    with unwritable_as_user_error(output or path):
        os.makedirs(path, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(f"Another process is writing {output or path}; wait until it ends.") from None
    except OSError:  # a file system without locks
        os.close(descriptor)
        return
    _locks[key] = descriptor
    if not _is_at(path, descriptor):  # its owner removed it between our open and our lock
        unlock(path)
        lock(path, output)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def unlock(path: str) -> None:
    """Give up the lock of a directory, if this process holds it."""
    if (descriptor := _locks.pop(os.path.abspath(path), None)) is not None:
        os.close(descriptor)


@contextmanager
def write_file(path: str) -> Iterator[BinaryIO]:
    """Open a single file for writing, which appears when it is complete; raise `UserError` if it cannot be written."""
    if not storage.is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path} is not a regular file; choose another path.")
    work = f"{path}.work"
    with locked(work, path), unwritable_as_user_error(path):
        try:
            with storage.write_atomically(path, work) as file:
                yield file
        finally:
            storage.remove(work)


@dataclass(frozen=True)
class OutputDirectory:
    """A directory that one command writes."""

    path: str

    def file(self, name: str) -> str:
        """Return the path of the file `name` of this directory."""
        return storage.join(self.path, name)

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """Open the file `name` for writing, which appears when it is complete; raise `UserError` if it cannot be
        written.
        """
        with (
            unwritable_as_user_error(self.path),
            storage.write_atomically(self.file(name), self.file(TEMPORARY)) as file,
        ):
            yield file

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a small file whole."""
        with self.write(name) as file:
            file.write(content)

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write `values` in their order, indented for people."""
        self.write_bytes(name, json.dumps(values, indent=2).encode() + b"\n")

    @contextmanager
    def write_folder(self, name: str) -> Iterator[Path]:
        """Yield an empty local folder that replaces the folder `name` when the block ends, complete or not at all."""
        folder = Path(self.file(f"{TEMPORARY}/{name.replace('/', '-')}.{uuid.uuid4().hex}"))
        target, old = Path(self.file(name)), folder.with_suffix(".old")
        with unwritable_as_user_error(self.path):
            try:
                folder.mkdir(parents=True)
                yield folder
                for path in filter(Path.is_file, folder.rglob("*")):
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.exists():
                    target.rename(old)
                folder.rename(target)
            finally:
                for left in (folder, old):
                    shutil.rmtree(left, ignore_errors=True)

    def remove(self, *names: str) -> None:
        """Delete files and folders of this directory, in this order; those that do not exist are skipped."""
        for name in names:
            storage.remove(self.file(name))


@contextmanager
def claimed(
    path: str,
    identity: Mapping[str, Any],
    identity_file: str,
    own_files: Iterable[str],
    *,
    overwrite: bool = False,
    has_work: Callable[[], bool] = lambda: True,
    advice: str = "",
) -> Iterator[OutputDirectory]:
    """Hold a local directory, locked, as the output of the work that `identity` describes.

    `identity` is plain JSON, stored in `identity_file`. The same identity resumes. Work of another one is deleted
    (`own_files`, no others) with `overwrite`, or unless `has_work` says that something would be lost; else raise
    `UserError` naming the fields that differ, with `advice`. Raise it too for files of others.
    """
    directory = OutputDirectory(path)
    with locked(path):
        stored_file = directory.file(identity_file)
        stored = None
        if not storage.exists(stored_file):
            _refuse_foreign(path)
        elif not overwrite:
            next_step = "Choose another --output, or start over with --overwrite."
            stored = parse_json(storage.read_bytes(stored_file), dict[str, Any], stored_file, next_step)
        changes = changed_fields(stored, identity) if stored is not None else []
        if changes and has_work():
            raise other_settings(path, changes, advice)
        directory.remove(WORK)  # what a killed process left
        if stored is None or changes:
            # The identity goes last, so that what a kill leaves still has an owner.
            directory.remove(*own_files, identity_file)
            directory.write_json(identity_file, identity)
        yield directory


def changed_fields(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return for people which fields of two identities differ."""
    return [
        f"{name} was {stored.get(name)}, now {wanted.get(name)}"
        for name in {**stored, **wanted}
        if stored.get(name) != wanted.get(name)
    ]


def other_settings(path: str, changes: Sequence[str], advice: str = "") -> UserError:
    """Return the error that refuses an output of another identity."""
    what_next = f"Choose another --output, or start over with --overwrite{advice}."
    return UserError(f"{path} was written with other settings ({'; '.join(changes)}). {what_next}")


def _refuse_foreign(path: str, but: re.Pattern[str] | None = None) -> None:
    """Raise `UserError` for a file that is neither hidden nor named like `but`."""
    if storage.is_remote(path):
        names = list(storage.file_sizes(path))
    else:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    if names := [name for name in names if not (name.startswith(".") or (but and but.fullmatch(name)))]:
        raise UserError(f"{path} already contains other files ({names[0]}, …). Choose another --output.")


@dataclass(frozen=True)
class StageDirectory(OutputDirectory):
    """The output directory of a data stage, with the fingerprint of its work; travels to the workers."""

    fingerprint: str
    begun: float = field(default_factory=time.monotonic, compare=False)

    @contextmanager
    def unlocked_at_end(self) -> Iterator[None]:
        """Give up the lock of `open_stage` when the block ends, also by an error: another process may go on."""
        try:
            yield
        finally:
            unlock(self.path)

    def finish(self, manifest: dict[str, Any], kind: type[AnyManifest]) -> AnyManifest:
        """Write the manifest, the last file of a stage, delete what is temporary, and return the manifest, checked."""
        content = canonical_json(manifest)
        parsed = parse_manifest(content, self.file(MANIFEST))
        self.write_bytes(TIMINGS, canonical_json({"seconds": round(time.monotonic() - self.begun, 3)}))
        self.write_bytes(MANIFEST, content)
        storage.remove(self.file(WORK))
        return cast(AnyManifest, parsed)


def read_manifest(directory: str, kind: type[AnyManifest]) -> AnyManifest:
    """Return the manifest of a finished directory of one kind.

    Raise `UserError` if there is none, or a shard that it lists is missing or does not have its size.
    """
    [stage] = [name for name, each in KINDS.items() if each is kind]
    manifest = read_any_manifest(directory, f"`clozeworks {stage}`")
    if not isinstance(manifest, kind):
        raise UserError(f"{directory} was written by `clozeworks {manifest.stage}`, not by `clozeworks {stage}`.")
    damage = _damage(directory, manifest)
    if not isinstance(manifest, VocabularyManifest) and not any(shard.split == "train" for shard in manifest.shards):
        damage = f"{storage.join(directory, MANIFEST)} lists no training shard"
    if damage:
        raise UserError(f"{damage}: recreate it with `clozeworks {stage} … --overwrite`.")
    return manifest


def read_any_manifest(directory: str, writer: str = "clozeworks ingest, vocab or build") -> Manifest:
    """Return the manifest of a finished directory; raise `UserError`, naming its `writer`, if there is none."""
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
    """Return what is wrong with a finished directory: a shard is missing or cut off, or all are of an old version."""
    if isinstance(manifest, VocabularyManifest):
        return None
    sizes = storage.file_sizes(directory)
    for shard in manifest.shards:
        if shard.name not in sizes:
            return f"{storage.join(directory, shard.name)} is missing"
        if sizes[shard.name] != shard.bytes:
            return f"{storage.join(directory, shard.name)} does not have the size recorded in {MANIFEST}"
        if isinstance(shard, DocumentsShard) and shard.rows and not shard.groups:
            return f"{directory} was written before documents had a language"
    return None


def manifest_head(stage: str, config: Any, inputs: Sequence[dict[str, Any]], *libraries: str) -> dict[str, Any]:
    """Return what a manifest begins with: the stage, what it was asked for, and the fingerprint of that.

    `libraries` are those that the output depends on, besides NumPy and PyArrow.
    """
    asked = {
        "stage": stage,
        "config": json.loads(json.dumps(asdict(config))),
        "inputs": list(inputs),
        "versions": {name: version(name) for name in ("clozeworks", "numpy", "pyarrow", *libraries)},
    }
    return {**asked, "fingerprint": digest_of(asked), "schema_version": SCHEMA_VERSION}


def check_output(path: str, head: dict[str, Any], overwrite: bool) -> Literal["new", "begun", "finished"]:
    """Return the state of the work of `head` in the directory `path`; change nothing.

    Raise `UserError` if the directory holds anything else, unless it is to `overwrite`, or nothing of it is done: most
    often it is the same command with a mistake that was reported at once.
    """
    found = _read_manifest(path)
    begun = _read_plan(path, MANIFEST if found else PLAN)
    if begun is None:
        _refuse_foreign(path)
    if begun is None or overwrite:
        return "new"
    if changes := _stage_changes(msgspec.to_builtins(begun), head, with_versions=found is None):
        if found is None and not _has_records(path):
            _refuse_foreign(path, but=_STAGE_FILES)
            return "new"
        raise other_settings(path, changes)
    if found and (damage := _damage(path, found)):
        raise UserError(f"{damage}: recreate all of {path} with --overwrite.")
    return "finished" if found else "begun"


def open_stage(
    path: str, head: dict[str, Any], kind: type[AnyManifest], overwrite: bool
) -> tuple[StageDirectory, AnyManifest | None]:
    """Begin or resume the work of `head` in the directory `path`; see `check_output` for what is refused.

    Return the directory, and its manifest if the stage is already finished. Otherwise the directory stays locked until
    the end of `StageDirectory.unlocked_at_end`; raise `UserError` if another process has locked it.
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
    """Return the manifest of a directory, or None if there is none; raise `UserError` if it is damaged."""
    path = storage.join(directory, MANIFEST)
    with suppress(FileNotFoundError):  # another process may remove it at any time
        return parse_manifest(storage.read_bytes(path), path) if storage.exists(path) else None
    return None


def _read_plan(directory: str, name: str = PLAN) -> Plan | None:
    path = storage.join(directory, name)
    with suppress(FileNotFoundError):  # another process may remove it at any time
        return parse_json(storage.read_bytes(path), Plan, path) if storage.exists(path) else None
    return None


def _stage_changes(stored: dict[str, Any], wanted: dict[str, Any], with_versions: bool) -> list[str]:
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
