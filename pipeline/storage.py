"""Files on this machine or on any Beam filesystem (``gs://``, ``s3://``, …), by a few plain functions.

A path with ``://`` is remote and goes through Beam's ``FileSystems``, which is imported only then; everything else
is a local path and needs nothing but the standard library.
"""

import glob as local_glob
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from apache_beam.io.filesystems import FileSystems


def is_remote(path: str) -> bool:
    """Tell whether `path` lies on another filesystem than this machine's."""
    return "://" in path


def _beam() -> "type[FileSystems]":
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def join(directory: str, *names: str) -> str:
    """Return the path of `names` below `directory`."""
    return "/".join([directory.rstrip("/"), *names])


def open_input(path: str) -> BinaryIO:
    """Open a file for reading bytes; seekable, never decompressed."""
    if is_remote(path):
        from apache_beam.io.filesystem import CompressionTypes

        return cast(BinaryIO, _beam().open(path, compression_type=CompressionTypes.UNCOMPRESSED))
    return open(path, "rb")


def read_bytes(path: str) -> bytes:
    """Return the whole content of a file."""
    with open_input(path) as file:
        return file.read()


def exists(path: str) -> bool:
    """Tell whether there is a file or folder at `path`."""
    return _beam().exists(path) if is_remote(path) else os.path.exists(path)


def size(path: str) -> int:
    """Return the length of a file in bytes."""
    if is_remote(path):
        return _beam().match([path])[0].metadata_list[0].size_in_bytes
    return os.path.getsize(path)


def list_files(directory: str) -> list[str]:
    """Return the names of the files directly in `directory`, sorted; none where it does not exist."""
    if is_remote(directory):
        matches = _beam().match([join(directory, "*")])[0].metadata_list
        return sorted(match.path.rsplit("/", 1)[1] for match in matches)
    if not os.path.isdir(directory):
        return []
    return sorted(entry.name for entry in os.scandir(directory) if entry.is_file())


def find_files(pattern: str) -> list[str]:
    """Return the paths of the files that `pattern` names: a file, a folder (all files below it) or a glob; sorted."""
    if is_remote(pattern):
        patterns = [pattern] if "*" in pattern else [pattern, join(pattern, "**")]
        return sorted({match.path for result in _beam().match(patterns) for match in result.metadata_list})
    if os.path.isdir(pattern):
        below = Path(pattern).rglob("*")
        return sorted(str(path) for path in below if path.is_file() and not _is_hidden(path.relative_to(pattern)))
    return [pattern] if os.path.isfile(pattern) else sorted(local_glob.glob(pattern, recursive=True))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


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

    file = _beam().create(temporary, compression_type=CompressionTypes.UNCOMPRESSED)
    yield cast(BinaryIO, file)
    file.close()
    if _beam().exists(path):
        _beam().delete([path])
    _beam().rename([temporary], [path])


def remove(path: str) -> None:
    """Delete a file, or a folder with all below it; nothing happens where there is none."""
    if is_remote(path):
        if list_files(path) or _beam().exists(path):
            _beam().delete([path])
    elif os.path.isdir(path):
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)
