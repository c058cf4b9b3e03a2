"""``clozeworks run``: the stages of a recipe, each run as if typed."""

import time
import tomllib
from pathlib import Path
from typing import Any

import click

from ..pipeline.errors import UserError
from .summary import CommandSummary


@click.command()
@click.argument("recipe", metavar="RECIPE.toml")
@click.option("--output", default=".", show_default=True, help="Value of {output} in the recipe.")
@click.pass_context
def run(ctx: click.Context, recipe: str, output: str) -> list[CommandSummary]:
    """Run the stages in RECIPE.toml in order; finished stages are skipped.

    Each [[stage]] names a command; `arguments` lists its arguments, and every other key is an option (true means
    --key, false means --no-key). In strings, {recipe} is the recipe's folder and {output} the value of --output.
    """
    stages = _read_stages(recipe, {"recipe": str(Path(recipe).parent), "output": output})
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


def _read_stages(recipe: str, variables: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return the stages of a recipe as (command, arguments as typed)."""
    try:
        stages = tomllib.loads(Path(recipe).read_text(encoding="utf-8"))["stage"]
        if not isinstance(stages, list):
            raise TypeError("[stage] with single brackets")
        return [(stage["command"], _typed(stage, variables)) for stage in stages]
    except OSError as error:
        raise UserError(f"{recipe} cannot be read: {error.strerror}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{recipe} is not valid TOML: {error}.") from None
    except (KeyError, TypeError):
        raise UserError(f"{recipe} is not a recipe: it needs [[stage]] tables, each with a `command`.") from None


def _typed(stage: dict[str, Any], variables: dict[str, str]) -> list[str]:
    args = [_text(value, variables) for value in stage.get("arguments", [])]
    for name, value in stage.items():
        if name in ("command", "arguments"):
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            args.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            args.extend([flag, _text(value, variables)])
    return args


def _text(value: Any, variables: dict[str, str]) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    text = str(value)
    for name, content in variables.items():
        text = text.replace(f"{{{name}}}", content)
    return text
