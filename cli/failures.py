"""Describe an error in one line for the command line, with an exit code."""

import click

from ..pipeline.errors import RunError, UserError, how_to_install


def describe_failure(error: Exception) -> tuple[str, int] | None:
    """Return the message and the exit code: 2 for a user's mistake, 1 if the run or the system
    failed; None for a bug, and for an interrupt.
    """
    if isinstance(error, UserError):
        return str(error), 2
    if isinstance(error, click.ClickException):
        return describe_usage_error(error), 2
    if isinstance(error, ModuleNotFoundError):
        install = how_to_install(error)
        return (f"This command needs {install}", 2) if install else None
    if isinstance(error, RunError):
        return str(error), 1
    if isinstance(error, OSError):
        fault = error.strerror or str(error)
        # Renaming or copying a file has two names, a full disk often none.
        files = [str(name) for name in (error.filename, error.filename2) if name]
        if files:
            fault += f": {' and '.join(files)}"
        return f"{fault}. Fix this and rerun; it resumes.", 1
    reason = str(error)
    # PyTorch and the C++ libraries raise a RuntimeError when they run out.
    is_out_of_memory = "allocate memory" in reason or "out of memory" in reason
    # From the loader, if memory or `ulimit -v` has no room for PyTorch itself.
    if isinstance(error, ImportError) and "failed to map segment" in reason:
        return f"Out of memory: {reason}. Free some, or raise `ulimit -v`.", 1
    if isinstance(error, MemoryError) or is_out_of_memory:
        advice = (
            "Rerun with fewer --workers, or in training with a smaller --micro-batch-size; "
            "a smaller model or --batch-size needs another --output."
        )
        return f"Out of memory. {advice}", 1
    if "can't start new thread" in reason:
        limit = "The system's limit on threads or memory has been reached (`ulimit -a`)"
        return f"{limit}. Raise it, then rerun the same command.", 1
    return None


def describe_usage_error(error: click.ClickException) -> str:
    """Return click's message, and where to look."""
    message = error.format_message()
    # Errors in the use of one command know its context; others have none.
    if ctx := getattr(error, "ctx", None):
        message += f" See `{ctx.command_path} --help`."
    return message
