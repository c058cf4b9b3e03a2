"""Files on this machine and in object stores (``s3://``, ``gs://``), by a few plain functions.

A path with ``://`` is remote and goes through `pyarrow.fs`, which is imported only then; everything
else is a local path and needs nothing but the standard library. Credentials come from the
environment, as usual for each store. ``AWS_ENDPOINT_URL`` (or ``AWS_ENDPOINT_URL_S3``) and
``STORAGE_EMULATOR_HOST`` select another server, such as MinIO.
"""

import glob as local_glob
import io
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ..errors import RunError, UserError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

SCHEMES = ("s3", "gs", "abfs", "abfss", "hdfs")
MIN_FETCH_BYTES = 64 << 10
MAX_READ_AHEAD_BYTES = 8 << 20
SPOOL_BYTES = 16 << 20
"""Of a remote file being written, kept in memory; what is longer goes to a local temporary file."""
UPLOAD_BYTES = 64 << 20
GCS_RETRY_TIME = timedelta(seconds=30)

# What a store says of a user's mistake, and what to do about it.
_MISTAKES = {
    "credential|access token|ACCESS_|SIGNATURE|UNAUTHENTICATED|PERMISSION_DENIED|status (code: )?40[13]": (
        "access is denied. Check your credentials: AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for "
        "s3://; GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`, for gs://"
    ),
    "NO_SUCH_BUCKET": "the bucket does not exist. Create it, or check its name",
}
_UNREACHABLE = "the store cannot be reached. Check the network, and AWS_ENDPOINT_URL or STORAGE_EMULATOR_HOST if set"


def is_remote(path: str) -> bool:
    """Tell whether `path` lies in an object store rather than on this machine."""
    return "://" in path


@contextmanager
def _errors_in_a_line(path: str) -> Iterator[None]:
    """Turn an error of an object store into a `UserError` if it is the user's mistake, else into a
    `RunError`, after which a runner tries again; a missing file stays a `FileNotFoundError`.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # Arrow's own errors are ValueErrors
        message = " ".join(str(error).split())
        for reason, advice in _MISTAKES.items():
            if re.search(reason, message):
                raise UserError(f"{path}: {advice}.") from None
        if re.search("NETWORK_CONNECTION|UNAVAILABLE", message):
            message = _UNREACHABLE
        raise RunError(f"{path}: {message.rstrip('.')}.") from None


def _connect(path: str) -> tuple["FileSystem", str]:
    """Return the filesystem of a remote path, and what the filesystem calls the path."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in SCHEMES or not bucket:
        raise UserError(
            f"{path} cannot be opened: use a local path, s3://BUCKET/…, gs://BUCKET/…, abfs:// or hdfs://."
        )
    variables = {
        "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        "gs": ("STORAGE_EMULATOR_HOST",),
    }.get(scheme, ())
    endpoint = next((os.environ[name] for name in variables if os.environ.get(name)), None)
    with _errors_in_a_line(path):
        filesystem, root = _client(scheme, bucket, endpoint, os.getpid())
    return filesystem, f"{root}/{key}".rstrip("/")


@cache
def _client(
    scheme: str, bucket: str, endpoint: str | None, _process_id: int
) -> tuple["FileSystem", str]:
    """Return a client and its name of `bucket`; one for each process, as they do not survive a
    fork.
    """
    from pyarrow import fs

    if scheme == "s3":
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        region = region or ("us-east-1" if endpoint else fs.resolve_s3_region(bucket))
        # A small file then takes one request instead of three.
        options: dict[str, Any] = {"region": region, "allow_delayed_open": True}
        return fs.S3FileSystem(endpoint_override=endpoint, **options), bucket
    if scheme == "gs":
        options = {"retry_time_limit": GCS_RETRY_TIME}
        if endpoint:  # an emulator
            protocol, _, host = endpoint.rpartition("://")
            options |= {
                "anonymous": True,
                "scheme": protocol or "http",
                "endpoint_override": host.rstrip("/"),
            }
        return fs.GcsFileSystem(**options), bucket
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{bucket}/")
    return filesystem, root.rstrip("/")


def join(directory: str, *names: str) -> str:
    """Return the path of `names` below `directory`."""
    return "/".join([directory.rstrip("/"), *names])


def absolute(path: str) -> str:
    """Return `path` as every worker understands it, whatever folder it runs in."""
    return path if is_remote(path) else os.path.abspath(path)


def open_input(path: str) -> BinaryIO:
    """Open a file for reading bytes; seekable, never decompressed. Raise `FileNotFoundError` if
    there is none.
    """
    if not is_remote(path):
        return open(path, "rb")
    filesystem, name = _connect(path)
    with _errors_in_a_line(path):
        reader = _RemoteReader(filesystem.open_input_file(name), path)
        return cast(BinaryIO, io.BufferedReader(reader, MIN_FETCH_BYTES))


class _RemoteReader(io.RawIOBase):
    """Reads a remote file by ranges: exactly what is asked for after a seek, ever more while
    reading on.
    """

    def __init__(self, file: "NativeFile", path: str) -> None:
        self._file, self._path, self._size = file, path, file.size()
        self._position = self._start = self._read_ahead = 0
        self._fetched = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        offset = self._position - self._start
        if not 0 <= offset < len(self._fetched):
            reads_on = offset == len(self._fetched) > 0
            self._read_ahead = (
                min(max(2 * self._read_ahead, len(buffer)), MAX_READ_AHEAD_BYTES) if reads_on else 0
            )
            self._fetched = self._fetch(max(len(buffer), self._read_ahead))
            self._start, offset = self._position, 0
        num_bytes = min(len(buffer), len(self._fetched) - offset)
        buffer[:num_bytes] = memoryview(self._fetched)[offset : offset + num_bytes]
        self._position += num_bytes
        return num_bytes

    def readall(self) -> bytes:
        content = self._fetch(self._size)
        self._position += len(content)
        return content

    def _fetch(self, num_bytes: int) -> bytes:
        num_bytes = min(num_bytes, self._size - self._position)
        with _errors_in_a_line(self._path):
            return self._file.read_at(num_bytes, self._position) if num_bytes > 0 else b""

    def close(self) -> None:
        self._file.close()
        super().close()


def read_bytes(path: str) -> bytes:
    """Return the whole content of a file; raise `FileNotFoundError` if there is none."""
    with open_input(path) as file:
        return file.read()


def exists(path: str) -> bool:
    """Tell whether there is a file at `path`."""
    return _stat(path)[0] == "File" if is_remote(path) else os.path.isfile(path)


def is_missing(path: str) -> bool:
    """Tell whether there is neither a file nor a directory at `path`."""
    return _stat(path)[0] == "NotFound" if is_remote(path) else not os.path.exists(path)


def file_names(directory: str) -> list[str]:
    """Return the sorted names of the files directly in `directory`; none if it does not exist."""
    if is_remote(directory):
        return list(file_sizes(directory))
    if not os.path.isdir(directory):
        return []
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_file())


def file_sizes(directory: str) -> dict[str, int]:
    """Return the length in bytes of each file directly in `directory`, names sorted; none if it
    does not exist.
    """
    if is_remote(directory):
        found = _list(directory, recursive=False)
        return dict(sorted((path.rsplit("/", 1)[1], num_bytes) for path, num_bytes in found))
    return {name: os.path.getsize(os.path.join(directory, name)) for name in file_names(directory)}


def find_files(pattern: str) -> dict[str, int]:
    """Return the bytes of each file that `pattern` (a file, a folder, or a glob of either) names,
    but hidden ones, sorted.
    """
    return list_files(pattern)[0]


def list_files(pattern: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return what `find_files` does, and the reason for each path that it leaves out.

    The reasons are ``hidden_files`` and ``linked_folders`` (one for all below them),
    ``special_files`` (pipes and devices), ``broken_link`` and ``unreadable_folder``.
    """
    if not is_remote(pattern):
        named = [pattern] if os.path.exists(pattern) else local_glob.glob(pattern, recursive=True)
        reasons = dict(sorted(found for name in named for found in _paths_below(name)))
        found = {path: os.path.getsize(path) for path, reason in reasons.items() if not reason}
        return found, {path: reason for path, reason in reasons.items() if reason}
    root = glob_root(pattern)
    if root == pattern and (status := _stat(pattern))[0] == "File":
        return {pattern: status[1]}, {}
    matches = _glob_expression(pattern).fullmatch
    below = dict(sorted(entry for entry in _list(root, recursive=True) if matches(entry[0])))
    hidden = {path: "hidden_files" for path in below if _is_hidden(path.removeprefix(root))}
    return {path: num_bytes for path, num_bytes in below.items() if path not in hidden}, hidden


def _paths_below(path: str) -> Iterator[tuple[str, str]]:
    """Yield what is at or below a path, each with the reason to leave it out, empty for a file to
    read.
    """
    if not os.path.isdir(path):
        yield path, _kind(path)
        return
    errors: list[OSError] = []
    for folder, folders, names in os.walk(Path(path), onerror=errors.append):
        for name in (*folders, *names):
            below = os.path.join(folder, name)
            if (kind := "hidden_files" if name.startswith(".") else _kind(below)) != "folders":
                yield below, kind
        folders[:] = [name for name in folders if not name.startswith(".")]
    yield from ((error.filename, "unreadable_folder") for error in errors)


def _kind(path: str) -> str:
    """Return what is at a path, empty for a file."""
    if os.path.isdir(path):
        return "linked_folders" if os.path.islink(path) else "folders"
    if os.path.isfile(path):
        return ""
    return "special_files" if os.path.exists(path) else "broken_link"


def _glob_expression(pattern: str) -> re.Pattern[str]:
    """Translate a glob, as `glob.glob` reads it, to an expression that its matches and all below
    them match.
    """
    kinds = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^]/]+\])", pattern.rstrip("/"))
    words = (
        re.sub(r"^\[!", "[^", part) if re.match(r"\[.+\]$", part) else re.escape(part)
        for part in parts
    )
    return re.compile(
        "".join(kinds.get(part, word) for part, word in zip(parts, words, strict=True)) + "(/.*)?",
        re.S,
    )


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


def _stat(path: str) -> tuple[str, int]:
    """Return the kind of what is at a remote path (File, Directory or NotFound), and the length of
    a file in bytes.
    """
    filesystem, name = _connect(path)
    with _errors_in_a_line(path):
        found = filesystem.get_file_info(name)
    return found.type.name, found.size or 0


def _list(directory: str, recursive: bool) -> list[tuple[str, int]]:
    """Return path and length of the files in a remote directory, by one request a thousand files."""
    from pyarrow.fs import FileSelector

    filesystem, root = _connect(directory)
    with _errors_in_a_line(directory):
        found = filesystem.get_file_info(
            FileSelector(root, allow_not_found=True, recursive=recursive)
        )
    return [
        (join(directory, each.path.removeprefix(f"{root}/")), each.size)
        for each in found
        if each.is_file
    ]


@contextmanager
def write_atomically(path: str, temporary_directory: str) -> Iterator[BinaryIO]:
    """Open a file for writing bytes that appears at `path` only when it is complete; an error or a
    kill leaves nothing.

    A local file is written in `temporary_directory`, on the same filesystem, and renamed at the
    end; a remote one is written on this machine and uploaded at the end.
    """
    if is_remote(path):
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spooled:
            yield cast(BinaryIO, spooled)
            spooled.seek(0)
            _upload(cast(BinaryIO, spooled), path)
        return
    temporary = join(temporary_directory, f"{os.path.basename(path)}.{uuid.uuid4().hex}")
    os.makedirs(os.path.dirname(temporary), exist_ok=True)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        with open(temporary, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def upload(local: str, path: str) -> None:
    """Copy a local file to a remote path, where it appears when it is complete."""
    with open(local, "rb") as file:
        _upload(file, path)


def download(path: str, local: str) -> None:
    """Copy a remote file to a local path; do nothing if a copy of the same size and time is there."""
    from pyarrow import fs

    filesystem, name = _connect(path)
    with _errors_in_a_line(path):
        found = filesystem.get_file_info(name)
        if not found.is_file:
            raise FileNotFoundError(path)
        stamp = (found.size, found.mtime_ns or 0)
        if os.path.isfile(local) and stamp == (
            (status := os.stat(local)).st_size,
            status.st_mtime_ns,
        ):
            return
        os.makedirs(os.path.dirname(local), exist_ok=True)
        fs.copy_files(
            name, local, filesystem, fs.LocalFileSystem(), chunk_size=MAX_READ_AHEAD_BYTES
        )
    os.utime(local, ns=(stamp[1], stamp[1]))


def _upload(file: BinaryIO, path: str) -> None:
    # pyarrow cannot abort an upload: closing or dropping the stream publishes what was written so
    # far. So an upload begins when the content is complete, and runs in a thread, which Ctrl-C does
    # not interrupt.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_upload_here, file, path).result()


def _upload_here(file: BinaryIO, path: str) -> None:
    filesystem, name = _connect(path)
    try:
        with _errors_in_a_line(path):
            stream = filesystem.open_output_stream(
                name, compression=None
            )  # None: not by the suffix
            try:
                while content := file.read(UPLOAD_BYTES):
                    stream.write(content)
                    stream.flush()  # waits for the upload, so that memory is bounded
            finally:
                stream.close()  # after a failed upload it fails too, and publishes nothing
    except FileNotFoundError:
        raise UserError(
            f"{path}: the bucket does not exist. Create it, or check its name."
        ) from None


def remove(path: str) -> None:
    """Delete a file, or a folder with all below it; do nothing if there is none."""
    if is_remote(path):
        filesystem, name = _connect(path)
        kind, _ = _stat(path)
        # A folder of Google's is deleted before its marker, a file of its own that may not exist,
        # is found missing.
        with _errors_in_a_line(path), suppress(FileNotFoundError):
            if kind == "Directory":
                filesystem.delete_dir(name)
            elif kind == "File":
                filesystem.delete_file(name)
    elif os.path.isdir(path):
        while os.path.isdir(path):
            with suppress(FileNotFoundError):  # another process removes it too
                shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
