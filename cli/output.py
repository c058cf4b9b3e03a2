"""Print text that came from anywhere: what a terminal would obey is shown instead."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Not tabs and line breaks.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


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
    """Return rich's console, which prints strings as `printable` shows them."""
    # Imported late: rich would double the time of `--help`.
    from rich.console import Console
    from rich.text import Text

    class SafeConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    return SafeConsole(**settings)
