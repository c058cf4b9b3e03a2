"""Define the command ``clozeworks run``: it runs each stage of a recipe, in TOML, as if typed."""

import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

import click
from msgspec import Struct

from ..pipeline.errors import RunError, UserError, did_you_mean
from ..pipeline.parsing import read_toml
from .failures import describe_usage_error
from .output import CommandSummary, duration, settings

Scalar = bool | int | float | str
# Names begin with a letter, so that braces in a regular expression, `a{2}`, stay as they are.
PLACEHOLDER = re.compile(r"\{([A-Za-z][\w-]*)\}")


class _RecipeFile(Struct, forbid_unknown_fields=True):
    stage: list[dict[str, Scalar | list[Scalar]]]
    variables: dict[str, Scalar] = {}


@click.command()
@click.argument("recipe", type=click.Path(), metavar="RECIPE.toml")
@click.option(
    "--output",
    type=click.Path(),
    default=".",
    show_default=True,
    help="Value of {output} in the recipe.",
)
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Set a variable.")
@click.option("--dry-run", is_flag=True, help="Print the commands and stop.")
@click.pass_context
def run(
    ctx: click.Context, recipe: str, output: str, assignments: tuple[str, ...], dry_run: bool
) -> list[CommandSummary]:
    """Run the stages in RECIPE.toml in order; finished stages are skipped.

    Each [[stage]] names a command; `arguments` lists its arguments, and every other key is an
    option (true means --key, false its opposite or nothing). In strings, {recipe} is the recipe's
    folder, {output} the value of --output, and {name} a value from the recipe's [variables].
    Relative paths start from the folder in which you run this, not from the recipe's. All stages
    and options are checked before the first one runs.
    """
    commands = dict(settings.commands)
    del commands[str(ctx.command.name)]  # a recipe that runs itself would never end
    stages = {}
    for label, values in read_recipe(recipe, output, assignments).items():
        try:
            stages[label] = _command_line(values, commands, ctx)
        except UserError as error:
            raise UserError(f"{label}: {error}") from None
    summaries = []
    for number, (label, typed) in enumerate(stages.items(), start=1):
        click.echo(f"[{number}/{len(stages)}] {shlex.join(['clozeworks', *typed])}")
        if dry_run:
            continue
        start_s = time.monotonic()
        name, *args = typed
        result: CommandSummary | list[CommandSummary] | int | None
        try:
            # Without `standalone_mode`, click leaves errors to this program's `main`.
            result = commands[name].main(
                args, prog_name=name, standalone_mode=False, parent=ctx.parent
            )
        except (UserError, RunError) as error:
            raise type(error)(f"{label}: {error}") from error
        if isinstance(result, int):  # an exit status
            raise RunError(f"Stage {name!r} failed.")
        if isinstance(result, CommandSummary):
            result = [result]
        summaries += result or []  # None if the stage prints something else
        click.echo(f"[{number}/{len(stages)}] took {duration(time.monotonic() - start_s)}")
    return summaries


def read_recipe(
    path: str, output: str, assignments: tuple[str, ...] = ()
) -> dict[str, dict[str, list[str]]]:
    """Return the stages of the recipe at `path`, in order, each by its label for messages: the
    values of each key, with the variables filled in.

    ``{recipe}`` is the recipe's folder and ``{output}`` is `output`. Other variables come from the
    recipe's ``[variables]``, where one may name those above it, unless `assignments` such as
    ``steps=300`` replace them. Raises `UserError` naming the stage and the fault.
    """
    recipe = read_toml(path, _RecipeFile)
    replaced = {}
    for setting in assignments:
        name, separator, value = setting.partition("=")
        if not separator:
            raise UserError(f"--set {setting}: give NAME=VALUE.")
        if name not in recipe.variables:
            hint = did_you_mean(name, recipe.variables)
            raise UserError(f"--set: the recipe has no variable {name!r}{hint}.")
        replaced[name] = value
    variables = {"recipe": str(Path(path).parent), "output": output}
    # In the recipe's order, so that a variable may name those above it.
    for name, value in {**recipe.variables, **replaced}.items():
        variables[name] = _fill(value, variables, f"{path}: variable {name}")

    stages = {}
    for number, table in enumerate(recipe.stage, 1):
        label = f"{path}: stage {number} ({table.get('command', '')})"
        stages[label] = {}
        for key, value in table.items():
            items = value if isinstance(value, list) else [value]
            stages[label][key] = [_fill(item, variables, f"{label}, {key}") for item in items]
    return stages


def _fill(value: Scalar, variables: Mapping[str, str], label: str) -> str:
    """Return the value as one would type it, each ``{name}`` replaced by that variable."""
    if isinstance(value, bool):
        # As in TOML and in `--set fresh=true`, not `True`; `run` makes it a flag.
        return str(value).lower()
    text = str(value)
    for name in PLACEHOLDER.findall(text):
        if name not in variables:
            hint = did_you_mean(name, variables)
            raise UserError(f"{label}: there is no variable {{{name}}}{hint}.")
    return PLACEHOLDER.sub(lambda match: variables[match[1]], text)


def _command_line(
    stage: Mapping[str, list[str]], commands: Mapping[str, click.Command], ctx: click.Context
) -> list[str]:
    """Return a stage as one would type it, the command first; raise `UserError` if it is faulty."""
    name = "".join(stage.get("command", ()))
    command = commands.get(name)
    if command is None:
        raise UserError(f"there is no command {name!r}{did_you_mean(name, commands)}.")
    args = [*stage.get("arguments", ())]
    for key, values in stage.items():
        if key not in ("command", "arguments"):
            args += _typed_option(command, key, values)
    try:
        # click takes the list apart while it parses.
        parsed = command.make_context(name, [*args], parent=ctx.parent).params
    except click.ClickException as error:
        raise UserError(describe_usage_error(error)) from None
    if check := getattr(command.callback, "check", None):
        check(**parsed)
    # Only the arguments are kept: each stage is parsed again when it runs.
    return [name, *args]


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
        return [word for value in values for word in (flag, value)]  # --weight a=1 --weight b=2
    # A list is otherwise one value with commas: --learning-rates 5e-5,3e-5
    return [flag, ",".join(values)]
