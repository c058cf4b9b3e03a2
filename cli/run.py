"""Define the command ``clozeworks run``: it runs each stage of a recipe as if typed."""

import shlex
import time
from dataclasses import dataclass
from typing import Any

import click

from ..model.tasks.options import check_task
from ..pipeline.errors import RunError, UserError, did_you_mean
from .failures import describe_usage_error
from .options import make_config
from .recipe import RecipeStage, read_recipe
from .summary import CommandSummary, duration


@dataclass(frozen=True)
class CheckedStage:
    """A stage whose arguments and options its command accepts."""

    command: click.Command
    args: list[str]

    @property
    def line(self) -> str:
        """The stage as one would type it."""
        return shlex.join(["clozeworks", str(self.command.name), *self.args])


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
    stages = [_check(ctx, stage) for stage in read_recipe(recipe, output, settings)]
    summaries: list[CommandSummary] = []
    for number, stage in enumerate(stages, start=1):
        click.echo(f"[{number}/{len(stages)}] {stage.line}")
        if dry_run:
            continue
        start_s = time.monotonic()
        summaries += _run(ctx, stage)
        click.echo(f"[{number}/{len(stages)}] took {duration(time.monotonic() - start_s)}")
    return summaries


def _check(ctx: click.Context, stage: RecipeStage) -> CheckedStage:
    """Find a stage's command and parse its arguments; raise `UserError` if either is wrong."""
    command = _find_command(ctx, stage)
    args = [*stage.arguments]
    for name, values in stage.options.items():
        args += _typed_option(command, name, values)
    try:
        # click takes the list apart while it parses.
        parsed = command.make_context(stage.command, [*args], parent=ctx.parent).params
        configs = [
            make_config(config, parsed) for config in getattr(command.callback, "configs", ())
        ]
        if check := getattr(command.callback, "check", None):
            check(parsed)
        if stage.command == "finetune":
            check_task(parsed["task"], configs[0])
    except click.ClickException as error:
        raise UserError(f"{stage.label}: {describe_usage_error(error)}") from None
    except UserError as error:
        raise UserError(f"{stage.label}: {error}") from None
    # Only the arguments are kept: each stage is parsed again when it runs, as if typed.
    return CheckedStage(command, args)


def _find_command(ctx: click.Context, stage: RecipeStage) -> click.Command:
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    command = group.get_command(ctx, stage.command)
    # A recipe that runs itself would never end.
    if command is None or command is ctx.command:
        names = group.list_commands(ctx)
        names.remove(str(ctx.command.name))
        hint = did_you_mean(stage.command, names)
        raise UserError(f"{stage.label}: there is no command {stage.command!r}{hint}.")
    return command


def _typed_option(command: click.Command, name: str, values: list[str]) -> list[str]:
    """Return an option with its values as one would type it; an unknown one is left to click."""
    flag = f"--{name.replace('_', '-')}"
    option = None
    for parameter in command.params:
        if flag in parameter.opts:
            option = parameter
            break
    if values == ["true"]:
        return [flag]
    if values == ["false"]:
        if option is None:
            return [flag.replace("--", "--no-", 1)]
        if option.secondary_opts:
            return option.secondary_opts[:1]  # --no-compile, --keep-accents
        if isinstance(option, click.Option) and option.is_flag:
            return []  # a plain switch: off if it is not given
    if isinstance(option, click.Option) and option.multiple:
        # --weight a=1 --weight b=2
        typed = []
        for value in values:
            typed += [flag, value]
        return typed
    if option is not None and option.nargs > 1:
        return [flag, *values]
    # A list is otherwise one value with commas: --learning-rates 5e-5,3e-5
    return [flag, ",".join(values)]


def _run(ctx: click.Context, stage: CheckedStage) -> list[CommandSummary]:
    """Run a stage and return its summaries, with the seconds in the last one; an empty list if it
    prints something else.
    """
    start_s = time.monotonic()
    name = str(stage.command.name)
    # Without `standalone_mode`, click leaves errors to this program's `main`.
    result: Any = stage.command.main(
        [*stage.args], prog_name=name, standalone_mode=False, parent=ctx.parent
    )
    seconds = time.monotonic() - start_s
    if result is None:
        return []
    if isinstance(result, int):  # an exit status
        raise RunError(f"Stage {name!r} failed.")
    summaries: list[CommandSummary] = [result]
    if isinstance(result, list):
        summaries = result  # `corpus` has a summary for each of its stages
    summaries[-1].rows.append(("seconds", f"{seconds:.0f}"))
    return summaries
