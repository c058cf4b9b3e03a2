"""Copy files from an object store and back, for libraries that open paths and for runs that rewrite
their files.

A run works in a local folder and uploads it at each checkpoint: files first, then an index of them,
and only then is deleted what the run no longer has. A run is resumed from the files of the last
index, so a kill at any time leaves a complete checkpoint.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ..pipeline import storage
from ..pipeline.errors import RunError, UserError
from ..pipeline.parsing import FilePath, parse_json
from ..pipeline.seeding import stable_hash
from ..pipeline.storage.directory import locked
from .notices import print_notice

INDEX = ".files.json"
NUM_THREADS = 8


@cache
def _copies(_process_id: int) -> tempfile.TemporaryDirectory[str]:
    """Return the folder of this process's copies; it is deleted when the process ends."""
    # Cached by process: a forked one inherits the cache, and must not share its parent's folder.
    return tempfile.TemporaryDirectory(prefix="clozeworks-", ignore_cleanup_errors=True)


def delete_copies() -> None:
    """Delete this process's copies, before it ends without cleaning up."""
    _copies(os.getpid()).cleanup()


def local_copy(path: str | Path, *names: str) -> Path:
    """Return a local path as it is, and a local copy of a remote file or folder, if it exists.

    A folder's copy has the files directly in it, or those with these `names` anywhere in it. Files
    that are up to date are not copied again.
    """
    if not storage.is_remote(str(path)):
        return Path(path)
    # gs://bucket/runs/base becomes COPIES/gs/bucket/runs/base: the last name is kept, which
    # messages show and cards name.
    remote = str(path).rstrip("/")
    scheme, remote_path = remote.split("://", 1)
    local = Path(_copies(os.getpid()).name, scheme, *remote_path.split("/"))
    if names:
        files = []
        for file in storage.find_files(remote):
            if file.rsplit("/", 1)[-1] in names:
                files.append(file.removeprefix(f"{remote}/"))
    else:
        files = storage.file_names(remote)
        if not files and storage.exists(remote):  # it is a file itself
            storage.download(remote, str(local))
    _download(remote, local, files)
    return local


def _download(remote: str, local: Path, names: list[str]) -> None:
    def download(name: str) -> None:
        storage.download(storage.join(remote, name), str(local / name))

    _for_each(download, names)


def _for_each(do: Callable[[str], None], names: Iterable[str]) -> None:
    """Call `do` with each name, several at once; raise its error."""
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        # An error in a thread is raised only where its result is asked for.
        for _ in pool.map(do, names):
            pass


@dataclass
class _Mirror:
    """A local folder and the remote one that it is uploaded to."""

    local: Path
    remote: str
    uploaded: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of change of each file, as of the last upload."""
    is_behind: bool = False
    """Whether the last upload failed."""

    def download(self) -> None:
        """Fetch the files of the last upload; raise `UserError` if the remote folder holds anything
        else.
        """
        index = self._path(INDEX)
        if storage.exists(index):
            names = parse_json(
                storage.read_bytes(index), list[FilePath], index, "Use another `output`."
            )
            _download(self.remote, self.local, names)
        else:
            files = storage.find_files(self.remote)
            if files:
                first = next(iter(files))
                raise UserError(f"{self.remote} is not empty ({first}, …). Use another `output`.")
            # A kill during the first upload leaves files and this index: a rerun knows them as a
            # run's own, instead of refusing a folder that is not empty.
            self._write_index([])
        self.uploaded = self._files()

    def upload(self) -> None:
        """Make the remote folder hold what the local one holds now."""
        self.is_behind = True
        files = self._files()
        # By size and time: a digest would read every checkpoint once more.
        changed = [name for name, stamp in files.items() if self.uploaded.get(name) != stamp]
        deleted = self.uploaded.keys() - files.keys()

        def upload(name: str) -> None:
            storage.upload(str(self.local / name), self._path(name))

        def remove(name: str) -> None:
            storage.remove(self._path(name))

        # In this order: a kill at any time leaves an index of files that are all there.
        _for_each(upload, changed)
        self._write_index(sorted(files))
        _for_each(remove, deleted)
        self.uploaded = files
        self.is_behind = False

    def keep(self) -> None:
        """Move the local folder to where nothing deletes it, and say so."""

        folder = self.local.rename(Path(tempfile.mkdtemp(prefix="clozeworks-"), "run"))
        print_notice(
            f"{folder} holds the files that were not uploaded: copy it to {self.remote}, or rerun "
            "from the last upload."
        )

    def _write_index(self, names: list[str]) -> None:
        with storage.write_atomically(self._path(INDEX), "") as file:
            file.write(json.dumps(names).encode())

    def _path(self, name: str) -> str:
        return storage.join(self.remote, name)

    def _files(self) -> dict[str, tuple[int, int]]:
        files = {}
        for path, size in storage.find_files(str(self.local)).items():
            name = os.path.relpath(path, self.local)
            files[name] = (size, os.stat(path).st_mtime_ns)
        return files


# Checkpoints are written deep inside a run, which knows only its local folder.
_mirrors: list[_Mirror] = []


@contextmanager
def mirrored(output: str | Path) -> Iterator[Path]:
    """Yield `output`, or for a remote one a local folder with its files; at the end the first rank
    uploads them.
    """
    if not storage.is_remote(str(output)):
        yield Path(output)
        return
    # The processes that torchrun started share one folder; they have the same parent.
    owner = os.getpid()
    if "RANK" in os.environ:
        owner = os.getppid()
    # Not `tempfile.mkdtemp`: each of them must find the same name by itself.
    key = f"{stable_hash(str(output), owner):016x}"
    local = Path(tempfile.gettempdir(), f"clozeworks-{key}", "run")
    mirror = _Mirror(local, str(output).rstrip("/"))
    if os.environ.get("RANK", "0") != "0":
        yield mirror.local
        return
    with locked(mirror.remote):
        # A killed run with this process id may have left one.
        shutil.rmtree(mirror.local.parent, ignore_errors=True)
        _mirrors.append(mirror)
        try:
            # The name is predictable: this fails if another user of the machine has made the
            # folder, and its mode keeps others out.
            _make_private(mirror.local.parent)
            mirror.download()
            yield mirror.local
            mirror.upload()
        except (UserError, RunError) as error:
            # The user knows only the remote name.
            message = str(error).replace(str(mirror.local), mirror.remote)
            raise type(error)(message) from None
        finally:
            _mirrors.remove(mirror)
            if mirror.is_behind and mirror.local.exists():
                mirror.keep()
            shutil.rmtree(mirror.local.parent, ignore_errors=True)


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise UserError(
            f"{folder}, where the run would work, belongs to somebody else and cannot be deleted: "
            "remove it, or set TMPDIR to a folder of your own."
        ) from None


@contextmanager
def local_file(output: str | Path) -> Iterator[Path]:
    """Yield `output`, or a local file for a remote one: with its content at first, uploaded to it
    at the end.
    """
    if not storage.is_remote(str(output)):
        yield Path(output)
        return
    with tempfile.TemporaryDirectory(prefix="clozeworks-") as folder:
        local = Path(folder, str(output).rsplit("/", 1)[1])
        with suppress(FileNotFoundError):  # at first there is none
            storage.download(str(output), str(local))
        yield local
        storage.upload(str(local), str(output))


def upload(path: Path) -> None:
    """Upload the run in whose local folder `path` lies, if it is one of a remote output; else do
    nothing.

    A failure is only reported: the next upload includes the missing files.
    """

    for mirror in _mirrors:
        if path.is_relative_to(mirror.local):
            try:
                mirror.upload()
            except (UserError, RunError) as error:
                print_notice(
                    f"{error} The checkpoint was not uploaded; training continues, and the next "
                    "upload includes it."
                )
