"""Click options generated from the configuration dataclasses: one source for name, default and help."""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import click

from ..pipeline.errors import UserError
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


class Numbers(click.ParamType):
    """Comma-separated numbers, such as ``80,10,10``."""

    name = "numbers"

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """Return the numbers as a tuple."""
        parts = value if isinstance(value, list | tuple) else str(value).split(",")
        try:
            return tuple(self.kind(part) for part in parts)
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 1,2,3.", param, ctx)


def config_options(*configs: type) -> Callable[[Command], Command]:
    """Add an option per documented field of the dataclasses, and ``--config``, to a command."""

    def decorate(command: Command) -> Command:
        declared = [(config, field) for config in configs for field in dataclasses.fields(config) if field.metadata]
        for config, field in reversed(declared):
            command = _option(config, field)(command)
        return _config_file_option(command)

    return decorate


def _option(config: type, field: dataclasses.Field[Any]) -> Callable[[Command], Command]:
    annotation = typing.get_type_hints(config)[field.name]
    flags = field.metadata["flags"] or f"--{field.name.replace('_', '-')}"
    declarations = [flags, field.name]
    if field.name == "verbose":
        declarations.append("-v")
    attributes: dict[str, Any] = {"default": field.default, "help": field.metadata["help"]}
    attributes["show_default"] = not (field.default is None or (field.default is False and "/" not in flags))
    if isinstance(field.default, tuple):
        attributes["default"] = ",".join(f"{number:g}" for number in field.default)
    if _without_none(annotation) is bool:
        attributes["is_flag"] = True
    else:
        attributes["type"] = _parameter_type(_without_none(annotation))
    return click.option(*declarations, **attributes)


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):  # Union: of a Literal and None
        return next(part for part in typing.get_args(annotation) if part is not type(None))
    return annotation


def _parameter_type(annotation: Any) -> Any:
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return click.Choice(typing.get_args(annotation))
    if origin is tuple:
        return Numbers(typing.get_args(annotation)[0])
    return annotation


def make_config(config: type[Config], values: dict[str, Any], **more: Any) -> Config:
    """Return the dataclass, filled from those of the command's `values` that are its fields."""
    names = {field.name for field in dataclasses.fields(typing.cast(Any, config))}
    return config(**{name: value for name, value in values.items() if name in names}, **more)


def _config_file_option(command: Command) -> Command:
    return click.option(
        "--config",
        type=click.Path(dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_read_defaults,
        help="TOML file with defaults for the options, at the top level or in a table named after the command.",
    )(command)


def _read_defaults(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    values = read_toml(value, dict[str, Any])
    named = values.get(str(ctx.info_name), values)
    defaults = {name.replace("-", "_"): default for name, default in named.items() if not isinstance(default, dict)}
    known = {parameter.name for parameter in ctx.command.params}
    if unknown := sorted(set(defaults) - known):
        raise UserError(f"--config {value}: {ctx.info_name} has no option {unknown[0].replace('_', '-')!r}.")
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
