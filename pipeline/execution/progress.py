"""Progress on the terminal; silent if the output is not a terminal."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


@contextmanager
def bytes_progress(console: Console) -> Iterator[Progress]:
    """Show a bar over bytes of work (task 0), with rate and time left; the caller sets its total."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        progress.add_task("", total=None)
        yield progress


@contextmanager
def noise_to_file(verbose: bool) -> Iterator[tuple[TextIO, str | None]]:
    """Redirect standard error of this process and its children to a file, unless `verbose`.

    Libraries in the workers print there before logging can be configured. Yield the terminal's own stream, for progress
    and errors, and the file's path. It is kept only if the body raises an `Exception`, not if the user interrupts.
    """
    if verbose:
        yield sys.stderr, None
        return
    sys.stderr.flush()
    terminal = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    handle, path = tempfile.mkstemp(prefix="clozeworks-", suffix=".log")
    os.dup2(handle, 2)
    os.close(handle)
    keep = False
    try:
        yield terminal, path
    except Exception:
        keep = True
        raise
    finally:
        if not keep:
            Path(path).unlink(missing_ok=True)
        os.dup2(terminal.fileno(), 2)
        terminal.close()
