"""The live line of a training run; where standard error is no terminal, a plain line now and then."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .summary import duration

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_EVERY_S = 60.0
# What is shown, the most wanted first, as a narrow terminal cuts off the rest.
SHOWN = {
    "loss": "loss {:.3f}",
    "mlm_accuracy": "MLM {:.1%}",
    "nsp_accuracy": "NSP {:.1%}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "examples_per_second": "{:,.0f} examples/s",
    "mfu": "MFU {:.1%}",
    "learning_rate": "rate {:.1e}",
    "data_wait": "wait {:.1%}",
    "peak_memory_gb": "{:.1f} GB",
}
Report = Callable[[Mapping[str, Any]], None]


@contextmanager
def training_progress() -> Iterator[Report]:
    """Show the latest numbers of a run and the time left on standard error.

    On a terminal that is a bar, elsewhere (``nohup``, CI) a plain line every `PLAIN_EVERY_S`, so that short work says
    nothing. Yield a function that takes the numbers: ``step``, ``steps`` and those of `SHOWN`; a new ``stage`` (a text)
    begins a new bar.
    """
    # Imported here, for `clozeworks --help` imports this module.
    from rich.console import Console

    console = Console(stderr=True)
    if os.environ.get("RANK", "0") != "0":  # of the processes that torchrun started, one speaks
        yield lambda numbers: None
    elif console.is_terminal:
        with _bars(console) as report:
            yield report
    else:
        yield _plain_lines()


@contextmanager
def _bars(console: "Console") -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    # A column that may wrap would be the first to be squeezed; only the last gives way.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12, table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Progress(*columns, console=console, expand=True, refresh_per_second=4) as progress:
        bars: dict[str, Any] = {}

        def report(numbers: Mapping[str, Any]) -> None:
            stage = _stage(numbers)
            if stage not in bars:
                # A resumed run's first steps were not done just now, and must not count for the time left.
                bars[stage] = progress.add_task(stage, total=numbers["steps"], completed=numbers["step"], numbers="")
            text = "  ".join(_texts(numbers))
            progress.update(bars[stage], completed=numbers["step"], total=numbers["steps"], numbers=text)

        yield report


def _plain_lines() -> Report:
    begun: dict[str, tuple[int, float]] = {}
    said = time.monotonic()

    def report(numbers: Mapping[str, Any]) -> None:
        nonlocal said
        now, stage, step, steps = time.monotonic(), _stage(numbers), numbers["step"], numbers["steps"]
        first, first_time = begun.setdefault(stage, (step, now))
        if now - said < PLAIN_EVERY_S:
            return
        said = now
        left = [f"{duration((steps - step) * (now - first_time) / (step - first))} left"] if step > first else []
        click.echo(f"{stage}: " + ", ".join([f"{step:,} of {steps:,}", *left, *_texts(numbers)]), err=True)

    return report


def _stage(numbers: Mapping[str, Any]) -> str:
    return str(numbers.get("stage", "training"))


def _texts(numbers: Mapping[str, Any]) -> list[str]:
    return [form.format(numbers[name]) for name, form in SHOWN.items() if name in numbers]
