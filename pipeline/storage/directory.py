"""Write a command's output: locked by one process, each file complete under its final name.

Temporary files lie in ``.work/`` inside the directory (see `state` for what it is to a command).

The lock is the operating system's (flock) on the directory, and ends with the process; readers
share it. Object stores and some network file systems have no such lock: there it is a file in
``.lock/``, which a process that is killed leaves behind.
"""

import errno
import fcntl
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from .. import storage
from ..errors import RunError, UserError
from .remote import upload

WORK = ".work"
TEMPORARY = f"{WORK}/tmp"

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


@contextmanager
def unwritable_in_a_line(path: object) -> Iterator[None]:
    """Turn an `OSError` that the user can fix into an error that names `path`: a `RunError` if
    there is no space, else a `UserError`.
    """
    try:
        yield
    except OSError as error:
        message = f"Cannot write to {path}: {error.strerror}. Fix this and rerun; it resumes."
        if error.errno in NO_SPACE:
            raise RunError(message) from None
        # No permission, or something else in the place.
        is_in_place = isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError)
        if is_in_place or isinstance(error, PermissionError | FileNotFoundError):
            raise UserError(message) from None
        raise


@contextmanager
def write_atomically(path: str, temporary_directory: str) -> Iterator[BinaryIO]:
    """Open a file for writing bytes that appears at `path` only when it is complete.

    A local file is written in `temporary_directory`, on the same filesystem, and renamed at the
    end; a remote one is written on this machine and uploaded at the end.
    """
    if storage.is_remote(path):
        import tempfile  # late: it takes longer to import than all of this package's storage

        # In memory up to 16 MB, which nearly all files but shards have.
        with tempfile.SpooledTemporaryFile(16 << 20) as spooled:
            file = cast(BinaryIO, spooled)
            yield file
            file.seek(0)
            upload(file, path)
        return
    # A random name: two processes may write the same file, and the last one wins.
    temporary = os.path.join(temporary_directory, f"{os.path.basename(path)}.{uuid.uuid4().hex}")
    os.makedirs(temporary_directory, exist_ok=True)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        with open(temporary, "w+b") as file:
            yield file
            # Without it a power failure could leave the new name on an empty file.
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextmanager
def locked(path: str, output: str | None = None) -> Iterator[None]:
    """Hold the lock of a directory, created if need be; raise `UserError`, which names the
    `output` that the user gave, if another process holds it.
    """
    output = output or path
    with ExitStack() as held:
        descriptor = None
        if not storage.is_remote(path):
            descriptor = _lock(path, output)
        if descriptor is None:
            held.enter_context(_lock_file(path, output))
        else:
            held.callback(os.close, descriptor)
        yield


def _lock(path: str, output: str) -> int | None:
    """Lock a local directory until the descriptor is closed; None if it cannot be locked."""
    if os.path.isfile(path):
        raise UserError(f"{path} is a file, but `output` must be a directory.")
    while True:
        with unwritable_in_a_line(output):
            os.makedirs(path, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY)
        # On the folder itself: a lock file would remain after a kill.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            use = "reading" if _share(descriptor) else "writing"
            os.close(descriptor)
            raise UserError(f"Another process is {use} {output}; wait until it ends.") from None
        except OSError:
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)  # its owner removed it between our open and our lock


@contextmanager
def _lock_file(path: str, output: str) -> Iterator[None]:
    """Lock a directory by a file; raise `UserError` if another process has one there."""
    folder = storage.join(path, ".lock")
    own_name = uuid.uuid4().hex
    owner = f"process {os.getpid()} on {socket.gethostname()}"
    with write_atomically(f"{folder}/{own_name}", storage.join(path, TEMPORARY)) as file:
        file.write(owner.encode())
    try:
        # Stores list a file as soon as it is written: of two that begin at once, at least one sees
        # the other's, and none that sees another's goes on.
        for name in storage.file_names(folder):
            if name == own_name:
                continue
            other = storage.join(folder, name)
            with suppress(FileNotFoundError):  # it has just ended
                owner = storage.read_bytes(other).decode(errors="replace")
                raise UserError(
                    f"Another process is writing {output} ({owner}); wait until it ends. If it was "
                    f"killed, delete {other} and rerun."
                )
        yield
    finally:
        # The folder stays: another process may be about to move its file there.
        storage.remove(storage.join(folder, own_name))


def _share(descriptor: int) -> bool:
    """Lock an open directory for reading; return False if another process is writing it."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def kept(*directories: str) -> Iterator[None]:
    """Keep others from overwriting directories while the block reads them, if they have locks."""
    with ExitStack() as opened:
        for directory in directories:
            try:
                descriptor = os.open(directory, os.O_RDONLY)
            except OSError:  # an object store's, or none: its reader says what is wrong
                continue
            opened.callback(os.close, descriptor)
            _share(descriptor)
        yield


@contextmanager
def write_file(path: str) -> Iterator[BinaryIO]:
    """Open a single file for writing; it appears when it is complete."""
    if storage.is_remote(path):  # written by one request
        with write_atomically(path, "") as file:
            yield file
        return
    # Renaming a file over /dev/stdout or a pipe would replace it instead of writing to it.
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path} is not a regular file; choose another path.")
    folder, name = os.path.split(path)
    work = os.path.join(folder, f".{name}.work")
    with locked(work, path), unwritable_in_a_line(path):
        try:
            with write_atomically(path, work) as file:
                yield file
        finally:
            storage.remove(work)  # with what killed processes have left


@dataclass(frozen=True)
class OutputDirectory:
    """A directory that one command writes."""

    path: str

    def file(self, name: str) -> str:
        """Return the path of the file `name` of this directory."""
        return f"{self.path.rstrip('/')}/{name}"

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """Open the file `name` for writing; it appears when it is complete."""
        try:
            with write_atomically(self.file(name), self.file(TEMPORARY)) as file:
                yield file
        except OSError as error:
            # The body may also fail to read another file.
            if error.filename and not str(error.filename).startswith(self.path):
                raise
            place = self.path
            if error.errno in NO_SPACE and storage.is_remote(place):
                # Where it is written before it is uploaded; on a cluster, one of many machines'.
                place = f"the temporary folder (TMPDIR) of {socket.gethostname()}"
            with unwritable_in_a_line(place):
                raise

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a small file whole."""
        with self.write(name) as file:
            file.write(content)

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write `values` in their order, indented for readers."""
        self.write_bytes(name, json.dumps(values, indent=2).encode() + b"\n")

    @contextmanager
    def write_folder(self, name: str) -> Iterator[Path]:
        """Yield an empty local folder that replaces `name` at the end, complete or not at all."""
        temporary_name = f"{name.replace('/', '-')}.{uuid.uuid4().hex}"
        folder = Path(self.file(TEMPORARY)) / temporary_name
        replaced = folder.with_suffix(".old")
        target = Path(self.file(name))
        with unwritable_in_a_line(self.path):
            try:
                folder.mkdir(parents=True)
                yield folder
                # Or a power failure could leave empty files.
                for path in folder.rglob("*"):
                    if path.is_file():
                        with path.open("rb") as file:
                            os.fsync(file.fileno())
                target.parent.mkdir(parents=True, exist_ok=True)
                # A folder cannot be renamed over one that is not empty.
                if target.exists():
                    target.rename(replaced)
                folder.rename(target)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                shutil.rmtree(replaced, ignore_errors=True)

    def remove(self, *names: str) -> None:
        """Delete files and folders of this directory in this order, if they exist."""
        for name in names:
            storage.remove(self.file(name))
