"""Set up standard error and the environment for a data stage; libraries leave them alone."""

import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ..pipeline.errors import RunError
from .output import PLAIN_EVERY_S, settings, tell

if TYPE_CHECKING:
    from ..pipeline.execution.progress import Progress, ShowProgress


@contextmanager
def data_stage_terminal(verbose: bool) -> Iterator["ShowProgress"]:
    """Prepare this process for a data stage; yield the function that shows its progress.

    What libraries print to standard error, in this process and its workers, goes to a log file
    unless `verbose`. The log is kept, and named in the error, if the run breaks.
    """
    import pyarrow as pa

    from ..pipeline.execution.workers import ENVIRONMENT, skip_pandas

    skip_pandas()
    os.environ.update(ENVIRONMENT)  # for child processes, Beam's too
    # The same for this process, which has imported Arrow and does the work with one worker.
    pa.set_memory_pool(pa.system_memory_pool())
    _configure_beam_log(verbose)
    with _standard_error_to_log(verbose) as (terminal, log), _progress_bar(terminal) as show:
        try:
            yield show
        except RunError as error:
            traceback.print_exception(error)  # into the log
            if log is None:
                raise
            raise RunError(f"{error} Log: {log}") from error


def _configure_beam_log(verbose: bool) -> None:
    logger = logging.getLogger("apache_beam")
    if not verbose:
        logger.setLevel(logging.ERROR)
        return
    logger.setLevel(logging.INFO)
    # A recipe runs several stages in this process; each line would come once per handler.
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


@contextmanager
def _progress_bar(terminal: TextIO) -> Iterator["ShowProgress"]:
    """Show a bar on a terminal; nothing on a file or pipe, but a line a minute as JSON."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    console = Console(file=terminal)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    is_hidden = not console.is_terminal or settings.is_quiet or settings.as_json
    with Bar(*columns, console=console, disable=is_hidden, transient=True) as bar:
        task = bar.add_task("", total=None)

        last_line_s = time.monotonic()

        def show(progress: "Progress") -> None:
            nonlocal last_line_s
            now = time.monotonic()
            if settings.as_json and not settings.is_quiet and now - last_line_s >= PLAIN_EVERY_S:
                last_line_s = now
                tell("progress", progress.stage, terminal, **asdict(progress))
            bar.update(
                task,
                description=f"{progress.stage}: {progress.phase}",
                completed=progress.done_bytes,
                total=progress.total_bytes,
            )

        yield show


@contextmanager
def _standard_error_to_log(verbose: bool) -> Iterator[tuple[TextIO, str | None]]:
    """Redirect file descriptor 2 to a file, unless `verbose`; keep the file if the body fails.

    Yield the terminal's own stream, for progress, and the file's path.
    """
    if verbose:
        yield sys.stderr, None
        return
    sys.stderr.flush()
    # The descriptor, not `sys.stderr`: C++ libraries and child processes write to it directly.
    #
    #     before    2 -> terminal
    #     within    2 -> log,  `terminal` -> terminal
    terminal = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    handle, log = tempfile.mkstemp(prefix="clozeworks-", suffix=".log")
    os.dup2(handle, 2)
    os.close(handle)
    is_needed = False
    try:
        yield terminal, log
    except RunError:
        is_needed = True
        raise
    finally:
        sys.stderr.flush()
        os.dup2(terminal.fileno(), 2)
        terminal.close()
        # Only a failed run needs it: of a user's mistake the message says enough.
        if not is_needed:
            Path(log).unlink(missing_ok=True)
