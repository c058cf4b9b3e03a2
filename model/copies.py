"""Copies of remote files and folders, for libraries that open paths; runs write here only."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from ..pipeline import storage
from ..pipeline.errors import UserError


@cache
def _copies(_process_id: int) -> tempfile.TemporaryDirectory[str]:
    """Return the folder of this process's copies; it is deleted when the process ends."""
    # Cached by process: a forked one inherits the cache, and must not share its parent's folder.
    return tempfile.TemporaryDirectory(prefix="clozeworks-", ignore_cleanup_errors=True)


def delete_copies() -> None:
    """Delete this process's copies, before it ends without cleaning up."""
    _copies(os.getpid()).cleanup()


def local_copy(path: str | Path, *names: str) -> Path:
    """Return a local path as it is, and an up-to-date local copy of a remote file or folder: of the
    files directly in it, or those with these `names` anywhere in it.
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

    def download(name: str) -> None:
        storage.download(storage.join(remote, name), str(local / name))

    # An object store answers each request after tens of milliseconds.
    with ThreadPoolExecutor(8) as pool:
        # An error in a thread is raised only where its result is asked for.
        for _ in pool.map(download, files):
            pass
    return local


def refuse_remote(output: str | Path) -> None:
    """Raise `UserError` for an `output` on an object store."""
    if storage.is_remote(str(output)):
        raise UserError(
            f"`output` is on an object store ({output}), and this is written locally: give a "
            "folder of this machine, then copy it (`aws s3 sync`, `gcloud storage rsync`)."
        )
