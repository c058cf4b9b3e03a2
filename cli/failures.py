"""What to say of an error: one line and an exit code."""

import re
from collections.abc import Iterable

import click

from ..pipeline.errors import RunError, UserError

EXTRAS = {
    "data": ("apache_beam", "datasets", "huggingface_hub", "py3langid", "rensa", "sentencex"),
    "dask": ("dask", "distributed"),
    "train": ("torch", "safetensors", "tensorboard", "sklearn", "scipy"),
}


def fields_as_flags(message: str, commands: Iterable[click.Command]) -> str:
    """Return a library's message with each option of `commands` spelled as on the command line.

    The libraries name a field of their configuration in backticks: ``lower `max_bad` `` becomes
    ``lower --max-bad``. Other words in backticks stay.
    """
    flags = {
        parameter.name: parameter.opts[0]
        for command in commands
        for parameter in command.params
        if isinstance(parameter, click.Option)
    }
    return re.sub(r"`(\w+)`", lambda match: flags.get(match[1], match[0]), message)


def describe_failure(error: Exception) -> tuple[str, int] | None:
    """Return the message and the exit code: 2 for a user's mistake, 1 if the run or the system
    failed.

    Return None for a bug, and for an interrupt.
    """
    if isinstance(error, UserError):
        return str(error), 2
    if isinstance(error, click.ClickException):
        ctx = getattr(error, "ctx", None)
        return error.format_message() + (f" See `{ctx.command_path} --help`." if ctx else ""), 2
    if isinstance(error, ModuleNotFoundError):
        extra = next(
            (name for name, modules in EXTRAS.items() if str(error.name).split(".")[0] in modules),
            "",
        )
        message = f"This command needs {error.name}, which is not installed: pip install 'clozeworks[{extra}]'."
        return (message, 2) if extra else None
    message = _describe_run_failure(error)
    return (message, 1) if message else None


def _describe_run_failure(error: Exception) -> str:
    """Say in a line how the run, or the operating system, failed; return an empty string for a bug."""
    if isinstance(error, RunError):
        return str(error)
    if isinstance(error, OSError):
        files = " and ".join(str(name) for name in (error.filename, error.filename2) if name)
        return f"{error.strerror or error}{f': {files}' if files else ''}. Fix this and rerun; it resumes."
    if (
        isinstance(error, MemoryError)
        or "allocate memory" in str(error)
        or "out of memory" in str(error)
    ):
        return (
            "Out of memory. Rerun with fewer --workers, or in training with a smaller --micro-batch-size; a smaller "
            "model or --batch-size needs another --output."
        )
    if "can't start new thread" in str(error):
        return (
            "The system's limit on threads or memory has been reached (`ulimit -a`). Raise it, then rerun the same "
            "command."
        )
    return ""
