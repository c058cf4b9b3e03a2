"""The live line of a training run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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
def live_line() -> Iterator[Report]:
    """Show a bar with the latest numbers of a run and the time left; nothing where standard error is no terminal.

    Yield a function that takes the numbers: ``step``, ``steps`` and those of `SHOWN`; a new ``stage`` (a text) begins
    a new bar.
    """
    # Imported here, for `clozeworks --help` imports this module.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    # A column that may wrap would be the first to be squeezed; only the last gives way.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12, table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Progress(
        *columns, console=console, expand=True, refresh_per_second=4, disable=not console.is_terminal
    ) as progress:
        bars: dict[str, Any] = {}

        def report(numbers: Mapping[str, Any]) -> None:
            stage = str(numbers.get("stage", "training"))
            if stage not in bars:
                # A resumed run's first steps were not done just now, and must not count for the time left.
                bars[stage] = progress.add_task(stage, total=numbers["steps"], completed=numbers["step"], numbers="")
            progress.update(bars[stage], completed=numbers["step"], total=numbers["steps"], numbers=_text(numbers))

        yield report


def _text(numbers: Mapping[str, Any]) -> str:
    return "  ".join(form.format(numbers[name]) for name, form in SHOWN.items() if name in numbers)
