"""Files on this machine or on any Beam filesystem (``gs://``, ``s3://``, …), by a few plain functions.

A path with ``://`` is remote and goes through Beam's ``FileSystems``, which is imported only then; everything else
is a local path and needs nothing but the standard library.
"""

import glob as local_glob
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from ..errors import UserError

if TYPE_CHECKING:
    from apache_beam.io.filesystems import FileSystems


def is_remote(path: str) -> bool:
    """Tell whether `path` lies on another filesystem than this machine's."""
    return "://" in path


def _beam(path: str) -> "type[FileSystems]":
    """Return Beam's filesystems; raise `UserError` where none of them knows the scheme of `path`."""
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.value_provider import RuntimeValueProvider

    if RuntimeValueProvider.runtime_options is None:
        RuntimeValueProvider.set_runtime_options({})  # S3 asks for them where nobody set any
    try:
        FileSystems.get_filesystem(path)
    except ValueError:
        schemes = "gs:// needs clozeworks[gcp], s3:// needs clozeworks[aws]"
        raise UserError(f"{path} is on no filesystem that Apache Beam knows here; {schemes}.") from None
    return FileSystems


def join(directory: str, *names: str) -> str:
    """Return the path of `names` below `directory`."""
    return "/".join([directory.rstrip("/"), *names])


def open_input(path: str) -> BinaryIO:
    """Open a file for reading bytes; seekable, never decompressed."""
    if is_remote(path):
        from apache_beam.io.filesystem import CompressionTypes

        return cast(BinaryIO, _beam(path).open(path, compression_type=CompressionTypes.UNCOMPRESSED))
    return open(path, "rb")


def read_bytes(path: str) -> bytes:
    """Return the whole content of a file."""
    with open_input(path) as file:
        return file.read()


def exists(path: str) -> bool:
    """Tell whether there is a file at `path`."""
    return _beam(path).exists(path) if is_remote(path) else os.path.isfile(path)


def file_sizes(directory: str) -> dict[str, int]:
    """Return the length in bytes of each file directly in `directory`, names sorted; none where it does not exist."""
    if is_remote(directory):
        found = {path.rsplit("/", 1)[1]: num_bytes for path, num_bytes in _match(join(directory, "*"))}
    elif os.path.isdir(directory):
        found = {entry.name: entry.stat().st_size for entry in os.scandir(directory) if entry.is_file()}
    else:
        found = {}
    return dict(sorted(found.items()))


def find_files(pattern: str) -> dict[str, int]:
    """Return the length in bytes of the files that `pattern` names, paths sorted.

    It is a file, a folder (all files below it but hidden ones) or a glob of either.
    """
    if is_remote(pattern):
        patterns = [pattern] if has_wildcard(pattern) else [pattern, join(pattern, "**")]
        found = (match for each in patterns for match in _match(each))
        root = glob_root(pattern)
        return dict(sorted((path, size) for path, size in found if not _is_hidden(path.removeprefix(root))))
    named = [pattern] if os.path.exists(pattern) else local_glob.glob(pattern, recursive=True)
    paths = {path for name in named for path in _files_below(name)}
    return {path: os.path.getsize(path) for path in sorted(paths)}


def _files_below(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    below = (found for found in Path(path).rglob("*") if found.is_file())
    return [str(found) for found in below if not _is_hidden(found.relative_to(path).as_posix())]


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def has_wildcard(pattern: str) -> bool:
    """Tell whether a path is a glob."""
    return local_glob.has_magic(pattern)


def glob_root(pattern: str) -> str:
    """Return the folder of a glob above its first wildcard; any other path as it is."""
    if not has_wildcard(pattern):
        return pattern
    parts = pattern.split("/")
    return "/".join(parts[: next(i for i, part in enumerate(parts) if has_wildcard(part))])


def _match(pattern: str) -> list[tuple[str, int]]:
    """Return path and length of the files on a remote filesystem that match."""
    from apache_beam.io.filesystem import BeamIOError

    try:
        found = _beam(pattern).match([pattern])[0].metadata_list
    except BeamIOError as error:
        reasons = error.exception_details or {pattern: error}
        raise UserError(f"{pattern} cannot be listed: {next(iter(reasons.values()))}.") from None
    return [(match.path, match.size_in_bytes) for match in found]


@contextmanager
def write_atomically(path: str, temporary_directory: str) -> Iterator[BinaryIO]:
    """Open a file for writing bytes that appears at `path` only when it is complete.

    It is written in `temporary_directory`, on the same filesystem, and renamed at the end; an error or a kill on the
    way leaves nothing at `path`.
    """
    temporary = join(temporary_directory, f"{os.path.basename(path)}.{uuid.uuid4().hex}")
    write = _write_remote if is_remote(path) else _write_local
    with write(path, temporary) as file:
        yield file


@contextmanager
def _write_local(path: str, temporary: str) -> Iterator[BinaryIO]:
    os.makedirs(os.path.dirname(temporary), exist_ok=True)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _write_remote(path: str, temporary: str) -> Iterator[BinaryIO]:
    from apache_beam.io.filesystem import CompressionTypes

    filesystems = _beam(path)
    file = filesystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED)
    yield cast(BinaryIO, file)
    file.close()
    if filesystems.exists(path):
        filesystems.delete([path])
    filesystems.rename([temporary], [path])


def remove(path: str) -> None:
    """Delete a file, or a folder with all below it; nothing happens where there is none."""
    if is_remote(path):
        filesystems = _beam(path)
        if below := [match for match, _ in _match(join(path, "**"))]:
            filesystems.delete(below)
        if filesystems.exists(path):
            filesystems.delete([path])
    elif os.path.isdir(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
