"""Print what a command has to say, as people or programs read it; what a terminal would obey, in
text that came from anywhere, is shown instead.
"""

import json
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column
    from rich.text import Text

Level = Literal["progress", "notice", "warning", "error"]
PREFIXES = {"warning": "Warning: ", "error": "Error: "}
PLAIN_EVERY_S = 60.0
"""Between two lines of progress, without a terminal."""
LEAST_WIDTH = 80
"""Columns of a table."""


@dataclass
class _Settings:
    """How this process prints, by the options of ``clozeworks`` itself; reset after a command."""

    as_json: bool = False
    is_quiet: bool = False

    def reset(self) -> None:
        self.__init__()


settings = _Settings()

# Not tabs and line breaks.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def tell(level: Level, message: str, file: TextIO | None = None, **figures: object) -> None:
    """Write a line to standard error (or `file`): the message, or a JSON object with ``time``
    (seconds since 1970), ``level``, ``message`` and `figures`.
    """
    line = PREFIXES.get(level, "") + message
    if settings.as_json:
        event = {"time": round(time.time(), 3), "level": level, "message": message, **figures}
        line = json.dumps(event)
    # To `sys.stderr` as it is now: a live line replaces it for its time.
    print(printable(line), file=file or sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""Return text with its control characters visible: a title or a file's name may hold sequences
    that clear the screen or make false links.

    >>> printable("\x1b[2J")
    '␛[2J'
    """
    return _CONTROLS.sub(_picture, text)


def _picture(control: re.Match[str]) -> str:
    code = ord(control[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"


def make_console(**settings: Any) -> "Console":
    """Return rich's console, which prints strings as `printable` shows them, and brackets and
    colons in them as they are.
    """
    # Imported late: rich would double the time of `--help`.
    from rich.console import Console
    from rich.text import Text

    class SafeConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    console = SafeConsole(markup=False, emoji=False, **settings)
    # In fewer columns (some set COLUMNS=0) rich leaves out the ends of cells, or all of them.
    console.width = max(console.width, LEAST_WIDTH)
    return console


def print_table(columns: "Iterable[str | Column]", rows: "Iterable[Iterable[str | Text]]") -> None:
    """Print a table without lines to standard output; a cell of rich's `Text` may have a style."""
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    make_console().print(table)
