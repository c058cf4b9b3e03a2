"""Define the command ``clozeworks run``: it runs each stage of a recipe as if typed."""

import shlex
import time
from collections.abc import Mapping

import click

from ..pipeline.errors import RunError, UserError, did_you_mean
from .failures import commands_of, describe_usage_error
from .recipe import RecipeStage, read_recipe
from .summary import CommandSummary, duration


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
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a variable of the recipe."
)
@click.option("--dry-run", is_flag=True, help="Print the commands and stop.")
@click.pass_context
def run(
    ctx: click.Context, recipe: str, output: str, settings: tuple[str, ...], dry_run: bool
) -> list[CommandSummary]:
    """Run the stages in RECIPE.toml in order; finished stages are skipped.

    Each [[stage]] names a command; `arguments` lists its arguments, and every other key is an
    option (true means --key, false its opposite or nothing). In strings, {recipe} is the recipe's
    folder, {output} the value of --output, and {name} a value from the recipe's [variables].
    Relative paths start from the folder in which you run this, not from the recipe's. All stages
    and options are checked before the first one runs.
    """
    commands = {str(command.name): command for command in commands_of(ctx)}
    del commands[str(ctx.command.name)]  # a recipe that runs itself would never end
    stages = [_typed(stage, commands, ctx) for stage in read_recipe(recipe, output, settings)]
    summaries: list[CommandSummary] = []
    for number, typed in enumerate(stages, start=1):
        click.echo(f"[{number}/{len(stages)}] {shlex.join(['clozeworks', *typed])}")
        if dry_run:
            continue
        start_s = time.monotonic()
        name, *args = typed
        summaries += _run(commands[name], args, ctx)
        click.echo(f"[{number}/{len(stages)}] took {duration(time.monotonic() - start_s)}")
    return summaries


def _typed(
    stage: RecipeStage, commands: Mapping[str, click.Command], ctx: click.Context
) -> list[str]:
    """Return a stage as one would type it, the command first.

    Raise `UserError` if there is no such command, or it does not accept its arguments and options.
    """
    command = commands.get(stage.command)
    if command is None:
        hint = did_you_mean(stage.command, commands)
        raise UserError(f"{stage.label}: there is no command {stage.command!r}{hint}.")
    args = [*stage.arguments]
    for name, values in stage.options.items():
        args += _typed_option(command, name, values)
    try:
        # click takes the list apart while it parses.
        parsed = command.make_context(stage.command, [*args], parent=ctx.parent).params
        if check := getattr(command.callback, "check", None):
            check(**parsed)
    except click.ClickException as error:
        raise UserError(f"{stage.label}: {describe_usage_error(error)}") from None
    except UserError as error:
        raise UserError(f"{stage.label}: {error}") from None
    # Only the arguments are kept: each stage is parsed again when it runs.
    return [stage.command, *args]


def _typed_option(command: click.Command, name: str, values: list[str]) -> list[str]:
    """Return an option with its values as one would type it; an unknown one is left to click."""
    flag = f"--{name.replace('_', '-')}"
    option = next((option for option in command.params if flag in option.opts), None)
    if isinstance(option, click.Option) and option.is_flag:
        if values == ["true"]:
            return [flag]
        if values == ["false"]:
            # --no-compile, --keep-accents; nothing for a plain switch.
            return option.secondary_opts[:1]
    if isinstance(option, click.Option) and option.multiple:
        # --weight a=1 --weight b=2
        typed = []
        for value in values:
            typed += [flag, value]
        return typed
    # A list is otherwise one value with commas: --learning-rates 5e-5,3e-5
    return [flag, ",".join(values)]


def _run(command: click.Command, args: list[str], ctx: click.Context) -> list[CommandSummary]:
    """Run a stage and return its summaries, with the seconds in the last one; an empty list if it
    prints something else.
    """
    start_s = time.monotonic()
    # Without `standalone_mode`, click leaves errors to this program's `main`.
    result: CommandSummary | list[CommandSummary] | int | None = command.main(
        args, prog_name=str(command.name), standalone_mode=False, parent=ctx.parent
    )
    seconds = time.monotonic() - start_s
    if result is None:
        return []
    if isinstance(result, int):  # an exit status
        raise RunError(f"Stage {command.name!r} failed.")
    # `corpus` has a summary for each of its stages.
    summaries = result if isinstance(result, list) else [result]
    summaries[-1].rows.append(("seconds", f"{seconds:.0f}"))
    return summaries
