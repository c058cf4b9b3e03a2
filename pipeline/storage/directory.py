"""The output of a command: claimed by one configuration, locked by one process, written atomically,
finished last.

An output directory remembers its *identity*, what it was asked for: the same command resumes it,
another configuration is refused, and files of others are never touched. A file under its final name
is complete. What is temporary lies in ``.work/`` inside the directory; the last file, a manifest or
a summary, marks the end.

The lock is the operating system's (flock) on the directory, and ends with the process. Object
stores and some network file systems have no such lock; there it is up to the user to start a
command only once.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .. import storage
from ..errors import UserError
from ..parsing import parse_json

WORK = ".work"
TEMPORARY = f"{WORK}/tmp"

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
        raise UserError(
            f"Cannot write to {path}: {error.strerror}. Fix this and rerun; it resumes."
        ) from None


@contextmanager
def locked(path: str, output: str | None = None) -> Iterator[None]:
    """Hold the lock of a directory, created if need be; raise `UserError` if another process holds
    it.

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
        raise UserError(
            f"Another process is writing {output or path}; wait until it ends."
        ) from None
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
    """Open a single file for writing, which appears when it is complete; raise `UserError` if it
    cannot be written.
    """
    if not storage.is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path} is not a regular file; choose another path.")
    work = f"{path}.work"
    with locked(work, path), unwritable_as_user_error(path):
        try:
            with storage.write_atomically(path, work) as file:
                yield file
        finally:
            with suppress(OSError):  # a folder of the user's is not empty
                os.rmdir(work)


@dataclass(frozen=True)
class OutputDirectory:
    """A directory that one command writes."""

    path: str

    def file(self, name: str) -> str:
        """Return the path of the file `name` of this directory."""
        return storage.join(self.path, name)

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """Open the file `name` for writing, which appears when it is complete; raise `UserError` if
        it cannot be written.
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
        """Yield an empty local folder that replaces the folder `name` when the block ends, complete
        or not at all.
        """
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
        """Delete files and folders of this directory, in this order; those that do not exist are
        skipped.
        """
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

    `identity` is plain JSON, stored in `identity_file`. The same identity resumes. Work of another
    one is deleted (`own_files`, no others) with `overwrite`, or unless `has_work` says that
    something would be lost; else raise `UserError` naming the fields that differ, with `advice`.
    Raise it too for files of others.
    """
    directory = OutputDirectory(path)
    with locked(path):
        stored_file = directory.file(identity_file)
        stored = None
        if not storage.exists(stored_file):
            refuse_foreign(path)
        elif not overwrite:
            next_step = "Choose another --output, or start over with --overwrite."
            stored = parse_json(
                storage.read_bytes(stored_file), dict[str, Any], stored_file, next_step
            )
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


def refuse_foreign(path: str, but: re.Pattern[str] | None = None) -> None:
    """Raise `UserError` for a file that is neither hidden nor named like `but`."""
    if storage.is_remote(path):
        names = list(storage.file_sizes(path))
    else:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    if names := [
        name for name in names if not (name.startswith(".") or (but and but.fullmatch(name)))
    ]:
        raise UserError(
            f"{path} already contains other files ({names[0]}, …). Choose another --output."
        )
