"""Show how far a data stage or a training is; keep what libraries print beside it in a log."""

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
from .output import byte_size, duration, is_first_rank, settings, tell
from .process import prepare_data_stage

if TYPE_CHECKING:
    from ..pipeline.execution.runner import Progress, ShowProgress


@contextmanager
def data_stage_terminal(verbose: bool) -> Iterator["ShowProgress"]:
    """Prepare this process for a data stage; yield the function that shows its progress.

    What libraries print goes to a log, unless `verbose`; it is kept, and named, if the run breaks.
    """
    prepare_data_stage(verbose)
    standard_error = nullcontext(sys.stderr) if verbose else _standard_error_to_log()
    with standard_error as terminal, _progress_line(terminal) as show:

        def show_stage(progress: "Progress") -> None:
            done, total = progress.done_bytes, progress.total_bytes
            amount = f"{byte_size(done)} of {byte_size(total)}"
            show(f"{progress.stage}: {progress.phase}", done, total, amount, [], asdict(progress))

        try:
            yield show_stage
        except RunError as error:
            traceback.print_exception(error)  # into the log
            raise


@contextmanager
def _standard_error_to_log() -> Iterator[TextIO]:
    """Send file descriptor 2 to a log, kept if the run breaks; yield the terminal's stream."""
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
        yield terminal
    except RunError as error:
        is_needed = True
        raise RunError(f"{error} Log: {log}") from error
    finally:
        sys.stderr.flush()
        os.dup2(terminal.fileno(), 2)
        terminal.close()
        # Only a failed run needs it: of a user's mistake the message says enough.
        if not is_needed:
            Path(log).unlink(missing_ok=True)


# Most important first: a narrow terminal has no room for the rest.
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


@contextmanager
def training_progress() -> Iterator[Report]:
    """Show the latest numbers of a run and the time left on standard error.

    Yield a function that takes ``step``, ``steps`` and those in `SHOWN`; each new ``stage`` has a
    time left of its own.
    """
    with _progress_line(sys.stderr) as show:

        def report(numbers: Mapping[str, Any]) -> None:
            step = numbers["step"]
            steps = numbers["steps"]
            shown = [name for name in SHOWN if name in numbers]
            details = [SHOWN[name].format(numbers[name]) for name in shown]
            part = numbers.get("stage", "training")
            show(part, step, steps, f"{step:,} of {steps:,}", details, numbers)

        yield report


_Show = Callable[[str, int, int, str, list[str], Mapping[str, Any]], None]


@contextmanager
def _progress_line(file: TextIO) -> Iterator[_Show]:
    """Yield a function that shows a part of the work, how much of it is done, and the time left: in
    a live line on a terminal, elsewhere and as JSON in a line every minute.
    """
    # Imported late: `clozeworks --help` imports this module.
    from rich.console import Console
    from rich.text import Text

    if not is_first_rank() or settings.is_quiet:
        yield lambda *progress: None
        return
    console = Console(file=file)
    is_live = console.is_terminal and not settings.as_json
    started = {}
    last_line_s = time.monotonic()
    with console.status("loading") if is_live else nullcontext() as status:

        def show(
            part: str,
            done: int,
            total: int,
            amount: str,
            details: list[str],
            figures: Mapping[str, Any],
        ) -> None:
            nonlocal last_line_s
            now = time.monotonic()
            # What was done before a resume must not count towards the time left; some parts are
            # done again.
            first_done, first_time = started.get(part, (done, now))
            if done > first_done:
                left_s = (total - done) * (now - first_time) / (done - first_done)
                amount += f", {duration(left_s)} left"
            else:
                started[part] = (done, now)
            line = f"{part}: {amount}"
            room = console.width - len("⠋ ")
            for detail in details:
                if status and len(f"{line}, {detail}") > room:
                    break
                line += f", {detail}"
            if status:
                # `Text`, in which brackets are not rich's markup.
                status.update(Text(line))
            elif now - last_line_s >= 60:
                last_line_s = now
                tell("progress", line, file, **figures)

        yield show
