"""Generate click options from the configuration dataclasses: name, default and help stand once."""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, TypeVar, cast

import click

from ..model.config import DEVICE_HELP, Device
from ..pipeline import storage
from ..pipeline.errors import UserError

Command = TypeVar("Command", bound=Callable[..., Any])
Config = TypeVar("Config")

COMMON = "Options"
"""The heading in ``--help`` of the options without a group, which come first."""

device_option = click.option(
    "--device",
    type=click.Choice(typing.get_args(Device)),
    default="auto",
    show_default=True,
    help=DEVICE_HELP.format("compute on"),
)
"""For commands without a config; elsewhere it is a field."""
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Delete the output directory's contents and start over."
)


def path_option(name: str, metavar: str, text: str) -> Callable[[Command], Command]:
    """Return an option for a path, which is required, with this help."""
    return click.option(name, type=click.Path(), required=True, metavar=metavar, help=text)


class GroupedOption(click.Option):
    """An option and its heading in ``--help``."""

    def __init__(self, *args: Any, group: str = COMMON, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group


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


class _CommaSeparated(click.ParamType):
    """Numbers such as ``80,10,10``, or names, as a tuple; ``0.3/0.15`` as one of tuples."""

    def __init__(self, kind: type, *, has_phases: bool) -> None:
        self.kind = kind
        self.has_phases = has_phases
        self.name = "names" if kind is str else "numbers"  # what --help shows

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Return the items."""
        if isinstance(value, tuple):  # a default
            return value
        if self.has_phases and "/" in str(value):
            return tuple(self.convert(phase, param, ctx) for phase in str(value).split("/"))
        try:
            return tuple(self.kind(item) for item in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 1,2,3.", param, ctx)


class ContentOfFile(click.ParamType):
    """The name of a text file, whose content is the value."""

    name = "file"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the content."""
        if not value:
            return ""
        try:
            return storage.read_bytes(value).decode()
        except (OSError, UserError, UnicodeDecodeError) as error:
            self.fail(f"{value} cannot be read as text: {error}", param, ctx)


def config_options(*configs: type, without: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Add an option per documented field of the dataclasses, but not for those in `without`."""
    options = {}
    for config in configs:
        # As types; a field's own `type` is text in modules that postpone annotations.
        annotations = typing.get_type_hints(config)
        for field in dataclasses.fields(config):
            # A field without help, such as `beam_options`, is not set by an option.
            if field.metadata and field.name not in without:
                options.setdefault(field.name, _option(field, annotations[field.name]))

    def check(**values: object) -> None:
        for config in configs:
            make_config(config, values)

    def decorate(command: Command) -> Command:
        # Backwards, because a decorator puts its option before those that were added already.
        for add_option in reversed(options.values()):
            command = add_option(command)
        return checked_by(check)(command)

    return decorate


def checked_by(check: Callable[..., object]) -> Callable[[Command], Command]:
    """Let a recipe call `check` with the values of a command before its first stage runs."""

    def decorate(command: Command) -> Command:
        cast(Any, command).check = check
        return command

    return decorate


def _option(field: dataclasses.Field[object], annotation: object) -> Callable[[Command], Command]:
    flags = field.metadata["flags"] or f"--{field.name.replace('_', '-')}"
    kind = annotation
    # `int | None` is a UnionType, but `Literal[...] | None` a Union.
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        kind = next(kind for kind in typing.get_args(annotation) if kind is not type(None))
    # By the annotation: `tuple[str, ...]` is `--weight a=2 --weight b=3`, a tuple otherwise is
    # `--mask-split 80,10,10`, a bool is `--cased`, a Literal `--pairing [balanced|bert]`.
    settings: dict[str, Any] = {"type": kind}
    if annotation == tuple[str, ...]:
        # May be repeated. Names with commas between them are `tuple[str, ...] | None`.
        settings = {"multiple": True}
    elif field.metadata["is_content"]:
        settings = {"type": ContentOfFile()}
    elif kind is bool:
        settings = {"is_flag": True}
    elif typing.get_origin(kind) is Literal:
        settings = {"type": click.Choice(typing.get_args(kind))}
    elif typing.get_origin(kind) is tuple:
        item_kind = typing.get_args(kind)[0]
        has_phases = not isinstance(item_kind, type)  # float | tuple[float, ...]
        if has_phases:
            item_kind = float
        settings = {"type": _CommaSeparated(item_kind, has_phases=has_phases)}
    default = field.default
    if isinstance(default, tuple) and default:
        # As one would type it, which is also how --help shows it.
        default = ",".join(f"{number:g}" for number in default)
    # Not of a value that is absent, nor of a plain switch that is off.
    is_shown = default not in (None, (), "") and not (default is False and "/" not in flags)
    return click.option(
        *flags.split(),
        field.name,
        cls=GroupedOption,
        group=field.metadata["group"] or COMMON,
        default=default,
        show_default=is_shown,
        help=field.metadata["help"],
        **settings,
    )


def check_suffix(option: str, path: str, suffix: str, what: str) -> None:
    """Raise `UserError` if the file that an option names has another suffix than `suffix`."""
    if PurePath(path).suffix.lower() not in ("", suffix):
        raise UserError(f"`{option}` writes {what}: give a name that ends in {suffix}, not {path}.")


def make_config(config: type[Config], values: Mapping[str, object], **more: object) -> Config:
    """Return the dataclass, filled from those of the command's `values` that are its fields."""
    names = {field.name for field in dataclasses.fields(cast(Any, config))}
    fields = {name: value for name, value in values.items() if name in names}
    return config(**fields, **more)
