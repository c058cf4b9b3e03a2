"""Files on this machine and in object stores, by a few plain functions.

A path with ``://`` is remote and goes through `storage.remote`; everything else is a local path and
needs nothing but the standard library.
"""

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from .remote import (
    folders_of_remote,
    list_remote,
    open_remote,
    remote_version,
    remove_remote,
    stat_remote,
    upload_open,
)

SPOOL_BYTES = 16 << 20
"""A remote file being written is kept in memory up to this size, then in a local temporary file."""


def is_remote(path: str) -> bool:
    """Tell whether `path` lies in an object store rather than on this machine."""
    return "://" in path


def join(directory: str, *names: str) -> str:
    """Return the path of `names` below `directory`."""
    return "/".join([directory.rstrip("/"), *names])


def absolute(path: str) -> str:
    """Return `path` as every worker understands it, whatever folder it runs in."""
    if is_remote(path):
        return path
    return os.path.abspath(path)


def open_input(path: str) -> BinaryIO:
    """Open a file for reading bytes; seekable, never decompressed. Raise `FileNotFoundError` if
    there is none.
    """
    if is_remote(path):
        return open_remote(path)
    return open(path, "rb")


def version_of(file: BinaryIO) -> str:
    """Return what changes if a file that `open_input` opened is replaced: its size, inode and time,
    or its tag in an object store.
    """
    if version := remote_version(file):
        return version
    status = os.fstat(file.fileno())
    return f"{status.st_size} {status.st_ino} {status.st_mtime_ns}"


def read_bytes(path: str) -> bytes:
    """Return the whole content of a file; raise `FileNotFoundError` if there is none."""
    with open_input(path) as file:
        return file.read()


def exists(path: str) -> bool:
    """Tell whether there is a file at `path`."""
    if is_remote(path):
        kind, _ = stat_remote(path)
        return kind == "File"
    return os.path.isfile(path)


def is_missing(path: str) -> bool:
    """Tell whether there is neither a file nor a directory at `path`."""
    if is_remote(path):
        kind, _ = stat_remote(path)
        return kind == "NotFound"
    return not os.path.exists(path)


def file_names(directory: str) -> list[str]:
    """Return the sorted names of the files directly in `directory`; none if it does not exist."""
    if is_remote(directory):
        return list(file_sizes(directory))
    if not os.path.isdir(directory):
        return []
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_file())


def folder_names(directory: str) -> list[str]:
    """Return the sorted names of the folders directly in `directory`; none if it does not exist."""
    if is_remote(directory):
        return folders_of_remote(directory)
    if not os.path.isdir(directory):
        return []
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def file_sizes(directory: str) -> dict[str, int]:
    """Return the size in bytes of each file directly in `directory`, names sorted; none if it does
    not exist.
    """
    if is_remote(directory):
        sizes = list_remote(directory, recursive=False)
        return {path.rsplit("/", 1)[1]: num_bytes for path, num_bytes in sizes.items()}
    sizes: dict[str, int] = {}
    for name in file_names(directory):
        sizes[name] = os.path.getsize(os.path.join(directory, name))
    return sizes


@contextmanager
def write_atomically(path: str, temporary_directory: str) -> Iterator[BinaryIO]:
    """Open a file for writing bytes that appears at `path` only when it is complete; an error or a
    kill leaves nothing.

    A local file is written in `temporary_directory`, on the same filesystem, and renamed at the
    end; a remote one is written on this machine and uploaded at the end.
    """
    if is_remote(path):
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spooled:
            file = cast(BinaryIO, spooled)
            yield file
            file.seek(0)
            upload_open(file, path)
        return
    # A random name: two processes may write the same file, and the last one wins.
    temporary = join(temporary_directory, f"{os.path.basename(path)}.{uuid.uuid4().hex}")
    os.makedirs(os.path.dirname(temporary), exist_ok=True)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        with open(temporary, "w+b") as file:
            yield file
            # Without it a power failure could leave the new name on an empty file.
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_leftovers(path: str, temporary_directory: str) -> None:
    """Delete what killed processes have left of `write_atomically`; no other may be writing."""
    if is_remote(path):
        return
    temporary_name = re.compile(re.escape(os.path.basename(path)) + r"\.[0-9a-f]{32}")
    for name in file_names(temporary_directory):
        if temporary_name.fullmatch(name):
            remove(join(temporary_directory, name))


def remove(path: str) -> None:
    """Delete a file, or a folder with all below it; do nothing if there is none."""
    if is_remote(path):
        remove_remote(path)
    elif os.path.isdir(path):
        # If another process removes it too, rmtree stops at a file that is gone: continue after it.
        while os.path.isdir(path):
            with suppress(FileNotFoundError):
                shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
