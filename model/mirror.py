"""Local copies of what lies in an object store, for libraries that open paths and for runs that
rewrite their files.

A run works in a local folder and uploads it at each checkpoint: files first, then an index of them,
and only then is deleted what the run no longer has. A run is resumed from the files of the last
index, so a kill at any time leaves a complete checkpoint.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ..pipeline import storage
from ..pipeline.errors import RunError, UserError
from ..pipeline.parsing import FilePath, parse_json
from ..pipeline.seeding import stable_hash

INDEX = ".files.json"
NUM_THREADS = 8


@cache
def _copies(_process_id: int) -> tempfile.TemporaryDirectory[str]:
    """Return the folder of this process's copies; it is deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="clozeworks-", ignore_cleanup_errors=True)


def delete_copies() -> None:
    """Delete this process's copies, before it ends without cleaning up."""
    _copies(os.getpid()).cleanup()


def local_copy(path: str | Path, *names: str) -> Path:
    """Return a local path as it is, and of a remote file or folder a local copy, if there is
    anything.

    Of a folder, copy the files directly in it, or those of these `names` anywhere in it, unless
    they are up to date.
    """
    if not storage.is_remote(str(path)):
        return Path(path)
    remote = str(path).rstrip("/")
    local = Path(_copies(os.getpid()).name, *remote.split("://", 1)[1].split("/"))
    if names:
        below = (found.removeprefix(f"{remote}/") for found in storage.find_files(remote))
        files = [name for name in below if name.rsplit("/", 1)[-1] in names]
    elif not (files := storage.file_names(remote)) and storage.exists(remote):
        storage.download(remote, str(local))
    _download(remote, local, files)
    return local


def _download(remote: str, local: Path, names: list[str]) -> None:
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        list(
            pool.map(
                lambda name: storage.download(storage.join(remote, name), str(local / name)), names
            )
        )


@dataclass
class _Mirror:
    """A local folder, the remote one that it is uploaded to, and what was uploaded: size and time
    of each file.
    """

    local: Path
    remote: str
    uploaded: dict[str, tuple[int, int]] = field(default_factory=dict)
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
        elif found := storage.find_files(self.remote):
            raise UserError(
                f"{self.remote} is not empty ({next(iter(found))}, …). Use another `output`."
            )
        else:
            self._write_index([])  # so that what a killed upload leaves is known to be a run's
        self.uploaded = self._files()

    def upload(self) -> None:
        """Make the remote folder hold what the local one holds now."""
        self.is_behind = True
        files = self._files()
        changed = [name for name, stamp in files.items() if self.uploaded.get(name) != stamp]
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            list(
                pool.map(
                    lambda name: storage.upload(str(self.local / name), self._path(name)), changed
                )
            )
            self._write_index(sorted(files))
            list(
                pool.map(
                    lambda name: storage.remove(self._path(name)),
                    self.uploaded.keys() - files.keys(),
                )
            )
        self.uploaded = files
        self.is_behind = False

    def keep(self) -> None:
        """Move the local folder to where nothing deletes it, and say so."""
        from .training.ranks import print_notice  # imported here because torch takes seconds

        kept = self.local.rename(Path(tempfile.mkdtemp(prefix="clozeworks-"), "run"))
        print_notice(
            f"{kept} holds what was not uploaded: copy it to {self.remote}, or rerun from the last upload."
        )

    def _write_index(self, names: list[str]) -> None:
        with storage.write_atomically(self._path(INDEX), "") as file:
            file.write(json.dumps(names).encode())

    def _path(self, name: str) -> str:
        return storage.join(self.remote, name)

    def _files(self) -> dict[str, tuple[int, int]]:
        found = storage.find_files(str(self.local))
        return {
            os.path.relpath(path, self.local): (size, os.stat(path).st_mtime_ns)
            for path, size in found.items()
        }


_mirrors: list[_Mirror] = []


@contextmanager
def mirrored(output: str | Path) -> Iterator[Path]:
    """Yield `output`, or for a remote one a local folder with its files; at the end the first rank
    uploads them.
    """
    if not storage.is_remote(str(output)):
        yield Path(output)
        return
    is_first = os.environ.get("RANK", "0") == "0"
    # The processes that torchrun started have the same parent.
    key = f"{stable_hash(str(output), os.getppid() if 'RANK' in os.environ else os.getpid()):016x}"
    mirror = _Mirror(
        Path(tempfile.gettempdir(), f"clozeworks-{key}", "run"), str(output).rstrip("/")
    )
    if not is_first:
        yield mirror.local
        return
    shutil.rmtree(mirror.local.parent, ignore_errors=True)
    _mirrors.append(mirror)
    try:
        mirror.local.parent.mkdir(mode=0o700)
        mirror.download()
        yield mirror.local
        mirror.upload()
    except (UserError, RunError) as error:
        raise type(error)(str(error).replace(str(mirror.local), mirror.remote)) from None
    finally:
        _mirrors.remove(mirror)
        if mirror.is_behind and mirror.local.exists():
            mirror.keep()
        shutil.rmtree(mirror.local.parent, ignore_errors=True)


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
        with suppress(FileNotFoundError):
            storage.download(str(output), str(local))
        yield local
        storage.upload(str(local), str(output))


def upload(path: Path) -> None:
    """Upload the run in whose local folder `path` lies, if it is one of a remote output; else do
    nothing.

    A failure is only reported: the next upload brings what is missing.
    """
    from .training.ranks import print_notice  # imported here because torch takes seconds

    for mirror in _mirrors:
        if path.is_relative_to(mirror.local):
            try:
                mirror.upload()
            except (UserError, RunError) as error:
                print_notice(
                    f"{error} The checkpoint was not uploaded; training continues, and the next upload includes it."
                )
