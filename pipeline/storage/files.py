"""Files on this machine and in object stores, by a few plain functions: open, write, list, remove.

A path with ``://`` is remote and goes through `storage.remote`; everything else is a local path and
needs nothing but the standard library.
"""

import glob as local_glob
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from .remote import (
    list_remote,
    open_remote,
    remote_folders,
    remote_version,
    remove_remote,
    stat_remote,
)

NUM_READERS = 16
"""Files that are read at a time, because object stores are slow to answer."""


def is_remote(path: str) -> bool:
    """Tell whether `path` lies in an object store rather than on this machine."""
    return "://" in os.fspath(path)


def join(directory: str, *names: str) -> str:
    """Return the path of `names` below `directory`."""
    return "/".join([os.fspath(directory).rstrip("/"), *names])  # of a `Path`, too


def absolute(path: str) -> str:
    """Return `path` as every worker understands it, whatever folder it runs in."""
    if is_remote(path):
        return path
    return os.path.abspath(path)


def open_input(path: str) -> BinaryIO:
    """Open a file for reading bytes, seekable; raise `FileNotFoundError` without one."""
    if is_remote(path):
        return open_remote(path)
    return open(path, "rb")


def version_of(file: BinaryIO) -> str:
    """Return what changes if an open file is replaced: size, inode and time, or a tag."""
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


def file_names(directory: str) -> list[str]:
    """Return the sorted names of the files directly in `directory`; none if it does not exist."""
    if is_remote(directory):
        return list(file_sizes(directory))
    return _local_names(directory, os.DirEntry.is_file)


def _local_names(directory: str, is_named: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    if not os.path.isdir(directory):
        return []
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if is_named(entry))


def visible_names(directory: str) -> list[str]:
    """Return the sorted names of all that lies directly in `directory`, but for hidden ones."""
    if is_remote(directory):
        names = sorted([*file_sizes(directory), *remote_folders(directory)])
    else:
        names = _local_names(directory, lambda entry: True)
    return [name for name in names if not name.startswith(".")]


def folder_names(directory: str) -> list[str]:
    """Return the sorted names of the folders directly in `directory`; none if it does not exist."""
    if is_remote(directory):
        return remote_folders(directory)
    return _local_names(directory, os.DirEntry.is_dir)


def free_bytes(directory: str) -> int | None:
    """Return what the disk of a directory, which may be new, has left; None for an object store."""
    if is_remote(directory):
        return None
    folder = os.path.abspath(directory)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


def file_sizes(directory: str) -> dict[str, int]:
    """Return the size in bytes of each file directly in `directory`, names sorted."""
    if is_remote(directory):
        sizes = list_remote(directory).items()
        return {path.rsplit("/", 1)[1]: size for path, size in sizes if size is not None}
    names = file_names(directory)
    return {name: os.path.getsize(os.path.join(directory, name)) for name in names}


def leads_out(path: str, folder: str) -> bool:
    """Tell whether `path` is a link to what lies outside of the local `folder`."""
    if is_remote(path) or not os.path.islink(path):
        return False
    return not os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def remove(path: str) -> None:
    """Delete a file or link, or a folder with all below it; do nothing if there is none."""
    if is_remote(path):
        remove_remote(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        # If another process removes it too, rmtree stops at a file that is gone: continue after it.
        while os.path.isdir(path):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                error.filename = path  # Python 3.11 names the last part of what is below it
                raise
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)


# Finding the files that a path or a glob names.

HIDDEN = "hidden_files"
FOLDER = "folders"


def find_files(pattern: str) -> dict[str, int]:
    """Return the sizes of `list_files`."""
    sizes, _ = list_files(pattern)
    return sizes


def list_files(pattern: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return the size in bytes of each file that `pattern` (a file, a folder, or a glob of either)
    names, sorted by path, and the reason for each path that is left out.

    The reasons are ``hidden_files`` and ``linked_folders`` (one for all below them),
    ``links_out_of_folder`` (to files), ``special_files`` (pipes and devices), ``broken_link`` and
    ``unreadable_folder``.
    """
    sizes = {}
    left_out = {}
    if is_remote(pattern):
        root = glob_root(pattern)
        # Without a wildcard it is a file, or else a folder, which is listed below.
        if root == pattern:
            kind, num_bytes = stat_remote(pattern)
            if kind == "File":
                return {pattern: num_bytes}, {}
        matches = _glob_expression(pattern).match
        for path, num_bytes in list_remote(root, recursive=True).items():
            if num_bytes is None or not matches(path):
                continue
            if "/." in f"/{path.removeprefix(root)}":
                left_out[path] = HIDDEN
            else:
                sizes[path] = num_bytes
        return sizes, left_out
    names = [pattern]
    if not os.path.exists(pattern):  # a file's own name may contain the characters of a glob
        names = local_glob.glob(pattern, recursive=True)
        # ** matches a folder and what is below it, also through links.
        folders = {Path(name) for name in names if os.path.isdir(name)}
        names = [name for name in names if folders.isdisjoint(Path(name).parents)]
    for path, reason in sorted(below for name in names for below in _paths_below(name)):
        if reason:
            left_out[path] = reason
        else:
            sizes[path] = os.path.getsize(path)
    return sizes, left_out


def _paths_below(path: str) -> Iterator[tuple[str, str]]:
    """Yield the paths at or below a path, each with the reason to leave it out, or ""."""
    if not os.path.isdir(path):
        yield path, _kind(path)
        return
    errors = []
    for folder, folders, names in os.walk(Path(path), onerror=errors.append):
        for name in (*folders, *names):
            below = os.path.join(folder, name)
            if name.startswith("."):
                yield below, HIDDEN
                continue
            kind = _kind(below)
            # It may lead to a stranger's secrets, or to what never ends, as /proc/kmsg does.
            if not kind and leads_out(below, path):
                kind = "links_out_of_folder"
            if kind != FOLDER:
                yield below, kind
        # os.walk goes down only into what is left in this list.
        folders[:] = [name for name in folders if not name.startswith(".")]
    for error in errors:
        yield error.filename, "unreadable_folder"


def _kind(path: str) -> str:
    """Return the kind of a path, "" for a file."""
    if os.path.isdir(path):
        # Not followed: a link to a folder above would never end.
        if os.path.islink(path):
            return "linked_folders"
        return FOLDER
    if os.path.isfile(path):
        return ""
    if os.path.exists(path):
        return "special_files"
    return "broken_link"


def _glob_expression(pattern: str) -> re.Pattern[str]:
    """Translate a glob to an expression for its matches and all below them."""
    from fsspec.utils import glob_translate

    # Beside other characters ** is *, as in `glob.glob`.
    pattern = re.sub(r"(?<=[^/*])\*\*|\*\*(?=[^/*])", "*", pattern.rstrip("/"))
    return re.compile(f"{glob_translate(pattern)}|{glob_translate(f'{pattern}/**')}")


def has_wildcard(pattern: str) -> bool:
    """Tell whether a path is a glob."""
    return local_glob.has_magic(pattern)


def glob_root(pattern: str) -> str:
    """Return the folder of a glob above its first wildcard; any other path as it is."""
    if pattern.startswith(("http://", "https://")):  # where ? begins a query
        return pattern
    return "/".join(takewhile(lambda name: not has_wildcard(name), pattern.split("/")))
