"""``clozeworks run``: the stages of a recipe, each run as if typed."""

import shlex
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import click

from ..model.tasks.options import check_task
from ..pipeline.errors import RunError, UserError, did_you_mean
from ..pipeline.storage import find_files, is_missing
from .failures import describe_failure
from .options import make_config
from .recipe import Stage, read_recipe
from .summary import CommandSummary, print_summaries


@click.command()
@click.argument("recipe", type=click.Path(), metavar="RECIPE.toml")
@click.option(
    "--output",
    type=click.Path(),
    default=".",
    show_default=True,
    help="Value of {output} in the recipe.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a variable; commas separate the items of a list.",
)
@click.option(
    "--variables",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False),
    metavar="FILE.toml",
    help="Take variables from the table in FILE that is named after the recipe.",
)
@click.option(
    "--only", multiple=True, metavar="STAGE", help="Run only this stage; may be repeated."
)
@click.option(
    "--keep-going", is_flag=True, help="After a failure run the other stages, and list what failed."
)
@click.option("--dry-run", is_flag=True, help="Print the commands and stop.")
@click.pass_context
def run(
    ctx: click.Context,
    recipe: str,
    output: str,
    settings: tuple[str, ...],
    files: tuple[str, ...],
    only: tuple[str, ...],
    keep_going: bool,
    dry_run: bool,
) -> list[CommandSummary]:
    """Run the stages in RECIPE.toml in order; finished stages are skipped.

    Each [[stage]] names a command; `arguments` lists its arguments, and every other key is an
    option (true means --key, false --no-key or nothing). In strings, {recipe} is the recipe's
    folder, {output} the value of --output, and {name} a value from the recipe's [variables]. A
    stage with a `matrix`, such as {seed = [0, 1]}, runs once for each combination; {"task folder" =
    ["sst2 SST-2", "mrpc MRPC"]} sets two variables together. `name` names a stage for --only;
    `if-exists` names a path or glob, or a list of them, and skips the stage if one is missing.
    Relative paths start from the folder in which you run this, not from the recipe's. All stages
    and options are checked before the first one runs.
    """
    stages = _select(read_recipe(recipe, output, files, settings), only, recipe)
    stages = [_check(ctx, stage, recipe) for stage in stages]
    summaries: list[CommandSummary] = []
    failures: list[str] = []
    for number, stage in enumerate(stages, start=1):
        # What lies in the output may be there once the stages before have run.
        needed = (
            path for path in stage.if_exists if not (dry_run and path.startswith(f"{output}/"))
        )
        if missing := next(
            (path for path in needed if is_missing(path) and not find_files(path)), None
        ):
            click.echo(f"[{number}/{len(stages)}] {stage.title}: skipped, {missing} does not exist")
            continue
        click.echo(f"[{number}/{len(stages)}] {_typed(stage)}")
        if dry_run:
            continue
        try:
            if summary := _run(ctx, stage):
                summaries.append(summary)
        except Exception as error:
            failure = describe_failure(error)
            if failure is None or not keep_going:
                raise
            click.echo(f"{stage.title} failed: {failure[0]}", err=True)
            failures.append(stage.title)
    if failures:
        print_summaries(summaries)
        raise RunError(f"{len(failures)} of {len(stages)} stages failed: {', '.join(failures)}.")
    return summaries


def _typed(stage: Stage) -> str:
    return shlex.join(["clozeworks", stage.command, *stage.args])


def _select(stages: list[Stage], only: tuple[str, ...], recipe: str) -> list[Stage]:
    names = dict.fromkeys(name for stage in stages for name in (stage.name, stage.title))
    for name in only:
        if name not in names:
            raise UserError(
                f"--only {name}: {recipe} has no such stage{did_you_mean(name, names)}."
            )
    return [stage for stage in stages if not only or stage.name in only or stage.title in only]


def _command(ctx: click.Context, stage: Stage, recipe: str) -> click.Command:
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    command = group.get_command(ctx, stage.command)
    if command is None or command is ctx.command:
        names = {name: None for name in group.list_commands(ctx) if name != ctx.command.name}
        hint = did_you_mean(stage.command, names)
        raise UserError(
            f"{recipe}: stage {stage.title!r}: there is no command {stage.command!r}{hint}."
        )
    return command


def _check(ctx: click.Context, stage: Stage, recipe: str) -> Stage:
    """Parse a stage's arguments and options; raise `UserError` if they are wrong.

    Return the stage with its arguments as one would type them (see `_as_typed`).
    """
    command = _command(ctx, stage, recipe)
    args = _as_typed(stage.args, command)
    try:
        values = command.make_context(stage.command, [*args], parent=ctx.parent).params
        configs = [
            make_config(config, values) for config in getattr(command.callback, "configs", ())
        ]
        if stage.command == "finetune":
            check_task(values["task"], configs[0].task_options)
    except (click.ClickException, UserError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise UserError(f"{recipe}: stage {stage.title!r}: {message}") from None
    return replace(stage, args=args)


def _as_typed(args: list[str], command: click.Command) -> list[str]:
    """Return a stage's arguments without the ``--no-…`` of options that are just on or off, and
    with a list's items as the values of one option that takes several, or each behind an option of
    its own.
    """
    options = {
        name: option for option in command.params for name in (*option.opts, *option.secondary_opts)
    }
    args = [arg for arg in args if arg in options or arg.replace("--no-", "--", 1) not in options]
    typed: list[str] = []
    for before, arg in pairwise(["", *args]):
        option = options.get(before)
        if isinstance(option, click.Option) and option.multiple:
            first, *others = arg.split(",")
            typed += [first, *(part for value in others for part in (before, value))]
        elif option and option.nargs > 1:
            typed += arg.split(",", option.nargs - 1)
        else:
            typed.append(arg)
    return typed


def _run(ctx: click.Context, stage: Stage) -> CommandSummary | None:
    """Run a stage and return its summary; None if it prints something else."""
    start_s = time.monotonic()
    command = _command(ctx, stage, "")
    result: Any = command.main(
        [*stage.args], prog_name=stage.command, standalone_mode=False, parent=ctx.parent
    )
    if result is None:
        return None
    if not isinstance(result, CommandSummary):  # an exit status
        raise RunError(f"Stage {stage.title!r} failed.")
    rows = [*result.rows, ("seconds", f"{time.monotonic() - start_s:.0f}")]
    return CommandSummary(stage.title, result.where, rows)
