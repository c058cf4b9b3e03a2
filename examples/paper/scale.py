"""The settings of an experiment at three scales, and an option for each of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_type_hints

import click
from figures import TABLE_6


def setting(default: Any, help_text: str) -> Any:
    """Return a field with a default, which is the scale of an hour, and a help text."""
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The settings of an experiment; by default for about an hour on 2 CPU cores."""

    vocab_size: int = setting(8000, "Tokens of the vocabulary.")
    max_length: int = setting(128, "Longest row, in tokens.")
    model: str = setting("tiny", "The encoder's size: tiny, mini, small, base, …")
    objective: str = setting("mlm", "Pre-training tasks; the paper's are mlm+nsp.")
    steps: int = setting(4000, "Steps of pre-training.")
    batch_size: int = setting(32, "Rows per step of pre-training.")
    learning_rate: float = setting(1e-3, "Peak learning rate of pre-training.")
    dropout: float = setting(
        0.0, "Dropout in pre-training, which reads less than the whole text once."
    )
    compile: bool = setting(
        False, "Compile the pre-trained model; on a CPU it needs a C++ compiler."
    )
    precision: str = setting("auto", "Number format of training: auto, fp32 or bf16.")
    encoders: int = setting(1, "Encoders per row, each with its own seed.")
    seeds: int = setting(3, "Runs of fine-tuning per encoder and learning rate.")
    rates: tuple[float, ...] = setting((3e-4,), "Learning rates of fine-tuning, comma-separated.")
    epochs: float = setting(3.0, "Epochs of fine-tuning.")
    squad_epochs: float = setting(2.0, "Epochs of fine-tuning on SQuAD.")
    squad_stride: int = setting(64, "Tokens from one window of a passage to the next.")
    feature_rates: tuple[float, ...] = setting((1e-3,), "Learning rates of a BiLSTM on features.")
    feature_epochs: float = setting(5.0, "Epochs of a BiLSTM on features.")
    lstm_size: int = setting(
        128, "Units of a BiLSTM in each direction; the paper's 768 take long on a CPU."
    )
    sizes: tuple[str, ...] = setting(
        ("1-128-2", "2-128-2", "4-128-2", "4-256-4"),
        "Rows of Table 6: layers-hidden size-heads, comma-separated.",
    )
    points: int = setting(4, "Points on a curve of Figure 5.")


# Starting points for a few hours with all English Wikipedia; not yet measured.
_GPU = Scale(
    vocab_size=30_000,
    model="small",
    objective="mlm+nsp",
    steps=40_000,
    batch_size=256,
    learning_rate=5e-4,
    dropout=0.1,
    compile=True,
    rates=(5e-5,),
    seeds=5,
    squad_epochs=3.0,
    feature_epochs=10.0,
    lstm_size=768,
    sizes=("2-512-8", "4-512-8", "8-512-8", "12-512-8"),
    points=5,
)
SCALES = {
    "hour": Scale(),
    "gpu": _GPU,
    # The paper's own, without its second phase on rows of 512 tokens.
    "paper": replace(
        _GPU, model="base", steps=1_000_000, learning_rate=1e-4, sizes=tuple(TABLE_6.rows)
    ),
}


def make_scale(name: str, at_an_hour: dict[str, Any], given: dict[str, Any]) -> Scale:
    """Return the scale `name` with the settings that were `given` (others are None).

    `at_an_hour` are an experiment's own settings at the smallest scale.
    """
    scale = SCALES[name]
    if name == "hour":
        scale = replace(scale, **at_an_hour)
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(scale, **chosen)


def scale_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--scale`` and an option for each setting to a command."""
    types = get_type_hints(Scale)
    # Click lists the option that was added last first, as it does for a stack of decorators.
    for each in reversed(fields(Scale)):
        flag = f"--{each.name.replace('_', '-')}"
        help_text = each.metadata["help"]
        if types[each.name] is bool:
            option = click.option(f"{flag}/--no-{flag[2:]}", default=None, help=help_text)
        elif types[each.name] == tuple[float, ...]:
            option = click.option(flag, callback=_parse_rates, metavar="RATES", help=help_text)
        elif types[each.name] == tuple[str, ...]:
            option = click.option(flag, callback=_parse_names, metavar="NAMES", help=help_text)
        else:
            option = click.option(flag, type=types[each.name], help=help_text)
        command = option(command)
    return click.option(
        "--scale",
        type=click.Choice(list(SCALES)),
        default="hour",
        show_default=True,
        help="Where the settings below start from: about an hour on 2 CPU cores, "
        "a few hours on a GPU, or the paper's own scale.",
    )(command)


def _parse_rates(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[float, ...] | None:
    if value is None:
        return None
    try:
        return tuple(float(rate) for rate in value.split(","))
    except ValueError:
        raise click.BadParameter("give numbers such as 5e-5,3e-5") from None


def _parse_names(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    if value is None:
        return None
    return tuple(value.split(","))
