"""Run the command ``clozeworks``: its subcommands, and the report of their errors."""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn, cast

import click

from ..pipeline.errors import UserError
from .failures import describe_failure
from .output import (
    CommandSummary,
    NoticeHandler,
    is_first_rank,
    print_summaries,
    settings,
    tell,
    with_flags,
)
from .process import Terminated, abandon, prepare_streams, prepare_threads, terminate

MODULES = {
    "corpus": "data_stages",
    "ingest": "data_stages",
    "vocab": "data_stages",
    "words": "words",
    "build": "data_stages",
    "audit": "audit",
    "show": "show",
    "pretrain": "pretrain",
    "merge": "use_model",
    "evaluate": "evaluate",
    "fill": "use_model",
    "finetune": "finetune",
    "predict": "use_model",
    "features": "use_model",
    "results": "results",
    "export": "use_model",
    "run": "run",
}
"""The module of each command, in working order."""
DATA_STAGES = ("corpus", "ingest", "vocab", "build")
"""The commands that run on Apache Beam; arguments after ``--`` are Beam's."""

RANKS_WAIT_S = 5.0
"""Longer than torchrun takes to end the other ranks once the first has failed."""


class _Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is asked for: that takes long."""

    def __getitem__(self, name: str) -> click.Command:
        return getattr(import_module(f".{MODULES[name]}", __package__), name)

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


settings.commands = _Commands()


class _CommandsInOrder(click.Group):
    """A group that lists its commands in working order and passes on the arguments after ``--``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of `MODULES`, where click sorts them by name."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the whole first sentence of each command's help."""
        limit = 1000  # characters, so none of them is cut
        summaries = []
        for name, command in self.commands.items():
            summaries.append((name, command.get_short_help_str(limit)))
        with formatter.section("Commands"):
            formatter.write_dl(summaries)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the options for Beam, after ``--``, away from the command's own arguments."""
        for arg in args:
            if any("\ud800" <= character <= "\udfff" for character in arg):
                shown = arg.encode("utf-8", "backslashreplace").decode()
                raise UserError(f"{shown} is not UTF-8: rename the file, or correct the text.")
        # click itself would take what follows `--` for arguments of the command: more sources.
        command = next((arg for arg in args if arg in self.commands), None)
        if command in DATA_STAGES and "--" in args:
            separator = args.index("--")
            ctx.obj = tuple(args[separator + 1 :])
            args = args[:separator]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; it is no failure if nobody reads on, as ``head`` stops."""
        try:
            result = super().invoke(ctx)
            # Now, where a full disk is still an error that is reported, and not at exit.
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        return result


@click.group(
    cls=_CommandsInOrder,
    commands=cast(Any, settings.commands),  # click would take no `Mapping`
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
        "auto_envvar_prefix": "CLOZEWORKS",
    },
)
@click.version_option(package_name="clozeworks")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How progress, notices, warnings and errors are written to standard error: as text, or "
    "as a JSON object a line.",
)
@click.option(
    "--quiet", is_flag=True, help="Print neither progress nor the table at the end of a command."
)
def commands(log_format: str, quiet: bool) -> None:
    """Pre-train and fine-tune BERT-style encoders: from raw text through Parquet to a Hugging Face
    model.

    Each stage writes one directory; an interrupted command resumes when you rerun it. An option
    that is not typed may come from the environment: CLOZEWORKS_PRETRAIN_BATCH_SIZE.

    \b
    Shell completion, for ~/.bashrc (in ~/.zshrc zsh_source):
      eval "$(_CLOZEWORKS_COMPLETE=bash_source clozeworks)"
    """
    settings.as_json = log_format == "json"
    settings.is_quiet = quiet


@commands.result_callback()
@click.pass_context
def _print_summaries(
    ctx: click.Context, result: CommandSummary | list[CommandSummary] | None, **_options: object
) -> None:
    if isinstance(result, CommandSummary):
        result = [result]
    if result:
        print_summaries(result)
        ctx.exit(max(summary.exit_code for summary in result))


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; exit with 2 and one line for a user's mistake, with 1 for a failed run.

    SIGTERM interrupts, and a failed run ends the process, unless `args` are given by a caller.
    """
    prepare_streams()
    prepare_threads()
    if args is None:
        signal.signal(signal.SIGTERM, terminate)
    # Without a root handler, the first warning from a library would set up logging to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("clozeworks").handlers = [NoticeHandler()]
    try:
        # With `standalone_mode` off, click returns the code that a command passed to `ctx.exit`.
        exit_code = commands.main(args=args, prog_name="clozeworks", standalone_mode=False)
        if exit_code:
            sys.exit(exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
    except (KeyboardInterrupt, click.Abort) as error:
        # click makes its own error of an interrupt.
        interrupt = error.__cause__ if isinstance(error, click.Abort) else error
        exit_code = 143 if isinstance(interrupt, Terminated) else 130  # 128 + the signal's number
        typed = sys.argv if args is None else args
        message = "Interrupted"
        resumed = {*DATA_STAGES, "pretrain", "finetune", "features", "run"}
        if next((name for name in typed if name in commands.commands), None) in resumed:
            # With it, the rerun would start over.
            without = " without --overwrite" if "--overwrite" in typed else ""
            message += f"; rerun the same command{without} to resume"
        _fail(f"{message}.", exit_code, owns_process=args is None)
    except Exception as error:
        failure = describe_failure(error)
        if failure is None:
            raise
        message, exit_code = failure
        _fail(message, exit_code, owns_process=args is None)
    finally:
        settings.as_json = False
        settings.is_quiet = False


def _fail(message: str, exit_code: int, *, owns_process: bool) -> NoReturn:
    if exit_code in (1, 2) and not is_first_rank():
        # Under torchrun all processes usually hit the same failure. The first reports it, and
        # torchrun ends this one.
        time.sleep(RANKS_WAIT_S)
    tell("error", " ".join(with_flags(message).split()), exit_code=exit_code)
    # After a user's mistake no run is under way.
    if owns_process and exit_code != 2:
        abandon(exit_code)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
