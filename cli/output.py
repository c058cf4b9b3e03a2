"""Print what a command has to say, as people or programs read it: notices, warnings, errors, and
the table at its end. What a terminal would obey, in text that came from anywhere, is shown instead.
"""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from ..pipeline.storage.remote import SCHEMES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Level = Literal["progress", "notice", "warning", "error"]
ALREADY_FINISHED = "already finished, nothing to do"


@dataclass
class _Settings:
    commands: Mapping[str, click.Command] = field(default_factory=dict)
    """Whose options messages name; set by `cli.main`."""
    as_json: bool = False
    """By an option of ``clozeworks`` itself, as `is_quiet`; reset after a command."""
    is_quiet: bool = False


settings = _Settings()

# In s3://KEY:SECRET@bucket; a secret key may contain a slash.
_SECRET = re.compile(r"://[^\s@]*:[^\s@]*@")

# What is shown for each control character but tabs and line breaks.
PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
PICTURES |= {0x7F: "␡", **dict.fromkeys(range(0x80, 0xA0), "\N{REPLACEMENT CHARACTER}")}


def tell(level: Level, message: str, file: TextIO | None = None, **figures: object) -> None:
    """Write a line to standard error (or `file`): the message, or a JSON object with `figures`."""
    message = _SECRET.sub("://***@", message)
    prefixes = {"warning": "Warning: ", "error": "Error: "}
    line = prefixes.get(level, "") + message
    if settings.as_json:
        event = {"time": round(time.time(), 3), "level": level, "message": message, **figures}
        line = json.dumps(event)
    # To `sys.stderr` as it is now: a live line replaces it for its time.
    print(printable(line), file=file or sys.stderr, flush=True)


def printable(text: str) -> str:
    """Return text with its control characters visible: they could clear the screen."""
    return text.translate(PICTURES)


def make_console(**settings: Any) -> "Console":
    """Return rich's console, which prints strings as `printable` shows them, without markup."""
    # Imported late: rich would double the time of `--help`.
    from rich.console import Console
    from rich.text import Text

    class _SafeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # where rich would exit with 1; see `cli.main`

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    console = _SafeConsole(markup=False, emoji=False, **settings)
    # In fewer columns (some set COLUMNS=0) rich leaves out the ends of cells, or all of them.
    console.width = max(console.width, 80)
    return console


def print_table(
    headings: Sequence[str],
    rows: "Iterable[Iterable[str | Text]]",
    numbers: Sequence[str] = (),
    width: int | None = None,
) -> None:
    """Print a table without lines, as wide as the terminal or `width`; `numbers` are headings."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        if heading in numbers:
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold")  # not cut: paths are copied from here
    for row in rows:
        table.add_row(*row)
    make_console(width=width).print(table)


def with_flags(message: str) -> str:
    """Return a library's message with what is typed on the command line.

    A field in backticks, `max_bad`, becomes ``--max-bad``; a local copy of a remote file, such as
    ``/tmp/clozeworks-ab12/s3/bucket/dev.tsv``, becomes ``s3://bucket/dev.tsv``.
    """
    message = re.sub(r"`(\w+)`", lambda found: _flag(found[1]) or found[0], message)
    return re.sub(rf"(/[\w.-]+)*/clozeworks-\w+/({'|'.join(SCHEMES)})/", r"\2://", message)


def _flag(name: str) -> str | None:
    """Return the option that sets a field; None if it has none."""
    context = click.get_current_context(silent=True)
    at_work = [context.command] if context else []
    # The others are imported only if this one does not have it: all take longer than a short text.
    for command in chain(at_work, settings.commands.values()):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name == name:
                return parameter.opts[0]
    return None


@dataclass(frozen=True)
class CommandSummary:
    """What one command wrote, and where: rows of (name, value)."""

    command: str
    where: str
    rows: list[tuple[str, str]]
    exit_code: int = 0
    """The process ends with it, once the stages of a recipe that follow are done too."""


def is_first_rank() -> bool:
    """Return whether this process prints; under torchrun only one does."""
    return os.environ.get("RANK", "0") == "0"


def print_summaries(summaries: list[CommandSummary]) -> None:
    """Print a table of what the commands wrote to standard output."""
    if not is_first_rank() or settings.is_quiet:
        return
    from rich.text import Text

    rows = []
    for summary in summaries:
        rows.append([Text(summary.command, "bold"), "where", summary.where])
        for name, value in summary.rows:
            rows.append(["", name, value])
    print_table(["stage", "", ""], rows)


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
    return metric.startswith("best_") or metric.endswith(("Ans_exact", "total"))


def byte_size(num_bytes: int) -> str:
    """Format a size.

    >>> byte_size(12), byte_size(3400), byte_size(1_200_000), byte_size(25 * 10**11)
    ('12 B', '3.4 kB', '1.2 MB', '2,500.0 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"
