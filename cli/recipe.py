"""Recipes: stages in a TOML file, with variables and matrices, as commands that one could type."""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from ..pipeline.errors import UserError, did_you_mean
from ..pipeline.parsing import read_toml

Scalar = bool | int | float | str
Value = bool | int | float | str | list[Scalar]
Variables = dict[str, Value]
PLACEHOLDER = re.compile(r"\{([A-Za-z][\w-]*)\}")
KEYS = ("command", "name", "arguments", "matrix", "if-exists")
"""The keys of a stage that are not options of its command."""


class Recipe(Struct, forbid_unknown_fields=True):
    """A recipe as written."""

    stage: list[dict[str, Value | dict[str, Value]]]
    variables: Variables = {}


@dataclass(frozen=True)
class Stage:
    """One command of a recipe, its variables filled in."""

    name: str
    combination: str
    """The values of the stage's matrix, such as ``full-0``; empty if it has none."""
    command: str
    args: list[str]
    if_exists: list[str]
    """Paths or globs, each of which must match something, else the stage is skipped."""

    @property
    def title(self) -> str:
        """The stage's name and combination, as ``--only`` takes them."""
        return f"{self.name}-{self.combination}" if self.combination else self.name


def read_recipe(
    path: str, output: str, files: tuple[str, ...] = (), settings: tuple[str, ...] = ()
) -> list[Stage]:
    """Return the stages of the recipe at `path`, one for each combination of a stage's matrix.

    Variables come from the recipe's ``[variables]``, from the table named after the recipe in each
    of `files`, and from `settings` such as ``steps=300``; later ones win. ``{recipe}`` is the
    recipe's folder, ``{output}`` the value of `output`. Raises `UserError` naming the stage and the
    fault.
    """
    recipe = read_toml(path, Recipe)
    variables = recipe.variables
    for file in files:
        table = read_toml(file, dict[str, Variables]).get(Path(path).stem, {})
        _check_names(file, table, variables)
        variables = variables | table
    variables = variables | _parse_settings(settings, variables)
    filled: Variables = {"recipe": str(Path(path).parent), "output": output}
    for name, value in variables.items():
        filled[name] = _fill(value, filled, f"{path}: variable {name}")
    stages = []
    for number, table in enumerate(recipe.stage, 1):
        label = f"{path}: stage {number} ({table.get('name', table.get('command', ''))})"
        stages.extend(_expand(table, filled, label))
    return stages


def _parse_settings(settings: tuple[str, ...], variables: Variables) -> Variables:
    """Return variables from ``NAME=VALUE``, each a list if the variable is one by default."""
    parsed: Variables = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise UserError(f"--set {setting}: give NAME=VALUE.")
        _check_names("--set", [name], variables)
        parsed[name] = (
            [_typed(part) for part in value.split(",")]
            if isinstance(variables[name], list)
            else _typed(value)
        )
    return parsed


def _typed(text: str) -> Scalar:
    return {"true": True, "false": False}.get(text, text)


def _check_names(where: str, names: Mapping[str, Value] | list[str], variables: Variables) -> None:
    for name in names:
        if name not in variables:
            raise UserError(
                f"{where}: the recipe has no variable {name!r}{did_you_mean(name, variables)}."
            )


def _expand(
    table: dict[str, Value | dict[str, Value]], variables: Variables, label: str
) -> Iterator[Stage]:
    """Yield a stage for each combination of the matrix."""
    matrix = table.get("matrix", {})
    if not isinstance(matrix, dict):
        raise UserError(f"{label}: matrix is not a table of lists.")
    axes = {name: _fill(values, variables, label) for name, values in matrix.items()}
    for values in itertools.product(
        *(axis if isinstance(axis, list) else [axis] for axis in axes.values())
    ):
        filled = dict(variables)
        for names, value in zip(axes, values, strict=True):
            filled |= _named(names, value, label)
        fields = {
            key: _fill(value, filled, f"{label}, {key}")
            for key, value in table.items()
            if key != "matrix"
        }
        command = str(fields.get("command", ""))
        yield Stage(
            name=str(fields.get("name", command)),
            combination="-".join(str(filled[names.split()[0]]) for names in axes),
            command=command,
            args=_arguments(fields),
            if_exists=[path for path in _strings(fields.get("if-exists", [])) if path],
        )


def _named(names: str, value: Value, label: str) -> Variables:
    """Return the variables of one value of an axis: ``task folder = "sst2 SST-2"`` are two that
    change together.
    """
    if len(names.split()) == 1:
        return {names: value}
    parts = str(value).split(
        maxsplit=len(names.split()) - 1
    )  # the last one may be a path with blanks
    if len(parts) != len(names.split()):
        raise UserError(f"{label}: matrix has {names!r}, but {value!r} has {len(parts)} words.")
    return dict(zip(names.split(), map(_typed, parts), strict=True))


def _arguments(fields: Mapping[str, Value]) -> list[str]:
    """Return the arguments and options of a stage as one would type them."""
    args = _strings(fields.get("arguments", []))
    for key, value in fields.items():
        flag = f"--{key.replace('_', '-')}"
        if key in KEYS:
            continue
        if isinstance(value, bool):
            args.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            args.extend(
                [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
            )
    return args


def _strings(value: Value) -> list[str]:
    return list(map(str, value if isinstance(value, list) else [value]))


def _fill(value: Value | dict[str, Value], variables: Variables, label: str) -> Value:
    """Return a value with the variables filled in; a string that is one ``{name}`` becomes that
    variable's value.
    """
    if isinstance(value, dict):
        raise UserError(f"{label}: a table is not a value.")
    if isinstance(value, list):
        items = (_fill(item, variables, label) for item in value)
        return [part for item in items for part in (item if isinstance(item, list) else [item])]
    if not isinstance(value, str):
        return value
    for name in PLACEHOLDER.findall(value):
        if name not in variables:
            raise UserError(
                f"{label}: there is no variable {{{name}}}{did_you_mean(name, variables)}."
            )
    if whole := PLACEHOLDER.fullmatch(value):
        return variables[whole[1]]
    return PLACEHOLDER.sub(lambda match: _joined(variables[match[1]]), value)


def _joined(value: Value) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
