"""Errors that the command line reports in one line."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """The user's input is wrong; the message names the fault and says what to do.

    The command line prints the message on one line and exits with code 2, without a traceback.
    """


class RunError(Exception):
    """The run failed for a reason other than its input; exit code 1."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint at the name that was probably meant, or at all of them."""
    names = list(names)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}"
    return f"; choose from {', '.join(names)}" if names else ""
