"""Generate click options from the configuration dataclasses: name, default and help stand once."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, Literal, TypeVar, cast

import click

from ..pipeline import storage
from ..pipeline.config import MAX_BAD
from ..pipeline.errors import UserError, did_you_mean
from ..pipeline.parsing import read_toml
from .failures import commands_of

Command = TypeVar("Command", bound=Callable[..., Any])
Config = TypeVar("Config")

COMMON = "Options"
"""The heading in ``--help`` of the options without a group, which come first."""

device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps", "xpu"]),
    default="auto",
    show_default=True,
    help="Device to compute on; auto uses an NVIDIA or AMD GPU if there is one. mps (Apple) and "
    "xpu (Intel) are untested.",
)
"""For commands without a config; elsewhere it is a field."""


class GroupedOption(click.Option):
    """An option and its heading in ``--help``."""

    def __init__(self, *args: Any, group: str = COMMON, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group


max_bad_option = click.option(
    "--max-bad",
    type=float,
    default=MAX_BAD,
    show_default=True,
    cls=GroupedOption,
    group="Running",
    help="Maximum share of bad inputs; beyond it the command fails.",
)
"""For the commands that read sources."""


class GroupedCommand(click.Command):
    """A command whose ``--help`` shows the common options first, then the others in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section per group, in the order in which the groups first occur."""
        sections: dict[str, list[tuple[str, str]]] = {COMMON: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or isinstance(parameter, click.Argument):
                continue
            heading = COMMON  # of click's own options too, such as --help
            if isinstance(parameter, GroupedOption):
                heading = parameter.group
            sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class CommaSeparated(click.ParamType):
    """Numbers such as ``80,10,10``, or names."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.name = "numbers"  # what --help shows
        if kind is str:
            self.name = "names"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Return the items as a tuple; a default, or a list in a TOML file, is not split."""
        items = value if isinstance(value, list | tuple) else str(value).split(",")
        try:
            return tuple(self.kind(item) for item in items)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a list of numbers such as 1,2,3.", param, ctx)


class ContentOfFile(click.ParamType):
    """The name of a text file, whose content is the value."""

    name = "file"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the content; the default is an empty one."""
        if not value:
            return ""
        try:
            return storage.read_bytes(value).decode()
        except (OSError, UserError, UnicodeDecodeError) as error:
            self.fail(f"{value} cannot be read as text: {error}", param, ctx)


def config_options(*configs: type) -> Callable[[Command], Command]:
    """Add an option per documented field of the dataclasses, and ``--config``, to a command."""

    def decorate(command: Command) -> Command:
        # Backwards, because a decorator puts its option before those that were added already.
        for config in reversed(configs):
            # As types; a field's own `type` is text in modules that postpone annotations.
            annotations = typing.get_type_hints(config)
            for field in reversed(dataclasses.fields(config)):
                # A field without help, such as `beam_options`, is not set by an option.
                if field.metadata:
                    command = _option(field, annotations[field.name])(command)

        def check(**values: object) -> None:
            for config in configs:
                make_config(config, values)

        return checked_by(check)(_config_option(command))

    return decorate


def checked_by(check: Callable[..., object]) -> Callable[[Command], Command]:
    """Let a recipe call `check` with the values of a command before its first stage runs."""

    def decorate(command: Command) -> Command:
        cast(Any, command).check = check
        return command

    return decorate


def _config_option(command: Command) -> Command:
    return click.option(
        "--config",
        type=click.Path(dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_read_defaults,
        help="TOML file with defaults for the options: at the top level, and in a table named "
        "after the command.",
    )(command)


def _option(field: dataclasses.Field[object], annotation: object) -> Callable[[Command], Command]:
    """Return the decorator that adds the option of a field."""
    flags = field.metadata["flags"] or f"--{field.name.replace('_', '-')}"
    # By the annotation: `tuple[str, ...]` is `--weight a=2 --weight b=3`, a tuple otherwise is
    # `--mask-split 80,10,10`, a bool is `--cased`, a Literal `--pairing [balanced|bert]`.
    settings: dict[str, Any]
    if annotation == tuple[str, ...]:
        # May be repeated. Names with commas between them are `tuple[str, ...] | None`.
        settings = {"multiple": True}
    elif field.metadata["is_content"]:
        settings = {"type": ContentOfFile()}
    elif _value_type(annotation) is bool:
        settings = {"is_flag": True}
    else:
        settings = {"type": _parameter_type(_value_type(annotation))}
    return click.option(
        *flags.split(),
        field.name,
        cls=GroupedOption,
        group=field.metadata["group"] or COMMON,
        default=_default_text(field.default),
        show_default=_has_visible_default(field.default, flags),
        help=field.metadata["help"],
        **settings,
    )


def _value_type(annotation: object) -> object:
    """Return the type of a field's value if it is given: ``int`` for ``int | None``."""
    # `int | None` is a UnionType, but `Literal[...] | None` a Union.
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation
    kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    return kinds[0]


def _parameter_type(value_type: object) -> Any:
    """Return click's type for the values of a field."""
    origin = typing.get_origin(value_type)
    arguments = typing.get_args(value_type)
    if origin is Literal:
        return click.Choice(arguments)
    if origin is tuple:
        return CommaSeparated(arguments[0])
    return value_type


def _default_text(default: object) -> object:
    """Return a default as one would type it, which is also how ``--help`` shows it."""
    if isinstance(default, tuple) and default:
        numbers = [f"{number:g}" for number in default]
        return ",".join(numbers)
    return default


def _has_visible_default(default: object, flags: str) -> bool:
    """Return whether ``--help`` shows the default: not for a value that is absent, nor for a plain
    switch that is off.
    """
    is_plain_switch_off = default is False and "/" not in flags
    is_absent = default is None or default == ()
    return not (is_absent or is_plain_switch_off)


def check_suffix(option: str, path: str, suffix: str, what: str) -> None:
    """Raise `UserError` if the file that an option names has another suffix than `suffix`."""
    if PurePath(path).suffix.lower() not in ("", suffix):
        raise UserError(f"`{option}` writes {what}: give a name that ends in {suffix}, not {path}.")


def make_config(config: type[Config], values: Mapping[str, object], **more: object) -> Config:
    """Return the dataclass, filled from those of the command's `values` that are its fields."""
    names = {field.name for field in dataclasses.fields(cast(Any, config))}
    fields = {name: value for name, value in values.items() if name in names}
    return config(**fields, **more)


def _read_defaults(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Make the values in a TOML file the defaults of the command that is being parsed.

    The command's own table overrides the top level::

        seed = 1          # for every command
        [build]
        seed = 2
    """
    if path is None:
        return
    command_name = str(ctx.command.name)
    top_level, tables = read_tables(path, ctx)
    defaults = top_level | tables.get(command_name, {})
    fields = [str(parameter.name) for parameter in ctx.command.params]
    check_names(defaults, fields, command_name, path)
    # click looks values up here after the command line and before the option's own default.
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def read_tables(
    path: str, ctx: click.Context
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """Return the values at the top level of a ``--config`` file, and its tables by command; the
    values by field name.
    """
    commands = [str(command.name) for command in commands_of(ctx)]
    top_level = {}
    tables = {}
    for name, value in read_toml(path, dict[str, object]).items():
        if not isinstance(value, dict):
            top_level[_field_name(name)] = value
        elif name in commands:
            tables[name] = {_field_name(key): entry for key, entry in value.items()}
        else:
            hint = did_you_mean(name, commands)
            raise UserError(f"--config {path}: there is no command {name!r}{hint}.")
    return top_level, tables


def _field_name(key: str) -> str:
    return key.replace("-", "_")


def check_names(
    values: Mapping[str, object], fields: Iterable[str], command: str, path: str
) -> None:
    """Raise `UserError` if a value from the file at `path` is not one of a command's fields."""
    options = sorted(field.replace("_", "-") for field in fields)
    for name in sorted(name.replace("_", "-") for name in values):
        if name not in options:
            hint = did_you_mean(name, options)
            raise UserError(f"--config {path}: {command} has no option {name!r}{hint}.")
