"""``clozeworks run``: the stages of a recipe, each as if typed."""

import time
import tomllib
from pathlib import Path
from typing import Any

import click

from ..pipeline.errors import UserError
from .summary import CommandSummary


@click.command()
@click.argument("recipe", metavar="RECIPE.toml")
@click.option("--output", default=".", show_default=True, help="What {output} stands for in the recipe.")
@click.pass_context
def run(ctx: click.Context, recipe: str, output: str) -> list[CommandSummary]:
    """Run the stages that RECIPE.toml lists, in order; what is finished is not done again.

    Each [[stage]] names a command; `arguments` are its arguments, every other key is one of its options (true
    stands for --key, false for --no-key). In strings, {recipe} is the recipe's folder and {output} what --output names.
    """
    stages = _read_stages(recipe, {"recipe": str(Path(recipe).parent), "output": output})
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    made: list[CommandSummary] = []
    for number, (name, args) in enumerate(stages, start=1):
        command = group.get_command(ctx, name)
        if command is None or command is ctx.command:
            raise UserError(f"{recipe}: stage {number} names the command {name!r}, which does not exist.")
        click.echo(f"[{number}/{len(stages)}] clozeworks {name} {' '.join(args)}")
        begun = time.monotonic()
        result = command.main(args, prog_name=f"clozeworks {name}", standalone_mode=False)
        if not isinstance(result, CommandSummary):
            raise UserError(f"{recipe}: stage {number} ({name}) did not pass; the stages after it were not run.")
        made.append(CommandSummary(name, result.where, [*result.rows, ("seconds", f"{time.monotonic() - begun:.0f}")]))
    return made


def _read_stages(recipe: str, places: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return the stages of a recipe as (command, arguments as typed)."""
    try:
        stages = tomllib.loads(Path(recipe).read_text(encoding="utf-8"))["stage"]
        if not isinstance(stages, list):
            raise TypeError("[stage] with single brackets")
        return [(stage["command"], _typed(stage, places)) for stage in stages]
    except OSError as error:
        raise UserError(f"{recipe} cannot be read: {error.strerror}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{recipe} is no valid TOML: {error}.") from None
    except (KeyError, TypeError):
        raise UserError(f"{recipe} is no recipe: it needs tables [[stage]], each with a `command`.") from None


def _typed(stage: dict[str, Any], places: dict[str, str]) -> list[str]:
    args = [_text(value, places) for value in stage.get("arguments", [])]
    for name, value in stage.items():
        if name in ("command", "arguments"):
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            args.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            args.extend([flag, _text(value, places)])
    return args


def _text(value: Any, places: dict[str, str]) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    text = str(value)
    for name, place in places.items():
        text = text.replace(f"{{{name}}}", place)
    return text
