"""Read recipes: a list of stages in a TOML file, each a command that one could type."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..pipeline.errors import UserError, did_you_mean
from ..pipeline.parsing import read_toml

Scalar = bool | int | float | str
# Names begin with a letter, so that braces in a regular expression, `a{2}`, stay as they are.
PLACEHOLDER = re.compile(r"\{([A-Za-z][\w-]*)\}")


class RecipeFile(Struct):
    """The TOML file as written."""

    stage: list[dict[str, Scalar | list[Scalar]]]
    variables: dict[str, Scalar] = {}


@dataclass(frozen=True)
class RecipeStage:
    """One command of a recipe, with the variables filled in."""

    label: str
    """What messages call it, such as ``recipe.toml: stage 2 (vocab)``."""
    command: str
    arguments: list[str]
    options: dict[str, list[str]]
    """The values of each option by its name without dashes, such as ``max-length``."""


def read_recipe(path: str, output: str, settings: tuple[str, ...] = ()) -> list[RecipeStage]:
    """Return the stages of the recipe at `path`, in order.

    ``{recipe}`` is the recipe's folder and ``{output}`` is `output`. Other variables come from the
    recipe's ``[variables]``, where one may name those above it, unless `settings` such as
    ``steps=300`` replace them. Raises `UserError` naming the stage and the fault.
    """
    for key in read_toml(path, dict[str, Any]):
        if key not in RecipeFile.__struct_fields__:
            hint = did_you_mean(key, RecipeFile.__struct_fields__)
            raise UserError(f"{path}: a recipe has no key {key!r}{hint}.")
    recipe = read_toml(path, RecipeFile)
    replaced = {}
    for setting in settings:
        name, value = _parse_setting(setting, recipe.variables)
        replaced[name] = value
    variables = {"recipe": str(Path(path).parent), "output": output}
    # In the recipe's order, so that a variable may name those above it.
    for name, value in {**recipe.variables, **replaced}.items():
        variables[name] = _fill(value, variables, f"{path}: variable {name}")

    stages = []
    for number, table in enumerate(recipe.stage, 1):
        command = str(table.get("command", ""))
        label = f"{path}: stage {number} ({command})"
        values: dict[str, list[str]] = {}
        for key, value in table.items():
            if isinstance(value, list):
                items = value
            else:
                items = [value]
            values[key] = [_fill(item, variables, f"{label}, {key}") for item in items]
        arguments = values.pop("arguments", [])
        values.pop("command", None)
        stages.append(RecipeStage(label, command, arguments, options=values))
    return stages


def _parse_setting(setting: str, variables: Mapping[str, Scalar]) -> tuple[str, str]:
    name, separator, value = setting.partition("=")
    if not separator:
        raise UserError(f"--set {setting}: give NAME=VALUE.")
    if name not in variables:
        hint = did_you_mean(name, variables)
        raise UserError(f"--set: the recipe has no variable {name!r}{hint}.")
    return name, value


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
