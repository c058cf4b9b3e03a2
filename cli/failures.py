"""Describe an error in one line for the command line, with an exit code."""

import re
from collections.abc import Iterable

import click

from ..pipeline.errors import RunError, UserError
from ..pipeline.storage.remote import SCHEMES

EXTRAS = {
    "data": (
        "apache_beam",
        "babel",
        "chardet",
        "datasets",
        "huggingface_hub",
        "py3langid",
        "rensa",
        "sentencex",
    ),
    "dask": ("dask", "distributed"),
    "train": ("torch", "safetensors", "tensorboard", "sklearn", "scipy", "matplotlib"),
}
"""The packages that each extra of clozeworks installs, for advice when one is missing."""

HINTS: dict[str, tuple[str, ...] | str] = {
    "-o": ("--output",),
    "--lr": ("--learning-rate", "--learning-rates"),
    "--learning-rate": ("--learning-rate", "--learning-rates"),
    "--epochs": ("--epochs", "--steps", "--tokens", "--hours"),
    "--num-train-epochs": ("--epochs", "--steps", "--tokens", "--hours"),
    "--max-steps": ("--epochs", "--steps", "--tokens", "--hours"),
    "--train-batch-size": ("--batch-size",),
    "--per-device-train-batch-size": ("--batch-size",),
    "--max-seq-length": ("--max-length",),
    "--vocab-size": ("--size",),
    "--vocab-file": ("--vocab",),
    "--dupe-factor": ("--duplicates",),
    "--do-lower-case": ("--cased", "--uncased"),
    "--mlm-probability": ("--mask-rate",),
    "--warmup-ratio": ("--warmup-share", "--warmup-steps"),
    "--output-dir": ("--output",),
    "--model-name-or-path": ("--checkpoint",),
    "--fp16": "--precision sets it; auto chooses by the device",
    "--log-format": "It goes before the command: `clozeworks --log-format json ingest …`",
    "--quiet": "It goes before the command: `clozeworks --quiet ingest …`",
    "--resume": "Rerun the same command: it resumes",
    "--data-dir": "The data are an argument, without an option's name",
}
"""By the names in google-research/bert and ``transformers`` that people type most, with hyphens for
underscores: our options, the likeliest first (a command's message names those that it has), or a
sentence, if there is no such option.
"""


def commands_of(ctx: click.Context) -> list[click.Command]:
    """Return all commands of the program that runs in `ctx`."""
    root = ctx.find_root().command
    if isinstance(root, click.Group):
        return list(root.commands.values())
    return [root]  # a command that a test runs by itself


def fields_as_flags(message: str, commands: Iterable[click.Command]) -> str:
    """Return a library's message with options and remote files as typed on the command line.

    The libraries name a field of their configuration in backticks: ``lower `max_bad` `` becomes
    ``lower --max-bad``. Other words in backticks stay. A local copy of a remote file, such as
    ``/tmp/clozeworks-ab12/s3/bucket/dev.tsv``, becomes that file, ``s3://bucket/dev.tsv``.
    """
    flags = {}
    for command in commands:
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                flags[parameter.name] = parameter.opts[0]
    message = re.sub(r"`(\w+)`", lambda match: flags.get(match[1], match[0]), message)
    return re.sub(rf"(/[\w.-]+)*/clozeworks-\w+/({'|'.join(SCHEMES)})/", r"\2://", message)


def with_flags(message: str) -> str:
    """Return a library's message with its fields as flags of the command that is running."""
    # Outside of a command, as in a test of a function that prints, nothing is known of flags.
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return message
    return fields_as_flags(message, commands_of(ctx))


def describe_failure(error: Exception) -> tuple[str, int] | None:
    """Return the message and the exit code: 2 for a user's mistake, 1 if the run or the system
    failed.

    Return None for a bug, and for an interrupt.
    """
    if isinstance(error, UserError):
        return str(error), 2
    if isinstance(error, click.ClickException):
        return describe_usage_error(error), 2
    if isinstance(error, ModuleNotFoundError):
        message = _describe_missing_module(error)
        exit_code = 2
    else:
        message = _describe_run_failure(error)
        exit_code = 1
    if not message:
        return None
    return message, exit_code


def describe_usage_error(error: click.ClickException) -> str:
    """Return click's message, with what was meant by an unknown option, and where to look."""
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        hint = _hint_for(error.option_name, error.ctx.command, commands_of(error.ctx))
        # What click finds itself is a misspelt option of the same command.
        if hint and (error.option_name in HINTS or not error.possibilities):
            message = f"No such option '{error.option_name}'. {hint}"
    # Errors in the use of one command know its context; others have none.
    if ctx := getattr(error, "ctx", None):
        message += f" See `{ctx.command_path} --help`."
    return message


def _hint_for(option: str, command: click.Command, commands: Iterable[click.Command]) -> str:
    """Return a sentence that says what to type instead of an `option` that `command` does not have;
    empty if unknown.
    """
    name = option.replace("_", "-")
    hint = HINTS.get(name, (name,))
    if isinstance(hint, str):
        return f"{hint}."
    own = [option for option in hint if option in _options_of(command)]
    if own:
        *others, last = own
        return f"Give {', '.join(others)} or {last}." if others else f"Give {last}."
    for option in hint:
        others = [str(other.name) for other in commands if option in _options_of(other)]
        others.sort(key=lambda name: name == "corpus")  # the stages themselves first
        if others:
            named = " and ".join(f"`clozeworks {other}`" for other in others[:2])
            return f"{option} is an option of {named}."
    return ""


def _options_of(command: click.Command) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts]


def _describe_missing_module(error: ModuleNotFoundError) -> str:
    """Name the extra that installs the module; return an empty string for a bug: none does."""
    package = str(error.name).split(".")[0]  # of `scipy.stats`, scipy
    for extra, packages in EXTRAS.items():
        if package in packages:
            return (
                f"This command needs {error.name}, which is not installed: "
                f"pip install 'clozeworks[{extra}]'."
            )
    return ""


def _describe_run_failure(error: Exception) -> str:
    """Say how the run, or the operating system, failed; return an empty string for a bug."""
    if isinstance(error, RunError):
        return str(error)
    if isinstance(error, OSError):
        return _describe_system_error(error)
    reason = str(error)
    # PyTorch and the C++ libraries raise a RuntimeError when they run out.
    is_out_of_memory = "allocate memory" in reason or "out of memory" in reason
    if isinstance(error, MemoryError) or is_out_of_memory:
        return (
            "Out of memory. Rerun with fewer --workers, or in training with a smaller "
            "--micro-batch-size; a smaller model or --batch-size needs another --output."
        )
    if "can't start new thread" in reason:
        return (
            "The system's limit on threads or memory has been reached (`ulimit -a`). Raise it, "
            "then rerun the same command."
        )
    return ""


def _describe_system_error(error: OSError) -> str:
    fault = error.strerror or str(error)
    # Renaming or copying a file has two names, a full disk often none.
    files = [str(name) for name in (error.filename, error.filename2) if name]
    if files:
        fault += f": {' and '.join(files)}"
    return f"{fault}. Fix this and rerun; it resumes."
