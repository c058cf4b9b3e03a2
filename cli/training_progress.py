"""The live line of a training run; without a terminal, a plain line once a minute."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..pipeline.execution.storage import is_remote
from .summary import duration

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_EVERY_S = 60.0
# Most important first: a narrow terminal cuts off the rest.
SHOWN = {
    "loss": "loss {:.3f}",
    "mlm_loss": "MLM loss {:.3f}",
    "nsp_loss": "NSP loss {:.3f}",
    "mlm_accuracy": "MLM accuracy {:.1%}",
    "nsp_accuracy": "NSP accuracy {:.1%}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "examples_per_second": "{:,.0f} examples/s",
    "mfu": "MFU {:.1%}",
    "learning_rate": "rate {:.1e}",
    "data_wait": "wait {:.1%}",
    "peak_memory_gb": "{:.1f} GB",
}
Report = Callable[[Mapping[str, Any]], None]


def report_upload(output: str) -> None:
    """Say where a run with a remote output works."""
    if is_remote(output) and os.environ.get("RANK", "0") == "0":
        click.echo(f"Working in a local folder; every checkpoint is uploaded to {output}.", err=True)


@contextmanager
def training_progress() -> Iterator[Report]:
    """Show the latest numbers of a run and the time left on standard error.

    On a terminal this is a bar, elsewhere (``nohup``, CI) a plain line every `PLAIN_EVERY_S`, so short runs print
    nothing. Yield a function that takes the numbers: ``step``, ``steps`` and those in `SHOWN`; a new ``stage`` (a
    string) starts a new bar.
    """
    # Imported late: `clozeworks --help` imports this module.
    from rich.console import Console

    console = Console(stderr=True)
    if os.environ.get("RANK", "0") != "0":  # under torchrun only one process prints
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

    # rich shrinks columns that may wrap first, so only the last one may.
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
                # Steps from before a resume must not count towards the time left.
                bars[stage] = progress.add_task(stage, total=numbers["steps"], completed=numbers["step"], numbers="")
            text = "  ".join(_texts(numbers))
            progress.update(bars[stage], completed=numbers["step"], total=numbers["steps"], numbers=text)

        yield report


def _plain_lines() -> Report:
    starts: dict[str, tuple[int, float]] = {}
    last_line_s = time.monotonic()

    def report(numbers: Mapping[str, Any]) -> None:
        nonlocal last_line_s
        now, stage, step, steps = time.monotonic(), _stage(numbers), numbers["step"], numbers["steps"]
        first, first_time = starts.setdefault(stage, (step, now))
        if now - last_line_s < PLAIN_EVERY_S:
            return
        last_line_s = now
        left = [f"{duration((steps - step) * (now - first_time) / (step - first))} left"] if step > first else []
        click.echo(f"{stage}: " + ", ".join([f"{step:,} of {steps:,}", *left, *_texts(numbers)]), err=True)

    return report


def _stage(numbers: Mapping[str, Any]) -> str:
    return str(numbers.get("stage", "training"))


def _texts(numbers: Mapping[str, Any]) -> list[str]:
    return [form.format(numbers[name]) for name, form in SHOWN.items() if name in numbers]
