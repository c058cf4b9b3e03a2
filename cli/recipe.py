"""``clozeworks run``: the stages of a recipe, each run as if typed."""

import time
from pathlib import Path

import click
from msgspec import Struct

from ..pipeline.errors import UserError
from ..pipeline.parsing import read_toml
from .summary import CommandSummary

Value = bool | int | float | str | list[int | float | str]


class Recipe(Struct):
    """A recipe's stages: for each the `command`, its `arguments`, and its options."""

    stage: list[dict[str, Value]]


@click.command()
@click.argument("recipe", metavar="RECIPE.toml")
@click.option("--output", default=".", show_default=True, help="Value of {output} in the recipe.")
@click.pass_context
def run(ctx: click.Context, recipe: str, output: str) -> list[CommandSummary]:
    """Run the stages in RECIPE.toml in order; finished stages are skipped.

    Each [[stage]] names a command; `arguments` lists its arguments, and every other key is an option (true means
    --key, false means --no-key). In strings, {recipe} is the recipe's folder and {output} the value of --output.
    """
    variables = {"recipe": str(Path(recipe).parent), "output": output}
    stages = [(str(stage.get("command", "")), _typed(stage, variables)) for stage in read_toml(recipe, Recipe).stage]
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    summaries: list[CommandSummary] = []
    for number, (name, args) in enumerate(stages, start=1):
        command = group.get_command(ctx, name)
        if command is None or command is ctx.command:
            raise UserError(f"{recipe}: stage {number}: there is no command {name!r}.")
        click.echo(f"[{number}/{len(stages)}] clozeworks {name} {' '.join(args)}")
        begun = time.monotonic()
        result = command.main(args, prog_name=f"clozeworks {name}", standalone_mode=False)
        if not isinstance(result, CommandSummary):
            raise UserError(f"{recipe}: stage {number} ({name}) failed; the remaining stages were not run.")
        summaries.append(
            CommandSummary(name, result.where, [*result.rows, ("seconds", f"{time.monotonic() - begun:.0f}")])
        )
    return summaries


def _typed(stage: dict[str, Value], variables: dict[str, str]) -> list[str]:
    """Return the arguments and options of a stage as one would type them."""
    arguments = stage.get("arguments", [])
    args = [_text(value, variables) for value in (arguments if isinstance(arguments, list) else [arguments])]
    for name, value in stage.items():
        if name in ("command", "arguments"):
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            args.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            args.extend([flag, _text(value, variables)])
    return args


def _text(value: Value, variables: dict[str, str]) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    text = str(value)
    for name, content in variables.items():
        text = text.replace(f"{{{name}}}", content)
    return text
