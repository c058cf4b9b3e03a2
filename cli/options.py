"""Click options generated from the configuration dataclasses: one source for name, default and
help.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import click

from ..pipeline.errors import UserError, did_you_mean
from ..pipeline.parsing import read_toml

Command = TypeVar("Command", bound=Callable[..., Any])
Config = TypeVar("Config")

device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Device to compute on; auto uses a GPU if there is one.",
)
"""For commands without a config; elsewhere it is a field."""


class CommaSeparated(click.ParamType):
    """Numbers such as ``80,10,10``, or names."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.name = "names" if kind is str else "numbers"  # what --help shows

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Return the parts as a tuple."""
        parts = value if isinstance(value, list | tuple) else str(value).split(",")
        try:
            return tuple(self.kind(part) for part in parts)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a list of numbers such as 1,2,3.", param, ctx)


def config_options(*configs: type) -> Callable[[Command], Command]:
    """Add an option per documented field of the dataclasses, and ``--config``, to a command."""

    def decorate(command: Command) -> Command:
        declared = [
            (config, field)
            for config in configs
            for field in dataclasses.fields(config)
            if field.metadata
        ]
        for config, field in reversed(declared):
            command = _option(field, typing.get_type_hints(config)[field.name])(command)
        cast(
            Any, command
        ).configs = configs  # for recipes, which check all options before they run anything
        return click.option(
            "--config",
            type=click.Path(dir_okay=False),
            is_eager=True,
            expose_value=False,
            callback=_read_defaults,
            help="TOML file with defaults for the options: at the top level, and in a table named after the command.",
        )(command)

    return decorate


def _option(field: dataclasses.Field[Any], annotation: Any) -> Callable[[Command], Command]:
    flags = field.metadata["flags"] or f"--{field.name.replace('_', '-')}"
    declarations = [flags, field.name, *(["-v"] if field.name == "verbose" else [])]
    default, help_text = field.default, field.metadata["help"]
    if isinstance(default, tuple) and default:
        default = ",".join(f"{number:g}" for number in default)
    if annotation == tuple[str, ...]:
        return click.option(*declarations, multiple=True, default=default, help=help_text)
    show_default = not (default is None or (default is False and "/" not in flags))
    if annotation == tuple[str, str] | None:
        kind = (str, click.Path())
        return click.option(
            *declarations, type=kind, default=None, metavar="TASK DATA", help=help_text
        )
    kind = _parameter_type(annotation)
    if kind is bool:
        return click.option(
            *declarations, is_flag=True, default=default, show_default=show_default, help=help_text
        )
    return click.option(
        *declarations, type=kind, default=default, show_default=show_default, help=help_text
    )


def _parameter_type(annotation: Any) -> Any:
    """Return click's type for a field; that of the value if it may be None."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):  # Union: of a Literal and None
        return _parameter_type(next(part for part in parts if part is not type(None)))
    if origin is Literal:
        return click.Choice(parts)
    return CommaSeparated(parts[0]) if origin is tuple else annotation


def make_config(config: type[Config], values: dict[str, Any], **more: Any) -> Config:
    """Return the dataclass, filled from those of the command's `values` that are its fields."""
    names = {field.name for field in dataclasses.fields(cast(Any, config))}
    return config(**{name: value for name, value in values.items() if name in names}, **more)


def _read_defaults(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    group = ctx.find_root().command
    commands = group.list_commands(ctx) if isinstance(group, click.Group) else []
    values = read_toml(value, dict[str, Any])
    if unknown := [
        name for name, table in values.items() if isinstance(table, dict) and name not in commands
    ]:
        raise UserError(
            f"--config {value}: there is no command {unknown[0]!r}{did_you_mean(unknown[0], commands)}."
        )
    table = values.get(str(ctx.command.name))
    defaults = {
        name.replace("-", "_"): default
        for options in (values, table if isinstance(table, dict) else {})
        for name, default in options.items()
        if not isinstance(default, dict)
    }
    known = {parameter.name for parameter in ctx.command.params}
    if unknown := sorted(set(defaults) - known):
        name, options = (
            unknown[0].replace("_", "-"),
            [option.replace("_", "-") for option in sorted(known)],
        )
        raise UserError(
            f"--config {value}: {ctx.command.name} has no option {name!r}{did_you_mean(name, options)}."
        )
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
