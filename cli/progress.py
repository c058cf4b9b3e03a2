"""Show how far a data stage or a training is; keep what libraries print beside it in a log."""

import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..pipeline.errors import RunError
from .output import PLAIN_EVERY_S, duration, is_first_rank, settings, tell

if TYPE_CHECKING:
    from ..pipeline.execution.runner import Progress, ShowProgress


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
    beam_log = logging.getLogger("apache_beam")
    beam_log.setLevel(logging.INFO if verbose else logging.ERROR)
    # A recipe runs several stages in this process; each line would come once per handler.
    if verbose and not beam_log.handlers:
        beam_log.addHandler(logging.StreamHandler())
    with _standard_error_to_log(verbose) as (terminal, log), _progress_bar(terminal) as show:
        try:
            yield show
        except RunError as error:
            traceback.print_exception(error)  # into the log
            if log is None:
                raise
            raise RunError(f"{error} Log: {log}") from error


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


# Most important first: a narrow terminal cuts off the rest.
SHOWN = {
    "loss": "loss {:.3f}",
    "mlm_loss": "MLM loss {:.3f}",
    "nsp_loss": "NSP loss {:.3f}",
    "mlm_accuracy": "MLM accuracy {:.1%}",
    "nsp_accuracy": "NSP accuracy {:.1%}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "examples_per_second": "{:,.0f} examples/s",
    "mfu": "MFU {:.1%}",
    "learning_rate": "rate {:.1e}",
    "data_wait": "wait {:.1%}",
    "peak_memory_gb": "{:.1f} GB",
}
Report = Callable[[Mapping[str, Any]], None]
_Started = dict[str, tuple[int, float]]
"""The first step that was reported of each part of the work, and when."""


@contextmanager
def training_progress() -> Iterator[Report]:
    """Show the latest numbers of a run and the time left on standard error.

    On a terminal this is one live line, elsewhere (``nohup``, CI) and as JSON a line every
    `PLAIN_EVERY_S`, so short runs print nothing. Yield a function that takes the numbers: ``step``,
    ``steps`` and those in `SHOWN`; a new ``stage`` (a string) has a time left of its own.
    """
    # Imported late: `clozeworks --help` imports this module.
    from rich.console import Console
    from rich.text import Text

    if not is_first_rank() or settings.is_quiet:
        yield lambda numbers: None
        return
    console = Console(stderr=True)
    is_live = console.is_terminal and not settings.as_json
    started = _Started()
    last_line_s = time.monotonic()
    with console.status("") if is_live else nullcontext() as status:

        def report(numbers: Mapping[str, Any]) -> None:
            nonlocal last_line_s
            now = time.monotonic()
            line = _line(numbers, started, now)
            if status:
                # `Text`, in which brackets are not rich's markup.
                status.update(Text(line))
            elif now - last_line_s >= PLAIN_EVERY_S:
                last_line_s = now
                tell("progress", line, **numbers)

        yield report


def _line(numbers: Mapping[str, Any], started: _Started, now: float) -> str:
    # "12 of 400" and the time left are those of one part of the work, such as one fine-tuning run.
    part = numbers.get("stage", "training")
    step = numbers["step"]
    steps = numbers["steps"]
    shown = [f"{step:,} of {steps:,}"]
    # Steps from before a resume must not count towards the time left.
    first_step, first_time = started.setdefault(part, (step, now))
    if step > first_step:
        seconds_per_step = (now - first_time) / (step - first_step)
        shown.append(f"{duration((steps - step) * seconds_per_step)} left")
    for name, form in SHOWN.items():
        if name in numbers:
            shown.append(form.format(numbers[name]))
    return f"{part}: {', '.join(shown)}"
