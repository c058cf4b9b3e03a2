"""Files in object stores (``s3://``, ``gs://``), by `pyarrow.fs`, which is imported only here.

Credentials come from the environment, as usual for each store. ``AWS_ENDPOINT_URL`` (or
``AWS_ENDPOINT_URL_S3``) and ``STORAGE_EMULATOR_HOST`` select another server, such as MinIO.
"""

import io
import os
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ..errors import RunError, UserError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

# Each with the variables that select another server.
SCHEMES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
}
MIN_FETCH_BYTES = 64 << 10
MAX_READ_AHEAD_BYTES = 8 << 20
UPLOAD_BYTES = 64 << 20
"""Part of a file that is uploaded at a time; bounds the memory."""
GCS_RETRY_TIME = timedelta(seconds=30)
S3_ATTEMPTS = 10
"""For each request. The pauses between them add up to about 25 s: a server may be restarted."""

_ACCESS = (
    "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for s3://; "
    "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`, for gs://"
)
_NO_BUCKET = "the bucket does not exist. Create it, or check its name"
# What the stores' messages say, whose fault that is, and what to do about it.
_FAULTS = (
    (
        "credential|access token|ACCESS_|SIGNATURE|UNAUTHENTICATED|PERMISSION_DENIED"
        "|status (code: )?40[13]",
        UserError,
        f"access is denied. Check your credentials: {_ACCESS}",
    ),
    ("NO_SUCH_BUCKET", UserError, _NO_BUCKET),
    (
        "NETWORK_CONNECTION|UNAVAILABLE|SLOW_DOWN|status (code: )?50[0-4]|flush response stream",
        RunError,
        "the store cannot be reached, or is overloaded or down. Try again later; check the "
        "network, and AWS_ENDPOINT_URL or STORAGE_EMULATOR_HOST if set",
    ),
    (
        "AuthorizationHeaderMalformed|ExpiredToken|HTTP status (400|30[17])",
        RunError,
        "HTTP status 400 or 30x, as S3 answers if the credentials have expired (renew them) or the "
        "bucket is in another region (set AWS_REGION to it)",
    ),
)


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
        for pattern, kind, advice in _FAULTS:
            if re.search(pattern, message):
                raise kind(f"{path}: {advice}.") from None
        raise RunError(f"{path}: {message.rstrip('.')}.") from None


def _connect(path: str) -> tuple["FileSystem", str]:
    """Return the filesystem of a remote path, and the filesystem's name for the path."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in SCHEMES or not bucket:
        raise UserError(
            f"{path} cannot be opened: use a local path, s3://BUCKET/… or gs://BUCKET/…; download "
            "what is on the web."
        )
    if ":" in bucket:
        # Credentials in an address, which would come into manifests, and into this message.
        raise UserError(f"{scheme}:// takes a bucket without credentials: give {_ACCESS}.")
    endpoints = map(os.environ.get, SCHEMES[scheme])
    endpoint = next(filter(None, endpoints), None)
    with _errors_in_a_line(path):
        filesystem = _client(scheme, bucket, endpoint, os.getpid())
    return filesystem, f"{bucket}/{key}".rstrip("/")


@cache
def _client(scheme: str, bucket: str, endpoint: str | None, _process_id: int) -> "FileSystem":
    """Return a client, one for each process as they survive no fork."""
    from pyarrow import fs

    if scheme == "s3":
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if not region and endpoint:
            # Servers other than Amazon's take any region, and cannot be asked for a bucket's.
            region = "us-east-1"
        elif not region:
            region = fs.resolve_s3_region(bucket)
        # With allow_delayed_open a small file takes one request instead of three.
        options: dict[str, Any] = {"region": region, "allow_delayed_open": True}
        # The "standard" strategy would give up after about a hundred failures of all requests.
        options["retry_strategy"] = fs.AwsDefaultS3RetryStrategy(max_attempts=S3_ATTEMPTS)
        return fs.S3FileSystem(endpoint_override=endpoint, **options)
    options = {"retry_time_limit": GCS_RETRY_TIME}
    if endpoint:  # an emulator
        protocol, _, host = endpoint.rpartition("://")
        options["anonymous"] = True
        options["scheme"] = protocol or "http"
        options["endpoint_override"] = host.rstrip("/")
    return fs.GcsFileSystem(**options)


def open_remote(path: str) -> BinaryIO:
    """Open a remote file for reading bytes; seekable, never decompressed."""
    filesystem, name = _connect(path)
    with _errors_in_a_line(path):
        reader = _RemoteReader(filesystem.open_input_file(name), path)
    return cast(BinaryIO, io.BufferedReader(reader, MIN_FETCH_BYTES))


def remote_version(file: BinaryIO) -> str | None:
    """Return what a store says of an opened file; None for a file of this machine."""
    reader = getattr(file, "raw", None)
    if not isinstance(reader, _RemoteReader):
        return None
    with _errors_in_a_line(reader.path):
        return str(sorted(reader.file.metadata().items()))


class _RemoteReader(io.RawIOBase):
    """Reads a remote file by ranges: exactly what is asked for after a seek, ever more while
    reading on, up to `MAX_READ_AHEAD_BYTES`.

    The last range fetched is kept::

        file    |      ========fetched========           |
                       ^ start         ^ position        ^ size
    """

    def __init__(
        self,
        file: "NativeFile",
        path: str,
        pauses_s: Sequence[float] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    ) -> None:
        self.file = file
        self.path = path
        self.pauses_s = pauses_s  # after requests that an overloaded store did not answer
        self._size = file.size()
        self._position = 0
        self._start = 0
        self._fetched = b""
        self._read_ahead = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}
        self._position = bases[whence] + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        offset = self._position - self._start
        if not 0 <= offset < len(self._fetched):
            # Ever more while reading on, because a request takes as long for 8 MB as for 64 kB;
            # after a seek, as in the footer of a Parquet file, most of it would be thrown away.
            reads_on = offset == len(self._fetched) > 0
            if reads_on:
                self._read_ahead = max(2 * self._read_ahead, len(buffer))
                self._read_ahead = min(self._read_ahead, MAX_READ_AHEAD_BYTES)
            else:
                self._read_ahead = 0
            self._fetched = self._fetch(max(len(buffer), self._read_ahead))
            self._start = self._position
            offset = 0
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
        if num_bytes <= 0:
            return b""
        with _errors_in_a_line(self.path):
            for pause_s in self.pauses_s:
                try:
                    return self.file.read_at(num_bytes, self._position)
                except OSError as error:
                    # Where a hundred bytes are expected the store's error does not fit, and Arrow
                    # does not ask again.
                    if "flush response stream" not in str(error):
                        raise
                time.sleep(pause_s)
            return self.file.read_at(num_bytes, self._position)

    def close(self) -> None:
        self.file.close()
        super().close()


def stat_remote(path: str) -> tuple[str, int]:
    """Return the kind of a path (File, Directory or NotFound), and a file's size in bytes."""
    filesystem, name = _connect(path)
    with _errors_in_a_line(path):
        info = filesystem.get_file_info(name)
    return info.type.name, info.size or 0


def list_remote(directory: str, recursive: bool = False) -> dict[str, int | None]:
    """Return the size in bytes of each file in a remote directory by its path, sorted; None of a
    folder. Takes one request for each thousand files.
    """
    from pyarrow.fs import FileSelector

    filesystem, root = _connect(directory)
    selector = FileSelector(root, allow_not_found=True, recursive=recursive)
    with _errors_in_a_line(directory):
        infos = filesystem.get_file_info(selector)
    sizes = {}
    for info in infos:
        path = f"{directory.rstrip('/')}/{info.path.removeprefix(f'{root}/')}"
        sizes[path] = info.size if info.is_file else None
    return dict(sorted(sizes.items()))


def remote_folders(directory: str) -> list[str]:
    """Return the sorted names of the folders directly in a remote directory."""
    # Google's folders are but parts of the names of files, and Arrow lists none of them.
    is_googles = directory.startswith("gs://")
    names = set()
    for path, num_bytes in list_remote(directory, recursive=is_googles).items():
        first_name, *below = path.removeprefix(f"{directory.rstrip('/')}/").split("/")
        if below or num_bytes is None:
            names.add(first_name)
    return sorted(names)


def remove_remote(path: str) -> None:
    """Delete a remote file, or a folder with all below it; do nothing if there is none."""
    filesystem, name = _connect(path)
    kind, _ = stat_remote(path)
    # A folder of Google's is deleted before its marker, a file of its own that may not exist, is
    # found missing.
    with _errors_in_a_line(path), suppress(FileNotFoundError):
        if kind == "Directory":
            filesystem.delete_dir(name)
        elif kind == "File":
            filesystem.delete_file(name)


def download(path: str, local: str) -> None:
    """Copy a remote file to a local path, unless a copy of the same size and time is there."""
    from pyarrow import fs

    filesystem, name = _connect(path)
    with _errors_in_a_line(path):
        info = filesystem.get_file_info(name)
        if not info.is_file:
            raise FileNotFoundError(path)
        modified_ns = info.mtime_ns or 0
        if os.path.isfile(local):
            status = os.stat(local)
            if (status.st_size, status.st_mtime_ns) == (info.size, modified_ns):
                return
        os.makedirs(os.path.dirname(local), exist_ok=True)
        fs.copy_files(
            name, local, filesystem, fs.LocalFileSystem(), chunk_size=MAX_READ_AHEAD_BYTES
        )
    os.utime(local, ns=(modified_ns, modified_ns))


def upload(file: BinaryIO, path: str) -> None:
    """Copy the rest of an open file to a remote path, where it appears when it is complete."""
    # pyarrow cannot abort an upload: closing or dropping the stream publishes what was written so
    # far. So an upload begins when the content is complete, and runs in a thread, which Ctrl-C does
    # not interrupt.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_upload_here, file, path).result()


def _upload_here(file: BinaryIO, path: str) -> None:
    filesystem, name = _connect(path)
    try:
        with _errors_in_a_line(path):
            # By default pyarrow would compress by the suffix of the name.
            stream = filesystem.open_output_stream(name, compression=None)
            try:
                while content := file.read(UPLOAD_BYTES):
                    stream.write(content)
                    stream.flush()  # waits for the upload, so that memory is bounded
            finally:
                stream.close()  # after a failed upload it fails too, and publishes nothing
    except FileNotFoundError:
        raise UserError(f"{path}: {_NO_BUCKET}.") from None
