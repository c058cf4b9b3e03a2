"""Print the table at a command's end, notices and warnings; format their numbers."""

import logging
import os
from dataclasses import dataclass

from .failures import with_flags
from .output import print_table, settings, tell

ALREADY_FINISHED = "already finished, nothing to do"


@dataclass(frozen=True)
class CommandSummary:
    """What one command wrote, and where: rows of (name, value)."""

    command: str
    where: str
    rows: list[tuple[str, str]]
    exit_code: int = 0
    """Of the process, once the stages of a recipe that follow are done too."""


def is_first_rank() -> bool:
    """Return whether this process prints; under torchrun only one does."""
    return os.environ.get("RANK", "0") == "0"


def print_summaries(summaries: list[CommandSummary]) -> None:
    """Print a table of what the commands wrote to standard output."""
    if not is_first_rank() or settings.is_quiet:
        return
    from rich.table import Column
    from rich.text import Text

    rows: list[list[str | Text]] = []
    for summary in summaries:
        rows.append([Text(summary.command, "bold"), "where", summary.where])
        for name, value in summary.rows:
            rows.append(["", name, value])
    # Folded, not cut: paths are copied from here.
    print_table(["stage", "", Column(overflow="fold")], rows)


def warn(message: str) -> None:
    """Print a one-line warning to standard error."""
    if is_first_rank():
        tell("warning", f"{with_flags(message)}.")


class NoticeHandler(logging.Handler):
    """Prints what the libraries log for the user: plain lines, with fields as flags."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a notice."""
        tell("notice", with_flags(record.getMessage()))


def duration(seconds: float) -> str:
    """Format a time, such as 45 s, 10 min or 2.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def figure(value: float) -> str:
    """Format a count such as 12,345 or a measured value such as 0.843."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}"


def is_detail(metric: str) -> bool:
    """Return whether a table leaves out a metric, one of SQuAD 2.0's many."""
    return metric.startswith("best_") or metric.endswith(("Ans_exact", "_at_tau_0", "total"))


def byte_size(num_bytes: int) -> str:
    """Format a size.

    >>> byte_size(12), byte_size(3400), byte_size(1_200_000), byte_size(25 * 10**11)
    ('12 B', '3.4 kB', '1.2 MB', '2,500.0 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"
