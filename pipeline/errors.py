"""Errors that the command line reports in one line."""


class UserError(Exception):
    """The user's input is wrong; the message names the fault and says what to do.

    The command line prints the message on one line and exits with code 2, without a traceback.
    """


class RunError(Exception):
    """The run broke through no fault of the input; exit code 1."""
